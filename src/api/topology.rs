//! Where a volume must or should be, and when that is known.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
