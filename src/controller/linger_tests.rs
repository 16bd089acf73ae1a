//! How long Attachments linger, as the clock goes.

use super::super::key::Key;
use super::super::objects_tests::key_of;
use super::*;
use crate::api::claim::Assignment;
use crate::api::{Attachment, AttachmentState, ClaimState};

const TEN: Duration = Duration::from_secs(10);

fn volume(name: &str) -> VolumeKey {
    match key_of("ns", name) {
        Key::Volume(key) => key,
        Key::Snapshot(_)
        | Key::Plugin(_)
        | Key::Capacities(_)
        | Key::Provision(_)
        | Key::Resize(_)
        | Key::Modify(_)
        | Key::Copied(_)
        | Key::PersistentVolume(_)
        | Key::Content(_)
        | Key::GroupContent(_)
        | Key::Export(_)
        | Key::Import(_) => {
            unreachable!("it is the key of a Volume")
        }
    }
}

fn attachment(uid: &str) -> AttachmentSeen {
    let mut object = Attachment::new(uid, crate::api::attachment::AttachmentSpec::default());
    object.metadata.uid = Some(uid.into());
    object.spec.node_name = "node-1".into();
    (object.spec.fixed.attach, object.spec.fixed.lingers) = (true, true);
    object.status.get_or_insert_default().state = AttachmentState::Attached;
    AttachmentSeen::of(&object)
}

fn user(uid: &str, deleted: bool) -> ClaimSeen {
    let assignment = Assignment { attachment_uid: uid.into(), ..Assignment::default() };
    let claim = crate::api::VolumeClaim::new("c", crate::api::claim::VolumeClaimSpec::default());
    ClaimSeen { deleted, assignment: Some(assignment), state: ClaimState::Ready, ..ClaimSeen::of(&claim) }
}

fn of(lingering: &Lingering, uid: &str) -> Option<(bool, bool)> {
    lingering.unused.get(&AttachmentUid::from(uid)).map(|u| (u.lingers, u.was_used))
}

#[test]
fn the_time_begins_when_the_last_claim_has_left() {
    let (linger, key, began) = (Linger::new(TEN), volume("v"), Instant::now());
    let all = [attachment("a")];
    let see = |claims: &[ClaimSeen], at: u64| linger.see(&key, &all, claims, began + Duration::from_secs(at));
    assert_eq!(see(&[user("a", false)], 0), Lingering::default(), "it is used");
    let leaving = see(&[user("a", true)], 1);
    assert_eq!((of(&leaving, "a"), leaving.ends), (Some((true, true)), None), "its end brings the next look");
    let left = see(&[], 100);
    assert_eq!((of(&left, "a"), left.ends), (Some((true, true)), Some(TEN)));
    let later = see(&[], 109);
    assert_eq!((of(&later, "a"), later.ends), (Some((true, true)), Some(Duration::from_secs(1))));
    let over = see(&[], 110);
    assert_eq!((of(&over, "a"), over.ends), (Some((false, true)), None), "nobody is woken again");
}

#[test]
fn who_comes_back_begins_the_time_anew() {
    let (linger, key, began) = (Linger::new(TEN), volume("v"), Instant::now());
    let all = [attachment("a")];
    let see = |claims: &[ClaimSeen], at: u64| linger.see(&key, &all, claims, began + Duration::from_secs(at));
    assert_eq!(
        of(&see(&[], 0), "a"),
        Some((true, false)),
        "a leader that has just begun has seen nobody leave"
    );
    see(&[user("a", false)], 9);
    assert_eq!(see(&[], 11).ends, Some(TEN));
}

#[test]
fn nothing_is_kept_of_what_is_gone_or_closes() {
    let (linger, key, now) = (Linger::new(TEN), volume("v"), Instant::now());
    linger.see(&key, &[attachment("a"), attachment("b")], &[], now);
    assert_eq!(linger.on(Some("node-1")), std::slice::from_ref(&key));
    assert_eq!(linger.on(None), std::slice::from_ref(&key));
    assert!(linger.on(Some("node-2")).is_empty());
    let closing = AttachmentSeen { deleted: true, ..attachment("b") };
    assert_eq!(linger.see(&key, &[closing], &[], now), Lingering::default());
    assert!(linger.unused.lock().is_empty());
}

#[test]
fn without_a_time_nothing_lingers() {
    let linger = Linger::new(Duration::ZERO);
    assert_eq!(linger.see(&volume("v"), &[attachment("a")], &[], Instant::now()), Lingering::default());
    assert!(linger.on(None).is_empty());
}
