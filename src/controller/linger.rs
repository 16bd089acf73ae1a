//! Since when nobody uses an Attachment, so that it stays attached for a while for whoever comes back to its node (ADR 27).
//!
//! In memory: a leader that has just begun counts from its own first look, which makes the time longer and nothing worse.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::key::VolumeKey;
use crate::api::AttachmentUid;
use crate::attachment::AttachmentSeen;
use crate::attachment::closing::Unused;
use crate::claim::ClaimSeen;

/// The Attachments that nobody uses, by their Volumes. Each pass writes down its Volume's anew, and one comes after every
/// change of an Attachment or a claim, so nothing stays here of what is gone.
#[derive(Debug)]
pub(crate) struct Linger {
    lasts: Duration,
    unused: Mutex<HashMap<VolumeKey, BTreeMap<AttachmentUid, Since>>>,
}

/// What is remembered of one Attachment.
#[derive(Clone, Debug)]
struct Since {
    node: String,
    /// When the last claim had left; none while one is still leaving.
    unused: Option<Instant>,
    /// A claim was seen to leave.
    was_used: bool,
}

/// What is known of the Attachments of one Volume that nobody uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lingering {
    /// What the plan goes by.
    pub(crate) unused: BTreeMap<AttachmentUid, Unused>,
    /// Time until the first of them has lingered for long enough.
    pub(crate) ends: Option<Duration>,
}

impl Linger {
    /// Attachments linger for so long.
    pub(crate) fn new(lasts: Duration) -> Self {
        Self { lasts, unused: Mutex::default() }
    }

    /// Whether Attachments linger at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.lasts.is_zero()
    }

    /// Takes in who uses the Attachments of a Volume now.
    pub(crate) fn see(
        &self,
        volume: &VolumeKey,
        attachments: &[AttachmentSeen],
        claims: &[ClaimSeen],
        now: Instant,
    ) -> Lingering {
        if !self.is_on() {
            return Lingering::default();
        }
        let mut all = self.unused.lock();
        let mut before = all.remove(volume).unwrap_or_default();
        let is_unused = |a: &&AttachmentSeen| {
            a.may_linger() && !claims.iter().any(|c| !c.deleted && c.uses() == Some(&a.uid))
        };
        let since = attachments.iter().filter(is_unused).map(|attachment| {
            let before = before.remove(&attachment.uid);
            let mut users = claims.iter().filter(|c| c.uses() == Some(&attachment.uid));
            let is_left = users.next().is_none();
            let was_used = !is_left || before.as_ref().is_some_and(|b| b.was_used);
            let unused = before.and_then(|b| b.unused).unwrap_or(now);
            let node = attachment.node.clone();
            (attachment.uid.clone(), Since { node, unused: is_left.then_some(unused), was_used })
        });
        let since: BTreeMap<_, _> = since.collect();
        let lingering = self.lingering(&since, now);
        if !since.is_empty() {
            all.insert(volume.clone(), since);
        }
        lingering
    }

    fn lingering(&self, since: &BTreeMap<AttachmentUid, Since>, now: Instant) -> Lingering {
        let left = |s: &Since| s.unused.map(|at| self.lasts.saturating_sub(now.duration_since(at)));
        let unused =
            |s: &Since| Unused { lingers: left(s).is_none_or(|left| !left.is_zero()), was_used: s.was_used };
        Lingering {
            unused: since.iter().map(|(uid, s)| (uid.clone(), unused(s))).collect(),
            ends: since.values().filter_map(left).filter(|left| !left.is_zero()).min(),
        }
    }

    /// The Volumes with Attachments that nobody uses on this node, or on any.
    pub(crate) fn on(&self, node: Option<&str>) -> Vec<VolumeKey> {
        let all = self.unused.lock();
        let is_there = |since: &Since| node.is_none_or(|node| since.node == node);
        all.iter().filter(|(_, of)| of.values().any(is_there)).map(|(volume, _)| volume.clone()).collect()
    }
}

#[cfg(test)]
#[path = "linger_tests.rs"]
mod tests;
