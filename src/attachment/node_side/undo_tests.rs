use std::collections::BTreeMap;

use super::super::plan;
use super::*;
use crate::attachment::record::{Forgotten, TargetRecord};
use crate::claim::ClaimSeen;
use crate::fixtures::{self, BOOT, NODE_UID};

const A: &str = "attachment";
const C: &str = "claim";

/// Staged at revision 100, published at 120.
fn record() -> Record {
    let targets = BTreeMap::from([(C.into(), target())]);
    Record { targets, revision: 100, ..fixtures::record(A) }
}

fn target() -> TargetRecord {
    TargetRecord { revision: 120, ..fixtures::target(C) }
}

fn claim() -> ClaimSeen {
    ClaimSeen { state: ClaimState::Ready, ..fixtures::granted(C, &attachment()) }
}

fn attachment() -> AttachmentSeen {
    fixtures::attachment(A)
}

/// Mounted as recorded. Claim and Attachment were found gone.
fn both_gone() -> Seen {
    Seen {
        node_uid: NODE_UID.into(),
        boot_id: BOOT.into(),
        records: vec![record()],
        gone_claims: vec![C.into()],
        live_attachments: vec![(A.into(), LiveAttachment::Gone)],
        mounted: vec![C.into()],
        ..Seen::default()
    }
}

/// Everything is there and mounted.
fn in_use() -> Seen {
    Seen {
        claims: vec![claim()],
        attachments: vec![attachment()],
        gone_claims: Vec::new(),
        live_attachments: Vec::new(),
        ..both_gone()
    }
}

fn mark(why: Lapse) -> NodeStep {
    NodeStep::MarkForgotten { attachment: A.into(), why }
}

fn unpublish() -> NodeStep {
    NodeStep::Unpublish { claim: C.into(), attachment: A.into() }
}

fn lapsed(mut seen: Seen, why: Lapse) -> Seen {
    seen.records[0].forgotten = Some(Forgotten { why, since: 1 });
    seen
}

#[test]
fn absence_is_not_concluded_from_the_cache() {
    let seen = Seen { live_attachments: Vec::new(), ..both_gone() };
    assert_eq!(
        plan(&seen),
        NodeStep::ReadAttachment { attachment: A.into(), name: "name-attachment".into() }
    );
}

#[test]
fn what_is_gone_from_an_api_server_that_went_on_is_undone() {
    assert_eq!(plan(&both_gone()), NodeStep::ReadRevision { attachment: A.into() });
    let mut seen = Seen { revision: Some(120), ..both_gone() };
    assert_eq!(plan(&seen), unpublish());
    seen.records[0].targets.clear();
    assert_eq!(plan(&seen), NodeStep::Unstage { attachment: A.into() });
    seen.records[0].staged = Done::No;
    assert_eq!(plan(&seen), NodeStep::Forget { attachment: A.into() });
}

#[test]
fn what_is_gone_from_an_api_server_that_went_back_is_kept() {
    let seen = Seen { revision: Some(99), ..both_gone() };
    assert_eq!(plan(&seen), mark(Lapse::WentBack));
    let kept = lapsed(seen, Lapse::WentBack);
    assert_eq!(plan(&kept), NodeStep::Idle);
    // Also when the API server has come far since, and for good.
    assert_eq!(plan(&Seen { revision: Some(1_000), ..kept }), NodeStep::Idle);
}

#[test]
fn a_stage_alone_is_kept_too() {
    let mut seen = Seen { revision: Some(99), ..both_gone() };
    seen.records[0].targets.clear();
    assert_eq!(plan(&seen), mark(Lapse::WentBack));
    assert_eq!(plan(&lapsed(seen, Lapse::WentBack)), NodeStep::Idle);
}

#[test]
fn a_doubted_record_is_kept_however_far_the_api_server_has_come() {
    let seen = Seen { revision: Some(1_000), doubted: vec![A.into()], ..both_gone() };
    assert_eq!(plan(&seen), mark(Lapse::WentBack));
}

