//! What ends the time for which an Attachment that nobody uses stays attached, one by one (ADR 27).

use moor::api::capability::VolumeUse;
use moor::api::{AccessMode, AttachmentState};
use moor::attachment::closing::Unused;
use moor::claim::{ClaimSeen, NodeSeen, VolumeSeen};

use super::*;
use crate::fixtures::{DRIVER_VOLUME, claim, granted, node};

fn attached() -> AttachmentSeen {
    let mode = AccessMode::default();
    AttachmentSeen {
        name: moor::api::lock::attachment_name(DRIVER_VOLUME, mode, "node-1"),
        volume_uid: "v".into(),
        node: "node-1".into(),
        node_uid: "node-1".into(),
        lingers: true,
        ..attachment()
    }
}

fn of(unused: Unused, attachment: AttachmentSeen) -> Observed {
    let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
    volume.metadata.deletion_timestamp = None;
    let both = [AccessMode::default(), AccessMode::MultiNodeMultiWriter];
    let uses = both.map(|access_mode| VolumeUse { access_mode, ..VolumeUse::default() });
    let seen = VolumeSeen { uid: "v".into(), uses: uses.into(), ..fixtures::volume() };
    Observed {
        volume: Some(volume),
        volume_seen: Some(seen),
        instances: vec![instance("node-1", false)],
        handle: Some(lock(false, "node-1")),
        nodes: vec![node("node-1"), node("node-2")],
        unused: [(attachment.uid.clone(), unused)].into(),
        locks: vec![attachment.clone()],
        attachments: vec![attachment],
        ..Observed::default()
    }
}

/// Nobody uses it, and its time is not over.
pub(super) fn lingering() -> Observed {
    of(Unused { lingers: true, was_used: true }, attached())
}

fn close() -> LeaderStep {
    LeaderStep::Close { attachment: "att".into() }
}

pub(super) fn does(observed: &Observed) -> LeaderStep {
    step(observed, &Looked::default())
}

pub(super) fn on(name: &str, node: &str) -> ClaimSeen {
    ClaimSeen { node: Some(node.into()), ..claim(name) }
}

#[test]
fn it_stays_until_its_time_is_over() {
    assert_eq!(does(&lingering()), LeaderStep::Rest);
    let over = of(Unused { lingers: false, was_used: true }, attached());
    assert_eq!(does(&over), close(), "a claim was seen to leave");
    let unknown = of(Unused { lingers: false, was_used: false }, attached());
    assert_eq!(asks(&unknown, &Looked::default()), Look::Users { attachment: "att".into() });
}

#[test]
fn only_what_is_attached_for_that_lingers() {
    let unused = Unused { lingers: true, was_used: true };
    let not_made_for_it = AttachmentSeen { lingers: false, ..attached() };
    let not_attached = AttachmentSeen { state: AttachmentState::Taken, ..attached() };
    let without_calls = AttachmentSeen { attach: false, controller: None, ..attached() };
    let left = AttachmentSeen { state: AttachmentState::NodeDetached, ..attached() };
    for other in [not_made_for_it, not_attached, without_calls, left] {
        assert_eq!(does(&of(unused, other.clone())), close(), "{other:?}");
    }
}

#[test]
fn whoever_comes_back_to_the_node_joins_it() {
    for comes in [on("b", "node-1"), claim("b")] {
        let observed = Observed { claims: vec![comes.clone()], ..lingering() };
        let done = does(&observed);
        let joins = matches!(&done, LeaderStep::AssignClaim { attachment, .. } if *attachment == "att");
        assert!(joins, "{comes:?}: {done:?}");
    }
}

/// Not even with the claim that it waits for still leaving.
#[test]
fn who_waits_for_the_claim_before_on_the_same_node_does_not_end_it() {
    let alone = AttachmentSeen { exclusive: true, ..attached() };
    let leaves = ClaimSeen { deleted: true, ..granted("a", &alone) };
    let comes = on("b", "node-1");
    let unused = Unused { lingers: true, was_used: true };
    let observed = Observed { claims: vec![leaves.clone(), comes], ..of(unused, alone.clone()) };
    assert_eq!(does(&observed), LeaderStep::Rest);
    let elsewhere = Observed { claims: vec![leaves.clone(), on("b", "node-2")], ..observed.clone() };
    assert_eq!(does(&elsewhere), close());
    // What its node has given back it cannot join.
    let refused = ClaimSeen { yielded: Some("att".into()), ..on("b", "node-1") };
    assert_eq!(does(&Observed { claims: vec![leaves, refused], ..observed }), close());
}

#[test]
fn who_wants_the_volume_otherwise_does_not_wait() {
    let elsewhere = on("b", "node-2");
    let otherwise = ClaimSeen { mode: AccessMode::MultiNodeMultiWriter, ..on("b", "node-1") };
    for wants in [elsewhere, otherwise] {
        let observed = Observed { claims: vec![wants.clone()], ..lingering() };
        assert_eq!(does(&observed), close(), "{wants:?}");
    }
    // Who could not be granted anyway wants nothing.
    let sick = NodeSeen { healthy: false, ..node("node-2") };
    let nodes = vec![node("node-1"), sick];
    let observed = Observed { claims: vec![on("b", "node-2")], nodes, ..lingering() };
    assert_eq!(does(&observed), LeaderStep::Rest);
}

#[test]
fn it_ends_with_what_it_was_granted_under() {
    let deleted = Observed {
        volume: Some(leaving(VolumeOperation::Create, "node-1", VolumeState::Ready)),
        volume_seen: lingering().volume_seen.map(|v| VolumeSeen { deleted: true, ..v }),
        ..lingering()
    };
    let removed = Observed { volume: None, volume_seen: None, ..lingering() };
    let again = lingering().volume_seen.map(|v| VolumeSeen { uid: "again".into(), ..v });
    let made_again = Observed { volume_seen: again, ..lingering() };
    let closing = Observed { handle: Some(lock(true, "node-1")), ..lingering() };
    let later = Observed { handle: Some(HandleSeen { epoch: 2, ..lock(false, "node-1") }), ..lingering() };
    for observed in [&deleted, &removed, &made_again, &closing, &later] {
        assert_eq!(does(observed), close(), "{observed:#?}");
    }
}

#[test]
fn it_ends_on_a_node_that_goes() {
    let well = node("node-1");
    let all = [
        NodeSeen { healthy: false, ..well.clone() },
        NodeSeen { retires: true, ..well.clone() },
        NodeSeen { unclean: true, ..well.clone() },
        NodeSeen { twin: Some("node-2".into()), ..well.clone() },
        NodeSeen { uid: "registered anew".into(), ..well },
    ];
    for goes in all {
        assert_eq!(does(&Observed { nodes: vec![goes.clone()], ..lingering() }), close(), "{goes:?}");
    }
    assert_eq!(does(&Observed { nodes: Vec::new(), ..lingering() }), close(), "it is gone");
}

/// An order to detach a claim by force is one for its volume too.
#[test]
fn an_order_to_force_ends_it() {
    let leaves = ClaimSeen { deleted: true, ..granted("a", &attached()) };
    let observed = |claim| Observed { claims: vec![claim], ..lingering() };
    assert_eq!(does(&observed(leaves.clone())), LeaderStep::Rest);
    assert_eq!(does(&observed(ClaimSeen { force: true, ..leaves })), close());
}
