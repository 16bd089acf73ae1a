//! Node loss, as a leader sees and declares it.

use moor::api::ClaimState;
use moor::attachment::AttachmentSeen;
use moor::attachment::loss::{self, NodeNow};
use moor::claim::ClaimSeen;

use super::config::{Config, node_name};
use super::leader::{LeaderDoes, LeaderView, view};
use super::seen::{att_seen, claim_seen, node_uid};
use super::state::{Actor, Att, State};

/// Declares lost, and ends the claims of what was lost.
pub fn plans(config: &Config, view: &LeaderView, own: &[Att], claims: &[ClaimSeen]) -> Vec<LeaderDoes> {
    let mut steps = Vec::new();
    for att in own {
        let seen = att_seen(config, att);
        if matches!(judge(view, att, &seen, claims), loss::Verdict::Lost(_)) {
            steps.push(LeaderDoes::LookAtNode(*att));
        }
        for (c, claim) in (0..).zip(&view.claims) {
            let Some(claim) = claim.filter(|k| att.lost && !k.deleted) else { continue };
            let over = matches!(claim.state, ClaimState::Lost | ClaimState::NodeDetached);
            if !over && claim_seen(config, c, &claim).uses() == Some(&seen.uid) {
                steps.push(LeaderDoes::EndClaim(c, claim));
            }
        }
    }
    steps
}

/// Looks again, live, before the write.
pub fn look(config: &Config, state: &mut State, att: Att) {
    let live = looked_at(state);
    let claims: Vec<_> = (0..)
        .zip(&live.claims)
        .filter_map(|(c, claim)| claim.as_ref().map(|k| claim_seen(config, c, k)))
        .collect();
    if matches!(judge(&live, &att, &att_seen(config, &att), &claims), loss::Verdict::Lost(_)) {
        state.declaring = Some(att);
        if !state.habits.slow_loss {
            finish(state);
        }
    }
}

/// Looks once more, after the Attachment was seen as lost.
pub fn look_before_free(config: &Config, state: &mut State, who: Actor, att: Att) {
    let live = looked_at(state);
    let seen = att_seen(config, &att);
    if with_facts(&live, &att, &seen, &[], loss::is_still_out) {
        state.freeing = Some((who, att));
        if !state.habits.slow_loss {
            finish_free(state);
        }
    }
}

/// What live reads show, or, where that is a habit, the caches of an old leader.
fn looked_at(state: &State) -> LeaderView {
    view(state, Actor::Leader(u8::from(state.habits.blind_loss)))
}

/// Rule R4, by what this leader sees.
fn judge(view: &LeaderView, att: &Att, seen: &AttachmentSeen, claims: &[ClaimSeen]) -> loss::Verdict {
    with_facts(view, att, seen, claims, loss::judge)
}

/// A machine keeps its name for the driver.
fn with_facts<T>(
    view: &LeaderView,
    att: &Att,
    seen: &AttachmentSeen,
    claims: &[ClaimSeen],
    ask: impl Fn(&loss::Seen<'_>) -> T,
) -> T {
    let (now, object) = (&view.machines[usize::from(att.node)], &view.nodes[usize::from(att.node)]);
    let node = if object.unregistered {
        NodeNow::Gone
    } else {
        NodeNow::There {
            uid: node_uid(att.node, object.uid),
            out_of_service: object.tainted,
            boot_id: String::new(),
            node_id: Some(node_name(att.node).into()),
        }
    };
    ask(&loss::Seen {
        attachment: seen,
        machine: &loss::Machine {
            node_uid: seen.node_uid.clone(),
            node_id: node_name(att.node).into(),
            boot_id: String::new(),
        },
        node: &node,
        silent: now.away || now.uid != att.node_uid,
        heard_now: !now.away && !object.unregistered && now.uid == object.uid,
        claims: &claims.iter().filter(|c| c.uses() == Some(&seen.uid)).cloned().collect::<Vec<_>>(),
    })
}

/// The write that says that a node is lost.
pub fn finish(state: &mut State) {
    if let Some(seen) = state.declaring.take()
        && state.update_att(Actor::Leader(0), &seen, Att { lost: true, ..seen })
        && !state.truth.cut.contains(&seen.uid)
    {
        state.truth.cut.push(seen.uid);
    }
}

/// The write that frees what is lost.
pub fn finish_free(state: &mut State) {
    if let Some((who, seen)) = state.freeing.take() {
        state.free_att(who, &seen);
    }
}
