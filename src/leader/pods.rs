//! The leader's steps about claims that nodes' agents make for Pods: whether the Pod is there and may have the volume, and
//! the Volume that is made of its PersistentVolume.

use super::look::Look;
use super::scene::Scene;
use super::step::LeaderStep;
use crate::api::names;
use crate::claim::{ClaimSeen, Entitled};

/// Most Pods that are looked at for one Volume before anything else of it is done. The others' turn comes with its next
/// pass.
const AT_A_TIME: usize = 16;

/// The first thing that is due about the Pod of a waiting claim.
pub(super) fn plan(scene: &Scene<'_>) -> Option<LeaderStep> {
    let waiting = || scene.claims.iter().filter(|claim| waits(claim));
    let told = |claim| told(scene, claim);
    waiting().find_map(told).or_else(|| waiting().find_map(|claim| import(scene, claim))).or_else(|| {
        let unknown = waiting().find(|claim| scene.entitled(claim).is_none())?;
        let more = scene.looked.pods.len() < AT_A_TIME;
        more.then(|| LeaderStep::Look(Look::Pod { claim: unknown.uid.clone() }))
    })
}

/// Whether the claim is a Pod's and waits for a grant: for its first one, or since its node gave that back, which has nothing
/// of the claim then.
fn waits(claim: &ClaimSeen) -> bool {
    claim.of_pod && claim.wants_grant()
}

/// Ends what nobody waits for, and says what nobody may have.
fn told(scene: &Scene<'_>, claim: &ClaimSeen) -> Option<LeaderStep> {
    let uid = claim.uid.clone();
    match scene.entitled(claim)? {
        Entitled::PodGone => Some(LeaderStep::DeleteClaim { claim: uid }),
        Entitled::No(_) if claim.not_entitled.is_some() => None,
        Entitled::No(why) => Some(LeaderStep::RefuseClaim { claim: uid, why: why.clone() }),
        Entitled::Yes => None,
    }
}

/// Makes the Volume of a PersistentVolume when a Pod that may have it asks for it first.
fn import(scene: &Scene<'_>, claim: &ClaimSeen) -> Option<LeaderStep> {
    let is_missing = scene.volume.is_none() && names::handle_of_import(scene.name).is_some();
    let may = claim.not_entitled.is_none() && scene.entitled(claim) == Some(&Entitled::Yes);
    (is_missing && may).then(|| LeaderStep::ImportVolume { claim: claim.uid.clone() })
}

/// Whether a claim may be granted as far as its Pod is concerned; Err asks for the look that says so.
pub(super) fn may_have(scene: &Scene<'_>, claim: &ClaimSeen) -> Result<bool, Look> {
    if !claim.of_pod {
        return Ok(true);
    }
    let said = scene.entitled(claim).ok_or_else(|| Look::Pod { claim: claim.uid.clone() })?;
    Ok(*said == Entitled::Yes)
}
