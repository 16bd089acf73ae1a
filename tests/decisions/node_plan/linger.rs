//! An Attachment that its last claim has left and that nobody has closed: it may be joined again (ADR 27).

use super::*;

fn lingers() -> AttachmentSeen {
    AttachmentSeen { lingers: true, ..attachment("u") }
}

fn leaving(name: &str) -> ClaimSeen {
    ClaimSeen { deleted: true, ..claim(name, "u", ClaimState::Ready) }
}

fn detached(claim: &str) -> NodeStep {
    NodeStep::ReportClaimDetached { claim: claim.into() }
}

/// Everything is undone before the claim is told, and nothing is said of the Attachment.
#[test]
fn the_last_claim_leaves_and_the_attachment_stays() {
    let with = |record: &[Record]| plan(&seen(&[leaving("a")], &[lingers()], record));
    let unpublish = NodeStep::Unpublish { claim: "a".into(), attachment: "u".into() };
    assert_eq!(with(&[record("u", Done::Yes, &[("a", Done::Yes)])]), unpublish);
    for staged in [Done::Yes, Done::Maybe] {
        assert_eq!(with(&[record("u", staged, &[])]), NodeStep::Unstage { attachment: "u".into() });
    }
    assert_eq!(with(&[record("u", Done::No, &[])]), detached("a"));
    assert_eq!(with(&[]), detached("a"), "nothing was made for it");

    let mut failing = seen(&[leaving("a")], &[lingers()], &[record("u", Done::Maybe, &[])]);
    failing.backing_off = vec!["u".into()];
    assert_eq!(plan(&failing), NodeStep::Idle, "it may be staged");
    let mut told = seen(&[leaving("a")], &[lingers()], &[record("u", Done::No, &[])]);
    told.claims[0].state = ClaimState::NodeDetached;
    assert_eq!(plan(&told), NodeStep::Idle);
    told.claims.clear();
    assert_eq!(plan(&told), NodeStep::Idle, "it lingers, for whoever comes");
}

#[test]
fn who_comes_back_is_staged_and_published() {
    let comes = claim("b", "u", ClaimState::Pending);
    let seen = looked(seen(&[comes], &[lingers()], &[record("u", Done::No, &[])]));
    assert_eq!(plan(&seen), NodeStep::Stage { attachment: "u".into() });
}

/// The node's last word is said when the Attachment closes, and of one that was not made to linger as soon as it is clean.
#[test]
fn the_node_says_that_it_is_detached_when_it_closes() {
    let clean = [record("u", Done::No, &[])];
    let says = NodeStep::ReportDetached { attachment: "u".into() };
    let closing = AttachmentSeen { deleted: true, ..lingers() };
    assert_eq!(plan(&seen(&[], &[closing], &clean)), says);
    for other in [attachment("u"), AttachmentSeen { attach: false, controller: None, ..lingers() }] {
        assert_eq!(plan(&seen(&[leaving("a")], std::slice::from_ref(&other), &clean)), says, "{other:?}");
        assert_eq!(plan(&seen(&[leaving("a")], &[other], &[])), NodeStep::Idle, "it will close");
    }
    // A cache that is behind does not count against what was read.
    let mut read = seen(&[leaving("a")], &[lingers()], &clean);
    let now = AttachmentSeen { deleted: true, ..lingers() };
    read.live_attachments = vec![("u".into(), LiveAttachment::Present(now))];
    assert_eq!(plan(&read), says);
}

/// A claim beside it that stays has nothing to do with that.
#[test]
fn one_of_two_claims_leaves() {
    let stays = claim("b", "u", ClaimState::Ready);
    let mut both = seen(&[leaving("a"), stays], &[lingers()], &[record("u", Done::Yes, &[("b", Done::Yes)])]);
    both.mounted = vec!["b".into()];
    assert_eq!(plan(&both), detached("a"));
}
