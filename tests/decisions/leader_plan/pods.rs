//! Claims of Pods: what is looked at before anything is done for one.

use std::time::Duration;

use moor::api::conditions::{READY, Reason};
use moor::api::{AccessMode, ClaimState, ClaimUid, VolumeClaim};
use moor::claim::{ClaimSeen, Entitled, VolumeSeen};
use serde_json::json;

use super::live_looks::open;
use super::*;
use crate::fixtures::{claim, grant, node};

fn of_pod(uid: &str) -> ClaimSeen {
    ClaimSeen { of_pod: true, node: Some("node-1".into()), ..claim(uid) }
}

fn said(uid: &str, entitled: Entitled) -> Looked {
    Looked { pods: [(ClaimUid::from(uid), entitled)].into(), ..Looked::default() }
}

fn look(uid: &str) -> Look {
    Look::Pod { claim: uid.into() }
}

#[test]
fn nothing_is_granted_for_a_pod_that_nobody_has_looked_at() {
    let mut observed = Observed { claims: vec![of_pod("a")], ..open() };
    assert_eq!(asks(&observed, &Looked::default()), look("a"));
    let grants = |step| matches!(step, LeaderStep::CreateAttachment { .. });
    assert!(grants(step(&observed, &said("a", Entitled::Yes))));
    let refuses = LeaderStep::RefuseClaim { claim: "a".into(), why: "no".into() };
    assert_eq!(step(&observed, &said("a", Entitled::No("no".into()))), refuses);
    let deletes = LeaderStep::DeleteClaim { claim: "a".into() };
    assert_eq!(step(&observed, &said("a", Entitled::PodGone)), deletes);
    // What was found a moment ago counts as well, until it is looked at again.
    observed.pods.insert("a".into(), Entitled::Yes);
    assert!(grants(step(&observed, &Looked::default())));
}

/// A claim whose node gave the Attachment back. Nothing of it is on the node, which says so by that.
fn yielded(uid: &str) -> ClaimSeen {
    let before = grant(&fixtures::attachment("before"));
    ClaimSeen { yielded: Some("before".into()), assignment: Some(before), held: true, ..of_pod(uid) }
}

/// It stands first in line, and whoever is behind it would wait for as long as nobody ends it.
#[test]
fn a_claim_that_was_given_back_holds_nobody_up_whose_pod_may_not_have_the_volume() {
    let mut observed = Observed { claims: vec![yielded("a"), claim("b")], ..open() };
    assert_eq!(asks(&observed, &Looked::default()), look("a"));
    assert_eq!(step(&observed, &said("a", Entitled::PodGone)), LeaderStep::DeleteClaim { claim: "a".into() });
    let refuses = LeaderStep::RefuseClaim { claim: "a".into(), why: "no".into() };
    assert_eq!(step(&observed, &said("a", Entitled::No("no".into()))), refuses);
    observed.claims[0].not_entitled = Some("no".into());
    let done = step(&observed, &said("a", Entitled::No("no".into())));
    assert!(matches!(&done, LeaderStep::CreateAttachment { claim, .. } if *claim == "b"), "{done:?}");
}

#[test]
fn a_refusal_is_heard_of_whoever_waits() {
    let refused = |uid: &str, yielded: Option<&str>| -> ClaimSeen {
        let condition = json!({
            "type": READY, "status": "False", "reason": Reason::PodNotEntitled.as_str(), "message": "no",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let mut object: VolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "volumeName": "volume", "nodeName": "node-1", "pod": {
                "namespace": "ns", "name": "pod", "uid": "pod", "persistentVolume": "pv" } },
            "status": { "state": "Pending", "conditions": [condition] },
        }))
        .unwrap();
        object.spec.assignment = yielded.map(|_| grant(&fixtures::attachment("before")));
        object.status.as_mut().unwrap().yielded = yielded.filter(|uid| !uid.is_empty()).map(Into::into);
        ClaimSeen::of(&object)
    };
    assert!(refused("a", None).not_entitled.is_some() && refused("a", Some("before")).not_entitled.is_some());
    // While it is granted its node's agent writes what it says.
    for other in ["", "another"] {
        assert_eq!(refused("a", Some(other)).not_entitled, None);
    }
}

