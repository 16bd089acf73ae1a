use super::*;
use crate::api::AccessMode;
use crate::api::capability::{MountOptions, VolumeUse};
use crate::api::conditions::CallFailure;
use crate::attachment::StagedAs;
use crate::fixtures;
use crate::plugin::allow::NotAllowed;

fn volume(granted: &[&str], asked: &[&str]) -> Volume {
    let flags = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>();
    let mut volume = Volume::default();
    volume.spec.capabilities = vec![VolumeUse::default()];
    volume.spec.mount_options =
        Some(Box::new(MountOptions { mount_flags: flags(asked), ..MountOptions::default() }));
    let granted = GrantedUse { capabilities: vec![VolumeUse::default()], mount_flags: flags(granted) };
    let edit = Edit { number: 4, asked: GrantedUse::asked(&volume.spec) };
    volume.spec.assignment = Some(VolumeAssignment {
        granted: Some(granted),
        edit: Some(Box::new(edit)),
        ..VolumeAssignment::default()
    });
    volume.status.get_or_insert_default().state = VolumeState::Ready;
    volume
}

fn said(volume: &Volume, claims: &[ClaimSeen], locks: &[AttachmentSeen]) -> (Reason, String) {
    let desired = condition(volume, None, claims, locks).unwrap();
    (desired.reason, desired.message)
}

#[test]
fn an_edit_is_told_from_its_first_moment_to_its_last() {
    let lock = fixtures::attachment("a");
    let staged = StagedAs { flags: vec!["old".into()], ..lock.staged_as.clone() };
    let lock = AttachmentSeen { staged_as: staged, ..lock };
    let claim = fixtures::granted("c", &lock);
    let (claims, locks) = (std::slice::from_ref(&claim), std::slice::from_ref(&lock));
    let mut pending = volume(&["old"], &["new"]);
    assert_eq!(said(&pending, claims, locks).0, Reason::EditPending);
    let error = Some(CallFailure::default());
    pending.status.as_mut().unwrap().edit = Some(EditAnswer { number: 4, error }.into());
    assert_eq!(condition(&pending, None, claims, locks), None, "its agent says what the driver said");
    let granted = volume(&["new"], &["new"]);
    let (reason, message) = said(&granted, claims, locks);
    assert_eq!(reason, Reason::StagedBefore);
    assert!(message.contains("on node the volume") && !message.contains("new"), "{message}");
    // kubelet says with which flags a Pod has it.
    let pod = ClaimSeen { of_pod: true, ..claim.clone() };
    assert_eq!(said(&granted, &[pod], locks).0, Reason::Applied);
    assert_eq!(said(&granted, &[], locks).0, Reason::Applied, "nobody uses it");
}

#[test]
fn a_use_that_was_taken_away_names_who_has_it() {
    let lock = fixtures::attachment("a");
    let claim = ClaimSeen { mode: AccessMode::MultiNodeReader, ..fixtures::granted("reader", &lock) };
    let (reason, message) = said(&volume(&[], &[]), std::slice::from_ref(&claim), &[lock]);
    assert_eq!(reason, Reason::StillUsed);
    assert!(message.contains("default/reader (MultiNodeReader/FileSystem)"), "{message}");
    let leaving = ClaimSeen { deleted: true, ..claim };
    assert_eq!(said(&volume(&[], &[]), &[leaving], &[]).0, Reason::Applied);
}

#[test]
fn flags_that_are_not_allowed_are_named_by_their_field_and_never_shown() {
    let lack = NotAllowed {
        plugin: "loop".into(),
        exists: true,
        namespace: "team".into(),
        right: Right::Parameterise,
        field: "spec.mutableParameters",
    };
    let told = condition(&volume(&["old"], &["secret"]), Some(&lack), &[], &[]).unwrap();
    assert_eq!(told.reason, Reason::EditNotAllowed);
    assert!(told.message.starts_with("spec.mountOptions.mountFlags: Plugin loop does not allow this"));
    assert!(!told.message.contains("secret") && !told.message.contains("old"));
    let kept = volume(&["old"], &["old"]);
    assert_eq!(condition(&kept, Some(&lack), &[], &[]).unwrap().reason, Reason::Applied);
}

#[test]
fn nothing_is_said_of_a_volume_that_was_never_edited() {
    let mut never = volume(&["old"], &["old"]);
    never.spec.assignment.as_mut().unwrap().edit = None;
    assert_eq!(condition(&never, None, &[], &[]), None);
    let mut coming = volume(&["old"], &["new"]);
    coming.status.as_mut().unwrap().state = VolumeState::Created;
    assert_eq!(condition(&coming, None, &[], &[]), None);
}
