//! What a step does, and what follows of itself.

use moor::attachment::controller_side::ControllerStep;

use super::actions::{End, What};
use super::config::{Budget, CLAIMS, Removed, node_ids};
use super::harm::Harm;
use super::node::give_up;
use super::seen::NodeDoes;
use super::state::{Actor, Claim, Handle, Kind, Machine, State, Vol};
use super::system::System;
use super::{controller, driver, leader, node, pods, relief};

impl System {
    /// The step alone, without its effect on caches.
    pub fn step(&self, s: &mut State, what: &What) {
        match what {
            What::DeleteClaim(c) => s.delete_claim(*c),
            What::Kubelet(c, step) => pods::act(&self.config, s, *c, *step),
            What::RemoveClaimByForce(c) => {
                s.budget.force -= 1;
                s.forced = true;
                s.claims[usize::from(*c)] = None;
            }
            What::Leader(l, step) => {
                if *l > 0 && s.budget.old_steps != Budget::UNBOUNDED {
                    s.budget.old_steps -= 1;
                }
                leader::act(&self.config, s, Actor::Leader(*l), *step);
            }
            What::Finish(at) => leader::finish(&self.config, s, *at),
            What::Controller(i, att, step) => controller::act(&self.config, s, *i, *att, *step),
            What::Node(n, step) => {
                let view = node::view(s, *n);
                node::act(s, &view, *step);
                // Else no Attachment of the model goes before its node has undone its part, unless it was lost. An agent
                // that does not see that the claim has ended takes that for a lock which was removed, until it does.
                let by_hand = self.config.removed == Some(Removed::Attachment);
                if let NodeDoes::MarkForgotten(uid) = step
                    && !by_hand
                    && !s.truth.cut.contains(uid)
                {
                    s.harmed(Harm::FreedInUse);
                }
            }
            What::Aborted(Actor::Controller(i)) => {
                let me = &mut s.controllers[usize::from(*i)];
                if let Some((uid, _)) = me.read.take() {
                    me.dirty |= 1 << uid;
                }
            }
            What::Aborted(Actor::Node(n)) => node::give_up(s, *n),
            What::CallEnds(at, end) => self.call_ends(s, *at, *end),
            What::LateCall(at, effect) => {
                let call = s.calls.remove(*at);
                if *effect {
                    driver::effect(&self.config, s, &call);
                }
            }
            What::Crash(who) => crash(s, *who),
            What::CatchUp(who, kind) => {
                s.frozen.retain(|(w, k, _)| (w, k) != (who, kind));
                wake(s, *who);
            }
            What::LingerEnds(uid) => {
                s.lingered.push(*uid);
                s.lingered.sort_unstable();
            }
            What::LookAgain(who) => wake(s, *who),
            What::RetryDue(n) => {
                let me = &mut s.nodes[usize::from(*n)];
                (me.claims_back_off, me.att_backs_off, me.grows_later) = ([false; CLAIMS], None, None);
                wake(s, Actor::Node(*n));
            }
            What::Relieve(_) | What::Answer(_) => relief::act(s, what),
            What::KillPlugin(i, effect) => self.kill(s, *i, *effect),
            What::RevivePlugin(i) => {
                s.budget.revive -= 1;
                s.controllers[usize::from(*i)].alive = true;
                wake(s, Actor::Controller(*i));
            }
            What::Heal(_) => s.sick = None,
            What::Reboot(n) => {
                s.budget.reboot -= 1;
                boot(s, *n);
                pods::boot(&self.config, s, *n);
            }
            What::Aborted(Actor::Leader(_) | Actor::Backend) => unreachable!("they make no calls"),
            What::GoAway(n, true) => {
                by_hand(s, what);
                pods::boot(&self.config, s, *n);
            }
            outside => by_hand(s, outside),
        }
    }

    fn call_ends(&self, s: &mut State, at: usize, end: End) {
        let mut call = s.calls[at];
        match end {
            End::Deadline => {
                s.calls[at].waiting = false;
                s.budget.late -= 1;
            }
            End::Ok | End::Refused | End::ReplyLost => {
                s.calls.remove(at);
            }
        }
        if matches!(end, End::Ok | End::ReplyLost) {
            driver::effect(&self.config, s, &call);
        }
        let outcome = match end {
            End::Ok => {
                // A repeated call waits for what the storage is still doing about the first one.
                s.calls.retain(|c| c.by != Actor::Backend || (c.rpc, c.node) != (call.rpc, call.node));
                Some(true)
            }
            End::Refused => {
                s.budget.fail -= 1;
                Some(false)
            }
            End::ReplyLost => {
                s.budget.late -= 1;
                None
            }
            End::Deadline => None,
        };
        call.waiting = false;
        match call.by {
            Actor::Controller(i) => controller::ended(&self.config, s, i, call.rpc, outcome),
            Actor::Node(_) => node::ended(s, &call, outcome),
            Actor::Leader(_) | Actor::Backend => unreachable!("they make no calls"),
        }
    }

