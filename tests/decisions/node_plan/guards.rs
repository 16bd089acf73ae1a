//! The guards of the node's side one by one: what is not done, and why not.

use super::*;
use moor::api::AccessMode;
use moor::api::handle::{Writer, WriterRef};
use moor::attachment::record::{Forgotten, Lapse};

fn unpublish(claim: &str) -> NodeStep {
    NodeStep::Unpublish { claim: claim.into(), attachment: "u".into() }
}

fn unstage() -> NodeStep {
    NodeStep::Unstage { attachment: "u".into() }
}

fn detached() -> NodeStep {
    NodeStep::ReportDetached { attachment: "u".into() }
}

fn deleted(claim: ClaimSeen) -> ClaimSeen {
    ClaimSeen { deleted: true, ..claim }
}

/// Attachments that no node may use any more.
fn unusable() -> [AttachmentSeen; 4] {
    [
        AttachmentSeen { deleted: true, ..attachment("u") },
        AttachmentSeen { lost: true, ..attachment("u") },
        AttachmentSeen { state: AttachmentState::NodeDetached, ..attachment("u") },
        AttachmentSeen { state: AttachmentState::ControllerDetached, ..attachment("u") },
    ]
}

#[test]
fn what_cannot_be_used_is_given_back() {
    for gone in unusable() {
        let granted = seen(&[claim("a", "u", ClaimState::Pending)], std::slice::from_ref(&gone), &[]);
        // Where it is for the node to say that nothing was made of it, that comes first.
        let expected = if gone.deleted { detached() } else { yields("a", "u") };
        assert_eq!(plan(&granted), expected, "{gone:?}");
    }
    // Here it is for the controller side, which ends its call first.
    let closing = AttachmentSeen { deleted: true, state: AttachmentState::Taken, ..attachment("u") };
    let early = |claim| seen(&[claim], std::slice::from_ref(&closing), &[]);
    assert_eq!(plan(&early(claim("a", "u", ClaimState::Pending))), yields("a", "u"));
    assert_eq!(plan(&early(deleted(claim("a", "u", ClaimState::Pending)))), NodeStep::Idle);
    assert_eq!(plan(&early(claim("a", "u", ClaimState::Lost))), NodeStep::Idle);
}

#[test]
fn an_attachment_that_the_cache_does_not_have_is_looked_up() {
    let granted = seen(&[claim("a", "u", ClaimState::Pending)], &[], &[]);
    let look = NodeStep::ReadAttachment { attachment: "u".into(), name: "name-u".into() };
    assert_eq!(plan(&granted), look);
}

/// Before it is attached it is not for the node; a look would only give it back.
#[test]
fn what_is_not_attached_yet_is_waited_for() {
    let taken = AttachmentSeen { state: AttachmentState::Taken, ..attachment("u") };
    let early = seen(&[claim("a", "u", ClaimState::Pending)], &[taken], &[]);
    assert_eq!(plan(&early), NodeStep::Idle);
    assert_eq!(plan(&looked(early)), NodeStep::Idle);
}

#[test]
fn nothing_is_made_for_a_claim_that_ended() {
    let ended = [
        deleted(claim("a", "u", ClaimState::Pending)),
        claim("a", "u", ClaimState::Lost),
        claim("a", "u", ClaimState::NodeDetached),
    ];
    for claim in ended {
        let idle = looked(seen(std::slice::from_ref(&claim), &[attachment("u")], &[]));
        assert_eq!(plan(&idle), NodeStep::Idle, "{claim:?}");
    }
}

/// Its record is kept until its Attachment is gone, and is in nobody's way.
#[test]
fn a_clean_record_keeps_nobody_waiting() {
    let old = AttachmentSeen { deleted: true, state: AttachmentState::NodeDetached, ..attachment("old") };
    let claims = [claim("a", "u", ClaimState::Pending)];
    let next = looked(seen(&claims, &[attachment("u"), old], &[record("old", Done::No, &[])]));
    assert_eq!(plan(&next), NodeStep::Stage { attachment: "u".into() });
}

/// A claim that was given back may be freed at once.
#[test]
fn what_is_given_back_is_unpublished_first() {
    let exclusive = AttachmentSeen { exclusive: true, ..attachment("u") };
    let claims = [claim("a", "u", ClaimState::Ready), claim("b", "u", ClaimState::Pending)];
    let record = record("u", Done::Yes, &[("a", Done::Yes), ("b", Done::Maybe)]);
    let mut both = looked(seen(&claims, &[exclusive], &[record]));
    both.mounted = vec!["a".into()];
    assert_eq!(plan(&both), unpublish("b"));
    both.backing_off = vec!["b".into()];
    assert_eq!(plan(&both), NodeStep::Idle);
}

