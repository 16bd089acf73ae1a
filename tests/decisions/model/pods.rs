//! kubelet, and the calls of its that a node's agent answers. Where claims are Pods', the agent makes nothing that
//! kubelet does not wait for, and undoes what kubelet says, whatever the API server has.
//!
//! What an agent knows of this is in its memory alone. Whatever a crash lets it forget, kubelet says again or, of a claim
//! whose Pod is gone, a look at the Pod's directory shows.

use moor::api::AccessMode::{SingleNodeSingleWriter, SingleNodeWriter};
use moor::api::ClaimState;

use super::actions::What;
use super::config::{Budget, CLAIMS, Config, claim_ids};
use super::harm::Harm;
use super::node;
use super::report::check;
use super::state::{Actor, State};
use super::{L1, NONE, OLD_AGENTS, bounds};
use crate::model::state::Kind;

/// What kubelet is at with one Pod's volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kubelet {
    /// It has not asked, or was not answered: it asks again, or says that it does not want it any more.
    #[default]
    Open,
    /// NodePublishVolume is running.
    Asks,
    /// It was answered with OK: the Pod's containers run.
    Served,
    /// NodeUnpublishVolume is running. It is repeated until it is answered with OK.
    Leaves,
    /// It was answered with OK. The Pod's directory goes.
    Gone,
}

/// What an agent has in its memory of kubelet's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asked {
    pub asked: [bool; CLAIMS],
    pub released: [bool; CLAIMS],
}

impl Asked {
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A step of kubelet's, or of the agent that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KubeletDoes {
    Publish,
    PublishAnswered,
    /// kubelet's deadline ends, or the agent's does before it.
    PublishGivenUp,
    Unpublish,
    UnpublishAnswered,
    /// The agent deletes the claim: after it has answered, or because it finds the Pod's directory gone.
    DeleteClaim,
}

fn node_of(config: &Config, c: u8) -> u8 {
    config.claims[usize::from(c)].node.expect("a Pod's claim names its node")
}

/// The steps that may be next. `gives_up`: kubelet may stop waiting, and Pods may end.
pub fn actions(config: &Config, s: &State, gives_up: bool, actions: &mut Vec<What>) {
    if !config.pods {
        return;
    }
    for c in claim_ids().take(config.claims.len()) {
        let at = usize::from(c);
        let n = node_of(config, c);
        let (machine, me) = (s.machines[usize::from(n)], &s.nodes[usize::from(n)]);
        if machine.off {
            continue;
        }
        let claim = s.claims[at].filter(|claim| !claim.deleted);
        let mut may = |step| actions.push(What::Kubelet(c, step));
        match s.kubelet[at] {
            Kubelet::Open => {
                // The claim is made, or read live, before anything is done for it.
                if claim.is_some() && !machine.away {
                    may(KubeletDoes::Publish);
                }
            }
            Kubelet::Asks => {
                let seen = s.claims_of(Actor::Node(n))[at];
                let is_ready =
                    |k: &super::state::Claim| !k.deleted && k.state == ClaimState::Ready && k.boot == me.boot;
                // Ready may be said of a mount that is gone, or goes because the node was taken for lost meanwhile.
                let is_granted = |k: &super::state::Claim| {
                    let uid = k.assigned.map(|(uid, _)| uid);
                    s.atts_of(Actor::Node(n)).iter().any(|a| Some(a.uid) == uid && !a.lost && !a.deleted)
                };
                let stands = |k: &super::state::Claim| is_ready(k) && is_granted(k);
                if seen.as_ref().is_some_and(stands) && node::view(s, n).mounted[at] {
                    may(KubeletDoes::PublishAnswered);
                }
                if gives_up && s.budget.late > 0 {
                    may(KubeletDoes::PublishGivenUp);
                }
                // The claim was taken back.
                if claim.is_none() && s.budget.late == 0 {
                    may(KubeletDoes::PublishGivenUp);
                }
            }
            Kubelet::Leaves if !me.kubelet.released[at] => may(KubeletDoes::Unpublish),
            Kubelet::Leaves => {
                let rests = me.pass.is_none() && !me.dirty && !s.waits(Actor::Node(n));
                if rests && me.records.iter().all(|r| r.targets[at].is_none()) {
                    may(KubeletDoes::UnpublishAnswered);
                }
            }
            Kubelet::Gone if claim.is_some() && !machine.away => may(KubeletDoes::DeleteClaim),
            Kubelet::Served | Kubelet::Gone => {}
        }
        // A Pod whose volume was taken away never gets it back: kubelet does not ask twice. It ends sooner or later.
        if !gives_up && s.kubelet[at] == Kubelet::Served && s.truth.published[usize::from(n)][at].is_none() {
            may(KubeletDoes::Unpublish);
        }
        let is_idle = matches!(s.kubelet[at], Kubelet::Open | Kubelet::Served);
        if gives_up && is_idle && !config.kept.contains(&c) {
            may(KubeletDoes::Unpublish);
        }
    }
}

