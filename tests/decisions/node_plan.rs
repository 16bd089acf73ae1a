//! What a node's agent does next about one volume, case by case. T.., L.., B.. and N.. are those of docs/known-traps.md.

mod guards;
mod in_use;
mod linger;

use moor::api::{AttachmentState, ClaimState};
use moor::attachment::node_side::{LiveAttachment, NodeStep, Seen, plan};
use moor::attachment::record::{Done, Record, TargetRecord};
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::ClaimSeen;

use super::fixtures::{self, BOOT, NODE_UID, attachment, granted, handle, target};

/// A claim that was granted the Attachment `uid`.
fn claim(name: &str, uid: &str, state: ClaimState) -> ClaimSeen {
    ClaimSeen { state, ..granted(name, &attachment(uid)) }
}

/// A record of this boot.
fn record(uid: &str, staged: Done, targets: &[(&str, Done)]) -> Record {
    let target = |(claim, published): &(&str, Done)| {
        let target = TargetRecord { published: *published, revision: 1, ..target(claim) };
        ((*claim).into(), target)
    };
    Record { staged, targets: targets.iter().map(target).collect(), ..fixtures::record(uid) }
}

fn seen(claims: &[ClaimSeen], attachments: &[AttachmentSeen], records: &[Record]) -> Seen {
    Seen {
        node_uid: NODE_UID.into(),
        boot_id: BOOT.into(),
        claims: claims.to_vec(),
        attachments: attachments.to_vec(),
        records: records.to_vec(),
        ..Seen::default()
    }
}

/// With a live read of each Attachment, as it is before a first call.
fn looked(mut seen: Seen) -> Seen {
    let live = |a: &AttachmentSeen| (a.uid.clone(), LiveAttachment::Present(a.clone()));
    seen.live_attachments = seen.attachments.iter().map(live).collect();
    seen
}

fn yields(claim: &str, uid: &str) -> NodeStep {
    NodeStep::Yield { claim: claim.into(), attachment: uid.into() }
}

/// N1: a grant says nothing about what became of the Attachment since.
#[test]
fn nothing_is_called_on_the_word_of_a_cache() {
    let granted = seen(&[claim("a", "u", ClaimState::Pending)], &[attachment("u")], &[]);
    let look = NodeStep::ReadAttachment { attachment: "u".into(), name: "name-u".into() };
    assert_eq!(plan(&granted), look);
    assert_eq!(plan(&looked(granted.clone())), NodeStep::Stage { attachment: "u".into() });
    let mut gone = granted;
    gone.live_attachments = vec![("u".into(), LiveAttachment::Gone)];
    assert_eq!(plan(&gone), yields("a", "u"));
}

/// N11, T58: who could write a grant could name the Attachment of another tenant.
#[test]
fn a_grant_of_another_namespaces_attachment_is_given_back() {
    let theirs = AttachmentSeen { namespace: "theirs".into(), ..attachment("u") };
    let forged = looked(seen(&[claim("a", "u", ClaimState::Pending)], &[theirs], &[]));
    assert_eq!(plan(&forged), yields("a", "u"));
}

/// B9: made for a machine that had this node's name.
#[test]
fn a_grant_for_another_machine_of_this_name_is_given_back() {
    let before = AttachmentSeen { node_uid: "before".into(), ..attachment("u") };
    let granted = looked(seen(&[claim("a", "u", ClaimState::Pending)], &[before], &[]));
    assert_eq!(plan(&granted), yields("a", "u"));
}

/// N2, B23: the leader's joins do not exclude each other, so the node does.
#[test]
fn a_second_target_in_an_exclusive_mode_is_given_back() {
    let exclusive = AttachmentSeen { exclusive: true, ..attachment("u") };
    let claims = [claim("a", "u", ClaimState::Ready), claim("b", "u", ClaimState::Pending)];
    let record = record("u", Done::Yes, &[("a", Done::Yes)]);
    let mut both = looked(seen(&claims, &[exclusive], &[record]));
    both.mounted = vec!["a".into()];
    assert_eq!(plan(&both), yields("b", "u"));
}

