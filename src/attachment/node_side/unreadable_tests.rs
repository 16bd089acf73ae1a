//! Records that cannot be read: what they may speak of is not known.

use super::*;

/// Without its record nothing would be known to be mounted: the volume would be detached under the mount.
#[test]
fn what_an_unreadable_record_may_speak_of_is_undone_before_the_volume_is_handed_on() {
    let closing = AttachmentSeen { deleted: true, ..attachment() };
    let leaving = ClaimSeen { deleted: true, ..claim() };
    let unreadable = |attachment: &AttachmentSeen, claims: Vec<ClaimSeen>| Seen {
        attachments: vec![attachment.clone()],
        claims,
        records: Vec::new(),
        mounted: Vec::new(),
        unreadable: vec![A.into()],
        ..in_use()
    };
    let presume = NodeStep::Presume { attachment: A.into() };
    assert_eq!(plan(&unreadable(&closing, vec![leaving.clone()])), presume);
    assert_eq!(plan(&unreadable(&closing, Vec::new())), presume, "its claim was removed by hand");
    let other = ClaimSeen { uid: "other".into(), ..claim() };
    assert_eq!(plan(&unreadable(&attachment(), vec![leaving, other])), presume, "while another stays");
    let another = Seen { unreadable: vec!["x".into()], ..unreadable(&closing, Vec::new()) };
    assert_eq!(plan(&another), NodeStep::ReportDetached { attachment: A.into() });
    let written = Seen { records: vec![record()], ..unreadable(&closing, vec![claim()]) };
    assert_eq!(plan(&written), unpublish());
}

/// Its Attachment is gone: the file is all that speaks of its mounts.
#[test]
fn nothing_is_made_beside_what_nobody_can_read() {
    let waiting = ClaimSeen { state: ClaimState::Taken, ..claim() };
    let beside = |file: &str| Seen {
        records: Vec::new(),
        mounted: Vec::new(),
        claims: vec![waiting.clone()],
        attachments: vec![attachment()],
        live_attachments: vec![(A.into(), LiveAttachment::Present(attachment()))],
        unreadable: vec![file.into()],
        unreadable_here: vec![file.into()],
        ..both_gone()
    };
    assert_eq!(plan(&beside("earlier")), NodeStep::Idle);
    let elsewhere = Seen { unreadable_here: Vec::new(), ..beside("earlier") };
    assert_eq!(plan(&elsewhere), NodeStep::Stage { attachment: A.into() }, "of another volume");
    assert_eq!(plan(&beside(A)), NodeStep::Presume { attachment: A.into() });
    let mut presumed = Record { staged: Done::Maybe, ..record() };
    presumed.targets.clear();
    let presumed = Seen { records: vec![presumed], gone_claims: Vec::new(), ..beside(A) };
    assert_eq!(plan(&presumed), NodeStep::Stage { attachment: A.into() });
}

/// On a full disk: what it may have mounted is not known to be gone, so nothing goes on without it.
#[test]
fn nothing_is_handed_on_while_a_record_cannot_be_presumed() {
    let closing = AttachmentSeen { deleted: true, ..attachment() };
    let leaving = ClaimSeen { deleted: true, ..claim() };
    let waiting = ClaimSeen { state: ClaimState::Taken, ..claim() };
    for (attachment, claim) in [(&closing, &leaving), (&closing, &waiting), (&attachment(), &waiting)] {
        let seen = Seen {
            records: Vec::new(),
            mounted: Vec::new(),
            claims: vec![claim.clone()],
            attachments: vec![attachment.clone()],
            unreadable: vec![A.into()],
            backing_off: vec![A.into()],
            ..in_use()
        };
        assert_eq!(plan(&seen), NodeStep::Idle);
    }
}
