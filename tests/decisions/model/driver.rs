//! The driver: what a call does to the world, and in which order calls may come.

use moor::api::{AccessMode, ClaimState};
use moor::claim::admission::is_exclusive;

use super::config::Config;
use super::harm::Harm;
use super::pods::Kubelet;
use super::state::{Call, Rpc, State};

/// The call takes effect. A caller that is still there made it now, so its order is checked; a call that
/// outlived its caller just fails where the node does not have what it needs.
pub fn effect(config: &Config, state: &mut State, call: &Call) {
    let (n, c, uid) = (usize::from(call.node), usize::from(call.claim), call.uid);
    let cut = state.truth.cut.contains(&uid);
    let strict = (call.waiting || config.serial) && !cut;
    let truth = &state.truth;
    let attached = !config.attach || truth.attached[n].is_some_and(|(u, _)| u == uid);
    let staged = !config.stage || truth.staged[n].contains(&uid);
    let ready = attached && staged;
    // What a lost Attachment left is cut off already, and cleaned by the node before it stages anything.
    let left = |u: &u8| !truth.cut.contains(u);
    let busy = truth.staged[n].iter().any(left) || truth.published[n].iter().flatten().any(left);
    let harm = match call.rpc {
        Rpc::ControllerPublish => attach_harm(state, call),
        Rpc::ControllerUnpublish if truth.attached[n].is_some_and(|(u, _)| u != uid) => {
            Some(Harm::DetachedUnderSibling)
        }
        Rpc::ControllerUnpublish if cut => None,
        Rpc::ControllerUnpublish => busy.then_some(Harm::DetachedUnderMount),
        Rpc::Stage if !attached && !strict => return,
        Rpc::Stage if !attached => Some(Harm::StagedUnattached),
        Rpc::Stage => truth.staged[n].iter().any(|u| *u != uid).then_some(Harm::StagedTwice),
        Rpc::Unstage => truth.published[n].contains(&Some(uid)).then_some(Harm::UnstagedUnderTarget),
        Rpc::Publish if !ready && !strict => return,
        Rpc::Publish if !ready => Some(Harm::PublishedUnready),
        Rpc::Publish if !state.reaches(config, n, uid) => None,
        Rpc::Publish => publish_harm(config, state, call),
        Rpc::Expand if !strict => return,
        Rpc::Expand => (!ready || truth.published[n][c] != Some(uid)).then_some(Harm::GrownUnready),
        Rpc::Unpublish => {
            let wanted = state.claims[c].is_some_and(|k| !k.deleted && k.state == ClaimState::Ready);
            let this_boot = state.claims[c].is_some_and(|k| k.boot == state.nodes[n].boot);
            let is_let_go = matches!(state.kubelet[c], Kubelet::Leaves | Kubelet::Gone);
            (wanted && this_boot && !cut && !is_let_go && truth.published[n][c] == Some(uid))
                .then_some(Harm::UnmountedWhileReady)
        }
    };
    if let Some(harm) = harm {
        state.harmed(harm);
    }
    let truth = &mut state.truth;
    match call.rpc {
        Rpc::ControllerPublish => truth.attached[n] = Some((uid, call.mode)),
        Rpc::ControllerUnpublish => truth.attached[n] = None,
        Rpc::Stage if truth.staged[n].contains(&uid) => {}
        Rpc::Stage => {
            truth.staged[n].push(uid);
            truth.staged[n].sort_unstable();
        }
        Rpc::Unstage => truth.staged[n].retain(|u| *u != uid),
        Rpc::Publish => truth.published[n][c] = Some(uid),
        Rpc::Unpublish => truth.published[n][c] = None,
        Rpc::Expand => {}
    }
}

fn attach_harm(state: &State, call: &Call) -> Option<Harm> {
    let n = usize::from(call.node);
    let other = |(at, held): (usize, &Option<(u8, AccessMode)>)| {
        held.is_some_and(|(uid, mode)| {
            uid != call.uid && (at == n || !mode.is_multi_node() || !call.mode.is_multi_node())
        })
    };
    if state.truth.attached.iter().enumerate().any(other) {
        return Some(Harm::AttachedTwice);
    }
    let staged = state.truth.staged[n].iter().copied();
    let mut mounted = staged.chain(state.truth.published[n].iter().flatten().copied());
    let left = mounted.any(|uid| uid != call.uid && state.truth.cut.contains(&uid));
    left.then_some(Harm::AttachedUnderLeftovers)
}

fn publish_harm(config: &Config, state: &State, call: &Call) -> Option<Harm> {
    let (n, c) = (usize::from(call.node), usize::from(call.claim));
    let specs = &config.claims;
    for (at, targets) in state.truth.published.iter().enumerate() {
        for (other, uid) in targets.iter().enumerate().filter(|(o, _)| (at, *o) != (n, c)) {
            if uid.is_none_or(|uid| !state.reaches(config, at, uid)) {
                continue;
            }
            let single = !specs[other].mode.is_multi_node() || !specs[c].mode.is_multi_node();
            if at != n && single {
                return Some(Harm::PublishedOnTwoNodes);
            }
            if at == n && is_exclusive(call.mode, config.shares_node) {
                return Some(Harm::SecondTarget);
            }
            let one_writer = specs[c].mode == AccessMode::MultiNodeSingleWriter;
            if one_writer && !specs[c].read_only && !specs[other].read_only {
                return Some(Harm::TwoWriters);
            }
        }
    }
    None
}
