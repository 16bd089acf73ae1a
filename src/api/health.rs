//! How volumes are: what agents find out about those that are in use, and what drivers say of theirs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest message of a finding, in bytes. In a Volume's status there may be many.
pub const MAX_WORDS: usize = 256;

/// What is wrong with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HealthKind {
    /// The driver says that the volume is not as it should be (CSI volume_condition), or that it does not know it any more.
    Abnormal,
    /// What was mounted for a claim is not mounted there any more.
    NotMounted,
    /// The mount is there and nothing is behind it any more, as of a file system whose server has died, or of a device that is gone.
    Stale,
    /// The file system does not answer, or the driver does not say how the volume is.
    NoAnswer,
    /// The file system takes no writes, though claims may write: as a rule the kernel has met errors in it or below it.
    ReadOnly,
    /// The file system has no room left, or next to none.
    Full,
    /// The file system has no inodes left, or next to none: no more files can be made in it.
    OutOfInodes,
}

/// One thing that is wrong with a volume, as one place sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthFinding {
    /// What is wrong.
    pub kind: HealthKind,
    /// For people: the driver's words, or the kernel's. Those of the first time, or of some minutes later.
    #[schemars(length(max = 256))]
    pub message: String,
    /// Since when it is reported.
    pub since: Time,
}

/// One thing that is wrong with a Volume, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeFinding {
    /// The node on which the volume is used and that has seen it. Absent: the driver's Controller service says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// What is wrong, and since when.
    #[serde(flatten)]
    pub finding: HealthFinding,
}