/// N14: whoever writes reads its own name in the VolumeHandle, after it was granted and before its first call.
#[test]
fn a_writer_that_is_not_named_makes_no_call() {
    let mut writer = claim("a", "u", ClaimState::Pending);
    writer.mode = AccessMode::MultiNodeSingleWriter;
    let named = |claim: &str, attachment: &str| {
        let holder =
            WriterRef { claim_uid: claim.into(), attachment_uid: attachment.into(), ..WriterRef::default() };
        let writer = Some(Writer { holder, grant: 1, released: false, after: None });
        Some(HandleSeen { writer, ..handle() })
    };
    let mut first = looked(seen(&[writer], &[attachment("u")], &[]));
    let look = NodeStep::ReadHandle { claim: "a".into(), attachment: "u".into() };
    assert_eq!(plan(&first), look);
    first.live_handle = Some(("b".into(), named("a", "u")));
    assert_eq!(plan(&first), look, "read for another claim, perhaps before this one was granted");
    for other in [named("b", "u"), named("a", "before"), None, Some(handle())] {
        first.live_handle = Some(("a".into(), other));
        assert_eq!(plan(&first), yields("a", "u"));
    }
    first.live_handle = Some(("a".into(), named("a", "u")));
    assert_eq!(plan(&first), NodeStep::Stage { attachment: "u".into() });
    first.claims[0].read_only = true;
    first.live_handle = None;
    assert_eq!(plan(&first), NodeStep::Stage { attachment: "u".into() }, "a reader needs no name");
}

/// B11, R8: a stage whose outcome is open, or of an earlier boot, is repeated.
#[test]
fn only_a_stage_of_this_boot_that_was_answered_counts() {
    let claims = [claim("a", "u", ClaimState::Pending)];
    let mut earlier = record("u", Done::Yes, &[]);
    earlier.boot_id = "earlier".into();
    for record in [record("u", Done::Maybe, &[]), earlier, record("u", Done::No, &[])] {
        let again = looked(seen(&claims, &[attachment("u")], std::slice::from_ref(&record)));
        assert_eq!(plan(&again), NodeStep::Stage { attachment: "u".into() }, "{record:?}");
    }
    let mut mounted = looked(seen(
        &[claim("a", "u", ClaimState::Ready)],
        &[attachment("u")],
        &[Record { boot_id: "earlier".into(), ..record("u", Done::Yes, &[("a", Done::Yes)]) }],
    ));
    mounted.mounted = vec!["a".into()];
    assert_eq!(plan(&mounted), NodeStep::ReportNotReady { claim: "a".into() });
}

#[test]
fn a_call_that_failed_waits_for_its_time() {
    let claims = [claim("a", "u", ClaimState::Pending)];
    let mut staging = looked(seen(&claims, &[attachment("u")], &[record("u", Done::Maybe, &[])]));
    staging.backing_off = vec!["u".into()];
    assert_eq!(plan(&staging), NodeStep::Idle);
    let mut publishing = looked(seen(&claims, &[attachment("u")], &[record("u", Done::Yes, &[])]));
    publishing.backing_off = vec!["a".into()];
    assert_eq!(plan(&publishing), NodeStep::Idle);
}

/// B18, B19: its own state is written when its target is gone and others stay; the last one's Attachment says it.
#[test]
fn a_claim_is_detached_without_its_target() {
    let leaving = deleted(claim("a", "u", ClaimState::Ready));
    let stays = claim("b", "u", ClaimState::Ready);
    let record = |targets: &[(&str, Done)]| record("u", Done::Yes, targets);
    let with = record(&[("a", Done::Yes), ("b", Done::Yes)]);
    let mut both = looked(seen(&[leaving.clone(), stays], &[attachment("u")], &[with]));
    both.mounted = vec!["a".into(), "b".into()];
    assert_eq!(plan(&both), unpublish("a"));
    both.backing_off = vec!["a".into()];
    assert_eq!(plan(&both), NodeStep::Idle);
    both.records[0].targets.remove(&"a".into());
    assert_eq!(plan(&both), NodeStep::ReportClaimDetached { claim: "a".into() });
    both.claims[0].state = ClaimState::NodeDetached;
    assert_eq!(plan(&both), NodeStep::Idle);
    // Nobody stays: unstaged, then said by the Attachment.
    let mut last = looked(seen(&[leaving], &[attachment("u")], &[record(&[])]));
    assert_eq!(plan(&last), unstage());
    last.records[0].staged = Done::No;
    assert_eq!(plan(&last), detached());
}

