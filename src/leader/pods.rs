//! The leader's steps about claims that nodes' agents make for Pods: whether the Pod is there and may have the volume, the
//! Volume that is made of its PersistentVolume, and the end of a claim that nobody else would delete.

use std::cmp::Reverse;

use super::look::Look;
use super::scene::Scene;
use super::step::LeaderStep;
use crate::api::names;
use crate::claim::{ClaimSeen, Entitled};

/// Most Pods that are looked at for one Volume before anything else of it is done. The others' turn comes with its next
/// pass.
const AT_A_TIME: usize = 16;

/// The first thing that is due about the Pod of a claim.
pub(super) fn plan(scene: &Scene<'_>) -> Option<LeaderStep> {
    let concerned = || scene.claims.iter().filter(|claim| claim.needs_pod());
    let ended = || scene.claims.iter().find_map(end).or_else(|| concerned().find_map(|c| left(scene, c)));
    let told = || concerned().find_map(|claim| told(scene, claim));
    let import = || concerned().find_map(|claim| import(scene, claim));
    ended().or_else(told).or_else(import).or_else(|| look(scene, concerned()))
}

/// Looks at the Pod that nobody has looked at, or that was looked at the longest ago: else the first ones of many would be
/// due again before the last ones' turn has come.
fn look<'a>(scene: &Scene<'_>, claims: impl Iterator<Item = &'a ClaimSeen>) -> Option<LeaderStep> {
    let unknown = claims.filter(|claim| scene.entitled(claim).is_none());
    let next = unknown.min_by_key(|claim| scene.pods_overdue.get(&claim.uid).copied().map(Reverse))?;
    let more = scene.looked.pods.len() < AT_A_TIME;
    more.then(|| LeaderStep::Look(Look::Pod { claim: next.uid.clone() }))
}

/// Deletes a claim that has ended. The agent that made it may be gone with its node, and no other one may delete it; for as
/// long as it is there it uses the volume.
fn end(claim: &ClaimSeen) -> Option<LeaderStep> {
    let has_ended = claim.of_pod && !claim.deleted && claim.state.is_final();
    has_ended.then(|| LeaderStep::DeleteClaim { claim: claim.uid.clone() })
}

/// Deletes a claim that was refused a while ago and that its agent has left there. It stays refused, so nothing is lost with it:
/// where kubelet still waits its agent makes another one. Whoever has an agent's token may make any number of such claims.
fn left(scene: &Scene<'_>, claim: &ClaimSeen) -> Option<LeaderStep> {
    let is_over = scene.pods_overdue.contains_key(&claim.uid);
    let is_left = claim.not_entitled.is_some() && claim.wants_grant() && is_over;
    is_left.then(|| LeaderStep::DeleteClaim { claim: claim.uid.clone() })
}

/// Ends what nobody waits for, and says what nobody may have. A claim that is granted ends only because its Pod does.
fn told(scene: &Scene<'_>, claim: &ClaimSeen) -> Option<LeaderStep> {
    let uid = claim.uid.clone();
    match scene.entitled(claim)? {
        Entitled::PodGone => Some(LeaderStep::DeleteClaim { claim: uid }),
        Entitled::No(_) | Entitled::Otherwise(_) if !claim.wants_grant() || claim.not_entitled.is_some() => {
            None
        }
        Entitled::Otherwise(why) => otherwise(scene, claim, why),
        Entitled::No(why) => Some(LeaderStep::RefuseClaim { claim: uid, why: why.clone() }),
        Entitled::Yes => None,
    }
}

/// What the Volume was made of is not what the claim's PersistentVolume says. Who has the volume keeps it, or is given it if that
/// is how it was asked for, and the claim is refused. A Volume that nobody uses or waits for goes and leaves the storage, so that
/// another one is made of the claim's PersistentVolume; else two claims would each have the other's Volume made anew.
fn otherwise(scene: &Scene<'_>, claim: &ClaimSeen, why: &str) -> Option<LeaderStep> {
    let is_going = scene.volume?.metadata.deletion_timestamp.is_some();
    if is_going || scene.kept_as.is_none() {
        return None;
    }
    let waits =
        |other: &&ClaimSeen| other.uid != claim.uid && other.wants_grant() && other.not_entitled.is_none();
    let mut others = scene.claims.iter().filter(waits).map(|other| may_have(scene, other));
    let claim = claim.uid.clone();
    if scene.in_use_by().is_some() || others.clone().any(|may| may == Ok(true)) {
        return Some(LeaderStep::RefuseClaim { claim, why: why.to_owned() });
    }
    // Whether one of them may have it as it is is looked at first.
    let all_are_known = others.all(|may| may.is_ok());
    all_are_known.then_some(LeaderStep::RenewVolume { claim })
}

/// Makes the Volume of a PersistentVolume when a Pod that may have it asks for it first.
fn import(scene: &Scene<'_>, claim: &ClaimSeen) -> Option<LeaderStep> {
    let is_missing = scene.volume.is_none() && names::handle_of_import(scene.name).is_some();
    let may =
        claim.wants_grant() && claim.not_entitled.is_none() && scene.entitled(claim) == Some(&Entitled::Yes);
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
