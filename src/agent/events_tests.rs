use std::collections::BTreeMap;

use super::*;
use crate::agent::calls::failure::Failure;
use crate::agent::calls::retry::Attempt;
use crate::agent::calls::status::failed;
use crate::api::conditions::CallFailure;
use crate::api::names::DriverOn;
use crate::api::volume::Rejected;
use crate::api::{AttachmentStatus, VolumeClaimStatus};
use crate::csi::Rpc;

fn wakes<K: Clone, P: PartialEq>(of: fn(&K) -> P, old: &K, change: impl FnOnce(&mut K)) -> bool {
    let mut new = old.clone();
    change(&mut new);
    differs(Some(&Arc::new(old.clone())), Some(&Arc::new(new)), of)
}

fn attempt(number: u32) -> Attempt {
    Attempt { number, next: Duration::from_secs(number.into()) }
}

/// T63: the next attempt is written while its wait begins; that must not end the wait.
#[test]
fn what_a_worker_writes_about_its_own_failure_wakes_nobody() {
    let now = Timestamp::UNIX_EPOCH;
    let failure =
        Failure::plugin_not_running(Rpc::NodeStageVolume, DriverOn { driver: "driver", node: "node" });
    let mut claim = VolumeClaim::default();
    let mut attachment = Attachment::default();
    let mut volume = Volume::default();
    failed(claim.status.get_or_insert_default(), &failure, attempt(1), "here", Some(1), now);
    failed(attachment.status.get_or_insert_default(), &failure, attempt(1), "here", Some(1), now);
    failed(volume.status.get_or_insert_default(), &failure, attempt(1), "here", Some(1), now);
    assert!(!wakes(of_claim, &claim, |c| {
        failed(c.status.get_or_insert_default(), &failure, attempt(2), "here", Some(1), now);
    }));
    assert!(!wakes(of_attachment, &attachment, |a| {
        failed(a.status.get_or_insert_default(), &failure, attempt(2), "here", Some(1), now);
    }));
    assert!(!wakes(of_volume, &volume, |v| {
        failed(v.status.get_or_insert_default(), &failure, attempt(2), "here", Some(1), now);
    }));
}

/// Whoever sees the claim first works under the same key: there is one mutex for each VolumeHandle.
#[test]
fn a_claim_is_about_the_handle_that_its_assignment_names() {
    let (attachments, nothing) = (Cache::new(&["node"]), |_: &AttachmentUid| None);
    let named = Assignment { handle_name: "h".into(), ..Assignment::default() };
    assert_eq!(handle_of(&named, &attachments, nothing).as_deref(), Some("h"));
}

#[test]
fn what_an_earlier_version_assigned_is_about_the_handle_of_its_attachment() {
    let attachments = Cache::new(&["node"]);
    let old = Assignment { attachment_uid: "u".into(), ..Assignment::default() };
    assert_eq!(handle_of(&old, &attachments, |_| None), None, "its Attachment wakes the worker");
    let recorded = |uid: &AttachmentUid| (*uid == "u").then(|| "recorded".to_owned());
    assert_eq!(handle_of(&old, &attachments, recorded).as_deref(), Some("recorded"));
    let mut attachment = Attachment::default();
    attachment.metadata.uid = Some("u".into());
    attachment.metadata.name = Some("a".into());
    attachment.metadata.resource_version = Some("1".into());
    attachment.spec.fixed.handle_name = "h".into();
    attachments.apply(attachment);
    assert_eq!(handle_of(&old, &attachments, |_| None).as_deref(), Some("h"));
}

#[test]
fn what_decides_wakes_whoever_decides() {
    let claim = VolumeClaim { status: Some(VolumeClaimStatus::default()), ..VolumeClaim::default() };
    assert!(wakes(of_claim, &claim, |c| c.status.as_mut().unwrap().state = ClaimState::Taken));
    assert!(wakes(of_claim, &claim, |c| c.status.as_mut().unwrap().yielded = Some("u".into())));
    assert!(wakes(of_claim, &claim, |c| c.metadata.generation = Some(2)));
    let attachment = Attachment { status: Some(AttachmentStatus::default()), ..Attachment::default() };
    let attached = |a: &mut Attachment| a.status.as_mut().unwrap().state = AttachmentState::Attached;
    assert!(wakes(of_attachment, &attachment, attached));
    let rejected = Rejected::default();
    let status = VolumeStatus { rejected: Some(rejected.into()), ..VolumeStatus::default() };
    let volume = Volume { status: Some(status), ..Volume::default() };
    let allowed = |v: &mut Volume| {
        v.status.as_mut().unwrap().rejected.as_mut().unwrap().may_delete = true;
    };
    assert!(wakes(of_volume, &volume, allowed));
}

/// A call of unknown outcome is repeated as it was, by when other parameters are asked for.
#[test]
fn the_end_of_one_modification_wakes_for_the_next() {
    let tier = |name: &str| BTreeMap::from([("tier".to_owned(), name.to_owned())]);
    let mut volume = Volume::default();
    volume.spec.mutable_parameters = tier("silver");
    modification::begins(volume.status.get_or_insert_default(), &tier("gold"));
    let error = || CallFailure { rpc: modification::CALL.into(), code: "c".into(), message: String::new() };
    let fails = |unknown| {
        wakes(of_volume, &volume, |v| {
            modification::failed(v.status.as_mut().unwrap(), &tier("gold"), error(), unknown);
        })
    };
    assert!(wakes(of_volume, &volume, |v| modification::ends(v.status.as_mut().unwrap(), tier("gold"))));
    assert!(fails(false), "the driver has refused what nobody asks for any more");
    assert!(!fails(true), "it is repeated, after its pause");
}
