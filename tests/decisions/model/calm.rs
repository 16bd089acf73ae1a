//! What happens once trouble ends: caches catch up, late calls end, every agent acts in turn.
//!
//! Checked from every reachable state: that run must come to rest, and at rest the world must be exactly
//! what the living claims ask for. This is stronger than "no stuck state": it also finds circles.

use std::hash::{Hash, Hasher};

use moor::api::{AttachmentState, ClaimState};

use super::actions::{End, What};
use super::config::{Budget, CLAIMS, Config, NODES, Volumes, node_ids};
use super::harm::Harm;
use super::state::{Actor, Att, Claim, Rec, State};
use super::system::System;
use crate::hashing::Folding;

/// Longest calm run that is taken for one that comes to rest.
const MAX_STEPS: usize = 400;

/// The run from this state ends well. The path, for a report, is in [`run`].
pub fn ends_well(system: &System, state: &State) -> bool {
    state.harm.is_some() || run(system, state).is_ok()
}

/// What was done, why the end is bad, and the invariant that broke, if one did.
pub type BadEnd = (Vec<What>, String, Option<Harm>);

/// Runs to rest.
pub fn run(system: &System, state: &State) -> Result<(), BadEnd> {
    let mut state = state.clone();
    state.budget = Budget::NONE;
    for who in state.frozen.iter().map(|(who, kind, _)| (*who, *kind)).collect::<Vec<_>>() {
        let before = state.clone();
        system.step(&mut state, &What::CatchUp(who.0, who.1));
        system.settle(&before, &mut state);
    }
    let mut passed = Vec::new();
    let mut done = Vec::new();
    loop {
        let print = fingerprint(&state);
        if system.calm.lock().expect("no check panics").contains(&print) {
            break;
        }
        if passed.contains(&print) || passed.len() > MAX_STEPS {
            return Err((done, "it goes in circles".into(), None));
        }
        passed.push(print);
        match next(system, &state, true) {
            Some((what, new)) => {
                let waits =
                    matches!(what, What::LingerEnds(_)).then(|| bad_rest(&system.config, &state, true));
                if let Some(why) = waits.flatten() {
                    return Err((done, format!("{why}, while an Attachment lingers: {state:#?}"), None));
                }
                done.push(what);
                state = new;
            }
            None => match bad_rest(&system.config, &state, false) {
                Some(why) => return Err((done, format!("{why}: {state:#?}"), None)),
                None => break,
            },
        }
        if let Some(harm) = state.harm {
            return Err((done, format!("{harm:?}"), Some(harm)));
        }
    }
    system.calm.lock().expect("no check panics").extend(passed);
    Ok(())
}

