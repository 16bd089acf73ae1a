use super::*;
use crate::api::AttachmentState;
use crate::attachment::node_side::plan;
use crate::attachment::observed::NodeGrowth;
use crate::attachment::record::Record;
use crate::fixtures;

const A: &str = "attachment";

fn attachment() -> AttachmentSeen {
    AttachmentSeen { growth: NodeGrowth { asked: 3, reached: 0 }, ..fixtures::attachment(A) }
}

fn claim(name: &str, state: ClaimState) -> ClaimSeen {
    ClaimSeen { state, ..fixtures::granted(name, &attachment()) }
}

/// These claims are mounted, and the Attachment was just read.
fn seen(claims: &[ClaimSeen]) -> Seen {
    let targets = claims.iter().map(|c| (c.uid.clone(), fixtures::target(&c.name))).collect();
    Seen {
        node_uid: fixtures::NODE_UID.into(),
        boot_id: fixtures::BOOT.into(),
        claims: claims.to_vec(),
        attachments: vec![attachment()],
        records: vec![Record { targets, ..fixtures::record(A) }],
        live_attachments: vec![(A.into(), LiveAttachment::Present(attachment()))],
        mounted: claims.iter().map(|c| c.uid.clone()).collect(),
        ..Seen::default()
    }
}

fn with(seen: &Seen, attachment: &AttachmentSeen) -> Seen {
    Seen {
        attachments: vec![attachment.clone()],
        live_attachments: vec![(A.into(), LiveAttachment::Present(attachment.clone()))],
        ..seen.clone()
    }
}

fn grows(claim: &str) -> NodeStep {
    NodeStep::Grow { claim: claim.into(), attachment: A.into() }
}

fn is_ready(claim: &str) -> NodeStep {
    NodeStep::ReportReady { claim: claim.into(), attachment: A.into() }
}

#[test]
fn a_volume_in_use_follows_after_a_live_look() {
    let used = seen(&[claim("c", ClaimState::Ready), claim("d", ClaimState::Ready)]);
    assert_eq!(plan(&used), grows("c"));
    let unread = Seen { live_attachments: Vec::new(), ..used.clone() };
    let read = NodeStep::ReadAttachment { attachment: A.into(), name: format!("name-{A}") };
    assert_eq!(plan(&unread), read);
    let done = AttachmentSeen { growth: NodeGrowth { asked: 3, reached: 3 }, ..attachment() };
    assert_eq!(plan(&with(&used, &done)), NodeStep::Idle, "once for both claims");
    // The cache has it, and the API server has taken it back.
    let mut lower = used.clone();
    lower.live_attachments = vec![(A.into(), LiveAttachment::Present(done))];
    assert_eq!(plan(&lower), NodeStep::Idle);
}

#[test]
fn the_next_claim_is_ready_after_one_attempt() {
    let mounted = seen(&[claim("c", ClaimState::Taken)]);
    assert_eq!(plan(&mounted), grows("c"));
    let failed = Seen { grows_later: vec![A.into()], ..mounted };
    assert_eq!(plan(&failed), is_ready("c"));
    let used = Seen { grows_later: vec![A.into()], ..seen(&[claim("c", ClaimState::Ready)]) };
    assert_eq!(plan(&used), NodeStep::Idle);
}

#[test]
fn a_driver_that_grows_what_is_unused_is_asked_before_the_first_claim_is_ready() {
    let only_unused = |claims: &[ClaimSeen]| Seen { grows_only_unused: true, ..seen(claims) };
    assert_eq!(plan(&only_unused(&[claim("c", ClaimState::Ready)])), NodeStep::Idle);
    let second = [claim("c", ClaimState::Ready), claim("d", ClaimState::Taken)];
    assert_eq!(plan(&only_unused(&second)), is_ready("d"));
    assert_eq!(plan(&only_unused(&[claim("c", ClaimState::Taken)])), grows("c"));
}

#[test]
fn who_only_reads_or_is_kubelets_has_nothing_grown() {
    let ready = claim("c", ClaimState::Ready);
    for other in [
        ClaimSeen { read_only: true, ..ready.clone() },
        ClaimSeen { of_pod: true, grown_by_kubelet: true, ..ready.clone() },
        ClaimSeen { mode: crate::api::AccessMode::MultiNodeReader, ..ready.clone() },
    ] {
        assert_eq!(plan(&seen(std::slice::from_ref(&other))), NodeStep::Idle, "{other:?}");
        let beside = ClaimSeen { name: "d".into(), uid: "d".into(), ..ready.clone() };
        assert_eq!(plan(&seen(&[other, beside])), grows("d"));
    }
    let attached = AttachmentSeen { read_only: true, ..attachment() };
    assert_eq!(plan(&with(&seen(&[ready]), &attached)), NodeStep::Idle);
}

#[test]
fn what_leaves_is_not_touched() {
    let used = seen(&[claim("c", ClaimState::Ready)]);
    for leaving in [
        AttachmentSeen { deleted: true, ..attachment() },
        AttachmentSeen { state: AttachmentState::NodeDetached, ..attachment() },
        AttachmentSeen { node_uid: "another".into(), ..attachment() },
    ] {
        assert_eq!(plan(&with(&used, &leaving)), NodeStep::Idle, "{leaving:?}");
    }
    let leaves = ClaimSeen { deleted: true, ..claim("c", ClaimState::Ready) };
    let unpublish = |claim: &str| NodeStep::Unpublish { claim: claim.into(), attachment: A.into() };
    assert_eq!(plan(&seen(std::slice::from_ref(&leaves))), unpublish("c"));
    let stays = claim("d", ClaimState::Ready);
    let mut both = seen(&[leaves, stays]);
    both.backing_off = vec!["c".into()];
    assert_eq!(plan(&both), grows("d"), "whose undo waits is not grown at");
    // NodeUnstageVolume has begun, and may have had its effect.
    let mut staged = seen(&[]);
    staged.records[0].staged = crate::attachment::record::Done::Maybe;
    staged.backing_off = vec![A.into()];
    assert_eq!(plan(&staged), NodeStep::Idle);
}