#[test]
fn a_claim_alone_can_be_forgotten() {
    let seen = Seen {
        attachments: vec![attachment()],
        live_attachments: Vec::new(),
        revision: Some(110),
        ..both_gone()
    };
    assert_eq!(plan(&seen), mark(Lapse::WentBack));
    let kept = lapsed(seen, Lapse::WentBack);
    assert_eq!(plan(&kept), NodeStep::Idle);
    // Nobody uses the Attachment, so the leader closes it. It stays as the lock while the mount is there.
    let closing = AttachmentSeen { deleted: true, ..attachment() };
    assert_eq!(plan(&Seen { attachments: vec![closing], ..kept }), NodeStep::Idle);
}

#[test]
fn a_claim_in_an_older_state_is_not_unmounted() {
    // The backup is older than the claim's grant.
    let older = ClaimSeen { assignment: None, state: ClaimState::Pending, ..claim() };
    let seen = Seen { claims: vec![older], revision: Some(110), ..in_use() };
    assert_eq!(plan(&seen), mark(Lapse::WentBack));
    assert_eq!(plan(&lapsed(seen, Lapse::WentBack)), NodeStep::Idle);
}

#[test]
fn a_record_that_is_accounted_for_again_is_recalled() {
    let seen = lapsed(in_use(), Lapse::WentBack);
    assert_eq!(plan(&seen), NodeStep::Recall { attachment: A.into() });
    assert_eq!(plan(&in_use()), NodeStep::Idle);
}

#[test]
fn an_order_undoes_what_was_kept() {
    let mut seen = lapsed(both_gone(), Lapse::WentBack);
    seen.orders = vec!["another".into()];
    assert_eq!(plan(&seen), NodeStep::Idle);
    seen.orders = vec![A.into()];
    assert_eq!(plan(&seen), unpublish());
    seen.records[0].targets.clear();
    assert_eq!(plan(&seen), NodeStep::Unstage { attachment: A.into() });
    seen.records[0].staged = Done::No;
    assert_eq!(plan(&seen), NodeStep::Forget { attachment: A.into() });
}

#[test]
fn an_order_for_a_volume_in_proper_use_is_ignored() {
    assert_eq!(plan(&Seen { orders: vec![A.into()], ..in_use() }), NodeStep::Idle);
}

#[test]
fn after_a_reboot_nothing_is_kept() {
    // As `Stored::enter_boot` leaves it.
    let mut seen = Seen { revision: None, mounted: Vec::new(), ..both_gone() };
    seen.records[0].revision = 0;
    let recorded = TargetRecord { published: Done::Maybe, revision: 0, ..target() };
    seen.records[0].targets.insert(C.into(), recorded);
    assert_eq!(plan(&seen), unpublish());
}

#[test]
fn a_mounted_claim_whose_lock_was_removed_is_reported_and_stays_mounted() {
    let seen = Seen {
        attachments: Vec::new(),
        live_attachments: vec![(A.into(), LiveAttachment::Gone)],
        revision: Some(500),
        ..in_use()
    };
    assert_eq!(plan(&seen), mark(Lapse::LockRemoved));
    let mut seen = lapsed(seen, Lapse::LockRemoved);
    assert_eq!(plan(&seen), NodeStep::Idle);
    // Deleted in the usual way it is undone in the usual way, also if it goes at once.
    let gone = Seen { claims: Vec::new(), gone_claims: vec![C.into()], ..seen.clone() };
    assert_eq!(plan(&gone), unpublish());
    seen.claims[0].deleted = true;
    assert_eq!(plan(&seen), unpublish());
}

#[test]
fn an_unfinished_target_without_attachment_is_undone_and_given_back() {
    let mut seen = Seen {
        attachments: Vec::new(),
        live_attachments: vec![(A.into(), LiveAttachment::Gone)],
        revision: Some(500),
        mounted: Vec::new(),
        ..in_use()
    };
    seen.claims[0].state = ClaimState::Taken;
    assert_eq!(plan(&seen), unpublish());
    seen.records.clear();
    assert_eq!(plan(&seen), NodeStep::Yield { claim: C.into(), attachment: A.into() });
}

