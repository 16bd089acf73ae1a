//! Where a volume must or should be, and when that is known.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attachment::ControllerRef;
use super::volume::{Volume, VolumeAssignment, VolumeOperation};

/// Most places that a Volume asks for, of each kind.
pub const MAX_PLACES: usize = 64;

/// When a volume is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Binding {
    /// At once.
    #[default]
    Immediate,
    /// When a claim names it that has a node, and where that node is.
    WaitForFirstClaim,
}

impl Binding {
    /// Whether the volume is made at once.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        *self == Self::Immediate
    }
}

/// Where a volume must or should be reachable from (CSI TopologyRequirement).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyRequest {
    /// It must be reachable from at least one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub required: Vec<Segments>,
    /// It should be reachable from these, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preferred: Vec<Segments>,
}

/// One place, in the driver's own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Segments {
    /// Topology keys and their values.
    #[schemars(schema_with = "super::schema::segments")]
    pub segments: BTreeMap<String, String>,
}

impl Volume {
    /// Where its first claim is, if it is made there.
    #[must_use]
    pub fn place(&self) -> Option<&Segments> {
        self.spec.assignment.as_ref()?.place.as_ref()
    }

    /// Another call, or another who makes it. Its place, its source and its Secrets stay with the volume: a call that is repeated says the
    /// same.
    #[must_use]
    pub fn assignment(
        &self,
        operation: VolumeOperation,
        controller: Option<ControllerRef>,
    ) -> VolumeAssignment {
        let before = self.spec.assignment.clone().unwrap_or_default();
        VolumeAssignment { operation, controller, ..before }
    }
}
