//! What the leader has given a Volume: who makes its own calls, which, and with what.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Volume;
use super::caller::ControllerRef;
use super::edit::{Edit, GrantedUse};
use super::quantity::{self, QuantityError};
use super::secrets::SecretRefs;
use super::source::AssignedSource;
use super::sparse::Sparse;
use super::topology::Segments;
use super::volume::{VolumeSpec, VolumeState};

/// Who makes a Volume's own calls, and which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAssignment {
    /// What is to be done.
    pub operation: VolumeOperation,
    /// By whom. Absent where the driver has no Controller service, and then nothing is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerRef>,
    /// CreateVolume was another instance's to call before, or this one's in an earlier tenure, and may have been called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created_before: bool,
    /// Where the first claim is, of a volume that is made there (spec.binding).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Segments>,
    /// What spec.source is to its driver. It stays as it is: CreateVolume is repeated with identical arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<AssignedSource>>,
    /// How claims get the volume: spec.capabilities and spec.mountOptions.mountFlags as the Plugin allows and the driver
    /// confirms them. It follows an edit of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<GrantedUse>,
    /// How it was granted before its first edit: a call that is repeated says the same. Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<GrantedUse>>,
    /// The last edit of those. Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Box<Edit>>,
    /// The size and the mutable parameters that CreateVolume is called with. Both may be changed once the Volume is Ready, and a
    /// call that is repeated says the same. Absent: as spec says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_with: Option<Box<CreatedWith>>,
    /// The Secrets that the Plugin named when the Volume was taken up, each as namespace/name. They stay as they are.
    #[serde(default, skip_serializing_if = "SecretRefs::is_empty")]
    pub secrets: Sparse<SecretRefs>,
}

impl Volume {
    /// Another call, or another who makes it. Everything else stays with the volume: a call that is repeated says the same.
    #[must_use]
    pub fn assignment(
        &self,
        operation: VolumeOperation,
        controller: Option<ControllerRef>,
    ) -> VolumeAssignment {
        let before = self.spec.assignment.clone().unwrap_or_default();
        let moves = before.controller.is_some() && before.controller != controller;
        let created_before = if moves { self.may_exist() } else { before.created_before };
        VolumeAssignment { operation, controller, created_before, ..before }
    }

    /// What the status says of whether CreateVolume may have been called; nothing if it does not speak of it.
    #[must_use]
    pub fn noted_to_exist(&self) -> Option<bool> {
        self.status.as_ref()?.may_exist
    }

    /// Whether CreateVolume may have been called, and nothing has said since that nothing was made. Its agent notes it before a
    /// call where somebody relies on it, and else only what came of the call (docs/adr/0059): one that is made of something is
    /// not begun before that is noted.
    #[must_use]
    pub fn may_exist(&self) -> bool {
        self.noted_to_exist().unwrap_or_else(|| {
            let creates = |assignment: &&VolumeAssignment| assignment.operation == VolumeOperation::Create;
            let assigned = self.spec.assignment.as_ref().filter(creates);
            let is_open = self.state() == VolumeState::Pending && self.rejected().is_none();
            is_open && assigned.is_some_and(|assignment| assignment.source.is_none())
        })
    }
}

/// What CreateVolume is called with of that which may be changed later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedWith {
    /// At least this size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<i64>,
    /// The driver's parameters that may be changed later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub mutable_parameters: BTreeMap<String, String>,
}

impl CreatedWith {
    /// What the spec asks for now.
    ///
    /// # Errors
    /// Its size cannot be read.
    pub fn asked(spec: &VolumeSpec) -> Result<Self, QuantityError> {
        let capacity_bytes = spec.capacity.as_ref().map(quantity::bytes).transpose()?;
        Ok(Self { capacity_bytes, mutable_parameters: spec.mutable_parameters.clone() })
    }

    /// What CreateVolume of a Volume is called with, also when it is repeated.
    ///
    /// # Errors
    /// As [`Self::asked`].
    pub fn of(volume: &Volume) -> Result<Self, QuantityError> {
        let kept = volume.spec.assignment.as_ref().and_then(|assignment| assignment.created_with.as_deref());
        kept.cloned().map_or_else(|| Self::asked(&volume.spec), Ok)
    }
}

/// A call that a Volume itself needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum VolumeOperation {
    /// CreateVolume.
    #[default]
    Create,
    /// ValidateVolumeCapabilities.
    Validate,
    /// Nothing is called: Kubernetes has taken the volume by a PersistentVolume, and no answer could take it away again.
    Adopt,
    /// ControllerExpandVolume, until the volume has the size that is asked for.
    Expand,
    /// ControllerModifyVolume, until the driver has taken the mutable parameters that are asked for.
    Modify,
    /// ValidateVolumeCapabilities, until the driver confirms how the volume is to be used since that was edited.
    Revalidate,
    /// DeleteVolume.
    Delete,
}
