use std::collections::BTreeMap;

use super::super::plan;
use super::*;
use crate::api::attachment::SecretRefs;
use crate::api::claim::Assignment;
use crate::api::{AccessMode, AttachmentMode};
use crate::attachment::record::{Forgotten, TargetRecord};
use crate::claim::ClaimSeen;

const A: &str = "attachment";
const C: &str = "claim";

fn target() -> TargetRecord {
    TargetRecord {
        namespace: "ns".into(),
        name: "c".into(),
        path: "/target".into(),
        published: Done::Yes,
        covered: false,
        device: None,
        imprint: None,
        revision: 120,
    }
}

/// Staged at revision 100, published at 120.
fn record() -> Record {
    Record {
        attachment_uid: A.into(),
        attachment_name: "name".into(),
        handle_name: "handle".into(),
        driver_name: "driver".into(),
        plugin_name: "plugin".into(),
        volume_handle: "vol".into(),
        namespace: "ns".into(),
        secrets: SecretRefs::default(),
        boot_id: "boot".into(),
        stage: true,
        staging_path: "/staging".into(),
        staged: Done::Yes,
        targets: BTreeMap::from([(C.into(), target())]),
        left: BTreeMap::new(),
        revision: 100,
        forgotten: None,
    }
}

fn claim() -> ClaimSeen {
    ClaimSeen {
        namespace: "ns".into(),
        name: "c".into(),
        uid: C.into(),
        created: 0,
        deleted: false,
        held: true,
        force: false,
        node: None,
        read_only: false,
        mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        state: ClaimState::Ready,
        assignment: Some(Assignment {
            attachment: "name".into(),
            attachment_uid: A.into(),
            handle_name: "handle".into(),
            node_name: "node".into(),
            node_uid: "node-uid".into(),
        }),
        yielded: None,
    }
}

fn attachment() -> AttachmentSeen {
    AttachmentSeen {
        name: "name".into(),
        uid: A.into(),
        deleted: false,
        namespace: "ns".into(),
        volume_uid: "volume".into(),
        handle_name: "handle".into(),
        node: "node".into(),
        node_uid: "node-uid".into(),
        node_id: "id".into(),
        mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        epoch: 1,
        controller: None,
        attach: true,
        stage: true,
        read_only: false,
        exclusive: true,
        state: AttachmentState::Attached,
        lost: false,
    }
}

