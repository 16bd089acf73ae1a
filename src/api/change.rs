//! How a volume was last made larger or otherwise, as its status says it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::CallFailure;

/// The end of a growth, as far as the storage is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expansion {
    /// The size in bytes that was asked for.
    pub capacity_bytes: i64,
    /// NodeExpandVolume has to follow where the volume is used next. Where a Pod uses it by a PersistentVolumeClaim that is
    /// kubelet's to call; for VolumeClaims moor does, and takes this away when it is done.
    #[serde(default)]
    pub node_expansion_required: bool,
}

/// A size that a volume could not be given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpansionFailure {
    /// The size in bytes that was asked for.
    pub capacity_bytes: i64,
    /// What went wrong.
    pub error: CallFailure,
    /// An earlier call, for this size or a smaller one, may be running, or have had its effect. What kept a later one from being made says nothing
    /// about that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
}

/// The mutable parameters with which ControllerModifyVolume is or was called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Modification {
    /// They, as the driver gets them.
    #[schemars(schema_with = "super::schema::string_map")]
    pub parameters: BTreeMap<String, String>,
    /// The call may be running, or have had its effect. It is repeated as it is until that is known, also when
    /// spec.mutableParameters says something else by now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
    /// What went wrong with it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallFailure>,
}
