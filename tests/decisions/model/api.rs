//! The API server: writes guarded by what the writer last saw of the object, and the rules that the CRDs enforce.
//!
//! A guard compares contents instead of resourceVersions. That lets through a write whose object changed
//! and changed back, which a real server refuses: the model is the weaker of the two. A successful write
//! answers with the new object, which enters the writer's own cache.

use moor::api::{AttachmentState, ClaimState};

use super::config::name_index;
use super::harm::Harm;
use super::state::{Actor, Att, Cached, Claim, Handle, Kind, Rpc, State, Uid};

impl State {
    /// POST: the name must be free. The UID is given here.
    pub fn create(&mut self, who: Actor, wanted: Att) -> bool {
        let name = name_index(wanted.mode, wanted.node);
        if self.atts.iter().any(|a| name_index(a.mode, a.node) == name) {
            return false;
        }
        let att = Att { uid: self.fresh_uid(), ..wanted };
        self.put_att(who, att);
        true
    }

    /// PATCH of an Attachment.
    pub fn update_att(&mut self, who: Actor, seen: &Att, new: Att) -> bool {
        if self.att(seen.uid) != Some(seen) {
            return false;
        }
        if new.state < seen.state {
            self.harmed(Harm::StateWentBack);
            return false;
        }
        self.put_att(who, new);
        true
    }

    /// DELETE with a UID precondition. Our finalizer keeps the object.
    pub fn delete_att(&mut self, who: Actor, uid: Uid) -> bool {
        let Some(att) = self.att(uid).copied() else { return false };
        self.put_att(who, Att { deleted: true, ..att });
        true
    }

    /// PUT without the finalizer.
    pub fn free_att(&mut self, who: Actor, seen: &Att) -> bool {
        if self.att(seen.uid) != Some(seen) || !seen.deleted {
            return false;
        }
        let uid = seen.uid;
        let cut = self.truth.cut.contains(&uid);
        let in_use = self.truth.attached.iter().flatten().any(|(u, _)| *u == uid)
            || self.truth.staged.iter().flatten().any(|u| *u == uid)
            || self.truth.published.iter().flatten().flatten().any(|u| *u == uid)
            || self.calls.iter().any(|c| {
                c.uid == uid
                    && matches!(c.rpc, Rpc::ControllerPublish | Rpc::Stage | Rpc::Publish | Rpc::Expand)
            });
        let attached = self.truth.attached.iter().flatten().any(|(u, _)| *u == uid);
        if in_use && (!cut || attached) {
            self.harmed(Harm::FreedInUse);
        }
        self.atts.retain(|a| a.uid != uid);
        if let Some(Cached::Attachments(cache)) = self.echo(who, Kind::Attachments) {
            cache.retain(|a| a.uid != uid);
        }
        true
    }

    fn put_att(&mut self, who: Actor, att: Att) {
        put(&mut self.atts, att);
        if let Some(Cached::Attachments(cache)) = self.echo(who, Kind::Attachments) {
            put(cache, att);
        }
    }

    /// PATCH of a claim: assignments change only after a yield, final states stay.
    pub fn update_claim(&mut self, who: Actor, c: u8, seen: &Claim, new: Claim) -> bool {
        if self.claims[usize::from(c)].as_ref() != Some(seen) {
            return false;
        }
        let given_back = seen.assigned.is_none_or(|(uid, _)| seen.yielded == Some(uid));
        let last = matches!(seen.state, ClaimState::NodeDetached | ClaimState::Lost);
        if (new.assigned != seen.assigned && !given_back) || (last && new.state != seen.state) {
            return false;
        }
        self.claims[usize::from(c)] = Some(new);
        if let Some(Cached::Claims(cache)) = self.echo(who, Kind::Claims) {
            cache[usize::from(c)] = Some(new);
        }
        true
    }