/// N4: where nothing is to be attached nobody writes Attached, and nobody waits for it. N6: the node then looks at the
/// VolumeHandle itself.
#[test]
fn without_attach_the_node_makes_the_first_call_and_reads_the_handle() {
    let bare = AttachmentSeen { attach: false, state: AttachmentState::Taken, epoch: 2, ..attachment("u") };
    let mut first = looked(seen(&[claim("a", "u", ClaimState::Pending)], std::slice::from_ref(&bare), &[]));
    assert_eq!(plan(&first), NodeStep::ReadHandle { claim: "a".into(), attachment: "u".into() });
    // Another claim joins: the record shows that the first call has been made.
    let joined = [claim("a", "u", ClaimState::Ready), claim("b", "u", ClaimState::Pending)];
    let mut join = looked(seen(&joined, &[bare], &[record("u", Done::Yes, &[("a", Done::Yes)])]));
    join.mounted = vec!["a".into()];
    assert_eq!(plan(&join), NodeStep::Publish { claim: "b".into(), attachment: "u".into() });

    let handle = HandleSeen { epoch: 2, ..handle() };
    first.live_handle = Some(("a".into(), Some(handle.clone())));
    assert_eq!(plan(&first), NodeStep::Stage { attachment: "u".into() });
    for (epoch, closing) in [(3, true), (3, false)] {
        first.live_handle = Some(("a".into(), Some(HandleSeen { epoch, closing, ..handle.clone() })));
        assert_eq!(plan(&first), yields("a", "u"), "epoch {epoch}, closing {closing}");
    }
    first.live_handle = Some(("a".into(), None));
    assert_eq!(plan(&first), yields("a", "u"));
}

/// T52: an agent that has just started touches nothing that is as it should be, whether the driver is up or not.
#[test]
fn what_is_mounted_and_ready_is_left_alone() {
    let record = record("u", Done::Yes, &[("a", Done::Yes)]);
    let mut quiet = seen(&[claim("a", "u", ClaimState::Ready)], &[attachment("u")], &[record]);
    quiet.mounted = vec!["a".into()];
    assert_eq!(plan(&quiet), NodeStep::Idle);
}

/// N9: an Attachment that somebody deleted by hand closes, and keeps what a living claim has mounted.
#[test]
fn a_closing_attachment_does_not_unmount_a_living_claim() {
    let closing = AttachmentSeen { deleted: true, ..attachment("u") };
    let record = record("u", Done::Yes, &[("a", Done::Yes)]);
    let mut used = looked(seen(&[claim("a", "u", ClaimState::Ready)], &[closing], &[record]));
    used.mounted = vec!["a".into()];
    assert_eq!(plan(&used), NodeStep::Idle);
}

/// B10: after a reboot the path shows the node's own disk.
#[test]
fn after_a_reboot_a_claim_is_not_ready_before_anything_else() {
    let mut old = record("u", Done::Maybe, &[("a", Done::Maybe)]);
    old.boot_id = "earlier".into();
    let booted = seen(&[claim("a", "u", ClaimState::Ready)], &[attachment("u")], &[old]);
    assert_eq!(plan(&booted), NodeStep::ReportNotReady { claim: "a".into() });
}

/// B11, R8: what may be half done is made again, also if something is mounted there.
#[test]
fn a_publish_that_was_cut_short_is_repeated() {
    let half = record("u", Done::Yes, &[("a", Done::Maybe)]);
    let mut cut = looked(seen(&[claim("a", "u", ClaimState::Taken)], &[attachment("u")], &[half]));
    cut.mounted = vec!["a".into()];
    assert_eq!(plan(&cut), NodeStep::Publish { claim: "a".into(), attachment: "u".into() });
}

/// T56: one has just left, another is about to come.
#[test]
fn what_a_waiting_claim_needs_is_not_unstaged() {
    let staged = record("u", Done::Yes, &[]);
    let mut leaving = claim("a", "u", ClaimState::NodeDetached);
    leaving.deleted = true;
    let next = claim("b", "u", ClaimState::Pending);
    let between = looked(seen(&[leaving, next], &[attachment("u")], &[staged]));
    assert_eq!(plan(&between), NodeStep::Publish { claim: "b".into(), attachment: "u".into() });
}

