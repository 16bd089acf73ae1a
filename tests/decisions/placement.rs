//! Which node a claim gets, and which it does not. T.., L.. and B.. are those of docs/known-traps.md.

use std::collections::BTreeMap;

use moor::api::volume::Segments;
use moor::api::{ClaimState, lock};
use moor::attachment::AttachmentSeen;
use moor::claim::admission::{Grant, Seen, Verdict, admit};
use moor::claim::observed::{has_room, reaches};
use moor::claim::reason::Waiting;
use moor::claim::release::{self, ReleaseStep};
use moor::claim::{ClaimSeen, NodeSeen};

use super::fixtures::{self, DRIVER_VOLUME, attachment, handle, node, volume};

fn claim(name: &str, node: Option<&str>) -> ClaimSeen {
    ClaimSeen { node: node.map(Into::into), ..fixtures::claim(name) }
}

/// What becomes of each claim, in the order in which they are judged.
fn verdicts(claims: &[ClaimSeen], attachments: &[AttachmentSeen], nodes: &[NodeSeen]) -> Vec<Verdict> {
    let (volume, handle) = (volume(), handle());
    let seen = Seen {
        volume_name: "volume",
        volume: Some(&volume),
        handle: Some(&handle),
        claims,
        attachments,
        nodes,
        forgotten: &[],
        not_allowed: &[],
    };
    admit(&seen).into_iter().map(|(_, verdict)| verdict).collect()
}

/// The node on which a claim is granted.
fn granted(claim: &ClaimSeen, nodes: &[NodeSeen]) -> Option<String> {
    match verdicts(std::slice::from_ref(claim), &[], nodes).as_slice() {
        [Verdict::Grant(Grant::Create { node, .. })] => Some(node.clone()),
        [Verdict::Wait(Waiting::NoNode { .. } | Waiting::NodeNotUsable { .. })] => None,
        other => unreachable!("{other:?}"),
    }
}

/// T4: the driver's limit holds, and 0 is none.
#[test]
fn a_limit_of_zero_is_no_limit() {
    for (limit, load, expected) in [
        (0, 0, true),
        (0, 10_000, true),
        (1, 0, true),
        (1, 1, false),
        (3, 2, true),
        (3, 3, false),
        (3, 7, false),
    ] {
        assert_eq!(has_room(limit, load), expected, "{load} of {limit}");
    }
}

/// Where a volume is detached from is told by the node id alone.
#[test]
fn nodes_that_a_driver_cannot_tell_apart_get_nothing() {
    let twins = ["node-1", "node-2"].map(|name| {
        let other = if name == "node-1" { "node-2" } else { "node-1" };
        NodeSeen { twin: Some(other.into()), ..node(name) }
    });
    assert_eq!(granted(&claim("a", None), &twins), None);
    for (name, other) in [("node-1", "node-2"), ("node-2", "node-1")] {
        let waits = verdicts(&[claim("a", Some(name))], &[], &twins);
        let [Verdict::Wait(why)] = waits.as_slice() else { panic!("{waits:?}") };
        assert!(why.message().contains(name) && why.message().contains(other), "{}", why.message());
    }
    let [first, second] = twins;
    assert_eq!(granted(&claim("a", None), &[first, second, node("node-3")]), Some("node-3".into()));
}

/// T4, L9.
#[test]
fn a_full_node_gets_no_further_volume() {
    let full = NodeSeen { has_room: false, ..node("node-1") };
    let busy = NodeSeen { load: 9, ..node("node-2") };
    assert_eq!(granted(&claim("a", None), &[full.clone(), busy]), Some("node-2".into()));
    assert_eq!(granted(&claim("a", None), std::slice::from_ref(&full)), None);
    assert_eq!(granted(&claim("a", Some("node-1")), std::slice::from_ref(&full)), None);
    assert_eq!(granted(&claim("a", Some("node-1")), &[node("node-1")]), Some("node-1".into()));
}

