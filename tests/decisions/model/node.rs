//! A node's agent: a mutex for the handle, a durable record, live reads that last for a pass. A write to the
//! API ends the pass, written or refused: what was read before it does not know it.

use moor::api::{AccessMode, AttachmentState, ClaimState};
use moor::attachment::record::Done;

use super::api::later;
use super::config::{CLAIMS, name_index};
use super::harm::Harm;
use super::seen::{NodeDoes, NodeView};
use super::state::{Actor, Att, Cached, Call, Claim, Kind, NodeAgent, Pass, Rec, Rpc, State, Uid};

/// What the agent sees. A target counts as mounted when the record says so and the node shows it.
pub fn view(state: &State, n: u8) -> NodeView {
    let (me, who) = (&state.nodes[usize::from(n)], Actor::Node(n));
    let mut mounted = [false; CLAIMS];
    for rec in &me.records {
        for (c, target) in rec.targets.iter().enumerate() {
            let there = state.truth.published[usize::from(n)][c] == Some(rec.uid);
            mounted[c] |= *target == Some(Done::Yes) && there;
        }
    }
    let mut claims = *state.claims_of(who);
    for claim in &mut claims {
        claim.take_if(|c| c.assigned.is_none_or(|(_, node)| node != n));
    }
    NodeView {
        node: n,
        node_uid: state.machines[usize::from(n)].uid,
        boot: me.boot,
        claims,
        atts: state.atts_of(who).iter().filter(|a| a.node == n).copied().collect(),
        records: me.records.clone(),
        pass: me.pass.clone().unwrap_or_default(),
        mounted,
        claims_back_off: me.claims_back_off,
        att_backs_off: me.att_backs_off,
        grows_later: me.grows_later,
        kubelet: me.kubelet,
    }
}

/// Does the step that was planned for `view`.
pub fn act(state: &mut State, view: &NodeView, step: NodeDoes) {
    let n = view.node;
    let me = &mut state.nodes[usize::from(n)];
    if me.pass.is_none() {
        me.pass = Some(Pass::default());
        me.dirty = false;
    }
    match step {
        NodeDoes::Idle => me.pass = None,
        NodeDoes::ReadClaim(c) => read_claim(state, n, c),
        NodeDoes::ReadAttachment(uid, name) => {
            let found = state.atts.iter().find(|a| name_index(a.mode, a.node) == name);
            let live = found.filter(|a| a.uid == uid).copied();
            let reads = &mut pass(state, n).attachments;
            reads.retain(|(u, _)| *u != uid);
            reads.push((uid, live));
            reads.sort_by_key(|(u, _)| *u);
        }
        NodeDoes::ReadHandle(c) => {
            let handle = state.handle;
            pass(state, n).handle = Some((c, handle));
        }
        NodeDoes::ReportNotReady(c) => {
            patch_claim(state, view, c, |k| Claim { state: ClaimState::Taken, ..k });
        }
        NodeDoes::Yield(c, uid) => {
            patch_claim(state, view, c, |k| Claim { state: ClaimState::Pending, yielded: Some(uid), ..k });
        }
        NodeDoes::ReportReady(c) => {
            patch_claim(state, view, c, |k| Claim { state: ClaimState::Ready, boot: view.boot, ..k });
        }
        NodeDoes::ReportClaimDetached(c) => {
            patch_claim(state, view, c, |k| Claim { state: ClaimState::NodeDetached, ..k });
        }
        NodeDoes::ReportDetached(uid) => {
            let live = view.pass.attachments.iter().find(|(u, _)| *u == uid).and_then(|(_, a)| a.as_ref());
            let cached = view.atts.iter().find(|a| a.uid == uid);
            let seen = match (live, cached) {
                (Some(a), Some(b)) => *later(a, b),
                (Some(a), None) | (None, Some(a)) => *a,
                (None, None) => unreachable!("a report about an Attachment that was never seen"),
            };
            let new = Att { state: AttachmentState::NodeDetached, ..seen };
            let written = state.update_att(Actor::Node(n), &seen, new);
            after_write(state, n, written);
        }
        NodeDoes::Stage(uid) | NodeDoes::Unstage(uid) => {
            let mode = mode_of(view, uid);
            let rec = record(me, uid, mode, view.boot);
            rec.staged = Done::Maybe;
            let rpc = if matches!(step, NodeDoes::Stage(_)) { Rpc::Stage } else { Rpc::Unstage };
            call(state, n, rpc, uid, mode, 0);
        }
        NodeDoes::Publish(c, uid) => {
            let mode = mode_of(view, uid);
            let rec = record(me, uid, mode, view.boot);
            rec.targets[usize::from(c)] = Some(Done::Maybe);
            call(state, n, Rpc::Publish, uid, mode, c);
        }
        NodeDoes::Grow(c, uid) => call(state, n, Rpc::Expand, uid, mode_of(view, uid), c),
        NodeDoes::Unpublish(c, uid) => call(state, n, Rpc::Unpublish, uid, mode_of(view, uid), c),
        NodeDoes::MarkForgotten(uid) => {
            let rec = me.records.iter_mut().find(|r| r.uid == uid);
            rec.expect("a record that is forgotten").forgotten = true;
        }
        NodeDoes::Forget(uid) => me.records.retain(|r| r.uid != uid),
    }
}

