//! Which UIDs of Attachments are in use.

use super::leader::LeaderDoes;
use super::state::{Att, Cached, Claim, Handle, State, Uid};

impl State {
    /// The smallest UID that nothing refers to any more.
    pub fn fresh_uid(&self) -> Uid {
        (1..=Uid::MAX).find(|uid| !self.refers_to(*uid)).expect("UIDs do not run out")
    }

    fn refers_to(&self, uid: Uid) -> bool {
        let claim = |c: &Claim| c.assigned.is_some_and(|(u, _)| u == uid) || c.yielded == Some(uid);
        let claims = |all: &[Option<Claim>]| all.iter().flatten().any(claim);
        let atts = |all: &[Att]| all.iter().any(|a| a.uid == uid);
        let handle = |h: &Handle| {
            h.writer.is_some_and(|w| w.holder.1 == uid || w.after.is_some_and(|(_, after)| after == uid))
        };
        claims(&self.claims)
            || handle(&self.handle)
            || self.pending.iter().any(|(_, step)| match step {
                LeaderDoes::Assign { uid: joined, .. } => *joined == uid,
                LeaderDoes::Writer(seen, new) => handle(seen) || new.holder.1 == uid,
                LeaderDoes::DeclareLost(att) | LeaderDoes::FreeAttachment(att) => att.uid == uid,
                _ => false,
            })
            || atts(&self.atts)
            || self.frozen.iter().any(|(_, _, cached)| match cached {
                Cached::Claims(all) => claims(all),
                Cached::Attachments(all) => atts(all),
                Cached::Handle(cached) => handle(cached),
                Cached::Nodes(_) => false,
            })
            || self.nodes.iter().any(|n| {
                n.att_backs_off == Some(uid)
                    || n.grows_later == Some(uid)
                    || n.records.iter().any(|r| r.uid == uid)
                    || n.pass.iter().any(|p| {
                        p.attachments.iter().any(|(u, _)| *u == uid)
                            || p.handle.is_some_and(|(_, read)| handle(&read))
                    })
            })
            || self
                .controllers
                .iter()
                .any(|c| c.read.is_some_and(|(u, _)| u == uid) || c.call.is_some_and(|a| a.uid == uid))
            || self.calls.iter().any(|c| c.uid == uid)
            || self.truth.attached.iter().flatten().any(|(u, _)| *u == uid)
            || self.truth.staged.iter().flatten().any(|u| *u == uid)
            || self.truth.published.iter().flatten().flatten().any(|u| *u == uid)
    }
}
