//! The decisions one by one.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::attachment::ControllerRef;
use moor::api::claim::Assignment;
use moor::api::handle::{Drift, DriftKind, DriftedNode, Undoing};
use moor::api::{AccessMode, AttachmentMode, AttachmentState, ClaimState};
use moor::attachment::closing::{self, ClosingStep};
use moor::attachment::controller_side::{self, ControllerStep, HandleRead};
use moor::attachment::drift::{self, Finding, NodeIdSeen, Response, Scene, Why, compare, decide};
use moor::attachment::node_side::{self, NodeStep};
use moor::attachment::observed::Fence;
use moor::attachment::record::Done;
use moor::attachment::{AttachmentSeen, HandleSeen, undo_only};
use moor::claim::ClaimSeen;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const STATES: [AttachmentState; 4] = [
    AttachmentState::Taken,
    AttachmentState::Attached,
    AttachmentState::NodeDetached,
    AttachmentState::ControllerDetached,
];

fn controller() -> ControllerRef {
    ControllerRef { instance: "c1".into(), agent: "node-1".into() }
}

/// An Attachment that its claims use.
pub fn lock(uid: &str, node: &str) -> AttachmentSeen {
    AttachmentSeen {
        name: uid.into(),
        uid: uid.into(),
        deleted: false,
        namespace: "default".into(),
        volume_uid: "volume".into(),
        handle_name: "handle".into(),
        node: node.into(),
        node_uid: node.into(),
        node_id: format!("id-of-{node}"),
        mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        epoch: 1,
        controller: Some(controller()),
        attach: true,
        stage: true,
        read_only: false,
        exclusive: false,
        state: AttachmentState::Attached,
        lost: false,
        undo_only: None,
    }
}

/// One that only undoes, as far as its node has got with it.
pub fn undo(uid: &str, node: &str, token: &str) -> AttachmentSeen {
    AttachmentSeen {
        deleted: true,
        stage: false,
        state: AttachmentState::NodeDetached,
        undo_only: Some(token.into()),
        ..lock(uid, node)
    }
}

pub fn handle(fence: Option<(&str, &str)>) -> HandleSeen {
    let fences = fence.map(|(node, token)| Fence {
        node: node.into(),
        node_id: format!("id-of-{node}"),
        token: token.into(),
    });
    HandleSeen {
        name: "handle".into(),
        volume_handle: "vol-1".into(),
        owner: "ns/volume".into(),
        volume_uid: "volume".into(),
        mode: AccessMode::SingleNodeWriter,
        epoch: 1,
        closing: false,
        controller: Some(controller()),
        writer: None,
        fences: fences.into_iter().collect(),
    }
}

