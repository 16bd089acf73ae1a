//! Properties of the node side: what it never plans, whatever it sees.

use moor::api::{AttachmentState, ClaimState};
use moor::attachment::AttachmentSeen;
use moor::attachment::node_side::{self, LiveAttachment, NodeStep};
use moor::attachment::record::{Done, Record};
use moor::claim::ClaimSeen;
use proptest::prelude::*;

use crate::model::arbitrary::node_seen;

fn freshest<'a>(seen: &'a node_side::Seen, uid: &str) -> Option<&'a AttachmentSeen> {
    match seen.live_attachments.iter().find(|(u, _)| *u == uid).map(|(_, l)| l) {
        Some(LiveAttachment::Present(live)) => Some(live),
        Some(LiveAttachment::Gone) => None,
        None => seen.attachments.iter().find(|a| a.uid == uid),
    }
}

/// The API server went on since a record of `known` was written, so what it does not have was deleted.
fn was_deleted(seen: &node_side::Seen, uid: &str, known: u64) -> bool {
    let went_on = known == 0 || seen.revision.is_some_and(|r| r >= known);
    went_on && !seen.doubted.iter().any(|d| d == uid)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// P1, P2, P4, P5: what the node side never plans, whatever it sees.
    #[test]
    fn the_node_side_keeps_the_order(seen in node_seen()) {
        let step = node_side::plan(&seen);
        prop_assert_eq!(&step, &node_side::plan(&seen));
        let record = |uid: &str| seen.records.iter().find(|r| r.attachment_uid == uid);
        let claim = |uid: &str| seen.claims.iter().find(|c| c.uid == uid);
        match &step {
            NodeStep::Unstage { attachment } => {
                let record = record(attachment).expect("an undo without a record");
                prop_assert!(record.targets.is_empty(), "NodeUnstage under a target");
                prop_assert!(record.left.is_empty(), "NodeUnstage under a consumer");
                prop_assert_ne!(record.staged, Done::No);
                let ordered = record.forgotten.is_some() && seen.orders.contains(attachment);
                prop_assert!(ordered || !record.is_kept(), "unstaged what the API server has forgotten");
                if freshest(&seen, attachment).is_none() {
                    prop_assert!(ordered || record.forgotten.is_some() || was_deleted(&seen, attachment, record.revision));
                }
            }
            NodeStep::Stage { attachment } => {
                let live = freshest(&seen, attachment).expect("a stage without an Attachment");
                prop_assert!(live.is_usable() && live.stage && live.node_uid == seen.node_uid);
                prop_assert!(seen.live_attachments.iter().any(|(u, _)| u == attachment));
                let mut traces = seen.records.iter().filter(|r| r.has_traces());
                let other = traces.any(|r| &r.attachment_uid != attachment);
                prop_assert!(!other, "staged beside the traces of another Attachment");
                let unknown = seen.unreadable_here.iter().any(|uid| uid != attachment);
                prop_assert!(!unknown, "staged beside what nobody can read");
            }
            NodeStep::Publish { claim: uid, attachment } => {
                let live = freshest(&seen, attachment).expect("a publish without an Attachment");
                prop_assert!(live.is_usable() && seen.live_attachments.iter().any(|(u, _)| u == attachment));
                let record = record(attachment);
                let staged = record.is_some_and(|r| r.staged == Done::Yes && r.boot_id == seen.boot_id);
                prop_assert!(!live.stage || staged, "NodePublish before NodeStage");
                let others = record.is_some_and(|r| r.targets.keys().any(|t| t != uid));
                prop_assert!(!live.exclusive || !others, "a second target in an exclusive mode");
                let left = record.is_some_and(|r| r.left.keys().any(|of| **of != **uid && **of != **attachment));
                prop_assert!(!live.exclusive || !left, "a second user in an exclusive mode");
                let wanted = claim(uid).is_some_and(|c| !c.deleted && c.uses() == Some(attachment));
                prop_assert!(wanted);
            }
            NodeStep::Unpublish { claim: uid, attachment } => {
                prop_assert!(record(attachment).is_some_and(|r| r.targets.contains_key(uid)));
                let record = |uid: &str| record(uid).unwrap();
                let recorded = &record(attachment).targets[uid];
                let lost = freshest(&seen, attachment).is_some_and(|a| a.lost);
                // kubelet's word is an order about its own paths.
                let ordered = seen.released.contains(uid)
                    || record(attachment).forgotten.is_some() && seen.orders.contains(attachment);
                let told = claim(uid).is_some_and(|c| c.deleted || c.state == ClaimState::Lost);
                let absent = claim(uid).is_none_or(|c| c.uses() != Some(attachment));
                prop_assert!(claim(uid).is_some() || seen.gone_claims.contains(uid) || ordered);
                // Nothing that the API server may only have forgotten.
                let free = ordered || told || lost;
                prop_assert!(free || !record(attachment).is_kept());
                prop_assert!(free || !absent || was_deleted(&seen, uid, recorded.revision));
                let gone = claim(uid).is_none();
                let leaving = told || absent || ordered || lost;
                let unattached = freshest(&seen, attachment).is_none();
                let unusable = freshest(&seen, attachment).is_some_and(|a| {
                    !a.is_usable() || a.node_uid != seen.node_uid || a.exclusive || !a.attach
                });
                let there = seen.mounted.contains(uid)
                    && record(attachment).boot_id == seen.boot_id
                    && recorded.published == Done::Yes;
                prop_assert!(
                    gone || leaving || ((unusable || unattached) && !there),
                    "unmounted under a living claim"
                );
            }
            NodeStep::ReportReady { claim: uid, attachment } => {
                let target = record(attachment).and_then(|r| r.targets.get(uid));
                prop_assert!(target.is_some_and(|t| t.published == Done::Yes) && seen.mounted.contains(uid));
            }
            NodeStep::ReportDetached { attachment } => {
                let clean = |r: &Record| !r.has_traces();
                prop_assert!(record(attachment).is_none_or(clean));
                let freshest = freshest(&seen, attachment);
                prop_assert!(record(attachment).is_some() || !seen.unreadable.contains(attachment));
                prop_assert!(freshest.is_none_or(|a| a.state < AttachmentState::NodeDetached));
                prop_assert!(!freshest.is_some_and(AttachmentSeen::may_linger), "said of what may be joined");
                if freshest.is_some_and(|a| a.attach) {
                    let mut others = seen.records.iter().filter(|r| &r.attachment_uid != attachment);
                    prop_assert!(others.all(clean), "handed on over traces of the handle");
                    let mut files = seen.unreadable_here.iter();
                    let unknown = record(attachment).is_none() && files.any(|uid| uid != attachment);
                    prop_assert!(!unknown, "handed on beside what nobody can read");
                }
            }
            NodeStep::ReportClaimDetached { claim: uid } => {
                let claim = claim(uid).unwrap();
                prop_assert!(claim.deleted);
                let target = claim.uses().and_then(|uid| record(uid)).is_some_and(|r| r.has_of(uid));
                prop_assert!(!target, "reported as detached with a target");
                let stays = |c: &ClaimSeen| !c.deleted && c.state != ClaimState::Lost && c.uses() == claim.uses();
                let traces = claim.uses().and_then(|uid| record(uid)).is_some_and(Record::has_traces);
                prop_assert!(!traces || seen.claims.iter().any(stays), "the last claim is told while it is staged");
            }
            NodeStep::Yield { claim: uid, attachment } => {
                let target = record(attachment).is_some_and(|r| r.has_of(uid));
                prop_assert!(!target, "given back with a target");
            }
            NodeStep::Forget { attachment } => {
                let record = record(attachment).expect("nothing to forget");
                prop_assert!(!record.has_traces());
                let gone = (attachment.clone(), LiveAttachment::Gone);
                prop_assert!(seen.live_attachments.contains(&gone), "forgotten without a live read");
            }
            NodeStep::FindUsersOfTarget { claim, attachment } => {
                prop_assert!(record(attachment).is_some_and(|r| r.left.contains_key(claim.as_str())));
            }
            NodeStep::FindUsers { attachment } => {
                let record = record(attachment).expect("nothing that could be in use");
                prop_assert!(!record.left.is_empty() && record.targets.is_empty());
            }
            NodeStep::Grow { claim: uid, attachment } => {
                let (seen_of, grown) = (claim(uid).unwrap(), freshest(&seen, attachment).unwrap());
                prop_assert!(grown.is_usable() && grown.growth.is_due() && grown.node_uid == seen.node_uid);
                prop_assert!(seen_of.grows_on(grown) && !seen.released.contains(uid));
                prop_assert!(record(attachment).is_some_and(|r| r.targets[uid].published == Done::Yes));
                let looked = |(live, found): &(_, LiveAttachment)| live == attachment && *found != LiveAttachment::Gone;
                prop_assert!(seen.live_attachments.iter().any(looked), "grown without a live read");
                prop_assert!(!seen.grows_later.contains(attachment));
            }
            NodeStep::ReportNotReady { claim: uid } => {
                prop_assert_eq!(claim(uid).unwrap().state, ClaimState::Ready);
            }
            NodeStep::MarkForgotten { attachment, why } => {
                let record = record(attachment).expect("nothing that could be forgotten");
                prop_assert!(record.has_traces() && record.forgotten.is_none_or(|f| f.why != *why));
                prop_assert!(!(record.forgotten.is_some() && seen.orders.contains(attachment)));
            }
            NodeStep::Presume { attachment } => {
                prop_assert!(seen.unreadable.contains(attachment) && record(attachment).is_none());
            }
            NodeStep::Recall { attachment } => {
                prop_assert!(record(attachment).is_some_and(|r| r.forgotten.is_some()));
                prop_assert!(freshest(&seen, attachment).is_some());
            }
            NodeStep::ReadRevision { .. } => prop_assert_eq!(seen.revision, None),
            NodeStep::Idle
            | NodeStep::ReadClaim { .. }
            | NodeStep::ReadAttachment { .. }
            | NodeStep::ReadHandle { .. } => {}
        }
    }
}