    fn kill(&self, s: &mut State, i: u8, effect: bool) {
        let who = Actor::Controller(i);
        s.budget.kill -= 1;
        s.controllers[usize::from(i)].alive = false;
        s.controllers[usize::from(i)].read = None;
        for call in s.calls.clone().into_iter().filter(|c| c.by == who) {
            if effect {
                driver::effect(&self.config, s, &call);
            }
            if call.waiting {
                controller::ended(&self.config, s, i, call.rpc, None);
            }
        }
        for call in &mut s.calls {
            if call.by == who {
                call.waiting = false;
                call.by = Actor::Backend;
            }
        }
        if !self.config.backend {
            s.calls.retain(|c| c.by != Actor::Backend);
        }
    }

    /// What follows of itself: order without meaning goes, agents notice what their watches bring.
    pub fn settle(&self, old: &State, s: &mut State) {
        s.calls.sort_unstable();
        let truth = &s.truth;
        let left = |uid: &u8| {
            truth.attached.iter().flatten().any(|(u, _)| u == uid)
                || truth
                    .staged
                    .iter()
                    .flatten()
                    .chain(truth.published.iter().flatten().flatten())
                    .any(|u| u == uid)
                || s.calls.iter().any(|c| c.uid == *uid)
                || s.atts.iter().any(|a| a.uid == *uid)
        };
        let cut: Vec<u8> = truth.cut.iter().copied().filter(left).collect();
        s.truth.cut = cut;
        let lingered: Vec<u8> = s.lingered.iter().copied().filter(|uid| s.is_unused(*uid)).collect();
        s.lingered = lingered;
        leader::drop_refused(s);
        s.frozen.sort_by_key(|(who, kind, _)| (*who, *kind));
        for n in node_ids() {
            if changed(old, s, Actor::Node(n), Kind::Claims)
                || changed(old, s, Actor::Node(n), Kind::Attachments)
            {
                s.nodes[usize::from(n)].dirty = true;
            }
            let me = &s.nodes[usize::from(n)];
            if me.pass.is_none() && me.dirty && self.node_step(node::view(s, n)) == NodeDoes::Idle {
                s.nodes[usize::from(n)].dirty = false;
            }
            let who = Actor::Controller(n);
            let mut dirty = s.controllers[usize::from(n)].dirty;
            let before = old.atts_of(who);
            for att in s.atts_of(who) {
                if !before.contains(att) {
                    dirty |= 1 << att.uid;
                }
            }
            let mut due = 0;
            for att in s.atts_of(who).iter().filter(|a| dirty & (1 << a.uid) != 0) {
                let step = self.controller_step(s, n, att, None);
                if step != ControllerStep::Idle {
                    due |= 1 << att.uid;
                }
            }
            let me = &mut s.controllers[usize::from(n)];
            me.dirty = due;
            let view = s.atts_of(who);
            let read = s.controllers[usize::from(n)].read;
            if read.is_some_and(|(uid, _)| view.iter().all(|a| a.uid != uid)) {
                s.controllers[usize::from(n)].read = None;
            }
        }
    }
}

/// Whether this step changed what `who` watches of this kind.
pub fn changed(old: &State, new: &State, who: Actor, kind: Kind) -> bool {
    match (who, kind) {
        (Actor::Leader(_), Kind::Claims) => old.claims_of(who) != new.claims_of(who),
        (Actor::Leader(_), Kind::Attachments) => old.atts_of(who) != new.atts_of(who),
        (Actor::Leader(_), Kind::Handle) => old.handle_of(who) != new.handle_of(who),
        (Actor::Leader(_), Kind::Nodes) => old.nodes_of(who) != new.nodes_of(who),
        (Actor::Node(n), Kind::Claims) => {
            let here = |s: &State| {
                s.claims_of(who).map(|c| c.filter(|k| k.assigned.is_some_and(|(_, node)| node == n)))
            };
            here(old) != here(new)
        }
        (Actor::Node(n), Kind::Attachments) => {
            let (old, new) = (old.atts_of(who), new.atts_of(who));
            !old.iter().filter(|a| a.node == n).eq(new.iter().filter(|a| a.node == n))
        }
        (Actor::Controller(i), Kind::Attachments) => {
            let (old, new) = (old.atts_of(who), new.atts_of(who));
            !old.iter()
                .filter(|a| a.controller.instance == i)
                .eq(new.iter().filter(|a| a.controller.instance == i))
        }
        _ => false,
    }
}