/// Does the step.
pub fn act(config: &Config, s: &mut State, c: u8, step: KubeletDoes) {
    let (at, n) = (usize::from(c), usize::from(node_of(config, c)));
    let is_mounted = s.truth.published[n][at].is_some();
    let me = &mut s.nodes[n];
    match step {
        KubeletDoes::Publish => {
            (s.kubelet[at], me.kubelet.asked[at], me.dirty) = (Kubelet::Asks, true, true);
        }
        KubeletDoes::PublishAnswered => {
            (s.kubelet[at], me.kubelet.asked[at]) = (Kubelet::Served, false);
            if !is_mounted {
                s.harmed(Harm::ServedUnmounted);
            }
        }
        KubeletDoes::PublishGivenUp => {
            s.budget.late = s.budget.late.saturating_sub(1);
            (s.kubelet[at], me.kubelet.asked[at]) = (Kubelet::Open, false);
        }
        KubeletDoes::Unpublish => {
            (s.kubelet[at], me.kubelet.released[at], me.dirty) = (Kubelet::Leaves, true, true);
        }
        KubeletDoes::UnpublishAnswered => {
            s.kubelet[at] = Kubelet::Gone;
            if is_mounted {
                s.harmed(Harm::LeftMounted);
            }
        }
        KubeletDoes::DeleteClaim => s.delete_claim(c),
    }
}

/// A new process of the agent knows nothing of kubelet's calls, which have failed.
pub fn forget(s: &mut State, n: u8) {
    let before = std::mem::take(&mut s.nodes[usize::from(n)].kubelet);
    for (kubelet, asked) in s.kubelet.iter_mut().zip(before.asked) {
        if asked {
            *kubelet = Kubelet::Open;
        }
    }
}

/// After a reboot kubelet has every volume of its Pods made again.
pub fn boot(config: &Config, s: &mut State, n: u8) {
    forget(s, n);
    for c in claim_ids().take(config.claims.len()).filter(|_| config.pods) {
        let kubelet = &mut s.kubelet[usize::from(c)];
        if node_of(config, c) == n && *kubelet == Kubelet::Served {
            *kubelet = Kubelet::Open;
        }
    }
}

fn pods(mut config: Config) -> Config {
    config.pods = true;
    config
}

/// Two Pods on two nodes, one after the other: calls that kubelet gives up, a process that dies between kubelet's calls.
#[test]
fn a_pod_after_another_on_another_node() {
    let mut config = pods(Config::new(SingleNodeWriter, [0, 1]));
    config.by_kubelet_alone = true;
    config.budget =
        bounds(Budget { crash: 1, late: 1, ..NONE }, Budget { crash: 1, late: 2, lag: 1, ..NONE });
    check("a Pod after another, on another node", config);
}

/// Two Pods on one node share the volume, and leave in any order.
#[test]
fn two_pods_share_a_node() {
    let mut config = pods(Config::new(SingleNodeWriter, [0, 0]));
    config.by_kubelet_alone = true;
    config.budget =
        bounds(Budget { crash: 1, late: 1, ..NONE }, Budget { crash: 1, late: 1, fail: 1, ..NONE });
    check("two Pods share a node", config);
}

/// The claim of a Pod is deleted under it: because the Pod went while it waited, or by somebody's hand.
#[test]
fn a_pods_claim_is_taken_back() {
    let mut config = pods(Config::new(SingleNodeSingleWriter, [0, 0]));
    config.stage = false;
    config.budget = bounds(Budget { late: 1, ..NONE }, Budget { late: 1, crash: 1, ..NONE });
    check("a Pod's claim is taken back", config);
}

/// The agent's watches are behind kubelet's calls.
#[test]
fn kubelet_is_ahead_of_the_agents_watches() {
    let mut config = pods(Config::new(SingleNodeWriter, [0, 0]));
    (config.stage, config.by_kubelet_alone, config.lagging) = (false, true, OLD_AGENTS);
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 1, late: 1, crash: 1, ..NONE });
    check("kubelet is ahead of the agent's watches", config);
}

/// A node boots again: kubelet asks anew for what its Pods had.
#[test]
fn kubelet_asks_again_after_a_boot() {
    let mut config = pods(Config::new(SingleNodeWriter, [0, 0]));
    (config.stage, config.by_kubelet_alone, config.lagging) = (false, true, &[(L1, Kind::Claims)]);
    config.budget = bounds(Budget { reboot: 1, ..NONE }, Budget { reboot: 1, lag: 1, late: 1, ..NONE });
    check("kubelet asks again after a boot", config);
}

/// A node that reaches nobody unmounts what its Pods leave: it takes away a mount and gives nothing.
#[test]
fn a_pod_leaves_a_node_that_reaches_nobody() {
    let mut config = pods(Config::new(SingleNodeWriter, [1, 0]));
    (config.stage, config.by_kubelet_alone, config.leaves) = (false, true, Some(1));
    config.budget = bounds(Budget { away: 1, ..NONE }, Budget { away: 1, word: 1, crash: 1, ..NONE });
    check("a Pod leaves a node that reaches nobody", config);
}
