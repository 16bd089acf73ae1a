//! What the leader does next for one Volume.

use super::scene::Scene;
use super::step::LeaderStep;
use super::{closing, expansion, grants, lost, pods, volume};
use crate::api::ClaimUid;
use crate::claim::Verdict;
use crate::volume::VolumeWaiting;

/// What is done next, and what is said once nothing is.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The step.
    pub step: LeaderStep,
    /// What the Volume waits for.
    pub volume_waits: Option<VolumeWaiting>,
}

/// Plans the next step. Leaving comes before arriving, the Volume before its claims. `verdicts` are those of the scene:
/// what is read live does not change them.
#[must_use]
pub fn plan(scene: &Scene<'_>, verdicts: &[(ClaimUid, Verdict)]) -> Plan {
    let volume = volume::plan(scene, verdicts);
    let step = lost::plan(scene)
        .or_else(|| closing::attachments(scene, verdicts))
        .or_else(|| closing::claims(scene))
        .or_else(|| pods::plan(scene))
        .or_else(|| volume::mend(scene))
        .or_else(|| volume.step())
        .or_else(|| expansion::plan(scene))
        .or_else(|| closing::misplaced(scene))
        .or_else(|| grants::plan(scene, verdicts))
        .unwrap_or(LeaderStep::Rest);
    Plan { step, volume_waits: volume.waits() }
}