/// B8, B14: the traces of an earlier Attachment of this volume go first, whatever else waits.
#[test]
fn nothing_is_staged_beside_the_traces_of_another_attachment() {
    let old = record("old", Done::Maybe, &[]);
    let claims = [claim("a", "u", ClaimState::Pending)];
    let mut both = looked(seen(&claims, &[attachment("u")], &[old]));
    both.live_attachments.push(("old".into(), LiveAttachment::Gone));
    assert_eq!(plan(&both), NodeStep::Unstage { attachment: "old".into() });
    both.backing_off = vec!["old".into()];
    assert_eq!(plan(&both), NodeStep::Idle);
}

/// B8: a node that was declared lost undoes its mounts when it is back, and says nothing about what is not its any more.
#[test]
fn a_lost_attachment_is_undone_and_not_reported() {
    let lost = AttachmentSeen { lost: true, ..attachment("u") };
    let mut back = looked(seen(
        &[claim("a", "u", ClaimState::Lost)],
        &[lost],
        &[record("u", Done::Yes, &[("a", Done::Yes)])],
    ));
    back.mounted = vec!["a".into()];
    assert_eq!(plan(&back), NodeStep::Unpublish { claim: "a".into(), attachment: "u".into() });
    back.records = vec![record("u", Done::Yes, &[])];
    assert_eq!(plan(&back), NodeStep::Unstage { attachment: "u".into() });
    back.records = vec![record("u", Done::No, &[])];
    assert_eq!(plan(&back), NodeStep::Idle);
}

/// B7: where no call cuts a lost node off, whoever finds it back waits until it says that it is done.
#[test]
fn a_lost_node_that_nothing_cuts_off_says_when_it_is_done() {
    let lost = AttachmentSeen {
        lost: true,
        deleted: true,
        attach: false,
        state: AttachmentState::Taken,
        ..attachment("u")
    };
    let claims = [claim("a", "u", ClaimState::Lost)];
    let detached = NodeStep::ReportDetached { attachment: "u".into() };
    let traces = record("u", Done::Yes, &[]);
    let back = looked(seen(&claims, std::slice::from_ref(&lost), &[traces]));
    assert_eq!(plan(&back), NodeStep::Unstage { attachment: "u".into() });
    let clean = record("u", Done::No, &[]);
    assert_eq!(plan(&looked(seen(&claims, std::slice::from_ref(&lost), &[clean]))), detached);
    assert_eq!(plan(&looked(seen(&claims, std::slice::from_ref(&lost), &[]))), detached);
    let fenced = AttachmentSeen { attach: true, ..lost.clone() };
    assert_eq!(plan(&looked(seen(&claims, &[fenced], &[]))), NodeStep::Idle);
    let said = AttachmentSeen { state: AttachmentState::NodeDetached, ..lost };
    assert_eq!(plan(&looked(seen(&claims, &[said], &[]))), NodeStep::Idle);
}

/// B2, B8, B17, N14, T29, L2: every object is gone, and the record is enough; each absence is looked up first.
#[test]
fn a_record_is_undone_when_all_its_objects_are_gone() {
    let mut seen = seen(&[], &[], &[record("u", Done::Yes, &[("a", Done::Yes), ("b", Done::Maybe)])]);
    seen.revision = Some(2);
    let mut steps = Vec::new();
    while !seen.records.is_empty() {
        let step = plan(&seen);
        match &step {
            NodeStep::ReadClaim { claim } => seen.gone_claims.push(claim.clone()),
            NodeStep::ReadAttachment { attachment, .. } => {
                seen.live_attachments.push((attachment.clone(), LiveAttachment::Gone));
            }
            NodeStep::Unpublish { claim, .. } => {
                seen.records[0].targets.remove(claim);
            }
            NodeStep::Unstage { .. } => seen.records[0].staged = Done::No,
            NodeStep::Forget { .. } => seen.records.clear(),
            other => unreachable!("{other:?} after {steps:?}"),
        }
        steps.push(step);
    }
    let unpublish = |claim: &str| NodeStep::Unpublish { claim: claim.into(), attachment: "u".into() };
    let expected = [
        NodeStep::ReadAttachment { attachment: "u".into(), name: "name-u".into() },
        NodeStep::ReadClaim { claim: "a".into() },
        unpublish("a"),
        NodeStep::ReadClaim { claim: "b".into() },
        unpublish("b"),
        NodeStep::Unstage { attachment: "u".into() },
        NodeStep::Forget { attachment: "u".into() },
    ];
    assert_eq!(steps, expected);
}
