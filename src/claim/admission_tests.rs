use super::*;
use crate::api::capability::VolumeUse;
use crate::api::claim::Assignment;
use crate::api::{AttachmentMode, AttachmentState, ClaimState, VolumeHandle};

const MODE: AccessMode = AccessMode::MultiNodeSingleWriter;

fn claim(name: &str, node: &str, read_only: bool, attachment: Option<&str>) -> ClaimSeen {
    ClaimSeen {
        namespace: "ns".into(),
        name: name.into(),
        uid: name.into(),
        created: 0,
        deleted: false,
        held: attachment.is_some(),
        force: false,
        node: Some(node.into()),
        read_only,
        mode: MODE,
        attachment_mode: AttachmentMode::BlockDevice,
        state: if attachment.is_some() { ClaimState::Ready } else { ClaimState::Pending },
        assignment: attachment.map(|uid| Assignment { attachment_uid: uid.into(), ..Assignment::default() }),
        yielded: None,
    }
}

fn attachment(uid: &str, node: &str, read_only: bool) -> AttachmentSeen {
    AttachmentSeen {
        name: lock::attachment_name("driver", "handle", MODE, node),
        uid: uid.into(),
        deleted: false,
        namespace: "ns".into(),
        volume_uid: "volume".into(),
        handle_name: "handle".into(),
        node: node.into(),
        node_uid: node.into(),
        mode: MODE,
        attachment_mode: AttachmentMode::BlockDevice,
        epoch: 1,
        controller: None,
        attach: true,
        stage: true,
        read_only,
        exclusive: false,
        state: AttachmentState::Attached,
        lost: false,
        node_id: String::new(),
    }
}

/// What a claim `asking` is told, among these.
fn verdict(attaches_read_only: bool, claims: &[ClaimSeen], attachments: &[AttachmentSeen]) -> Verdict {
    let volume = VolumeSeen {
        uid: "volume".into(),
        deleted: false,
        ready: true,
        driver: "driver".into(),
        handle: "handle".into(),
        uses: vec![VolumeUse { access_mode: MODE, attachment_mode: AttachmentMode::BlockDevice }],
        attaches_read_only,
        unprepared: None,
    };
    let handle = HandleSeen {
        volume_uid: "volume".into(),
        mode: MODE,
        epoch: 1,
        ..HandleSeen::of(&VolumeHandle::default())
    };
    let nodes = ["a", "b"].map(|name| NodeSeen {
        name: name.into(),
        uid: name.into(),
        healthy: true,
        reachable: true,
        unclean: false,
        twin: None,
        has_room: true,
        load: 0,
    });
    let seen = Seen {
        volume_name: "data",
        volume: Some(&volume),
        handle: Some(&handle),
        claims,
        attachments,
        nodes: &nodes,
        forgotten: &[],
        not_allowed: &[],
    };
    let mut verdicts = admit(&seen);
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts.remove(0).1
}

fn holder(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Wait(Waiting::Held(holder)) => Some(&holder.who),
        _ => None,
    }
}

/// CSI MULTI_NODE_SINGLE_WRITER: one node may write, the rest have the volume read-only.
#[test]
fn a_writer_waits_until_no_other_node_may_write() {
    // The writer has gone from node a, and a reader has stayed on what it was granted.
    let claims = [claim("reader", "a", true, Some("on-a")), claim("asking", "b", false, None)];
    let writable = [attachment("on-a", "a", false)];
    assert_eq!(holder(&verdict(true, &claims, &writable)), Some("ns/reader"));
    // A driver that knows no difference has none to refuse by.
    assert!(matches!(verdict(false, &claims, &writable), Verdict::Grant(Grant::Create { .. })));
    let read_only = [attachment("on-a", "a", true)];
    assert!(matches!(verdict(true, &claims, &read_only), Verdict::Grant(Grant::Create { .. })));
}

/// Also on a node where it could join: a driver that came to attach read-only finds two nodes that may write.
#[test]
fn a_writer_joins_only_when_no_other_node_may_write() {
    let claims = [claim("reader", "a", true, Some("on-a")), claim("asking", "b", false, None)];
    let both = |other| [attachment("on-a", "a", other), attachment("on-b", "b", false)];
    assert_eq!(holder(&verdict(true, &claims, &both(false))), Some("ns/reader"));
    assert!(matches!(verdict(true, &claims, &both(true)), Verdict::Grant(Grant::NameWriter { .. })));
}

#[test]
fn a_writer_does_not_join_what_is_attached_read_only() {
    let claims = [claim("reader", "a", true, Some("on-a")), claim("asking", "a", false, None)];
    assert_eq!(holder(&verdict(true, &claims, &[attachment("on-a", "a", true)])), Some("ns/reader"));
    let writable = [attachment("on-a", "a", false)];
    assert!(matches!(verdict(true, &claims, &writable), Verdict::Grant(Grant::NameWriter { .. })));
}

#[test]
fn a_reader_joins_what_a_writer_has_and_goes_where_it_likes() {
    let writer = || claim("writer", "a", false, Some("on-a"));
    let writable = [attachment("on-a", "a", false)];
    let beside = [writer(), claim("asking", "a", true, None)];
    assert!(matches!(verdict(true, &beside, &writable), Verdict::Grant(Grant::Join { .. })));
    let elsewhere = [writer(), claim("asking", "b", true, None)];
    assert!(matches!(verdict(true, &elsewhere, &writable), Verdict::Grant(Grant::Create { .. })));
}
