use serde_json::{Value, json};

use super::*;

#[path = "request_copy_tests.rs"]
mod copies;

const DRIVER: &str = "d.example.com";

fn claim(annotations: Value, spec: Value) -> PersistentVolumeClaim {
    let mut all = json!({ "volume.kubernetes.io/storage-provisioner": DRIVER });
    merge(&mut all, annotations);
    let mut whole = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem",
        "resources": { "requests": { "storage": "1Gi" } } });
    merge(&mut whole, spec);
    let metadata = json!({ "name": "data", "namespace": "ns", "uid": "1-2", "annotations": all });
    serde_json::from_value(json!({ "metadata": metadata, "spec": whole })).unwrap()
}

fn class(more: Value) -> StorageClass {
    let mut whole = json!({ "metadata": { "name": "fast" }, "provisioner": DRIVER });
    merge(&mut whole, more);
    serde_json::from_value(whole).unwrap()
}

fn merge(into: &mut Value, more: Value) {
    let Value::Object(more) = more else { return };
    into.as_object_mut().unwrap().extend(more);
}

fn served(places: &[Place]) -> Served<'_> {
    Served {
        plugin: "plugin",
        name: DRIVER,
        places,
        has_topology: Some(!places.is_empty()),
        modifies: false,
        clones: false,
        extra_create_metadata: false,
        default_fs_type: None,
        strict_topology: false,
        is_local: false,
        secrets: None,
    }
}

fn asked<'a>(claim: &'a PersistentVolumeClaim, class: &'a StorageClass) -> Asked<'a> {
    Asked {
        claim,
        class: Some(class),
        attributes: None,
        source: SourceNow::default(),
        driver: Some(served(&[])),
        node_exists: true,
        namespace: "moor",
    }
}

fn decide(annotations: Value, spec: Value, more: Value) -> Request {
    request(&asked(&claim(annotations, spec), &class(more)))
}

