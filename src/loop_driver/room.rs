//! How much more the driver can make: GetCapacity, and the check before it makes or enlarges something.

use super::capacity;
use super::driver::Call;
use super::error::Error;
use super::record;
use super::snapshot_record;
use crate::csi::proto::csi::v1 as wire;

/// GetCapacity.
pub(super) fn get_capacity(
    call: &Call<'_>,
    request: &wire::GetCapacityRequest,
) -> Result<wire::GetCapacityResponse, Error> {
    let is_here = request.accessible_topology.as_ref().is_none_or(|wanted| call.driver.is_within(wanted));
    let available_capacity = if is_here { available_bytes(call)? } else { 0 };
    Ok(wire::GetCapacityResponse {
        available_capacity,
        maximum_volume_size: Some(capacity::MOST_BYTES.min(available_capacity)),
        minimum_volume_size: Some(capacity::LEAST_BYTES),
    })
}

/// Checks that there is room for so many bytes more.
pub(super) fn check(call: &Call<'_>, bytes: i64) -> Result<(), Error> {
    let available = available_bytes(call)?;
    if bytes > available {
        return Err(Error::Exhausted(format!("there is no room for {bytes} bytes: {available} are left")));
    }
    Ok(())
}

/// How many bytes could be written right now, or are left of what the driver is to offer. Volumes are sparse, so this is no
/// promise to any of them.
fn available_bytes(call: &Call<'_>) -> Result<i64, Error> {
    let root = call.state().root();
    let found = rustix::fs::statvfs(root).map_err(Error::io("measure", root))?;
    let free = i64::try_from(found.f_bavail.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
    match call.driver.args.capacity_bytes {
        0 => Ok(free),
        limit => Ok(free.min(limit.saturating_sub(promised_bytes(call)?)).max(0)),
    }
}

/// The sizes of all volumes and snapshots together.
fn promised_bytes(call: &Call<'_>) -> Result<i64, Error> {
    let mut sum = 0_i64;
    for one in call.state().volumes()? {
        sum = sum.saturating_add(record::load(&one)?.map_or(0, |record| record.capacity_bytes));
    }
    for one in call.state().snapshots()? {
        sum = sum.saturating_add(snapshot_record::load(&one)?.map_or(0, |record| record.size_bytes));
    }
    Ok(sum)
}
