use super::*;

fn wanted() -> PodUse {
    PodUse {
        namespace: "ns".into(),
        name: "pod".into(),
        uid: "pod-uid".into(),
        persistent_volume: Some("pv".into()),
        ..PodUse::default()
    }
}

fn found() -> Found {
    let claim = ClaimRef { namespace: "ns".into(), name: "data".into(), uid: "pvc-uid".into() };
    Found {
        pod: Some(PodSeen {
            uid: "pod-uid".into(),
            node: "node-1".into(),
            claims: vec!["other".into(), "data".into()],
            ..PodSeen::default()
        }),
        volume: Some(PersistentVolumeSeen {
            uid: "pv-uid".into(),
            driver: "d".into(),
            handle_name: Some("handle".into()),
            attributes: BTreeMap::new(),
            bound_to: Some(claim),
        }),
        claim: Some(PersistentVolumeClaimSeen { uid: "pvc-uid".into(), volume: "pv".into(), pod_uid: None }),
    }
}

fn judged(change: impl FnOnce(&mut Found)) -> Entitled {
    let mut found = found();
    change(&mut found);
    judge(asked(&wanted()), &found)
}

fn asked(pod: &PodUse) -> Asked<'_> {
    Asked {
        pod,
        node: "node-1",
        namespace: "moor",
        own_namespace: "moor",
        volume: "pv-handle",
        handle_name: Some("handle"),
        imported_with: None,
        is_for_persistent: false,
        exported_as: None,
        exporter: None,
    }
}