/// A claim that is granted.
fn granted(state: ClaimState) -> Observed {
    let on = attachment();
    let claim = ClaimSeen { assignment: Some(grant(&on)), held: true, state, ..of_pod("a") };
    Observed { claims: vec![claim], attachments: vec![on.clone()], locks: vec![on], ..open() }
}

/// kubelet's call for it would go on until its deadline, and hold up all that kubelet does with the volume.
#[test]
fn a_claim_that_is_not_mounted_yet_goes_with_its_pod() {
    for state in [ClaimState::Pending, ClaimState::Taken] {
        let observed = granted(state);
        assert_eq!(asks(&observed, &Looked::default()), look("a"), "{state:?}");
        let deletes = LeaderStep::DeleteClaim { claim: "a".into() };
        assert_eq!(step(&observed, &said("a", Entitled::PodGone)), deletes, "{state:?}");
        // No grant is taken back.
        for entitled in [Entitled::Yes, Entitled::No("no".into())] {
            assert_eq!(step(&observed, &said("a", entitled)), LeaderStep::Rest, "{state:?}");
        }
    }
    // Its containers may be at work: kubelet says when they are not.
    let ready = granted(ClaimState::Ready);
    assert_eq!(step(&ready, &Looked::default()), LeaderStep::Rest);
    assert_eq!(step(&ready, &said("a", Entitled::PodGone)), LeaderStep::Rest);
    let users = Observed {
        claims: vec![ClaimSeen { of_pod: false, ..granted(ClaimState::Taken).claims[0].clone() }],
        ..granted(ClaimState::Taken)
    };
    assert_eq!(step(&users, &Looked::default()), LeaderStep::Rest);
}

/// The agent that made it is gone with the node, and no other one may delete it. For as long as it is there it uses the
/// volume, which could never be deleted.
#[test]
fn a_pods_claim_that_has_ended_is_deleted() {
    for state in [ClaimState::Lost, ClaimState::NodeDetached] {
        let ended = granted(state);
        assert_eq!(step(&ended, &Looked::default()), LeaderStep::DeleteClaim { claim: "a".into() });
        let claim = |change: ClaimSeen| Observed { claims: vec![change], ..granted(state) };
        let of_user = claim(ClaimSeen { of_pod: false, ..ended.claims[0].clone() });
        assert_eq!(step(&of_user, &Looked::default()), LeaderStep::Rest, "its user is told");
        let deleted = claim(ClaimSeen { deleted: true, ..ended.claims[0].clone() });
        let done = step(&deleted, &Looked::default());
        assert!(!matches!(done, LeaderStep::DeleteClaim { .. }), "{done:?}");
    }
}

#[test]
fn a_refused_claim_holds_nobody_up_and_ends_with_its_pod() {
    let refused = ClaimSeen { not_entitled: Some("no".into()), ..of_pod("a") };
    let mut observed = Observed { claims: vec![refused, claim("b")], ..open() };
    assert_eq!(asks(&observed, &Looked::default()), look("a"), "its Pod may be gone");
    observed.pods.insert("a".into(), Entitled::No("no".into()));
    let done = step(&observed, &Looked::default());
    assert!(matches!(&done, LeaderStep::CreateAttachment { claim, .. } if *claim == "b"), "{done:?}");
    // It stays refused, whatever a later look finds: its agent makes another one.
    observed.claims.truncate(1);
    assert_eq!(step(&observed, &said("a", Entitled::Yes)), LeaderStep::Rest);
    assert_eq!(step(&observed, &said("a", Entitled::PodGone)), LeaderStep::DeleteClaim { claim: "a".into() });
}