fn time(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn unexpected(node_id: &str) -> Finding {
    Finding { node_id: node_id.into(), kind: DriftKind::Unexpected }
}

fn missing(node_id: &str) -> Finding {
    Finding { node_id: node_id.into(), kind: DriftKind::Missing }
}

fn published(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

mod listing {
    use super::*;

    #[test]
    fn a_node_without_an_attachment_is_unexpected_and_one_that_is_not_listed_missing() {
        let locks = [lock("u1", "node-1")];
        let found = compare(&published(&["id-of-node-2", "id-of-node-2"]), &locks, &locks);
        assert_eq!(found, BTreeSet::from([unexpected("id-of-node-2"), missing("id-of-node-1")]));
        assert!(compare(&published(&["id-of-node-1"]), &locks, &locks).is_empty());
    }

    /// What comes or goes while the list is made is no difference, whichever side of it the driver was asked on.
    #[test]
    fn what_changed_meanwhile_is_no_difference() {
        let attached = [lock("u1", "node-1")];
        for listed in [&[][..], &["id-of-node-1"]] {
            assert!(compare(&published(listed), &attached, &[]).is_empty(), "detached meanwhile");
            assert!(compare(&published(listed), &[], &attached).is_empty(), "attached meanwhile");
            let again = [lock("u2", "node-1")];
            assert!(compare(&published(listed), &attached, &again).is_empty(), "another one");
            let taken = [AttachmentSeen { state: AttachmentState::Taken, ..lock("u1", "node-1") }];
            assert!(compare(&published(listed), &taken, &attached).is_empty(), "attached meanwhile");
        }
    }

    #[test]
    fn an_attachment_that_is_not_settled_is_neither_missing_nor_unexpected() {
        let settled = lock("u1", "node-1");
        let unsettled = [
            AttachmentSeen { deleted: true, ..settled.clone() },
            AttachmentSeen { lost: true, ..settled.clone() },
            AttachmentSeen { attach: false, ..settled.clone() },
            AttachmentSeen { state: AttachmentState::Taken, ..settled.clone() },
            AttachmentSeen { state: AttachmentState::NodeDetached, ..settled },
        ];
        for one in unsettled {
            let one = [one];
            for listed in [&[][..], &["id-of-node-1"]] {
                assert!(compare(&published(listed), &one, &one).is_empty(), "{one:?}");
            }
        }
    }

    /// What is being undone is there until it is not listed: taken for gone it would be found anew, and undone again.
    #[test]
    fn what_is_being_undone_stays_unexpected_as_long_as_it_is_listed() {
        let undoing = [undo("u1", "node-2", "t")];
        for (before, after) in [(&undoing[..], &undoing[..]), (&undoing, &[]), (&[], &undoing)] {
            let listed = compare(&published(&["id-of-node-2"]), before, after);
            assert_eq!(listed, BTreeSet::from([unexpected("id-of-node-2")]));
            assert!(compare(&[], before, after).is_empty());
        }
    }

    #[test]
    fn a_node_id_that_cannot_be_ours_is_left_out() {
        let long = "x".repeat(257);
        assert!(compare(&[String::new(), long], &[], &[]).is_empty());
        assert_eq!(compare(&["x".repeat(256)], &[], &[]).len(), 1);
    }

    #[test]
    fn one_listing_alone_reports_nothing() {
        let found = BTreeSet::from([unexpected("a")]);
        assert_eq!(drift::report(&found, &BTreeSet::new(), None, false, &time(1)), None);
        let drift = drift::report(&found, &found, None, false, &time(1)).unwrap();
        assert_eq!(drift.nodes[0].since, time(1));
        let other = BTreeSet::from([missing("a")]);
        assert_eq!(drift::report(&found, &other, None, false, &time(1)), None, "another kind");
        // Reported already: it stays as it is, and goes when it is not found any more.
        let later = drift::report(&found, &BTreeSet::new(), Some(&drift), false, &time(9));
        assert_eq!(later.as_ref(), Some(&drift));
        assert_eq!(drift::report(&BTreeSet::new(), &found, Some(&drift), false, &time(9)), None);
    }

    #[test]
    fn a_report_is_bounded() {
        let found: BTreeSet<_> = (0..100).map(|n| unexpected(&format!("{n:03}"))).collect();
        let drift = drift::report(&found, &found, None, true, &time(1)).unwrap();
        assert_eq!((drift.nodes.len(), drift.many), (drift::MOST_NODES, true));
    }

    #[test]
    fn the_pause_grows_to_sixteen_times_the_shortest() {
        let all: Vec<_> = [0, 1, 2, 3, 4, 5, u32::MAX].map(drift::interval_factor).into();
        assert_eq!(all, [1, 2, 4, 8, 16, 16, 16]);
    }
}

/// A finding on node-2 about which everything speaks for undoing it.
struct World {
    drift: Drift,
    made_here: bool,
    volume_uid: Option<&'static str>,
    handle: HandleSeen,
    undoing: Vec<Undoing>,
    locks: Vec<AttachmentSeen>,
    claims: Vec<ClaimSeen>,
    nodes: Vec<NodeIdSeen>,
    of_driver: usize,
}

fn node(name: &str) -> NodeIdSeen {
    NodeIdSeen { node: name.into(), node_uid: name.into(), node_id: format!("id-of-{name}"), healthy: true }
}

fn world() -> World {
    let found = DriftedNode { node_id: "id-of-node-2".into(), kind: DriftKind::Unexpected, since: time(5) };
    World {
        drift: Drift { nodes: vec![found], many: false },
        made_here: true,
        volume_uid: Some("volume"),
        handle: handle(None),
        undoing: Vec::new(),
        locks: vec![lock("u1", "node-1")],
        claims: Vec::new(),
        nodes: vec![node("node-1"), node("node-2")],
        of_driver: 1,
    }
}

impl World {
    fn answer(&self) -> Response {
        let scene = Scene {
            drift: &self.drift,
            made_here: self.made_here,
            volume_uid: self.volume_uid,
            handle: &self.handle,
            undoing: &self.undoing,
            locks: &self.locks,
            claims: &self.claims,
            nodes: &self.nodes,
            of_driver: self.of_driver,
        };
        let answers = decide(&scene);
        let message = drift::message(&answers, &self.locks, &self.claims);
        assert!(message.contains(&self.drift.nodes[0].node_id), "{message}");
        answers[0].1.clone()
    }

    fn entry(done: bool, found: Time) -> Undoing {
        Undoing {
            node_name: "node-2".into(),
            node_uid: "node-2".into(),
            node_id: "id-of-node-2".into(),
            token: "t".into(),
            found,
            done,
        }
    }
}

fn claim(node: &str) -> ClaimSeen {
    ClaimSeen {
        namespace: "default".into(),
        name: "a".into(),
        uid: "a".into(),
        created: 0,
        deleted: false,
        held: true,
        force: false,
        node: None,
        read_only: false,
        mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        state: ClaimState::Taken,
        assignment: Some(Assignment {
            attachment: "u9".into(),
            attachment_uid: "u9".into(),
            node_name: node.into(),
            node_uid: node.into(),
        }),
        yielded: None,
    }
}

mod deciding {
    use super::*;

    #[test]
    fn an_attachment_that_nobody_claims_is_undone() {
        assert_eq!(world().answer(), Response::Undo(node("node-2")));
    }

    /// Nothing about this volume changes when that ends.
    #[test]
    fn what_is_left_because_of_other_volumes_is_looked_at_again() {
        let found = world().drift.nodes.remove(0);
        let goes_by_others = |response| drift::goes_by_others(&[(&found, response)]);
        let many = World { of_driver: drift::MANY + 1, ..world() }.answer();
        assert!(goes_by_others(many));
        assert!(!goes_by_others(world().answer()));
        let closing = World { volume_uid: None, ..world() }.answer();
        assert!(!goes_by_others(closing), "its own Volume tells");
    }

    /// R11: each guard alone is enough to leave the finding alone.
    #[test]
    fn every_guard_leaves_it_alone() {
        type Change = fn(&mut World);
        let n2 = || "node-2".to_owned();
        let guards: [(&str, Change, Why); 15] = [
            ("registered", |w| w.made_here = false, Why::Registered),
            ("many in the listing", |w| w.drift.many = true, Why::Many),
            ("many of the driver", |w| w.of_driver = drift::MANY + 1, Why::Many),
            ("no Volume that stays", |w| w.volume_uid = None, Why::NotNow),
            ("another's handle", |w| w.handle.volume_uid = "other".into(), Why::NotNow),
            ("closing", |w| w.handle.closing = true, Why::NotNow),
            ("no controller", |w| w.handle.controller = None, Why::NotNow),
            ("unknown node", |w| w.nodes.truncate(1), Why::UnknownNode),
            (
                "two nodes with one id",
                |w| w.nodes.push(NodeIdSeen { node: "node-3".into(), ..node("node-2") }),
                Why::UnknownNode,
            ),
            ("node not healthy", |w| w.nodes[1].healthy = false, Why::NodeNotHealthy(n2())),
            ("an Attachment there", |w| w.locks.push(lock("u2", "node-2")), Why::InUse(n2())),
            (
                "one with that node id",
                |w| w.locks.push(AttachmentSeen { node: "old-name".into(), ..lock("u2", "node-2") }),
                Why::InUse(n2()),
            ),
            (
                "one with that name",
                |w| w.locks.push(AttachmentSeen { node_id: "old-id".into(), ..lock("u2", "node-2") }),
                Why::InUse(n2()),
            ),
            ("a claim there", |w| w.claims.push(claim("node-2")), Why::InUse(n2())),
            ("missing", |w| w.drift.nodes[0].kind = DriftKind::Missing, Why::Missing),
        ];
        for (name, change, why) in guards {
            let mut changed = world();
            change(&mut changed);
            assert_eq!(changed.answer(), Response::Left(why), "{name}");
        }
    }

    #[test]
    fn a_claim_elsewhere_or_given_back_is_not_in_the_way() {
        let mut world = world();
        world.claims = vec![claim("node-1"), ClaimSeen { yielded: Some("u9".into()), ..claim("node-2") }];
        assert_eq!(world.answer(), Response::Undo(node("node-2")));
    }

    #[test]
    fn a_finding_is_undone_once() {
        let mut world = world();
        world.undoing = vec![World::entry(false, time(5))];
        assert_eq!(world.answer(), Response::UnderWay);
        world.undoing = vec![World::entry(true, time(5))];
        assert_eq!(world.answer(), Response::Undone);
        // It was gone, and is there again.
        world.undoing = vec![World::entry(true, time(4))];
        assert_eq!(world.answer(), Response::Undo(node("node-2")));
    }

    #[test]
    fn one_is_begun_at_a_time() {
        let mut world = world();
        world.nodes.push(node("node-3"));
        let third = DriftedNode { node_id: "id-of-node-3".into(), ..world.drift.nodes[0].clone() };
        world.drift.nodes.push(third);
        let scene = Scene {
            drift: &world.drift,
            made_here: true,
            volume_uid: world.volume_uid,
            handle: &world.handle,
            undoing: &[],
            locks: &world.locks,
            claims: &[],
            nodes: &world.nodes,
            of_driver: 2,
        };
        let begun = decide(&scene).into_iter().filter(|(_, r)| matches!(r, Response::Undo(_))).count();
        assert_eq!(begun, 1);
    }

    #[test]
    fn a_missing_attachment_names_its_claims() {
        let claims = [ClaimSeen {
            assignment: Some(Assignment { attachment_uid: "u1".into(), ..Assignment::default() }),
            ..claim("node-1")
        }];
        let found = DriftedNode { node_id: "id-of-node-1".into(), kind: DriftKind::Missing, since: time(1) };
        let answers = [(&found, Response::Left(Why::Missing))];
        let message = drift::message(&answers, &[lock("u1", "node-1")], &claims);
        assert!(message.contains("for default/a") && message.contains("create them anew"), "{message}");
        assert_eq!(drift::reason(&answers), "AttachmentMissing");
    }
}

mod undoing {
    use super::*;

    fn plan(handle: Option<&HandleSeen>, locks: Option<&[AttachmentSeen]>) -> ControllerStep {
        undo_only::plan(&undo("u9", "node-2", "t"), "c1", &HandleRead::Read(handle), locks)
    }

    #[test]
    fn the_call_is_made_after_both_reads() {
        let it = undo("u9", "node-2", "t");
        assert_eq!(undo_only::plan(&it, "c1", &HandleRead::Unread, None), ControllerStep::ReadHandle);
        let open = handle(Some(("node-2", "t")));
        assert_eq!(plan(Some(&open), None), ControllerStep::ListLocks);
        let elsewhere = [lock("u1", "node-1"), it];
        assert_eq!(plan(Some(&open), Some(&elsewhere)), ControllerStep::Unpublish);
    }

    #[test]
    fn without_its_own_entry_no_call_is_made() {
        let none: [AttachmentSeen; 0] = [];
        let entries = [None, Some(("node-2", "other")), Some(("node-1", "t"))];
        for entry in entries {
            let handle = handle(entry);
            assert_eq!(plan(Some(&handle), Some(&none)), ControllerStep::ReportDetached, "{entry:?}");
        }
        assert_eq!(plan(None, Some(&none)), ControllerStep::ReportDetached);
    }

    #[test]
    fn a_node_that_may_use_the_volume_is_not_detached() {
        let open = handle(Some(("node-2", "t")));
        let used = [
            lock("u1", "node-2"),
            AttachmentSeen { node: "renamed".into(), ..lock("u1", "node-2") },
            AttachmentSeen { node_id: "renamed".into(), ..lock("u1", "node-2") },
            AttachmentSeen { state: AttachmentState::NodeDetached, deleted: true, ..lock("u1", "node-2") },
            AttachmentSeen { state: AttachmentState::Taken, attach: false, ..lock("u1", "node-2") },
        ];
        for lock in used {
            let locks = [lock];
            assert_eq!(plan(Some(&open), Some(&locks)), ControllerStep::ReportDetached, "{locks:?}");
        }
        // Waiting for the entry to be done, and attached anew after it.
        let taken = [AttachmentSeen { state: AttachmentState::Taken, ..lock("u1", "node-2") }];
        assert_eq!(plan(Some(&open), Some(&taken)), ControllerStep::Unpublish);
        let waits = controller_side::plan(&taken[0], "c1", &HandleRead::Read(Some(&open)));
        assert_eq!(waits, ControllerStep::WaitForUndo);
        let elsewhere = AttachmentSeen { state: AttachmentState::Taken, ..lock("u1", "node-1") };
        let goes = controller_side::plan(&elsewhere, "c1", &HandleRead::Read(Some(&open)));
        assert_eq!(goes, ControllerStep::Publish);
    }

    #[test]
    fn it_is_its_instances_turn_only_after_the_nodes() {
        let open = handle(Some(("node-2", "t")));
        let locks = [lock("u1", "node-1")];
        let step = |it: &AttachmentSeen, instance| {
            undo_only::plan(it, instance, &HandleRead::Read(Some(&open)), Some(&locks))
        };
        let due = undo("u9", "node-2", "t");
        assert_eq!(step(&due, "c2"), ControllerStep::Idle, "another instance's");
        let taken = AttachmentSeen { state: AttachmentState::Taken, ..due.clone() };
        assert_eq!(step(&taken, "c1"), ControllerStep::Idle, "the node's turn");
        let lost = AttachmentSeen { lost: true, ..taken };
        assert_eq!(step(&lost, "c1"), ControllerStep::Unpublish, "there is no node");
        let open_still = AttachmentSeen { deleted: false, ..due.clone() };
        assert_eq!(step(&open_still, "c1"), ControllerStep::Idle, "not closed yet");
        let mut moved = open.clone();
        moved.controller = Some(ControllerRef { instance: "c2".into(), agent: "node-2".into() });
        let step = undo_only::plan(&due, "c1", &HandleRead::Read(Some(&moved)), Some(&locks));
        assert_eq!(step, ControllerStep::Idle, "a successor may be calling");
    }

    #[test]
    fn it_is_closed_at_once_and_never_used() {
        let made =
            AttachmentSeen { deleted: false, state: AttachmentState::Taken, ..undo("u9", "node-2", "t") };
        let using = ClaimSeen {
            assignment: Some(Assignment {
                attachment_uid: "u9".into(),
                ..claim("node-2").assignment.unwrap()
            }),
            ..claim("node-2")
        };
        assert_eq!(closing::plan(&made, std::slice::from_ref(&using), false), Some(ClosingStep::Close));
        for state in STATES {
            let it = AttachmentSeen { state, ..made.clone() };
            assert!(!it.is_usable(), "{state:?}");
            let seen = node_side::Seen {
                node_uid: "node-2".into(),
                claims: vec![using.clone()],
                attachments: vec![it],
                ..node_side::Seen::default()
            };
            let yields = NodeStep::Yield { claim: "a".into(), attachment: "u9".into() };
            assert_eq!(node_side::plan(&seen), yields, "{state:?}");
        }
    }

    #[test]
    fn its_node_hands_it_on_only_when_nothing_of_the_handle_is_left_there() {
        let taken = AttachmentSeen { state: AttachmentState::Taken, ..undo("u9", "node-2", "t") };
        let mut seen = node_side::Seen {
            node_uid: "node-2".into(),
            boot_id: "boot".into(),
            attachments: vec![taken],
            ..node_side::Seen::default()
        };
        let done = NodeStep::ReportDetached { attachment: "u9".into() };
        assert_eq!(node_side::plan(&seen), done);
        seen.records = vec![super::super::model::record("u1", Done::Maybe)];
        seen.live_attachments = vec![("u1".into(), node_side::LiveAttachment::Gone)];
        assert_eq!(node_side::plan(&seen), NodeStep::Unstage { attachment: "u1".into() });
        // The same while that fails.
        seen.backing_off = vec!["u1".into()];
        assert_eq!(node_side::plan(&seen), NodeStep::Idle);
        seen.records = vec![super::super::model::record("u1", Done::No)];
        assert_ne!(node_side::plan(&seen), NodeStep::Idle);
        seen.attachments[0].deleted = false;
        seen.records.clear();
        assert_eq!(node_side::plan(&seen), NodeStep::Idle, "not closed yet");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// B15: whatever is reported, what is begun is ours to undo and in nobody's way.
    #[test]
    fn only_what_is_ours_and_unused_is_undone(
        ids in subsequence(vec!["id-of-node-1", "id-of-node-2", "id-of-node-3"], 0..=3),
        kinds in prop::array::uniform3(select(vec![DriftKind::Unexpected, DriftKind::Missing])),
        (made_here, many, closing, stays) in any::<(bool, bool, bool, bool)>(),
        locks in subsequence(vec!["node-1", "node-2", "node-3"], 0..=2),
        healthy in prop::array::uniform2(any::<bool>()),
        claimed in prop::option::of(select(vec!["node-1", "node-2", "node-3"])),
        of_driver in 0..20_usize,
    ) {
        let nodes: Vec<_> = ["node-1", "node-2"]
            .iter()
            .zip(healthy)
            .map(|(name, healthy)| NodeIdSeen { healthy, ..node(name) })
            .collect();
        let locks: Vec<_> = locks.iter().map(|n| lock(n, n)).collect();
        let claims: Vec<_> = claimed.into_iter().map(claim).collect();
        let found = |(id, kind): (&&str, DriftKind)| DriftedNode { node_id: (*id).into(), kind, since: time(1) };
        let drift = Drift { nodes: ids.iter().zip(kinds).map(found).collect(), many };
        let handle = HandleSeen { closing, ..handle(None) };
        let scene = Scene {
            drift: &drift,
            made_here,
            volume_uid: stays.then_some("volume"),
            handle: &handle,
            undoing: &[],
            locks: &locks,
            claims: &claims,
            nodes: &nodes,
            of_driver,
        };
        let answers = decide(&scene);
        prop_assert_eq!(answers.len(), drift.nodes.len());
        for (finding, response) in answers {
            let Response::Undo(node) = response else { continue };
            prop_assert!(made_here && !many && !closing && stays && of_driver <= drift::MANY);
            prop_assert!(node.healthy && node.node_id == finding.node_id);
            prop_assert_eq!(finding.kind, DriftKind::Unexpected);
            prop_assert!(locks.iter().all(|l| l.node != node.node && l.node_id != node.node_id));
            prop_assert!(claims.iter().all(|c| c.assignment.as_ref().unwrap().node_name != node.node));
        }
    }
}
