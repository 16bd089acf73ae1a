//! What a listing shows, and what is told of it: nothing is attached or detached because of it (rule R11, trap B15).

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::AttachmentState;
use moor::api::conditions::Reason;
use moor::api::handle::{Drift, DriftKind, DriftedNode};
use moor::attachment::AttachmentSeen;
use moor::attachment::drift::{self, Finding, NodeIdSeen, Scene, compare};

use super::fixtures::{attachment, granted};

/// An Attachment that its claims use.
fn lock(uid: &str, node: &str) -> AttachmentSeen {
    AttachmentSeen { node: node.into(), node_id: format!("id-of-{node}"), ..attachment(uid) }
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

    #[test]
    fn a_node_id_that_cannot_be_ours_is_left_out() {
        let long = "x".repeat(257);
        assert!(compare(&[String::new(), long], &[], &[]).is_empty());
        assert_eq!(compare(&["x".repeat(256)], &[], &[]).len(), 1);
    }

    #[test]
    fn one_listing_alone_reports_nothing() {
        let found = BTreeSet::from([unexpected("a")]);
        assert_eq!(drift::report(&found, &BTreeSet::new(), None, &time(1)), None);
        let drift = drift::report(&found, &found, None, &time(1)).unwrap();
        assert_eq!(drift.nodes[0].since, time(1));
        let other = BTreeSet::from([missing("a")]);
        assert_eq!(drift::report(&found, &other, None, &time(1)), None, "another kind");
        // Reported already: it stays as it is, and goes when it is not found any more.
        let later = drift::report(&found, &BTreeSet::new(), Some(&drift), &time(9));
        assert_eq!(later.as_ref(), Some(&drift));
        assert_eq!(drift::report(&BTreeSet::new(), &found, Some(&drift), &time(9)), None);
    }

    #[test]
    fn a_report_is_bounded() {
        let found: BTreeSet<_> = (0..100).map(|n| unexpected(&format!("{n:03}"))).collect();
        let drift = drift::report(&found, &found, None, &time(1)).unwrap();
        assert_eq!(drift.nodes.len(), drift::MOST_NODES);
    }

    #[test]
    fn the_pause_grows_to_sixteen_times_the_shortest() {
        let all: Vec<_> = [0, 1, 2, 3, 4, 5, u32::MAX].map(drift::interval_factor).into();
        assert_eq!(all, [1, 2, 4, 8, 16, 16, 16]);
    }
}

mod telling {
    use super::*;

    fn told(node_id: &str, kind: DriftKind, scene: &Scene<'_>) -> (Reason, String) {
        let found = DriftedNode { node_id: node_id.into(), kind, since: time(1) };
        let drift = Drift { nodes: vec![found] };
        let message = drift::message(&drift, scene);
        assert!(message.contains(node_id), "{message}");
        (drift::reason(&drift), message)
    }

    fn scene<'a>(locks: &'a [AttachmentSeen], nodes: &'a [NodeIdSeen]) -> Scene<'a> {
        Scene { made_here: true, locks, claims: &[], nodes }
    }

    fn node(name: &str) -> NodeIdSeen {
        NodeIdSeen { node: name.into(), node_id: format!("id-of-{name}") }
    }

    /// Nobody but an administrator knows whether it is in use there.
    #[test]
    fn an_attachment_that_nobody_claims_comes_with_the_steps_that_detach_it() {
        let (locks, nodes) = ([lock("u1", "node-1")], [node("node-1"), node("node-2")]);
        let (reason, message) = told("id-of-node-2", DriftKind::Unexpected, &scene(&locks, &nodes));
        assert_eq!(reason, Reason::AttachmentUnexpected);
        for words in
            ["by itself", "storage's own tools", "spec.nodeName node-2", "delete it when it is Ready"]
        {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert!(!message.contains("registered"), "{message}");
        let registered = Scene { made_here: false, ..scene(&locks, &nodes) };
        let (_, message) = told("id-of-node-2", DriftKind::Unexpected, &registered);
        assert!(message.contains("others may have done, because the volume was registered"), "{message}");
    }

    /// A claim can be made for a node that is known, and for no other.
    #[test]
    fn where_no_node_has_the_id_or_two_have_it_only_the_storage_can_detach() {
        let twins = [node("node-2"), NodeIdSeen { node: "node-3".into(), ..node("node-2") }];
        for nodes in [&[][..], &[node("node-1")], &twins] {
            let (_, message) = told("id-of-node-2", DriftKind::Unexpected, &scene(&[], nodes));
            assert!(message.contains("storage's own tools") && !message.contains("VolumeClaim"), "{message}");
        }
    }

    /// A claim has come to that node since. Nobody is to detach it by hand now.
    #[test]
    fn what_has_an_attachment_by_now_is_not_to_be_detached() {
        let (locks, nodes) = ([lock("u1", "node-2")], [node("node-2")]);
        let (_, message) = told("id-of-node-2", DriftKind::Unexpected, &scene(&locks, &nodes));
        assert!(message.contains("for node node-2 since") && !message.contains("tools"), "{message}");
    }

    #[test]
    fn a_missing_attachment_names_its_claims() {
        let locks = [lock("u1", "node-1")];
        let claims = [granted("a", &locks[0])];
        let (reason, message) =
            told("id-of-node-1", DriftKind::Missing, &Scene { claims: &claims, ..scene(&locks, &[]) });
        assert!(message.contains("for default/a") && message.contains("create them anew"), "{message}");
        assert_eq!(reason, Reason::AttachmentMissing);
    }

    #[test]
    fn each_difference_is_told() {
        let found = |id: &str, kind| DriftedNode { node_id: id.into(), kind, since: time(1) };
        let nodes = vec![found("a", DriftKind::Unexpected), found("b", DriftKind::Missing)];
        let drift = Drift { nodes };
        let message = drift::message(&drift, &scene(&[], &[]));
        assert!(message.contains("as attached to a,") && message.contains("volume to b,"), "{message}");
        assert_eq!(drift::reason(&drift), Reason::AttachmentMissing, "the worse of the two");
    }
}