/// What machines and people do.
fn by_hand(s: &mut State, what: &What) {
    match what {
        What::GoAway(n, off) => {
            s.budget.away -= 1;
            let machine = &mut s.machines[usize::from(*n)];
            (machine.away, machine.off) = (true, *off);
            if *off {
                boot(s, *n);
            }
        }
        What::ComeBack(n) => come_back(s, *n),
        What::ComeAnother(n) => {
            s.nodes[usize::from(*n)].records.clear();
            come_back(s, *n);
        }
        What::DeleteNode(n) => spoken_of(s, *n).unregistered = true,
        What::Taint(n) => spoken_of(s, *n).tainted = true,
        What::ForceDetach => {
            s.budget.word -= 1;
            for claim in s.claims.iter_mut().flatten().filter(|c| c.deleted) {
                claim.force = true;
            }
        }
        What::MakeAgain => {
            s.budget.again -= 1;
            s.claims[1] = Some(Claim::NEW);
        }
        What::DeleteVolume(v) => {
            let slot = &mut s.volumes[usize::from(*v)];
            match slot {
                Some(volume) if volume.held => volume.deleted = true,
                _ => *slot = None,
            }
        }
        What::RemoveVolumeByForce(v) => {
            s.budget.force -= 1;
            s.volumes[usize::from(*v)] = None;
        }
        What::RemoveHandleByForce => {
            s.budget.force -= 1;
            s.handle = Handle { there: false, writer: None, ..s.handle };
        }
        What::RemoveAttachmentByForce(uid) => {
            s.budget.force -= 1;
            s.forced = true;
            s.atts.retain(|a| a.uid != *uid);
        }
        What::MakeVolumeAgain => {
            s.made_again = true;
            s.volumes[1] = Some(Vol { deleted: false, held: false, ready: false });
        }
        _ => unreachable!("{what:?} is a step of moor or its driver"),
    }
}

/// A machine whose Node somebody deletes or taints.
fn spoken_of(s: &mut State, n: u8) -> &mut Machine {
    let machine = &mut s.machines[usize::from(n)];
    if machine.away {
        s.budget.word -= 1;
    } else {
        s.budget.wrong -= 1;
    }
    machine
}

/// The machine loses its mounts and its processes, the controller instance on it excepted: that one is another
/// dimension ([`What::KillPlugin`]).
fn boot(s: &mut State, n: u8) {
    s.calls.retain(|c| c.by != Actor::Node(n));
    let at = usize::from(n);
    s.truth.staged[at].clear();
    s.truth.published[at] = [None; CLAIMS];
    s.nodes[at].boot += 1;
    restart(s, Actor::Node(n));
}

/// The Node is there again, under another UID if it was deleted; then the agent registers anew and lists, as one does that
/// has just started. Else its Lease wakes, and its watches when they like.
fn come_back(s: &mut State, n: u8) {
    let machine = &mut s.machines[usize::from(n)];
    let uid = machine.uid + u8::from(machine.unregistered);
    let (anew, off, lived) = (machine.unregistered, machine.off, !machine.away);
    *machine = Machine { uid, ..Machine::default() };
    if anew {
        for call in s.calls.iter_mut().filter(|c| c.by == Actor::Node(n)) {
            call.waiting = false;
        }
    }
    if anew || off {
        restart(s, Actor::Node(n));
    }
    if lived && !anew {
        // Its Node is in service again, which its agent does not look at.
        return;
    }
    // What a pass has read before the silence counts no more (rule R2).
    give_up(s, n);
    wake(s, Actor::Node(n));
    wake(s, Actor::Controller(n));
}

fn crash(s: &mut State, who: Actor) {
    s.budget.crash -= 1;
    for call in s.calls.iter_mut().filter(|c| c.by == who) {
        call.waiting = false;
    }
    restart(s, who);
}

/// A new process: nothing in memory, caches filled by a quorum LIST.
fn restart(s: &mut State, who: Actor) {
    s.frozen.retain(|(w, ..)| *w != who);
    match who {
        Actor::Node(n) => {
            let me = &mut s.nodes[usize::from(n)];
            (me.pass, me.claims_back_off) = (None, [false; CLAIMS]);
            (me.att_backs_off, me.grows_later) = (None, None);
            pods::forget(s, n);
        }
        Actor::Controller(i) => {
            let me = &mut s.controllers[usize::from(i)];
            (me.read, me.call) = (None, None);
        }
        Actor::Leader(_) | Actor::Backend => {}
    }
    wake(s, who);
}

fn wake(s: &mut State, who: Actor) {
    match who {
        Actor::Node(n) => s.nodes[usize::from(n)].dirty = true,
        Actor::Controller(i) => s.controllers[usize::from(i)].dirty = u16::MAX,
        Actor::Leader(_) | Actor::Backend => {}
    }
}