/// Whoever has an agent's token may make any number of claims, and would leave them there.
#[test]
fn a_claim_that_was_refused_and_left_there_is_deleted_without_a_look() {
    let refused = |uid: &str| ClaimSeen { not_entitled: Some("no".into()), ..of_pod(uid) };
    let mut observed = Observed { claims: vec![refused("a"), claim("b")], ..open() };
    observed.pods.insert("a".into(), Entitled::No("no".into()));
    let done = step(&observed, &Looked::default());
    assert!(
        matches!(&done, LeaderStep::CreateAttachment { claim, .. } if *claim == "b"),
        "its agent has time"
    );
    observed.pods.clear();
    observed.pods_overdue.insert("a".into(), Duration::ZERO);
    assert_eq!(step(&observed, &Looked::default()), LeaderStep::DeleteClaim { claim: "a".into() });
    observed.claims[0].deleted = true;
    let done = step(&observed, &Looked::default());
    assert!(
        matches!(&done, LeaderStep::CreateAttachment { claim, .. } if *claim == "b"),
        "it is, once: {done:?}"
    );
    // What was granted meanwhile, or not refused, is looked at and stays.
    observed.claims = vec![of_pod("a")];
    assert_eq!(asks(&observed, &Looked::default()), look("a"));
    let mut granted = granted(ClaimState::Taken);
    granted.claims[0].not_entitled = Some("before".into());
    granted.pods_overdue.insert("a".into(), Duration::ZERO);
    assert_eq!(asks(&granted, &Looked::default()), look("a"));
}

/// Whoever uses the volume would be waited for, and nobody new would be let in.
#[test]
fn no_claim_that_lies_switches_the_mode() {
    let uses = [AccessMode::SingleNodeWriter, AccessMode::MultiNodeMultiWriter]
        .map(|access_mode| moor::api::capability::VolumeUse { access_mode, ..Default::default() });
    let shared = ClaimSeen { mode: AccessMode::MultiNodeMultiWriter, ..of_pod("a") };
    let mut observed = Observed {
        claims: vec![shared],
        volume_seen: Some(VolumeSeen { uid: "v".into(), uses: uses.into(), ..fixtures::volume() }),
        ..open()
    };
    assert_eq!(asks(&observed, &Looked::default()), look("a"));
    assert_eq!(step(&observed, &said("a", Entitled::Yes)), LeaderStep::BeginClosing { last: None });
    // More lies than are looked at in one pass, of which the first were refused before.
    let lies = (0..20).map(|n| ClaimSeen {
        mode: AccessMode::MultiNodeMultiWriter,
        not_entitled: (n < 16).then(|| "no".into()),
        ..of_pod(&format!("c{n:02}"))
    });
    observed.claims = lies.collect();
    let mut looked = Looked::default();
    let done = loop {
        match step(&observed, &looked) {
            LeaderStep::Look(Look::Pod { claim }) => {
                looked.pods.insert(claim, Entitled::No("no".into()));
            }
            other => break other,
        }
    };
    let refuses = LeaderStep::RefuseClaim { claim: "c16".into(), why: "no".into() };
    assert_eq!((done, looked.pods.len()), (refuses, 17), "the others' turn comes with the next pass");
}

/// With many claims the first ones are due again before the last ones were looked at.
#[test]
fn who_was_looked_at_the_longest_ago_is_looked_at_next() {
    // Granted, so that nothing else is due.
    let on = attachment();
    let granted = |uid: &str| ClaimSeen {
        assignment: Some(grant(&on)),
        held: true,
        state: ClaimState::Taken,
        ..of_pod(uid)
    };
    let claims = ["a", "b", "c", "d"].map(granted).to_vec();
    let seconds = |of: &[(&str, u64)]| {
        of.iter().map(|(uid, ago)| (ClaimUid::from(*uid), Duration::from_secs(*ago))).collect()
    };
    let mut observed = Observed { claims, attachments: vec![on.clone()], locks: vec![on.clone()], ..open() };
    observed.pods_overdue = seconds(&[("a", 1), ("b", 3)]);
    let mut looked = Looked::default();
    let mut order = Vec::new();
    while let LeaderStep::Look(Look::Pod { claim }) = step(&observed, &looked) {
        order.push(claim.to_string());
        looked.pods.insert(claim, Entitled::Yes);
    }
    assert_eq!(order, ["c", "d", "b", "a"], "those that nobody has looked at come first");
}

/// The name says of which VolumeHandle, and only a Pod that may have the volume brings it.
#[test]
fn the_volume_of_a_persistent_volume_comes_with_the_first_pod() {
    let observed = Observed { claims: vec![of_pod("a")], nodes: vec![node("node-1")], ..Observed::default() };
    let named = |name: &str, looked: &Looked| {
        let mut scene = observed.scene(looked);
        scene.name = name;
        moor::leader::plan(&scene, &scene.verdicts()).step
    };
    let import = format!("pv-{}", "0".repeat(52));
    assert_eq!(named(&import, &Looked::default()), LeaderStep::Look(look("a")));
    let yes = said("a", Entitled::Yes);
    assert_eq!(named(&import, &yes), LeaderStep::ImportVolume { claim: "a".into() });
    assert_eq!(named("data", &yes), LeaderStep::Rest, "somebody else makes a Volume of this name");
}