/// An agent that starts anew does not know what kubelet has released, nor whether it will ask: another Attachment would be
/// made for a Pod that may have given the volume up.
#[test]
fn a_pods_claim_is_given_back_only_while_kubelet_asks_for_it() {
    let gone = vec![(A.into(), LiveAttachment::Gone)];
    let mut seen = Seen { records: Vec::new(), attachments: Vec::new(), live_attachments: gone, ..in_use() };
    seen.claims[0].of_pod = true;
    for state in [ClaimState::Ready, ClaimState::Taken] {
        seen.claims[0].state = state;
        assert_eq!(plan(&seen), NodeStep::Idle);
        let closing = AttachmentSeen { deleted: true, ..attachment() };
        let leaving = Seen { attachments: vec![closing], live_attachments: Vec::new(), ..seen.clone() };
        assert_eq!(plan(&leaving), NodeStep::ReportDetached { attachment: A.into() });
        let asked = Seen { asked: vec![C.into()], ..seen.clone() };
        assert_eq!(plan(&asked), NodeStep::Yield { claim: C.into(), attachment: A.into() });
        let released = Seen { released: vec![C.into()], ..asked };
        assert_eq!(plan(&released), NodeStep::Idle);
    }
}

#[test]
fn a_node_that_comes_back_after_it_was_declared_lost_cleans_up() {
    let lost = AttachmentSeen { lost: true, ..attachment() };
    // Whatever the claim says by now.
    for state in [ClaimState::Ready, ClaimState::Lost] {
        let claims = vec![ClaimSeen { state, ..claim() }];
        let seen = Seen { claims, attachments: vec![lost.clone()], ..in_use() };
        assert_eq!(plan(&seen), unpublish());
    }
    let gone =
        Seen { claims: Vec::new(), gone_claims: vec![C.into()], attachments: vec![lost.clone()], ..in_use() };
    assert_eq!(plan(&gone), unpublish());
    let mut cleaned = gone;
    cleaned.records[0].targets.clear();
    assert_eq!(plan(&cleaned), NodeStep::Unstage { attachment: A.into() });
    // The controller has taken the node's part over; the record is kept until the Attachment is gone.
    cleaned.records[0].staged = Done::No;
    assert_eq!(plan(&cleaned), NodeStep::Idle);
}

#[test]
fn it_gets_the_handle_again_only_when_it_is_clean() {
    let again = fixtures::attachment("next");
    let next = ClaimSeen { state: ClaimState::Taken, ..fixtures::granted("next-claim", &again) };
    let live = |seen: &mut Seen| {
        seen.live_attachments.push(("next".into(), LiveAttachment::Present(again.clone())));
    };
    let mut seen = Seen {
        claims: vec![next],
        attachments: vec![again.clone()],
        revision: Some(500),
        backing_off: vec![C.into()],
        ..both_gone()
    };
    live(&mut seen);
    // The undo of the old target backs off: nothing is made beside it.
    assert_eq!(plan(&seen), NodeStep::Idle);
    let kept = Seen { backing_off: Vec::new(), ..lapsed(seen.clone(), Lapse::WentBack) };
    assert_eq!(plan(&kept), NodeStep::Idle);
    seen.records[0].targets.clear();
    seen.records[0].staged = Done::No;
    assert_eq!(plan(&seen), NodeStep::Forget { attachment: A.into() });
    seen.records.clear();
    assert_eq!(plan(&seen), NodeStep::Stage { attachment: "next".into() });
}

/// While the API server is away no look succeeds.
#[test]
fn what_kubelet_has_released_waits_for_no_look_at_another_target_or_record() {
    let mut seen = in_use();
    seen.records[0].targets.insert("another".into(), fixtures::target("another"));
    assert_eq!(plan(&seen), NodeStep::ReadClaim { claim: "another".into() });
    let released = Seen { released: vec![C.into()], ..seen };
    assert_eq!(plan(&released), unpublish(), "before what became of the other claim is known");

    let mut seen = in_use();
    seen.records.insert(0, Record { staged: Done::No, ..fixtures::record("before") });
    let read = NodeStep::ReadAttachment { attachment: "before".into(), name: "name-before".into() };
    assert_eq!(plan(&seen), read);
    let released = Seen { released: vec![C.into()], ..seen };
    assert_eq!(plan(&released), unpublish(), "before what became of the other Attachment is known");
    let unknown = Seen { claims: Vec::new(), attachments: Vec::new(), ..released };
    assert_eq!(plan(&unknown), unpublish(), "and of its own");
    let failed = Seen { backing_off: vec![C.into()], ..unknown };
    assert_eq!(plan(&failed), read, "it holds up nothing while it backs off");
}

#[path = "beside_tests.rs"]
mod beside;
#[path = "unreadable_tests.rs"]
mod unreadable;
