//! Two Attachments of one volume on one node: what the driver undoes for one it undoes for both.

use super::*;

const LATER: &str = "later";

/// The record of A is there again, as of a version that can read it: its Attachment is gone, and the volume has been
/// granted here anew since.
fn under_a_later_one() -> Seen {
    let attachment = fixtures::attachment(LATER);
    let targets = BTreeMap::from([("other".into(), target())]);
    let later = Record { targets, revision: 100, ..fixtures::record(LATER) };
    let using = ClaimSeen { state: ClaimState::Ready, ..fixtures::granted("other", &attachment) };
    Seen {
        records: vec![record(), later],
        claims: vec![using],
        attachments: vec![attachment],
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
    let read = NodeStep::ReadAttachment { attachment: LATER.into(), name: "name-later".into() };
    assert_eq!(plan(&unknown), read, "it may be there");
}

/// A driver that goes by the volume id would take the mount of the other one away.
#[test]
fn what_kubelet_has_released_is_not_undone_under_a_later_attachment() {
    let mut seen = under_a_later_one();
    seen.released = vec![C.into()];
    assert_eq!(plan(&seen), NodeStep::Idle);
    let unknown = Seen { live_attachments: Vec::new(), ..seen };
    let read = NodeStep::ReadAttachment { attachment: A.into(), name: "name-attachment".into() };
    assert_eq!(plan(&unknown), read, "whether its own is there comes first");
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
    assert!(unused.is_held_up(&U2.into()) && undone.is_held_up(&U2.into()), "its claim is told");
    let open = AttachmentSeen { deleted: false, ..unused.attachments[0].clone() };
    assert!(!Seen { attachments: vec![open], ..unused.clone() }.is_held_up(&U2.into()), "it does not close");
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
        assert!(!after.is_held_up(&U2.into()));
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