/// R5: what keeps a volume staged is a claim that is alive, here, and on this very Attachment.
#[test]
fn nobody_else_keeps_a_volume_staged() {
    let staged = |claims: &[ClaimSeen]| {
        looked(seen(claims, &[attachment("u"), attachment("v")], &[record("u", Done::Yes, &[])]))
    };
    let waits = claim("a", "u", ClaimState::Pending);
    assert_eq!(
        plan(&staged(std::slice::from_ref(&waits))),
        NodeStep::Publish { claim: "a".into(), attachment: "u".into() }
    );
    let gave_back = ClaimSeen { yielded: Some("u".into()), ..waits.clone() };
    let others = [
        deleted(waits.clone()),
        claim("a", "u", ClaimState::Lost),
        claim("a", "v", ClaimState::Pending),
        gave_back,
    ];
    for other in others {
        assert_eq!(plan(&staged(std::slice::from_ref(&other))), unstage(), "{other:?}");
    }
    let mut removed = staged(std::slice::from_ref(&waits));
    removed.gone_claims = vec!["a".into()];
    assert_eq!(plan(&removed), unstage());
    // It closes: whoever waits for it gets another one.
    let mut closing = staged(&[waits]);
    closing.live_attachments.clear();
    closing.attachments[0].deleted = true;
    assert_eq!(plan(&closing), unstage());
}

/// Else the claim would wait for its target and the Attachment for the claim.
#[test]
fn a_target_that_can_never_be_finished_is_undone() {
    let half = record("u", Done::Yes, &[("a", Done::Maybe)]);
    let claims = [claim("a", "u", ClaimState::Taken)];
    for gone in unusable() {
        let cut = looked(seen(&claims, std::slice::from_ref(&gone), std::slice::from_ref(&half)));
        assert_eq!(plan(&cut), unpublish("a"), "{gone:?}");
    }
    let mut kept = half;
    kept.forgotten = Some(Forgotten { why: Lapse::WentBack, since: 1 });
    let mut forgotten = seen(&claims, &[], &[kept]);
    forgotten.live_attachments = vec![("u".into(), LiveAttachment::Gone)];
    assert_eq!(plan(&forgotten), NodeStep::Idle, "nobody knows what it is");
}

/// Lost is final: a node that comes back undoes it, also if its Attachment says nothing of it.
#[test]
fn a_lost_claims_target_is_undone() {
    let record = record("u", Done::Yes, &[("a", Done::Yes)]);
    let mut back = looked(seen(&[claim("a", "u", ClaimState::Lost)], &[attachment("u")], &[record]));
    back.mounted = vec!["a".into()];
    assert_eq!(plan(&back), unpublish("a"));
}

/// N9: only what a living claim has mounted is kept for it; and a record without traces says nothing.
#[test]
fn what_was_deleted_is_not_taken_for_forgotten() {
    let mut mounted = record("u", Done::Yes, &[("a", Done::Yes)]);
    mounted.revision = 1;
    let mut leaving = seen(&[deleted(claim("a", "u", ClaimState::Ready))], &[], &[mounted]);
    leaving.live_attachments = vec![("u".into(), LiveAttachment::Gone)];
    leaving.revision = Some(2);
    leaving.mounted = vec!["a".into()];
    assert_eq!(plan(&leaving), unpublish("a"));
    let mut clean = record("u", Done::No, &[]);
    clean.revision = 100;
    let mut left = seen(&[], &[], &[clean]);
    left.live_attachments = vec![("u".into(), LiveAttachment::Gone)];
    for revision in [None, Some(99)] {
        left.revision = revision;
        assert_eq!(plan(&left), NodeStep::Forget { attachment: "u".into() }, "{revision:?}");
    }
}

/// Who says that a closing Attachment is done, of which this node never had anything.
#[test]
fn what_was_never_used_is_handed_on_by_whose_turn_it_is() {
    let closing = AttachmentSeen { deleted: true, ..attachment("u") };
    let of = |state, attach, lost| {
        plan(&seen(&[], &[AttachmentSeen { state, attach, lost, ..closing.clone() }], &[]))
    };
    assert_eq!(of(AttachmentState::Attached, true, false), detached());
    assert_eq!(of(AttachmentState::Taken, false, false), detached());
    assert_eq!(of(AttachmentState::Taken, true, false), NodeStep::Idle, "a call may be on its way");
    for attach in [true, false] {
        // Of a lost one that nothing cuts off the leader waits for this word, if the node is heard again.
        let lost = if attach { NodeStep::Idle } else { detached() };
        assert_eq!(of(AttachmentState::Attached, attach, true), lost, "lost");
        assert_eq!(of(AttachmentState::Taken, attach, true), lost, "lost");
        assert_eq!(of(AttachmentState::NodeDetached, attach, false), NodeStep::Idle);
        assert_eq!(of(AttachmentState::ControllerDetached, attach, false), NodeStep::Idle);
    }
    assert_eq!(plan(&seen(&[], &[attachment("u")], &[])), NodeStep::Idle, "it does not close");
}
