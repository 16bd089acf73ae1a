//! ControllerModifyVolume: the one parameter of a volume that may be changed, a label, which does nothing but stand in the
//! volume's record.

use std::collections::BTreeMap;

use super::driver::{Call, check_volume_id};
use super::error::Error;
use super::record;
use super::state::write_json;
use crate::csi::proto::csi::v1 as wire;

/// The key of the label among the mutable parameters.
const LABEL: &str = "label";
/// Most characters of a label.
const LONGEST: usize = 64;

/// ControllerModifyVolume.
pub(super) fn modify(
    call: &Call<'_>,
    request: &wire::ControllerModifyVolumeRequest,
) -> Result<wire::ControllerModifyVolumeResponse, Error> {
    check_volume_id(&request.volume_id)?;
    let label = label(&request.mutable_parameters)?;
    let volume = call.lock(&request.volume_id)?;
    let mut record = record::find(&volume)?;
    // What is not named stays as it is.
    if label.is_some() && label != record.label {
        record.label = label;
        write_json(&volume.record(), &record)?;
        call.step("labelled")?;
    }
    Ok(wire::ControllerModifyVolumeResponse {})
}

/// The label that mutable parameters ask for, if they do.
pub(super) fn label(parameters: &BTreeMap<String, String>) -> Result<Option<String>, Error> {
    const FIELD: &str = "mutable_parameters";
    if let Some(unknown) = parameters.keys().find(|key| *key != LABEL) {
        return Err(Error::invalid(FIELD, format!("{unknown:?} is unknown: this driver has {LABEL:?} only")));
    }
    let Some(label) = parameters.get(LABEL) else { return Ok(None) };
    if label.chars().count() > LONGEST || label.chars().any(char::is_control) {
        let reason = format!("{LABEL:?} has at most {LONGEST} characters, and no control characters");
        return Err(Error::invalid(FIELD, reason));
    }
    Ok(Some(label.clone()))
}