/// The mode of an Attachment, by record, live read or cache.
fn mode_of(view: &NodeView, uid: Uid) -> AccessMode {
    let rec = view.records.iter().find(|r| r.uid == uid).map(|r| r.mode);
    let live = || view.pass.attachments.iter().filter_map(|(_, a)| a.as_ref()).find(|a| a.uid == uid);
    let cached = || view.atts.iter().find(|a| a.uid == uid);
    rec.or_else(|| live().or_else(cached).map(|a| a.mode)).expect("a step about a known Attachment")
}

/// The record, written before the call it speaks of. A crash between the two is a call that never ran.
fn record(me: &mut NodeAgent, uid: Uid, mode: AccessMode, boot: u8) -> &mut Rec {
    let at = match me.records.binary_search_by_key(&uid, |r| r.uid) {
        Ok(at) => at,
        Err(at) => {
            let new = Rec { uid, mode, boot, staged: Done::No, targets: [None; CLAIMS], forgotten: false };
            me.records.insert(at, new);
            at
        }
    };
    me.records[at].boot = boot;
    &mut me.records[at]
}

fn call(state: &mut State, n: u8, rpc: Rpc, uid: Uid, mode: AccessMode, claim: u8) {
    state.calls.push(Call { by: Actor::Node(n), rpc, node: n, uid, mode, claim, waiting: true });
}

fn pass(state: &mut State, n: u8) -> &mut Pass {
    state.nodes[usize::from(n)].pass.get_or_insert_default()
}

/// Lets go of the mutex and comes again.
pub fn give_up(state: &mut State, n: u8) {
    let me = &mut state.nodes[usize::from(n)];
    me.pass = None;
    me.dirty = true;
}

fn after_write(state: &mut State, n: u8, written: bool) {
    if !(written && state.habits.keeps_reads) {
        give_up(state, n);
    }
}

fn read_claim(state: &mut State, n: u8, c: u8) {
    match state.claims[usize::from(c)] {
        None => pass(state, n).gone[usize::from(c)] = true,
        Some(claim) => {
            // What was read is newer than the cache and enters it.
            if let Some(Cached::Claims(cache)) = state.cache_mut(Actor::Node(n), Kind::Claims) {
                cache[usize::from(c)] = Some(claim);
            }
            if claim.assigned.is_none_or(|(_, node)| node != n) {
                state.harmed(Harm::ReadInCircles);
            }
        }
    }
}

fn patch_claim(state: &mut State, view: &NodeView, c: u8, change: impl Fn(Claim) -> Claim) {
    let seen = view.claims[usize::from(c)].expect("a report about a cached claim");
    let written = state.update_claim(Actor::Node(view.node), c, &seen, change(seen));
    after_write(state, view.node, written);
}

/// The call that the agent waits for has ended: `Some(true)` OK, `Some(false)` a final error, `None` unknown.
/// OK counts only after a look at the mount table, which is the truth here.
pub fn ended(state: &mut State, ended: &Call, outcome: Option<bool>) {
    let n = usize::from(ended.node);
    let c = usize::from(ended.claim);
    let staged = state.truth.staged[n].contains(&ended.uid);
    let published = state.truth.published[n][c] == Some(ended.uid);
    let rec = state.nodes[n].records.iter_mut().find(|r| r.uid == ended.uid);
    let rec = rec.expect("a record before every call");
    match (ended.rpc, outcome) {
        (Rpc::Stage, Some(true)) if staged => rec.staged = Done::Yes,
        (Rpc::Stage, Some(false)) => rec.staged = Done::No,
        (Rpc::Unstage, Some(true)) if !staged => rec.staged = Done::No,
        (Rpc::Publish, Some(true)) if published => rec.targets[c] = Some(Done::Yes),
        (Rpc::Publish, Some(false)) => rec.targets[c] = None,
        (Rpc::Unpublish, Some(true)) if !published => rec.targets[c] = None,
        (Rpc::Expand, Some(true)) => write_grown(state, ended),
        _ => {}
    }
    if outcome != Some(true) {
        let me = &mut state.nodes[n];
        match ended.rpc {
            Rpc::Publish | Rpc::Unpublish => me.claims_back_off[c] = true,
            Rpc::Expand => me.grows_later = Some(ended.uid),
            _ => me.att_backs_off = Some(ended.uid),
        }
        give_up(state, ended.node);
    }
}

/// Writes that the volume has grown, onto whatever the Attachment has become, unless it is being undone.
fn write_grown(state: &mut State, ended: &Call) {
    let is_cut_off = state.machines[usize::from(ended.node)].away;
    let now = state.att(ended.uid).filter(|att| !att.deleted && !att.lost && !is_cut_off).copied();
    let written = now.is_some_and(|att| state.update_att(ended.by, &att, Att { grown: true, ..att }));
    after_write(state, ended.node, written);
}
