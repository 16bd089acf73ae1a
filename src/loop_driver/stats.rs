//! NodeGetVolumeStats: how full a volume is, and how it is.

use super::condition;
use super::driver::{Call, check_volume_id};
use super::error::Error;
use super::holding;
use super::mounts;
use super::record;
use super::usage::Access;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_usage::Unit;

/// NodeGetVolumeStats.
pub(super) fn stats(
    call: &Call<'_>,
    request: &wire::NodeGetVolumeStatsRequest,
) -> Result<wire::NodeGetVolumeStatsResponse, Error> {
    check_volume_id(&request.volume_id)?;
    if request.volume_path.is_empty() {
        return Err(Error::Missing("volume_path"));
    }
    let volume = call.lock(&request.volume_id)?;
    let record = record::find(&volume)?;
    let (held, path) = holding::at(call, &volume, &request.volume_path)?;
    let volume_condition = Some(condition::of_held(call, &volume, &record, &held)?);
    if held.terms.access == Access::Block {
        let usage = wire::VolumeUsage {
            total: record.capacity_bytes,
            unit: Unit::Bytes.into(),
            ..Default::default()
        };
        return Ok(wire::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition });
    }
    if mounts::at(&path)?.is_none() {
        return Err(Error::NotThere { volume: request.volume_id.clone(), path });
    }
    let found = rustix::fs::statvfs(&path).map_err(Error::io("measure", &path))?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let usage = vec![
        usage(Unit::Bytes, bytes(found.f_blocks), bytes(found.f_bfree), bytes(found.f_bavail)),
        usage(Unit::Inodes, found.f_files, found.f_ffree, found.f_favail),
    ];
    Ok(wire::NodeGetVolumeStatsResponse { usage, volume_condition })
}

/// What is free is not always available: some of it is kept for root.
fn usage(unit: Unit, total: u64, free: u64, available: u64) -> wire::VolumeUsage {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    wire::VolumeUsage {
        total: number(total),
        used: number(total.saturating_sub(free)),
        available: number(available),
        unit: unit.into(),
    }
}
