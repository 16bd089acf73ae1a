//! Claims whose lock was removed by hand: they keep others off as long as their nodes may have the volume mounted.

use std::collections::HashSet;

use super::observed::{ClaimSeen, Seen};
use super::reason::{Holder, Waiting};
use crate::api::claim::Assignment;
use crate::api::{AttachmentUid, ClaimState, lock};

/// Claims that use an Attachment of this handle which is not there: somebody removed it by hand (trap N9). Their
/// nodes may have the volume mounted until they have given the grant back; what is mounted and Ready they report as
/// forgotten (rule R7).
///
/// The grant's name says that it is of this handle: a Volume that was made anew under its name may have another one.
pub(super) fn uses_without_lock<'a>(seen: &Seen<'a>) -> Vec<&'a ClaimSeen> {
    let Some(volume) = seen.volume else { return Vec::new() };
    let there: HashSet<&AttachmentUid> = seen.attachments.iter().map(|a| &a.uid).collect();
    let of_handle = |c: &ClaimSeen, grant: &Assignment| {
        let name = lock::attachment_name(
            lock::DriverVolume { driver: &volume.driver, handle: &volume.handle },
            c.mode,
            &grant.node_name,
        );
        grant.attachment == name
    };
    let uses = |c: &&ClaimSeen| {
        c.state != ClaimState::Lost
            && c.uses().is_some_and(|uid| !there.contains(uid))
            && c.assignment.as_ref().is_some_and(|grant| of_handle(c, grant))
    };
    seen.claims.iter().filter(uses).collect()
}

pub(super) fn is_granted_on(claim: &ClaimSeen, node: &str) -> bool {
    claim.assignment.as_ref().is_some_and(|a| a.node_name == node)
}

pub(super) fn keeps_off(user: Option<&&ClaimSeen>) -> Result<(), Waiting> {
    let Some(user) = user else { return Ok(()) };
    let node = user.assignment.as_ref().map(|a| a.node_name.clone()).unwrap_or_default();
    Err(Waiting::Held(Holder::of(user, &node)))
}
