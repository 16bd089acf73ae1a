//! NodeGetVolumeStats.

use std::fs;
use std::path::Path;

use super::driver::{Call, require_volume_id};
use super::error::Error;
use super::holding;
use super::mounts;
use super::state::VolumeId;
use super::usage::Access;
use super::volume;
use crate::csi::proto::csi::v1::volume_usage::Unit;
use crate::csi::proto::csi::v1::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage};

/// NodeGetVolumeStats, for a path at which the volume is staged or published. Takes no lock: it changes nothing, and must
/// not wait for a call that does.
pub(super) fn get(
    call: &Call<'_>,
    request: &NodeGetVolumeStatsRequest,
) -> Result<NodeGetVolumeStatsResponse, Error> {
    if request.volume_path.is_empty() {
        return Err(Error::Missing("volume_path"));
    }
    let id = require_volume_id(&request.volume_id)?;
    let record = volume::find(call, &id)?;
    // A path at which no volume can be is one at which this volume is not: NOT_FOUND, as csi-sanity has it.
    let path = mounts::resolve("volume_path", &request.volume_path)
        .unwrap_or_else(|_| request.volume_path.clone().into());
    let nothing = || Error::NoPath { volume: id.as_str().to_owned(), path: path.clone() };
    let held = holding::load(call, &id)?.ok_or_else(nothing)?;
    let is_staging = held.staging_path == path;
    if !is_staging && !held.targets.contains_key(&path) {
        return Err(nothing());
    }
    let usage = match held.terms.access {
        // A raw device's staging path has nothing mounted on it.
        Access::Block if is_staging || mounts::at(&path)?.is_some() => {
            vec![block(call, &id, record.capacity_bytes)?]
        }
        Access::Mount(_) if mounts::at(&path)?.is_some() => mounted(&path)?,
        _ => return Err(nothing()),
    };
    Ok(NodeGetVolumeStatsResponse { usage, ..NodeGetVolumeStatsResponse::default() })
}

/// What a raw device holds is known to its user alone; what its sparse file takes is a bound.
fn block(call: &Call<'_>, id: &VolumeId, total: i64) -> Result<VolumeUsage, Error> {
    use std::os::unix::fs::MetadataExt as _;
    let data = call.state().data(id);
    let blocks = fs::metadata(&data).map_err(Error::io("look at", &data))?.blocks();
    let used = signed(blocks.saturating_mul(512)).min(total);
    Ok(VolumeUsage { unit: Unit::Bytes.into(), total, used, available: total - used })
}

fn mounted(path: &Path) -> Result<Vec<VolumeUsage>, Error> {
    let found = rustix::fs::statvfs(path).map_err(|errno| Error::io("measure", path)(errno.into()))?;
    let bytes = |blocks: u64| signed(blocks.saturating_mul(found.f_frsize));
    Ok(vec![
        VolumeUsage {
            unit: Unit::Bytes.into(),
            total: bytes(found.f_blocks),
            used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
            available: bytes(found.f_bavail),
        },
        VolumeUsage {
            unit: Unit::Inodes.into(),
            total: signed(found.f_files),
            used: signed(found.f_files.saturating_sub(found.f_ffree)),
            available: signed(found.f_favail),
        },
    ])
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