/// Where a run begins whose older claim has to wait for its node: the younger one is served.
pub fn younger_first(system: &System, mut state: State) -> State {
    while let Some((_, new)) = next(system, &state, false) {
        state = new;
    }
    state
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = Folding::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The first step that changes anything.
fn next(system: &System, state: &State, heals: bool) -> Option<(What, State)> {
    let mut all = Vec::new();
    for (at, call) in state.calls.iter().enumerate() {
        all.push(if call.waiting { What::CallEnds(at, End::Ok) } else { What::LateCall(at, true) });
    }
    all.extend(
        (0..).zip(&state.machines).filter(|(_, m)| m.away || m.is_wronged()).map(|(n, _)| What::ComeBack(n)),
    );
    if let Some(n) = state.sick.filter(|_| heals) {
        all.push(What::Heal(n));
    }
    super::pods::actions(&system.config, state, false, &mut all);
    all.extend(super::relief::of_the_dead(&system.config, state));
    super::relief::answers(&system.config, state, &mut all);
    all.extend((0..state.pending.len()).map(What::Finish));
    all.extend(system.leader_steps(state, 0).into_iter().map(|step| What::Leader(0, step)));
    for n in node_ids() {
        system.controller_actions(state, n, &mut all);
        system.node_actions(state, n, &mut all);
    }
    // Last: whoever waits does not wait for that.
    all.extend(system.lingers_end(state));
    all.into_iter().find_map(|what| {
        let mut new = state.clone();
        system.step(&mut new, &what);
        system.settle(state, &mut new);
        (new != *state).then_some((what, new))
    })
}

fn is_attached(att: &Att) -> bool {
    att.state == AttachmentState::Attached
}

/// Why a state of rest is not what the claims ask for. While Attachments linger nobody may be waiting for that to end.
fn bad_rest(config: &Config, s: &State, lingers: bool) -> Option<String> {
    let may_stay = |uid: u8| lingers && s.is_unused(uid) && s.att(uid).is_some_and(is_attached);
    if s.claims.iter().flatten().any(|c| c.deleted) {
        return Some("a deleted claim stays".into());
    }
    if config.pods && s.claims.iter().flatten().any(|c| c.state.is_final()) {
        return Some("a Pod's claim that has ended stays".into());
    }
    let mut attached = [false; NODES];
    let mut staged = [false; NODES];
    let mut published = [[false; CLAIMS]; NODES];
    let mut served = Vec::new();
    let mut closing = false;
    for (c, claim) in s.claims.iter().enumerate() {
        let forgotten = |k: &&Claim| {
            let of = |r: &Rec, uid| r.forgotten && r.uid == uid && r.targets[c].is_some();
            k.assigned.is_some_and(|(uid, n)| s.nodes[usize::from(n)].records.iter().any(|r| of(r, uid)))
        };
        let kept = claim.as_ref().filter(forgotten);
        let Some(claim) = kept.or(claim.as_ref().filter(|k| k.state == ClaimState::Ready)) else { continue };
        let Some((uid, n)) = claim.assigned else { return Some("Ready without a grant".into()) };
        if kept.is_some() {
            // Its lock was removed by hand. The mount stays for as long as the claim does.
            published[usize::from(n)][c] = true;
            staged[usize::from(n)] = config.stage;
            served.push(c);
            // Everybody else waits for it.
            closing = true;
            continue;
        }
        let Some(att) = s.att(uid) else { return Some("Ready without an Attachment".into()) };
        let usable = if config.attach { AttachmentState::Attached } else { AttachmentState::Taken };
        if att.state != usable {
            return Some("Ready on an Attachment that is not attached".into());
        }
        // Of a Node that was deleted nothing new is done, also when another one has its name.
        let is_of_node = att.node_uid == s.machines[usize::from(att.node)].uid;
        let owes = config.grows && !att.grown && !att.deleted && !att.lost && is_of_node;
        if owes && !config.claims[c].read_only {
            return Some("a node does not follow a volume that has grown".into());
        }
        let n = usize::from(n);
        (attached[n], staged[n], published[n][c]) = (config.attach, config.stage, true);
        // What was granted under an earlier UID of the Node ends before anything is granted under the new one.
        closing |= att.deleted || att.node_uid != s.machines[n].uid;
        served.push(c);
    }
    let is = |what: &Vec<u8>| !what.is_empty();
    if s.truth.attached.map(|a| a.is_some_and(|(uid, _)| !may_stay(uid))) != attached {
        return Some("attached where no claim is".into());
    }
    if s.truth.staged.each_ref().map(is) != staged {
        return Some("staged where no claim is".into());
    }
    if s.truth.published.map(|n| n.map(|t| t.is_some())) != published {
        return Some("mounted where no claim is".into());
    }
    // A claim waits for a Volume that is not there, is going, or is not the first at its handle.
    let volume =
        |c: u8| super::volumes::names(config, &s.volumes).into_iter().find(|n| n.claims.contains(&c));
    let served_by =
        |c: u8| volume(c).and_then(|n| n.current).is_some_and(|(v, vol)| !vol.deleted && s.handle.owner == v);
    let wants = |c: usize, k: &Claim| {
        let waits = !served.contains(&c) && k.state != ClaimState::Lost;
        waits && (config.volumes == Volumes::Stays || u8::try_from(c).is_ok_and(served_by))
    };
    let alive = s.controllers.iter().any(|c| c.alive) || !config.attach;
    // Who is younger waits for who is older; so the oldest that waits does so for one that is served.
    let first = s.claims.iter().enumerate().find(|(c, k)| k.as_ref().is_some_and(|k| wants(*c, k)));
    if let Some((first, _)) = first.filter(|_| alive) {
        let yields = served.iter().any(|c| closing || !config.compatible(*c, first));
        if !yields {
            return Some("a claim waits for nobody".into());
        }
    }
    let uses = |a: &Att, c: &Claim| c.assigned.is_some_and(|(u, _)| u == a.uid);
    let is_used = |a: &Att| s.claims.iter().flatten().any(|c| uses(a, c));
    if !s.atts.iter().all(|a| is_used(a) || may_stay(a.uid)) {
        return Some("an Attachment that nobody uses stays".into());
    }
    let records = s.nodes.iter().flat_map(|n| &n.records);
    if records.into_iter().any(|r| s.att(r.uid).is_none() && !r.forgotten) {
        return Some("a record without an Attachment stays".into());
    }
    if s.handle.there
        && s.handle.closing
        && served.is_empty()
        && s.volumes[usize::from(s.handle.owner)].is_some()
    {
        return Some("the handle stays closed".into());
    }
    let is_free = s.atts.iter().all(|a| may_stay(a.uid)) && served.is_empty();
    if s.volumes.iter().flatten().any(|v| v.deleted) && is_free {
        return Some("a deleted Volume stays".into());
    }
    let busy = s.calls.iter().any(|c| c.by != Actor::Backend);
    busy.then(|| "a call never ends".into())
}