/// Mounted as recorded. Claim and Attachment were found gone.
fn both_gone() -> Seen {
    Seen {
        node_uid: "node-uid".into(),
        boot_id: "boot".into(),
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
    assert_eq!(plan(&seen), NodeStep::ReadAttachment { attachment: A.into(), name: "name".into() });
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
    let again = AttachmentSeen { uid: "next".into(), ..attachment() };
    let mut next = claim();
    next.uid = "next-claim".into();
    next.state = ClaimState::Taken;
    next.assignment.as_mut().unwrap().attachment_uid = "next".into();
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

const LATER: &str = "later";

/// The record of A is there again, as of a version that can read it: its Attachment is gone, and the volume has been
/// granted here anew since.
fn under_a_later_one() -> Seen {
    let mut later = Record { attachment_uid: LATER.into(), targets: BTreeMap::new(), ..record() };
    later.targets.insert("other".into(), target());
    let mut using = ClaimSeen { uid: "other".into(), ..claim() };
    using.assignment.as_mut().unwrap().attachment_uid = LATER.into();
    Seen {
        records: vec![record(), later],
        claims: vec![using],
        attachments: vec![AttachmentSeen { uid: LATER.into(), ..attachment() }],
        mounted: vec!["other".into()],
        revision: Some(200),
        ..both_gone()
    }
}

#[test]
fn nothing_is_undone_under_a_later_attachment() {
    let seen = under_a_later_one();
    assert_eq!(plan(&seen), NodeStep::Idle, "a target of the same volume id");
    let mut staged = seen.clone();
    staged.records[0].targets.clear();
    assert_eq!(plan(&staged), NodeStep::Idle, "by the volume id");
    staged.records[1].targets.clear();
    staged.claims[0].state = ClaimState::Taken;
    assert_eq!(plan(&staged), NodeStep::Idle, "it is staged");

    let mut ordered = lapsed(seen.clone(), Lapse::WentBack);
    ordered.orders = vec![A.into()];
    assert_eq!(plan(&ordered), NodeStep::Idle, "an order is about the old mount");
    let unknown = Seen { attachments: Vec::new(), ..seen.clone() };
    let read = NodeStep::ReadAttachment { attachment: LATER.into(), name: "name".into() };
    assert_eq!(plan(&unknown), read, "it may be there");
}

#[test]
fn what_is_later_goes_first_and_then_what_was_before() {
    let mut seen = under_a_later_one();
    seen.attachments[0].deleted = true;
    seen.claims[0].deleted = true;
    let unpublish_later = NodeStep::Unpublish { claim: "other".into(), attachment: LATER.into() };
    assert_eq!(plan(&seen), unpublish_later);
    seen.records[1].targets.clear();
    assert_eq!(plan(&seen), NodeStep::Unstage { attachment: LATER.into() });
    seen.records[1].staged = Done::No;
    assert_eq!(plan(&seen), unpublish());
    // A mount that the API server does not account for is in use too.
    let mut kept = under_a_later_one();
    kept.attachments.clear();
    kept.live_attachments.push((LATER.into(), LiveAttachment::Gone));
    kept.records[1].forgotten = Some(Forgotten { why: Lapse::WentBack, since: 0 });
    assert_eq!(plan(&kept), NodeStep::Idle);
}

/// Of two that are both in doubt neither may wait for the other.
#[test]
fn what_is_not_mounted_any_more_holds_nothing_up() {
    let mut seen = under_a_later_one();
    for record in &mut seen.records {
        record.staged = Done::Maybe;
        record.targets.values_mut().for_each(|target| target.published = Done::Maybe);
    }
    seen.mounted.clear();
    assert_eq!(plan(&seen), unpublish());
    let mut both = under_a_later_one();
    both.claims.clear();
    both.attachments.clear();
    both.gone_claims.push("other".into());
    both.live_attachments.push((LATER.into(), LiveAttachment::Gone));
    assert_eq!(plan(&both), unpublish(), "neither is of an Attachment");
}

const U2: &str = "second";

/// U2 was granted and attached beside the mount of A, and closes before anything was made for it.
fn closing_beside_a_mount() -> Seen {
    let second = AttachmentSeen { uid: U2.into(), deleted: true, ..attachment() };
    lapsed(Seen { attachments: vec![second], revision: Some(500), ..both_gone() }, Lapse::WentBack)
}

/// A driver goes by volume and node: what is detached for one Attachment is detached for all of them.
#[test]
fn a_volume_is_not_handed_on_under_the_mount_of_another_record() {
    let hands_on = NodeStep::ReportDetached { attachment: U2.into() };
    let unused = closing_beside_a_mount();
    assert_eq!(plan(&unused), NodeStep::Idle, "nothing was ever made for it");
    let clean = Record { attachment_uid: U2.into(), staged: Done::No, targets: BTreeMap::new(), ..record() };
    let mut undone = unused.clone();
    undone.records.push(clean);
    assert_eq!(plan(&undone), NodeStep::Idle, "its own traces are undone");
    assert!(unused.is_held_up(U2) && undone.is_held_up(U2), "its claim is told");
    let open = AttachmentSeen { deleted: false, ..unused.attachments[0].clone() };
    assert!(!Seen { attachments: vec![open], ..unused.clone() }.is_held_up(U2), "it does not close");
    for seen in [unused, undone] {
        let without_calls = AttachmentSeen { attach: false, ..seen.attachments[0].clone() };
        assert_eq!(plan(&Seen { attachments: vec![without_calls], ..seen.clone() }), hands_on, "no detach");
        let mut after = seen.clone();
        after.records[0].targets.clear();
        assert_eq!(plan(&after), NodeStep::Idle, "it is staged");
        after.records[0].staged = Done::No;
        after.live_attachments.clear();
        after.records[0].forgotten = None;
        let clean_attachment = AttachmentSeen { state: AttachmentState::NodeDetached, ..attachment() };
        after.attachments.push(clean_attachment);
        assert_eq!(plan(&after), hands_on, "it is clean");
        assert!(!after.is_held_up(U2));
    }
}

#[test]
fn a_volume_is_not_handed_on_beside_what_nobody_can_read() {
    let alone = Seen { records: Vec::new(), ..closing_beside_a_mount() };
    let unreadable = Seen { unreadable: vec![A.into()], unreadable_here: vec![A.into()], ..alone.clone() };
    assert_eq!(plan(&unreadable), NodeStep::Idle);
    let of_another_volume = Seen { unreadable_here: Vec::new(), ..unreadable };
    assert_eq!(plan(&of_another_volume), NodeStep::ReportDetached { attachment: U2.into() });
}

#[path = "unreadable_tests.rs"]
mod unreadable;