fn made(request: Request) -> Volume {
    match request {
        Request::Make(volume) => *volume,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_of_somebody_else_is_left_alone() {
    let late = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
    let populated =
        json!({ "dataSourceRef": { "apiGroup": "hello.example.com", "kind": "Hello", "name": "h" } });
    for (what, request) in [
        (
            "another provisioner",
            decide(json!({ "volume.kubernetes.io/storage-provisioner": "other" }), json!({}), json!({})),
        ),
        (
            "nobody asked",
            decide(json!({ "volume.kubernetes.io/storage-provisioner": "" }), json!({}), json!({})),
        ),
        ("another's class", decide(json!({}), json!({}), json!({ "provisioner": "other" }))),
        ("bound", decide(json!({}), json!({ "volumeName": "pv" }), json!({}))),
        ("no node chosen", decide(json!({}), json!({}), late)),
        ("a populator's", decide(json!({}), populated, json!({}))),
    ] {
        assert_eq!(request, Request::NotOurs, "{what}");
    }
    let (claim, class) = (claim(json!({}), json!({})), class(json!({})));
    let unserved = Asked { driver: None, ..asked(&claim, &class) };
    assert_eq!(request(&unserved), Request::NotOurs);
    let mut deleted = claim.clone();
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap();
    assert_eq!(request(&asked(&deleted, &class)), Request::NotOurs);
}

#[test]
fn the_volume_says_all_that_the_persistent_volume_needs() {
    let parameters = json!({ "type": "ssd", "csi.storage.k8s.io/fstype": "xfs",
        "csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/provisioner-secret-namespace": "infra",
        "csi.storage.k8s.io/node-expand-secret-name": "${pvc.name}",
        "csi.storage.k8s.io/node-expand-secret-namespace": "${pvc.namespace}" });
    let more = json!({ "parameters": parameters, "reclaimPolicy": "Retain", "mountOptions": ["noatime"] });
    let volume = made(decide(json!({}), json!({ "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] }), more));
    let meta = (volume.metadata.namespace.as_deref(), volume.metadata.name.as_deref());
    assert_eq!(meta, (Some("moor"), Some("pvc-1-2")));
    let spec = &volume.spec;
    assert_eq!((spec.plugin_name.as_str(), spec.create_name.as_deref()), ("plugin", Some("pvc-1-2")));
    assert_eq!(spec.capacity, Some(Quantity("1Gi".into())));
    assert_eq!(spec.parameters, BTreeMap::from([("type".to_owned(), "ssd".to_owned())]));
    assert_eq!(spec.deletion_policy, Some(DeletionPolicy::Retain), "deleted by hand it leaves the storage");
    let modes: Vec<_> = spec.capabilities.iter().map(|c| c.access_mode).collect();
    assert_eq!(modes, [AccessMode::SingleNodeWriter, AccessMode::MultiNodeReader]);
    let options = spec.mount_options.as_ref().unwrap();
    assert_eq!(
        (options.fs_type.as_deref(), options.mount_flags.as_slice()),
        (Some("xfs"), &["noatime".to_owned()][..])
    );
    assert_eq!(spec.secrets.as_ref().unwrap().controller.as_deref(), Some("infra/s"));
    let provision = spec.persistent_volume.as_ref().unwrap();
    assert_eq!(
        provision.claim,
        ProvisionedFor { namespace: "ns".into(), name: "data".into(), uid: "1-2".into() }
    );
    assert_eq!((provision.name.as_str(), provision.driver_name.as_str()), ("pvc-1-2", DRIVER));
    assert_eq!(
        (provision.storage_class_name.as_str(), provision.reclaim_policy),
        ("fast", ReclaimPolicy::Retain)
    );
    assert_eq!(provision.access_modes, ["ReadWriteOnce", "ReadOnlyMany"]);
    assert_eq!(provision.node_expand_secret.as_deref(), Some("ns/data"));
    assert_eq!((provision.selected_node.as_deref(), provision.in_places), (None, false));
}

#[test]
fn a_raw_device_has_no_file_system() {
    let more = json!({ "parameters": { "fstype": "ext4" }, "mountOptions": ["noatime"] });
    let volume = made(decide(json!({}), json!({ "volumeMode": "Block" }), more));
    assert_eq!(volume.spec.capabilities[0].attachment_mode, AttachmentMode::BlockDevice);
    assert_eq!(volume.spec.mount_options, None);
}

#[test]
fn the_driver_is_told_for_whom_only_if_its_plugin_says_so() {
    let (claim, class) = (claim(json!({}), json!({})), class(json!({})));
    let told = Served { extra_create_metadata: true, ..served(&[]) };
    let parameters = |asked| made(request(&asked)).spec.parameters;
    assert!(parameters(asked(&claim, &class)).is_empty());
    let parameters = parameters(Asked { driver: Some(told), ..asked(&claim, &class) });
    let said: Vec<_> = parameters.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("csi.storage.k8s.io/pv/name", "pvc-1-2"),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "ns"),
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_volume_that_waits_for_its_consumer_is_made_where_that_one_is() {
    let place = |node: &str| Place {
        node: node.to_owned(),
        healthy: true,
        segments: BTreeMap::from([("host".to_owned(), node.to_owned())]),
    };
    let places = [place("a"), place("b")];
    let late = class(json!({ "volumeBindingMode": "WaitForFirstConsumer" }));
    let chosen = claim(json!({ "volume.kubernetes.io/selected-node": "b" }), json!({}));
    let in_places = Asked { driver: Some(served(&places)), ..asked(&chosen, &late) };
    let volume = made(request(&in_places));
    assert_eq!(volume.spec.topology.unwrap().preferred[0].segments, places[1].segments);
    let provision = volume.spec.persistent_volume.unwrap();
    assert_eq!((provision.selected_node.as_deref(), provision.in_places), (Some("b"), true));
    let gone = Asked { node_exists: false, ..in_places.clone() };
    assert_eq!(request(&gone), Request::Unselect);
    let unknown = claim(json!({ "volume.kubernetes.io/selected-node": "c" }), json!({}));
    let unknown = Asked { claim: &unknown, ..in_places };
    assert!(matches!(request(&unknown), Request::Wait(Waiting::NoPlace(NoPlace::Unknown { .. }))));
    // Nor is anything made by a driver that has not said whether it wants a place: it would stay where it is.
    for unheard in [class(json!({})), late.clone()] {
        let silent = Served { has_topology: None, ..served(&[]) };
        let unheard = Asked { driver: Some(silent), ..asked(&chosen, &unheard) };
        assert_eq!(request(&unheard), Request::Wait(Waiting::NoPlace(NoPlace::Unheard)));
    }
    // A node on a claim that does not wait for one means nothing.
    let volume = made(request(&asked(&chosen, &class(json!({})))));
    assert_eq!(volume.spec.persistent_volume.unwrap().selected_node, None);
}

#[test]
fn bad_input_is_refused_in_words_that_name_the_field() {
    let same = json!({});
    let parameters = |of: Value| json!({ "parameters": of });
    for (spec, more, words) in [
        (json!({ "selector": {} }), same.clone(), "spec.selector"),
        (
            json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "other" } }),
            same.clone(),
            "no CLONE_VOLUME",
        ),
        (
            json!({ "dataSourceRef": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s",
                "namespace": "theirs" } }),
            same.clone(),
            "spec.dataSourceRef.namespace: a volume is made of a VolumeSnapshot of its own namespace",
        ),
        (
            json!({ "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "data", "namespace": "theirs" } }),
            same.clone(),
            "spec.dataSourceRef.namespace: a volume is copied within its namespace",
        ),
        (json!({ "accessModes": ["Sometimes"] }), same.clone(), "Sometimes"),
        (json!({ "accessModes": [] }), same.clone(), "spec.accessModes"),
        (json!({ "resources": {} }), same.clone(), "spec.resources.requests.storage: it is not given"),
        (json!({ "resources": { "requests": { "storage": "0" } } }), same.clone(), "at least one byte"),
        (json!({ "resources": { "requests": { "storage": "99999Ei" } } }), same.clone(), "too large"),
        (
            same.clone(),
            parameters(json!({ "csi.storage.k8s.io/typo": "x" })),
            "StorageClass fast: parameters: csi.storage",
        ),
        (same.clone(), parameters(json!({ "fstype": "a", "csi.storage.k8s.io/fstype": "a" })), "keep one"),
        (same.clone(), parameters(json!({ "csi.storage.k8s.io/secret-name": "a" })), "secret-namespace"),
        (same.clone(), json!({ "reclaimPolicy": "Recycle" }), "reclaimPolicy Recycle"),
    ] {
        match decide(json!({}), spec, more) {
            Request::Refuse(refusal) => assert!(refusal.to_string().contains(words), "{refusal}"),
            other => panic!("{words}: {other:?}"),
        }
    }
}

#[test]
fn what_is_not_there_yet_is_waited_for_by_its_name() {
    let (claim, class) = (claim(json!({}), json!({})), class(json!({})));
    let without = Asked { class: None, ..asked(&claim, &class) };
    assert!(matches!(request(&without), Request::Wait(w) if w.to_string().contains("\"fast\"")));
}

#[test]
fn a_volume_attributes_class_has_to_be_of_the_driver() {
    let named = claim(json!({}), json!({ "volumeAttributesClassName": "gold" }));
    let class = class(json!({}));
    let attributes = |driver: &str| -> VolumeAttributesClass {
        serde_json::from_value(json!({ "metadata": { "name": "gold" }, "driverName": driver,
            "parameters": { "iops": "9" } }))
        .unwrap()
    };
    let (own, other) = (attributes(DRIVER), attributes("other"));
    let of = |attributes, modifies| {
        let driver = Some(Served { modifies, ..served(&[]) });
        request(&Asked { attributes, driver, ..asked(&named, &class) })
    };
    assert_eq!(of(None, true), Request::Wait(Waiting::NoAttributes("gold".into())));
    assert!(matches!(of(Some(&other), true), Request::Refuse(Refusal::AttributesOfAnother { .. })));
    assert_eq!(of(Some(&own), false), Request::Refuse(Refusal::NoModify));
    let volume = made(of(Some(&own), true));
    assert_eq!(volume.spec.mutable_parameters, BTreeMap::from([("iops".to_owned(), "9".to_owned())]));
    let provision = volume.spec.persistent_volume.unwrap();
    assert_eq!(provision.volume_attributes_class_name.as_deref(), Some("gold"));
}

#[test]
fn a_class_of_the_time_before_csi_is_refused_in_words() {
    let old = decide(json!({}), json!({}), json!({ "provisioner": "kubernetes.io/aws-ebs" }));
    let Request::Refuse(refusal) = old else { panic!("{old:?}") };
    let said = refusal.to_string();
    for word in ["kubernetes.io/aws-ebs", DRIVER] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn the_plugins_file_system_is_that_of_a_class_without_one() {
    for (named, block, expected) in [
        (json!({}), false, Some("xfs")),
        (json!({ "csi.storage.k8s.io/fstype": "ext4" }), false, Some("ext4")),
        (json!({}), true, None),
    ] {
        let mode = if block { "Block" } else { "Filesystem" };
        let claim = claim(json!({}), json!({ "volumeMode": mode }));
        let class = class(json!({ "parameters": named }));
        let driver = Served { default_fs_type: Some("xfs"), ..served(&[]) };
        let volume = made(request(&Asked { driver: Some(driver), ..asked(&claim, &class) }));
        assert_eq!(volume.spec.mount_options.and_then(|o| o.fs_type).as_deref(), expected, "{block}");
    }
}

/// Some drivers list VOLUME_ACCESSIBILITY_CONSTRAINTS always.
#[test]
fn a_driver_whose_nodes_are_in_no_place_is_asked_for_none() {
    let nowhere = [Place { node: "a".to_owned(), healthy: true, segments: BTreeMap::new() }];
    let (claim, anywhere) = (claim(json!({}), json!({})), class(json!({})));
    let driver = Served { has_topology: Some(true), ..served(&nowhere) };
    let volume = made(request(&Asked { driver: Some(driver.clone()), ..asked(&claim, &anywhere) }));
    assert_eq!(volume.spec.topology, None);
    let allowed = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": ["a"] }] }]);
    let wants_zone = class(json!({ "allowedTopologies": allowed }));
    let none = request(&Asked { driver: Some(driver), ..asked(&claim, &wants_zone) });
    assert!(matches!(none, Request::Wait(_)), "the class wants a place: {none:?}");
}

/// For each kind of call the class comes first. The words of templates are the claim's.
#[test]
fn the_plugin_names_the_secrets_that_the_class_does_not() {
    let more = json!({ "parameters": { "csi.storage.k8s.io/node-stage-secret-name": "stage",
        "csi.storage.k8s.io/node-stage-secret-namespace": "infra" } });
    let (claim, class) = (claim(json!({}), json!({})), class(more));
    let templates: SecretTemplates = serde_json::from_value(json!({
        "default": { "namespace": "keys", "name": "${pvc.namespace}.${pv.name}" },
        "controller": { "namespace": "${pvc.namespace}", "name": "${pvc.name}" },
        "nodeStage": { "namespace": "keys", "name": "unused" },
    }))
    .unwrap();
    let driver = Served { secrets: Some(&templates), ..served(&[]) };
    let spec = made(request(&Asked { driver: Some(driver), ..asked(&claim, &class) })).spec;
    let (refs, provision) = (spec.secrets.unwrap(), spec.persistent_volume.unwrap());
    let (default, own) =
        (format!("keys/{}.{}", provision.claim.namespace, provision.name), provision.claim.to_string());
    assert_eq!(refs.controller, Some(own.clone()));
    assert_eq!(refs.node_stage.as_deref(), Some("infra/stage"));
    assert_eq!(
        (&refs.controller_publish, &refs.node_publish),
        (&Some(default.clone()), &Some(default.clone()))
    );
    // As where a Volume names them: what changes it goes by what made it.
    let changes = [provision.controller_expand_secret, provision.controller_modify_secret];
    assert!(changes.iter().all(|secret| *secret == Some(own.clone())), "{changes:?}");
    assert_eq!(provision.node_expand_secret, Some(default));

    let unnamed =
        serde_json::from_value(json!({ "default": { "namespace": "keys", "name": "${pvc.name}" } })).unwrap();
    let driver = Served { secrets: Some(&unnamed), ..served(&[]) };
    let refused = request(&Asked { driver: Some(driver), ..asked(&claim, &class) });
    let Request::Refuse(refusal) = refused else { panic!("{refused:?}") };
    assert!(refusal.to_string().contains("spec.secrets.default.name of Plugin plugin"), "{refusal}");
}