/// The volume is counted already: a claim more costs the node nothing (trap L9).
#[test]
fn a_full_node_takes_another_claim_on_a_volume_that_it_has() {
    let full = NodeSeen { has_room: false, ..node("node-1") };
    let second = claim("b", Some("node-1"));
    let there = AttachmentSeen {
        name: lock::attachment_name(DRIVER_VOLUME, second.mode, "node-1"),
        node: "node-1".into(),
        node_uid: "node-1".into(),
        ..attachment("u")
    };
    let verdict = verdicts(&[second], &[there], &[full]);
    assert!(matches!(verdict.as_slice(), [Verdict::Grant(Grant::Join { .. })]), "{verdict:?}");
}

/// A drain would only have to wait for it. Who names the node has it, as a Pod has with spec.nodeName.
#[test]
fn nobody_is_sent_to_a_node_that_takes_no_pods() {
    let cordoned = NodeSeen { retires: true, ..node("node-1") };
    let busy = NodeSeen { load: 9, ..node("node-2") };
    assert_eq!(granted(&claim("a", None), &[cordoned.clone(), busy]), Some("node-2".into()));
    assert_eq!(granted(&claim("a", None), std::slice::from_ref(&cordoned)), None);
    assert_eq!(granted(&claim("a", Some("node-1")), std::slice::from_ref(&cordoned)), Some("node-1".into()));
    // Where the volume is and can only be once it would wait for it elsewhere, and others behind it.
    let second = claim("b", None);
    let there = AttachmentSeen {
        name: lock::attachment_name(DRIVER_VOLUME, second.mode, "node-1"),
        node: "node-1".into(),
        node_uid: "node-1".into(),
        ..attachment("u")
    };
    let verdict = verdicts(&[second], &[there], &[cordoned, node("node-2")]);
    assert!(matches!(verdict.as_slice(), [Verdict::Grant(Grant::Join { .. })]), "{verdict:?}");
}

