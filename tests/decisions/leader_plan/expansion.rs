//! Which Attachments are told how large the volume is to be on their nodes, and when all nodes have followed (ADR 48).

use moor::api::ClaimState;
use moor::api::volume::Expansion;
use moor::attachment::NodeGrowth;
use moor::claim::ClaimSeen;

use super::linger::{does, lingering, on};
use super::*;
use crate::fixtures::granted;

const BYTES: i64 = 3;

/// A volume whose nodes have to follow, attached on one node, with these claims.
fn grown(claims: &[ClaimSeen], growth: NodeGrowth) -> Observed {
    let mut observed = lingering();
    let status = observed.volume.as_mut().unwrap().status.get_or_insert_default();
    status.capacity_bytes = Some(BYTES);
    status.expansion = Some(Expansion { capacity_bytes: BYTES, node_expansion_required: true });
    for attachment in observed.attachments.iter_mut().chain(&mut observed.locks) {
        attachment.growth = growth;
    }
    observed.claims = claims.to_vec();
    observed
}

fn user() -> ClaimSeen {
    ClaimSeen { state: ClaimState::Ready, ..granted("c", &lingering().attachments[0]) }
}

fn told() -> LeaderStep {
    LeaderStep::AskNode { attachment: "att".into(), bytes: BYTES }
}

const UNTOLD: NodeGrowth = NodeGrowth { asked: 0, reached: 0 };
const TOLD: NodeGrowth = NodeGrowth { asked: BYTES, reached: 0 };
const DONE: NodeGrowth = NodeGrowth { asked: BYTES, reached: BYTES };

#[test]
fn a_node_is_told_once_and_then_all_have_followed() {
    assert_eq!(does(&grown(&[user()], UNTOLD)), told());
    assert_eq!(does(&grown(&[user()], TOLD)), LeaderStep::Rest);
    assert_eq!(does(&grown(&[user()], DONE)), LeaderStep::ReportFollowed(BYTES));
    let larger = NodeGrowth { asked: 2 * BYTES, reached: 0 };
    assert_eq!(does(&grown(&[user()], larger)), told(), "it was lowered since");
    let mut done = grown(&[user()], DONE);
    done.volume.as_mut().unwrap().status.as_mut().unwrap().expansion =
        Some(Expansion { capacity_bytes: BYTES, node_expansion_required: false });
    assert_eq!(does(&done), LeaderStep::Rest);
}

#[test]
fn it_is_told_before_a_claim_joins() {
    let comes = on("c", "node-1");
    assert_eq!(does(&grown(std::slice::from_ref(&comes), UNTOLD)), told());
    let joins = does(&grown(&[comes], TOLD));
    assert!(matches!(joins, LeaderStep::AssignClaim { .. }), "{joins:?}");
    assert_eq!(does(&grown(&[], UNTOLD)), told(), "somebody may join it when all others have followed");
}

#[test]
fn what_kubelet_sees_to_is_left_to_it() {
    let of_pod = ClaimSeen { of_pod: true, grown_by_kubelet: true, ..user() };
    assert_eq!(does(&grown(std::slice::from_ref(&of_pod), UNTOLD)), LeaderStep::Rest);
    let inline = ClaimSeen { grown_by_kubelet: false, ..of_pod };
    assert_eq!(does(&grown(&[inline], UNTOLD)), told());
    let reads = ClaimSeen { read_only: true, ..user() };
    assert_eq!(does(&grown(&[reads], UNTOLD)), LeaderStep::Rest);
    let mut exported = grown(&[], UNTOLD);
    let name = serde_json::from_value(serde_json::json!({ "name": "data" })).unwrap();
    exported.volume.as_mut().unwrap().spec.persistent_volume_claim = Some(name);
    assert_eq!(does(&exported), LeaderStep::Rest);
}

#[test]
fn what_leaves_is_told_nothing() {
    let mut closing = grown(&[user()], UNTOLD);
    for attachment in closing.attachments.iter_mut().chain(&mut closing.locks) {
        attachment.deleted = true;
    }
    assert_eq!(does(&closing), LeaderStep::Rest);
    let mut deleted = grown(&[user()], UNTOLD);
    deleted.volume.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_ne!(does(&deleted), told());
}