    /// PATCH that takes our finalizer off a deleted claim.
    pub fn release_claim(&mut self, who: Actor, c: u8, seen: &Claim) -> bool {
        let at = usize::from(c);
        if self.claims[at].as_ref() != Some(seen) || !seen.deleted {
            return false;
        }
        let mounting = self.calls.iter().any(|call| call.rpc == Rpc::Publish && call.claim == c);
        let cut = self.truth.cut.clone();
        let kept = |uid: Uid| !cut.contains(&uid);
        let mounting = mounting && seen.assigned.is_none_or(|(uid, _)| kept(uid));
        if mounting || self.truth.published.iter().any(|node| node[at].is_some_and(kept)) {
            self.harmed(Harm::ClaimGoneWithTarget);
        }
        if let Some((uid, _)) = seen.assigned {
            let shared = self.claims.iter().enumerate().any(|(i, other)| {
                i != at && other.is_some_and(|o| o.assigned.is_some_and(|(u, _)| u == uid))
            });
            if !self.forced
                && !shared
                && seen.yielded != Some(uid)
                && self.truth.staged.iter().flatten().any(|u| *u == uid && kept(uid))
            {
                self.harmed(Harm::ClaimGoneStaged);
            }
        }
        self.claims[at] = None;
        if let Some(Cached::Claims(cache)) = self.echo(who, Kind::Claims) {
            cache[at] = None;
        }
        true
    }

    /// PATCH of the VolumeHandle.
    pub fn update_handle(&mut self, who: Actor, seen: &Handle, new: Handle) -> bool {
        let epoch_ok = new.epoch == seen.epoch || (new.epoch == seen.epoch + 1 && new.closing);
        let mode_ok = (new.mode, new.owner) == (seen.mode, seen.owner) || seen.closing;
        if self.handle != *seen || !epoch_ok || !mode_ok {
            return false;
        }
        if seen.closing && !new.closing {
            let cut = &self.truth.cut;
            let old = |uid| !cut.contains(&uid) && self.att(uid).is_none_or(|a| a.epoch < new.epoch);
            let attached = self.truth.attached.iter().flatten().any(|(uid, _)| old(*uid));
            let attaching = self.calls.iter().any(|c| c.rpc == Rpc::ControllerPublish && old(c.uid));
            let staged = self.truth.staged.iter().flatten().any(|uid| old(*uid));
            if attached || attaching || staged {
                self.harmed(Harm::SwitchedWhileAttached);
            }
        }
        self.handle = new;
        if let Some(Cached::Handle(cache)) = self.echo(who, Kind::Handle) {
            *cache = new;
        }
        true
    }

    /// The cache that the answer to a write enters.
    fn echo(&mut self, who: Actor, kind: Kind) -> Option<&mut Cached> {
        if self.habits.deaf { None } else { self.cache_mut(who, kind) }
    }

    pub fn cache_mut(&mut self, who: Actor, kind: Kind) -> Option<&mut Cached> {
        self.frozen.iter_mut().find(|(w, k, _)| (*w, *k) == (who, kind)).map(|(_, _, c)| c)
    }

    /// The user deletes a claim: without our finalizer it is gone at once.
    pub fn delete_claim(&mut self, c: u8) {
        let slot = &mut self.claims[usize::from(c)];
        match slot {
            Some(claim) if claim.held => claim.deleted = true,
            _ => *slot = None,
        }
    }
}

fn put(all: &mut Vec<Att>, att: Att) {
    match all.binary_search_by_key(&att.uid, |a| a.uid) {
        Ok(at) => all[at] = att,
        Err(at) => all.insert(at, att),
    }
}

/// How far an Attachment's object has come: of two copies the later one.
pub fn later<'a>(a: &'a Att, b: &'a Att) -> &'a Att {
    let rank = |x: &Att| (x.state >= AttachmentState::Attached, x.state, x.deleted, x.controller, x.grown);
    if rank(a) >= rank(b) { a } else { b }
}
