//! A volume's record: that it exists, and what it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::driver::{Call, Context};
use super::error::Error;
use super::ids::SnapshotId;
use super::state::{LockedVolume, VolumeDir, read_json};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

/// The key in the volume context that tells a volume from another one of the same id: ids come from names, so a volume
/// that was deleted and made again has the id that it had before.
const INCARNATION: &str = "incarnation";

/// The content of `volume.json`: a volume that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeRecord {
    pub(super) name: String,
    pub(super) capacity_bytes: i64,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) incarnation: String,
    /// What may be changed of a volume, and does nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    /// The id of the volume or the snapshot whose content it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
}

impl VolumeRecord {
    /// The source as answers name it.
    pub(super) fn content_source(&self) -> Option<wire::VolumeContentSource> {
        let id = self.source.clone()?;
        let source = if SnapshotId::parse(&id).is_some() {
            Type::Snapshot(SnapshotSource { snapshot_id: id })
        } else {
            Type::Volume(VolumeSource { volume_id: id })
        };
        Some(wire::VolumeContentSource { r#type: Some(source) })
    }

    /// The volume's context.
    pub(super) fn context(&self) -> Context {
        Context::from([(INCARNATION.to_owned(), self.incarnation.clone())])
    }

    /// Checks that the context is this volume's; otherwise the caller has another volume in mind. An empty context is what
    /// a volume has that was registered by its id alone.
    pub(super) fn check_context(&self, context: &Context) -> Result<(), Error> {
        if context.is_empty() || context == &self.context() {
            return Ok(());
        }
        Err(Error::invalid("volume_context", "is not the one that CreateVolume returned for this volume"))
    }
}

/// The volume's record, or `None` when the volume does not exist (any more, or yet).
pub(super) fn load(volume: &VolumeDir) -> Result<Option<VolumeRecord>, Error> {
    read_json(&volume.record())
}

/// Takes the lock of a volume, and checks that it exists and is the one that the caller has in mind.
pub(super) fn open(call: &Call<'_>, volume_id: &str, context: &Context) -> Result<LockedVolume, Error> {
    let volume = call.lock(volume_id)?;
    find(&volume)?.check_context(context)?;
    Ok(volume)
}

/// The volume's record, or NOT_FOUND.
pub(super) fn find(volume: &VolumeDir) -> Result<VolumeRecord, Error> {
    load(volume)?.ok_or_else(|| Error::NoVolume(volume.id.as_str().to_owned()))
}
