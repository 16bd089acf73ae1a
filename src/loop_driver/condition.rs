//! How a volume is (volume_condition): whether its data is there as it was made.

use std::io::ErrorKind;

use super::device::LoopDevices;
use super::driver::Call;
use super::error::Error;
use super::holding::Holding;
use super::record::VolumeRecord;
use super::state::{LockedVolume, VolumeDir};
use crate::csi::proto::csi::v1 as wire;

/// How the volume's data file is.
pub(super) fn of_data(volume: &VolumeDir, record: &VolumeRecord) -> Result<wire::VolumeCondition, Error> {
    let data = volume.data();
    match std::fs::metadata(&data) {
        Ok(found) if found.len() < record.capacity_bytes.unsigned_abs() => {
            let (bytes, size) = (found.len(), record.capacity_bytes);
            Ok(abnormal(format!("its data file has {bytes} bytes, fewer than the {size} of the volume")))
        }
        Ok(_) => Ok(wire::VolumeCondition { abnormal: false, message: "its data file is there".to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(abnormal("its data file is gone".to_owned())),
        Err(error) => Err(Error::io("look at", &data)(error)),
    }
}

/// How the volume is on this node, where it is held.
pub(super) fn of_held(
    call: &Call<'_>,
    volume: &LockedVolume,
    record: &VolumeRecord,
    held: &Holding,
) -> Result<wire::VolumeCondition, Error> {
    let condition = of_data(volume, record)?;
    if !condition.abnormal && held.own(call, volume, &LoopDevices::open(volume)?)?.is_empty() {
        return Ok(abnormal("its loop device is gone from the node".to_owned()));
    }
    Ok(condition)
}

fn abnormal(message: String) -> wire::VolumeCondition {
    wire::VolumeCondition { abnormal: true, message }
}