fn refused(change: impl FnOnce(&mut Found)) -> String {
    match judged(change) {
        Entitled::No(why) => why,
        other @ (Entitled::Yes | Entitled::PodGone | Entitled::Otherwise(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_has_the_volumes_of_its_own_claims() {
    assert_eq!(judged(|_| {}), Entitled::Yes);
}

#[test]
fn nobody_waits_for_a_pod_that_is_gone() {
    assert_eq!(judged(|f| f.pod = None), Entitled::PodGone);
    assert_eq!(judged(|f| f.pod.as_mut().unwrap().ended = true), Entitled::PodGone);
    assert_eq!(judged(|f| f.pod.as_mut().unwrap().uid = "next".into()), Entitled::PodGone);
}

/// What whoever has an agent's token may write.
#[test]
fn a_claim_that_lies_is_refused_and_says_what_does_not_fit() {
    let bound = |f: &mut Found| f.volume.as_mut().unwrap().bound_to.take().unwrap();
    let rebind = |f: &mut Found, to: ClaimRef| f.volume.as_mut().unwrap().bound_to = Some(to);
    for (why, word) in [
        (refused(|f| f.pod.as_mut().unwrap().node = "node-2".into()), "is not on node node-1"),
        (refused(|f| f.pod.as_mut().unwrap().node.clear()), "is not on node node-1"),
        (refused(|f| f.volume = None), "PersistentVolume pv, which is not there"),
        (refused(|f| drop(bound(f))), "not bound"),
        (
            refused(|f| {
                let to = ClaimRef { namespace: "theirs".into(), ..bound(f) };
                rebind(f, to);
            }),
            "does not use PersistentVolumeClaim theirs/data",
        ),
        (
            refused(|f| {
                let to = ClaimRef { name: "secret".into(), ..bound(f) };
                rebind(f, to);
            }),
            "does not use PersistentVolumeClaim ns/secret",
        ),
        (refused(|f| f.claim.as_mut().unwrap().uid = "anew".into()), "which is not the one"),
        (refused(|f| f.claim.as_mut().unwrap().volume = "pv-2".into()), "which is not the one"),
        (refused(|f| f.claim = None), "which is not the one"),
        (
            refused(|f| f.pod.as_mut().unwrap().ephemeral = vec!["data".into()]),
            "does not own PersistentVolumeClaim ns/data",
        ),
        (
            refused(|f| f.volume.as_mut().unwrap().handle_name = Some("other".into())),
            "another volume of driver d",
        ),
        (
            refused(|f| f.volume.as_mut().unwrap().handle_name = None),
            "not of a driver that a Plugin serves to Pods (d)",
        ),
        (
            refused(|f| {
                f.volume = Some(PersistentVolumeSeen {
                    bound_to: Some(bound(f)),
                    ..PersistentVolumeSeen::default()
                });
            }),
            "it has no CSI source",
        ),
    ] {
        assert!(why.contains(word) && why.contains("Pod ns/pod"), "{why}");
    }
}

#[test]
fn an_ephemeral_volume_is_its_pods() {
    let judged = judged(|f| {
        f.pod.as_mut().unwrap().ephemeral = vec!["data".into()];
        f.claim.as_mut().unwrap().pod_uid = Some("pod-uid".into());
    });
    assert_eq!(judged, Entitled::Yes);
}

/// A claim somewhere else than where moor keeps Volumes for PersistentVolumes, and one whose Volume is of no handle.
#[test]
fn only_volumes_of_persistent_volumes_are_for_pods() {
    let wanted = wanted();
    let elsewhere = Asked { namespace: "team", volume: "data", ..asked(&wanted) };
    let Entitled::No(why) = judge(elsewhere, &found()) else { panic!("a Volume of namespace team") };
    assert!(why.contains("Volume team/data") && why.contains("in namespace moor"), "{why}");
    let unknown = Asked { handle_name: None, ..asked(&wanted) };
    assert!(matches!(judge(unknown, &found()), Entitled::No(_)));
}

/// A Volume of users, by the PersistentVolume that was made of it and for Pods of its namespace.
#[test]
fn an_exported_volume_is_for_pods_of_its_namespace() {
    let wanted = wanted();
    let exported = Asked {
        namespace: "ns",
        volume: "data",
        exported_as: Some("pv-uid"),
        exporter: Some("ns/data"),
        ..asked(&wanted)
    };
    assert_eq!(judge(exported, &found()), Entitled::Yes);
    let refused = |asked: Asked<'_>| match judge(asked, &found()) {
        Entitled::No(why) => why,
        other @ (Entitled::Yes | Entitled::PodGone | Entitled::Otherwise(_)) => panic!("{other:?}"),
    };
    for (lie, word) in [
        // Another PersistentVolume of the same storage, or of the same name.
        (Asked { exported_as: Some("other-uid"), ..exported }, "asks for Volume ns/data"),
        (Asked { exported_as: None, ..exported }, "asks for Volume ns/data"),
        (Asked { namespace: "theirs", ..exported }, "asks for Volume theirs/data"),
        (Asked { handle_name: Some("other"), ..exported }, "another volume of driver d"),
        // It would be imported beside the one that has it.
        (Asked { exporter: Some("ns/data"), ..asked(&wanted) }, "which is that of Volume ns/data"),
    ] {
        let why = refused(lie);
        assert!(why.contains(word), "{why}");
    }
    // One that has no UID, which no API server sends.
    let mut blank = found();
    blank.volume.as_mut().unwrap().uid.clear();
    assert!(matches!(judge(Asked { exported_as: None, ..exported }, &blank), Entitled::No(_)));
}

#[test]
fn objects_are_read_as_kubernetes_writes_them() {
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "web-0", "uid": "u" },
        "spec": { "nodeName": "n", "containers": [], "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } },
            { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
            { "name": "none", "emptyDir": {} }] },
        "status": { "phase": "Running" },
    }))
    .unwrap();
    let seen = PodSeen::of(&pod);
    assert_eq!(seen.claims, ["data-web-0", "web-0-scratch"]);
    assert_eq!((seen.ephemeral.as_slice(), seen.ended), (&["web-0-scratch".to_owned()][..], false));
    for phase in ["Succeeded", "Failed"] {
        let mut ended = pod.clone();
        ended.status.as_mut().unwrap().phase = Some(phase.into());
        assert!(PodSeen::of(&ended).ended);
    }
    let claim = |phase: &str| -> PersistentVolumeClaim {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "c", "uid": "u", "ownerReferences": [
                { "apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "other" },
                { "apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "own", "controller": true }] },
            "spec": { "volumeName": "pv" }, "status": { "phase": phase },
        }))
        .unwrap()
    };
    assert_eq!(PersistentVolumeClaimSeen::of(&claim("Pending")).volume, "", "it is not bound yet");
    let bound = PersistentVolumeClaimSeen::of(&claim("Bound"));
    assert_eq!((bound.volume.as_str(), bound.pod_uid.as_deref()), ("pv", Some("own")));
}

fn judged_inline(namespace: &str, volume: &str, is_for_persistent: bool) -> Entitled {
    let pod = PodUse { persistent_volume: None, inline_volume: Some("scratch".into()), ..wanted() };
    let mut found = Found { pod: found().pod, ..Found::default() };
    found.pod.as_mut().unwrap().inline = BTreeMap::from([("scratch".into(), Ok("data".into()))]);
    judge(Asked { namespace, volume, is_for_persistent, handle_name: None, ..asked(&pod) }, &found)
}

#[test]
fn a_pod_names_volumes_of_its_own_namespace_that_are_no_claims() {
    assert_eq!(judged_inline("ns", "data", false), Entitled::Yes);
    for (namespace, volume, is_for_persistent, part) in [
        ("moor", "data", false, "does not name Volume moor/data"),
        ("ns", "other", false, "does not name Volume ns/other"),
        ("ns", "data", true, "moor keeps for a PersistentVolume"),
    ] {
        let Entitled::No(why) = judged_inline(namespace, volume, is_for_persistent) else {
            panic!("{volume}")
        };
        assert!(why.contains(part) && why.starts_with("Pod ns/pod "), "{why}");
    }
}

