use super::*;
use crate::api::capability::VolumeUse;
use crate::fixtures::{self, DRIVER_VOLUME};

const MODE: AccessMode = AccessMode::MultiNodeSingleWriter;

fn claim(name: &str, node: &str, read_only: bool, on: Option<&AttachmentSeen>) -> ClaimSeen {
    let claim = on.map_or_else(|| fixtures::claim(name), |attachment| fixtures::granted(name, attachment));
    ClaimSeen { node: Some(node.into()), read_only, mode: MODE, ..claim }
}

fn attachment(uid: &str, node: &str, read_only: bool) -> AttachmentSeen {
    AttachmentSeen {
        name: lock::attachment_name(DRIVER_VOLUME, MODE, node),
        node: node.into(),
        node_uid: node.into(),
        mode: MODE,
        read_only,
        ..fixtures::attachment(uid)
    }
}

/// What a claim `asking` is told, among these.
fn verdict(attaches_read_only: bool, claims: &[ClaimSeen], attachments: &[AttachmentSeen]) -> Verdict {
    let volume = VolumeSeen {
        uses: vec![VolumeUse { access_mode: MODE, ..VolumeUse::default() }],
        attaches_read_only,
        ..fixtures::volume()
    };
    let handle = HandleSeen { mode: MODE, ..fixtures::handle() };
    let nodes = ["a", "b"].map(fixtures::node);
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
    let (writable, read_only) = (attachment("on-a", "a", false), attachment("on-a", "a", true));
    let claims = [claim("reader", "a", true, Some(&writable)), claim("asking", "b", false, None)];
    let told = |attaches_read_only, there: &AttachmentSeen| {
        verdict(attaches_read_only, &claims, std::slice::from_ref(there))
    };
    assert_eq!(holder(&told(true, &writable)), Some("default/reader"));
    // A driver that knows no difference has none to refuse by.
    assert!(matches!(told(false, &writable), Verdict::Grant(Grant::Create { .. })));
    assert!(matches!(told(true, &read_only), Verdict::Grant(Grant::Create { .. })));
}

/// Also on a node where it could join: a driver that came to attach read-only finds two nodes that may write.
#[test]
fn a_writer_joins_only_when_no_other_node_may_write() {
    let both = |other| [attachment("on-a", "a", other), attachment("on-b", "b", false)];
    let claims = [claim("reader", "a", true, Some(&both(true)[0])), claim("asking", "b", false, None)];
    assert_eq!(holder(&verdict(true, &claims, &both(false))), Some("default/reader"));
    assert!(matches!(verdict(true, &claims, &both(true)), Verdict::Grant(Grant::NameWriter { .. })));
}

#[test]
fn a_writer_does_not_join_what_is_attached_read_only() {
    let (writable, read_only) = ([attachment("on-a", "a", false)], [attachment("on-a", "a", true)]);
    let claims = [claim("reader", "a", true, Some(&writable[0])), claim("asking", "a", false, None)];
    assert_eq!(holder(&verdict(true, &claims, &read_only)), Some("default/reader"));
    assert!(matches!(verdict(true, &claims, &writable), Verdict::Grant(Grant::NameWriter { .. })));
}

#[test]
fn a_reader_joins_what_a_writer_has_and_goes_where_it_likes() {
    let writable = [attachment("on-a", "a", false)];
    let writer = || claim("writer", "a", false, Some(&writable[0]));
    let beside = [writer(), claim("asking", "a", true, None)];
    assert!(matches!(verdict(true, &beside, &writable), Verdict::Grant(Grant::Join { .. })));
    let elsewhere = [writer(), claim("asking", "b", true, None)];
    assert!(matches!(verdict(true, &elsewhere, &writable), Verdict::Grant(Grant::Create { .. })));
}