#[test]
fn labels_are_asked_of_the_node_that_is_picked() {
    let asks = |pairs: &[(&str, &str)]| ClaimSeen { node_selector: labels(pairs), ..claim("a", None) };
    let labelled = |name: &str, pairs: &[(&str, &str)]| NodeSeen { labels: labels(pairs), ..node(name) };
    let nodes = [
        labelled("node-1", &[("disk", "hdd"), ("zone", "a")]),
        labelled("node-2", &[("disk", "ssd")]),
        labelled("node-3", &[("disk", "ssd"), ("zone", "a")]),
    ];
    assert_eq!(granted(&asks(&[]), &nodes), Some("node-1".into()));
    assert_eq!(granted(&asks(&[("disk", "ssd")]), &nodes), Some("node-2".into()));
    assert_eq!(granted(&asks(&[("disk", "ssd"), ("zone", "a")]), &nodes), Some("node-3".into()));
    assert_eq!(granted(&asks(&[("disk", "tape")]), &nodes), None);
    assert_eq!(granted(&asks(&[("disk", "")]), &[node("bare")]), None);
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn who_finds_no_node_is_told_how_many_lack_what() {
    let why = |nodes: &[NodeSeen]| match verdicts(&[claim("a", None)], &[], nodes).as_slice() {
        [Verdict::Wait(why @ Waiting::NoNode { .. })] => why.message(),
        other => unreachable!("{other:?}"),
    };
    assert!(why(&[]).contains("no node has shown a node plugin"));
    let nodes = [
        NodeSeen { has_room: false, ..node("1") },
        NodeSeen { healthy: false, reachable: false, ..node("2") },
        NodeSeen { reachable: false, has_room: false, ..node("3") },
        NodeSeen { healthy: false, ..node("4") },
        NodeSeen { retires: true, unclean: true, ..node("5") },
        NodeSeen { unclean: true, ..node("6") },
        NodeSeen { twin: Some("7".into()), ..node("7") },
    ];
    assert_eq!(
        why(&nodes),
        "none of the 7 nodes of the driver can take it: 2 without a healthy node plugin, or out of service; 1 from which the \
         volume cannot be reached; 1 cordoned, or with a kubelet that is not Ready; 1 not cleared up since its agent was \
         silent; 1 that the driver knows by the id of another; 1 with as many volumes as the driver takes there"
    );
}

/// T23: one bad node, wherever it stands, hides no good one; and a good one makes no bad one usable.
#[test]
fn every_node_is_looked_at() {
    let bad = [
        NodeSeen { healthy: false, ..node("node-0") },
        NodeSeen { reachable: false, ..node("node-1") },
        NodeSeen { unclean: true, ..node("node-4") },
        NodeSeen { has_room: false, ..node("node-3") },
    ];
    for at in 0..=bad.len() {
        let mut nodes = bad.to_vec();
        nodes.insert(at, node("node-2"));
        assert_eq!(granted(&claim("a", None), &nodes), Some("node-2".into()), "at {at}");
        for other in &bad {
            assert_eq!(granted(&claim("a", Some(&other.name)), &nodes), None, "{other:?}");
        }
    }
    assert_eq!(granted(&claim("a", None), &bad), None);
}

/// B30, L14: what cannot be placed waits, and what can goes before it.
#[test]
fn a_claim_that_cannot_be_placed_holds_up_nobody() {
    let mut older = claim("older", Some("nowhere"));
    older.created = 1;
    let mut younger = claim("younger", None);
    younger.created = 2;
    let verdicts = verdicts(&[younger, older], &[], &[node("node-1")]);
    assert!(
        matches!(
            verdicts.as_slice(),
            [Verdict::Wait(Waiting::NodeNotUsable { .. }), Verdict::Grant(Grant::Create { .. })]
        ),
        "{verdicts:?}"
    );
}

/// T59, L15: a node may have more segments than a term asks for; one term is enough; none is anywhere.
#[test]
fn a_node_reaches_a_volume_if_it_has_all_segments_of_one_term() {
    let segments = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    };
    let term = |all: &[(&str, &str)]| Segments { segments: segments(all) };
    let node = segments(&[("region", "r1"), ("zone", "z1"), ("rack", "7")]);
    assert!(reaches(&[], &node));
    assert!(reaches(&[term(&[("zone", "z1")])], &node));
    assert!(reaches(&[term(&[("region", "r1"), ("zone", "z1")])], &node));
    assert!(reaches(&[term(&[("zone", "z2")]), term(&[("zone", "z1")])], &node));
    assert!(!reaches(&[term(&[("zone", "z2")])], &node));
    assert!(!reaches(&[term(&[("zone", "z1"), ("host", "h")])], &node));
    assert!(!reaches(&[term(&[("region", "r1"), ("zone", "z2")])], &node));
}

/// L17: a claim that was never granted has nothing to undo, and waits for nobody.
#[test]
fn a_claim_that_never_got_anything_is_freed_at_once() {
    let mut never = claim("a", None);
    (never.deleted, never.held) = (true, true);
    assert_eq!(release::plan(&never, &[]), Some(ReleaseStep::Free));
    never.held = false;
    assert_eq!(release::plan(&never, &[]), None);
}

/// What its node is done with is free although others stay on the Attachment; what it gave back it never
/// had; and an Attachment that is there keeps every other claim.
#[test]
fn a_claim_is_freed_when_its_node_is_done_with_it() {
    let there = attachment("u");
    let leaving = ClaimSeen { deleted: true, ..fixtures::granted("a", &there) };
    assert_eq!(release::plan(&leaving, std::slice::from_ref(&there)), None);
    assert_eq!(release::plan(&leaving, &[]), Some(ReleaseStep::FreeIfAttachmentGone));
    let detached = ClaimSeen { state: ClaimState::NodeDetached, ..leaving.clone() };
    assert_eq!(release::plan(&detached, std::slice::from_ref(&there)), Some(ReleaseStep::Free));
    let gave_back = ClaimSeen { yielded: Some("u".into()), ..leaving };
    assert_eq!(release::plan(&gave_back, &[there]), Some(ReleaseStep::Free));
}