/// Only moor.dev's volumes are looked at: of another driver the attributes mean something else.
#[test]
fn a_pod_names_a_volume_by_moors_driver_alone() {
    let csi =
        |driver: &str| serde_json::json!({ "driver": driver, "volumeAttributes": { "volume": "data" } });
    let volumes = serde_json::json!([
        { "name": "a", "csi": csi("moor.dev") },
        { "name": "b", "csi": csi("d.example.com") },
        { "name": "c", "csi": { "driver": "moor.dev" } },
    ]);
    let pod = serde_json::json!({ "metadata": {}, "spec": { "containers": [], "volumes": volumes } });
    let seen = PodSeen::of(&serde_json::from_value(pod).unwrap());
    assert_eq!(seen.inline, BTreeMap::from([("a".to_owned(), Ok("data".to_owned()))]));
}

/// As the agent means it who makes the claim; and the Pod's label is looked at, which kubelet does not tell.
#[test]
fn the_volume_of_an_ordinal_is_that_of_the_pods_name() {
    let judged = |name: &str, labels: serde_json::Value, volume| {
        let csi =
            serde_json::json!({ "driver": "moor.dev", "volumeAttributes": { "volume": "data[ordinal]" } });
        let pod = serde_json::json!({
            "metadata": { "name": name, "uid": "pod-uid", "labels": labels },
            "spec": { "nodeName": "node-1", "containers": [], "volumes": [{ "name": "own", "csi": csi }] },
        });
        let found =
            Found { pod: Some(PodSeen::of(&serde_json::from_value(pod).unwrap())), ..Found::default() };
        let wanted = PodUse {
            name: name.to_owned(),
            persistent_volume: None,
            inline_volume: Some("own".into()),
            ..wanted()
        };
        judge(Asked { namespace: "ns", volume, handle_name: None, ..asked(&wanted) }, &found)
    };
    let index = |index: &str| serde_json::json!({ POD_INDEX: index });
    let none = serde_json::Value::Null;
    assert_eq!(judged("web-2", none.clone(), "data-2"), Entitled::Yes);
    assert_eq!(judged("web-2", index("2"), "data-2"), Entitled::Yes);
    for (name, labels, volume, part) in [
        ("web-2", none.clone(), "data-1", "does not name Volume ns/data-1"),
        ("web-2", none.clone(), "data", "does not name Volume ns/data "),
        ("web-2", index("1"), "data-2", "the label apps.kubernetes.io/pod-index of Pod web-2 is \"1\""),
        ("web-2", index("1"), "data-1", "the label apps.kubernetes.io/pod-index of Pod web-2 is \"1\""),
        ("lone", index("1"), "data-1", "spec.volumes[own].csi.volumeAttributes.volume is \"data[ordinal]\""),
    ] {
        let Entitled::No(why) = judged(name, labels, volume) else { panic!("{name} has {volume}") };
        assert!(why.contains(part) && why.starts_with(&format!("Pod ns/{name} ")), "{why}");
    }
}

/// Else the driver would mount for one PersistentVolume what the other one says.
#[test]
fn a_volume_that_was_made_of_another_description_is_not_what_the_pod_asks_for() {
    let map = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let identity = crate::api::attributes::IDENTITY;
    let imported = map(&[("server", "s"), ("share", "first-secret"), (identity, "moor-d")]);
    let (wanted, mut found) = (wanted(), found());
    let judged = |found: &Found, imported_with| judge(Asked { imported_with, ..asked(&wanted) }, found);
    found.volume.as_mut().unwrap().attributes = map(&[("server", "s"), ("share", "second-secret")]);
    let Entitled::Otherwise(why) = judged(&found, Some(&imported)) else {
        panic!("another share is mounted")
    };
    for said in ["Pod ns/pod", "PersistentVolume pv", "Volume moor/pv-handle", "differ in: share."] {
        assert!(why.contains(said), "{said}: {why}");
    }
    assert!(!why.contains("secret") && !why.contains("server"), "{why}");
    assert_eq!(
        judged(&found, None),
        Entitled::Yes,
        "it was not made of a PersistentVolume, or is still to be"
    );
    // Which provisioner has written it changes nothing.
    found.volume.as_mut().unwrap().attributes =
        map(&[("server", "s"), ("share", "first-secret"), (identity, "1700-d")]);
    assert_eq!(judged(&found, Some(&imported)), Entitled::Yes);
    // Who has no right to it is told nothing of it.
    found.pod.as_mut().unwrap().claims.clear();
    found.volume.as_mut().unwrap().attributes.clear();
    assert!(matches!(judged(&found, Some(&imported)), Entitled::No(_)));
}