/// The Volume was made of a PersistentVolume that describes the volume otherwise. Who has it keeps it as it is.
#[test]
fn a_volume_that_was_made_of_another_persistent_volume_is_made_anew_when_nobody_uses_it() {
    let otherwise = said("a", Entitled::Otherwise("no".into()));
    let unused = Observed { claims: vec![of_pod("a")], kept_as: Some(DRIVER), ..open() };
    assert_eq!(step(&unused, &otherwise), LeaderStep::RenewVolume { claim: "a".into() });
    let on = attachment();
    let has_it =
        ClaimSeen { assignment: Some(grant(&on)), held: true, state: ClaimState::Ready, ..of_pod("has it") };
    let used = Observed {
        claims: vec![of_pod("a"), has_it],
        attachments: vec![on.clone()],
        locks: vec![on],
        ..unused.clone()
    };
    let refuses = LeaderStep::RefuseClaim { claim: "a".into(), why: "no".into() };
    assert_eq!(step(&used, &otherwise), refuses);
    let mut told = used;
    told.claims[0].not_entitled = Some("no".into());
    let done = step(&told, &otherwise);
    assert!(!matches!(done, LeaderStep::RefuseClaim { .. } | LeaderStep::RenewVolume { .. }), "{done:?}");
    // It is on its way out, and the claim waits for the next one.
    let mut going = unused.clone();
    let meta = &mut going.volume.as_mut().unwrap().metadata;
    meta.deletion_timestamp =
        leaving(VolumeOperation::Create, "node-1", VolumeState::Ready).metadata.deletion_timestamp;
    let done = step(&going, &otherwise);
    assert!(!matches!(done, LeaderStep::RefuseClaim { .. } | LeaderStep::RenewVolume { .. }), "{done:?}");
    // Somebody else asks for it as it is: he has it, or nobody would get it, each making it anew for himself.
    let both = Observed { claims: vec![of_pod("a"), of_pod("b")], ..unused.clone() };
    assert_eq!(asks(&both, &otherwise), look("b"));
    let mut known = said("a", Entitled::Otherwise("no".into()));
    known.pods.insert("b".into(), Entitled::Yes);
    assert_eq!(step(&both, &known), refuses);
    known.pods.insert("b".into(), Entitled::Otherwise("nor this".into()));
    assert!(matches!(step(&both, &known), LeaderStep::RenewVolume { .. }));
    // Whatever else was found: a Volume of somebody's own is not moor's to make anew.
    let own = step(&Observed { kept_as: None, ..unused }, &otherwise);
    assert_eq!(own, LeaderStep::Rest);
}

/// Kubernetes' own stack has what a PersistentVolume names, unless that is served by moor.
#[test]
fn a_kept_volume_is_not_kept_off_by_its_own_persistent_volume() {
    let mut volume = leaving(VolumeOperation::Adopt, "node-1", VolumeState::Pending);
    volume.metadata.deletion_timestamp = None;
    volume.spec.volume_handle = Some("vol-1".into());
    let observed = Observed {
        volume: Some(volume),
        instances: vec![instance("node-1", false)],
        kept_as: Some(DRIVER),
        ..Observed::default()
    };
    let looked = Looked { locks: Some(Vec::new()), ..Looked::default() };
    assert!(
        matches!(step(&observed, &looked), LeaderStep::CreateHandle { .. }),
        "nothing else is looked for"
    );
    // Under another name at kubelets: one of the driver's own name is another installation's.
    let trial = Observed { kept_as: Some("trial.example.com"), ..observed };
    assert!(matches!(asks(&trial, &looked), Look::PersistentVolumes(_)));
    let taken = Naming { name: "theirs".into(), field: "csi", certain: true };
    let looked = Looked { named_by: Some(Some(taken)), ..looked };
    let waits = trial.plan(&looked).volume_waits;
    assert!(matches!(waits, Some(VolumeWaiting::HandleInPersistentVolume { .. })), "{waits:?}");
}
