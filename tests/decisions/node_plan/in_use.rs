//! What was unmounted and may still be in use: nobody else gets it before somebody has looked.

use super::*;
use moor::attachment::record::{Imprint, Left};

/// The record of `u`, of which this was unmounted.
fn left(staged: Done, targets: &[(&str, Done)], gone: &[&str]) -> Record {
    let mut record = record("u", staged, targets);
    for uid in gone {
        let (device, root) = ("7:1".into(), "/".into());
        let imprint = Imprint { device, root, source: None, disk: None, raw: false };
        record.left.insert((*uid).into(), Left { path: format!("/targets/{uid}"), imprint });
    }
    record
}

fn leaving(name: &str) -> ClaimSeen {
    ClaimSeen { deleted: true, ..claim(name, "u", ClaimState::Ready) }
}

fn find_all() -> NodeStep {
    NodeStep::FindUsers { attachment: "u".into() }
}

#[test]
fn the_last_claim_is_looked_after_before_the_driver_gives_the_volume_up() {
    let closing = AttachmentSeen { deleted: true, ..attachment("u") };
    let mut seen = seen(&[leaving("a")], &[closing], &[left(Done::Yes, &[], &["a"])]);
    assert_eq!(plan(&seen), find_all());
    seen.backing_off = vec!["u".into()];
    assert_eq!(plan(&seen), NodeStep::Idle);
    seen.backing_off.clear();
    seen.records = vec![left(Done::Yes, &[], &[])];
    assert_eq!(plan(&seen), NodeStep::Unstage { attachment: "u".into() });
}

#[test]
fn what_was_staged_is_looked_after_before_the_volume_is_given_on() {
    let closing = AttachmentSeen { deleted: true, ..attachment("u") };
    let mut seen = seen(&[leaving("a")], &[closing], &[left(Done::No, &[], &["u"])]);
    assert_eq!(plan(&seen), find_all());
    seen.records = vec![left(Done::No, &[], &[])];
    assert_eq!(plan(&seen), NodeStep::ReportDetached { attachment: "u".into() });
}

#[test]
fn of_claims_that_share_each_is_looked_after_alone() {
    let stays = claim("b", "u", ClaimState::Ready);
    let records = [left(Done::Yes, &[("b", Done::Yes)], &["a"])];
    let mut seen = seen(&[leaving("a"), stays], &[attachment("u")], &records);
    seen.mounted = vec!["b".into()];
    let find = NodeStep::FindUsersOfTarget { claim: "a".into(), attachment: "u".into() };
    assert_eq!(plan(&seen), find);
    seen.backing_off = vec!["a".into()];
    assert_eq!(plan(&seen), NodeStep::Idle, "it is not reported as unmounted");
    seen.records[0].left.clear();
    assert_eq!(plan(&seen), NodeStep::ReportClaimDetached { claim: "a".into() });
}

/// Of a lost node or by a hand that took the lock away: its users may have much to write yet.
#[test]
fn another_attachment_waits_for_the_users_of_the_one_before() {
    let mut old = left(Done::No, &[], &["old"]);
    old.attachment_uid = "old".into();
    let new = claim("b", "u", ClaimState::Taken);
    let mut seen = looked(seen(&[new], &[attachment("u")], &[old]));
    seen.live_attachments.push(("old".into(), LiveAttachment::Gone));
    seen.revision = Some(2);
    assert_eq!(plan(&seen), NodeStep::FindUsers { attachment: "old".into() });
    seen.backing_off = vec!["old".into()];
    assert_eq!(plan(&seen), NodeStep::Idle);
}

#[test]
fn a_claim_that_was_given_up_half_way_is_not_given_back_before() {
    let closing = AttachmentSeen { deleted: true, ..attachment("u") };
    let mut seen = seen(&[claim("a", "u", ClaimState::Taken)], &[closing], &[left(Done::No, &[], &["a"])]);
    assert_eq!(plan(&seen), find_all());
    seen.backing_off = vec!["u".into()];
    assert_eq!(plan(&seen), NodeStep::Idle);
}

/// Its claim was removed by hand, so that the leader counts it no more: a process may write by what it had.
#[test]
fn nobody_joins_the_users_of_another_in_an_exclusive_mode() {
    let joins = |exclusive, gone: &[&str]| {
        let lock = AttachmentSeen { exclusive, ..attachment("u") };
        let claims = [claim("b", "u", ClaimState::Pending)];
        let mut seen = looked(seen(&claims, &[lock], &[left(Done::Yes, &[], gone)]));
        seen.backing_off = vec!["a".into()];
        plan(&seen)
    };
    let publish = NodeStep::Publish { claim: "b".into(), attachment: "u".into() };
    assert_eq!(joins(true, &["a"]), yields("b", "u"));
    assert_eq!(joins(false, &["a"]), publish, "they share it");
    assert_eq!(joins(true, &["u"]), publish, "what was staged is no claim's");
}
