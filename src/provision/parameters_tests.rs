use super::*;

fn of(pairs: &[(&str, &str)]) -> Result<Resolved, ParameterError> {
    let parameters = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let annotations = BTreeMap::from([("example.com/secret".to_owned(), "mine".to_owned())]);
    let of = For { namespace: "ns", claim: "data", annotations: Some(&annotations), volume: "pvc-1" };
    resolve(&parameters, of)
}

fn key(rest: &str) -> String {
    format!("csi.storage.k8s.io/{rest}")
}

#[test]
fn the_driver_gets_what_is_not_the_provisioners() {
    let said = of(&[
        ("type", "fast"),
        (&key("fstype"), "xfs"),
        ("csiNodeStageSecretName", "s"),
        ("csiNodeStageSecretNamespace", "n"),
    ])
    .unwrap();
    assert_eq!(said.fs_type.as_deref(), Some("xfs"));
    assert_eq!(said.secrets.node_stage.as_deref(), Some("n/s"));
    let keys: Vec<_> = said.driver.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["csiNodeStageSecretName", "csiNodeStageSecretNamespace", "type"],
        "old keys go to the driver too"
    );
    assert_eq!(of(&[("fsType", "ext4")]).unwrap().fs_type.as_deref(), Some("ext4"));
    assert_eq!(of(&[]).unwrap(), Resolved::default());
}

#[test]
fn each_secret_is_named_by_its_own_pair_or_by_the_default() {
    let (default, space) = (key("secret-name"), key("secret-namespace"));
    let (own, own_space) = (key("node-publish-secret-name"), key("node-publish-secret-namespace"));
    let said =
        of(&[(&default, "all"), (&space, "infra"), (&own, "one"), (&own_space, "other")]).unwrap().secrets;
    let all = Some("infra/all".to_owned());
    let expected = ClassSecrets {
        provisioner: all.clone(),
        controller_publish: all.clone(),
        node_stage: all.clone(),
        node_publish: Some("other/one".to_owned()),
        controller_expand: all.clone(),
        node_expand: all.clone(),
        controller_modify: all,
    };
    assert_eq!(said, expected);
}

#[test]
fn templates_are_filled_in() {
    for (kind, name, namespace, said) in [
        ("provisioner", "${pvc.name}", "${pvc.namespace}", Some("ns/data")),
        ("provisioner", "a-${pv.name}.${pvc.namespace}", "ns", Some("ns/a-pvc-1.ns")),
        ("node-stage", "${pvc.annotations['example.com/secret']}", "ns", Some("ns/mine")),
        ("node-stage", "${pvc.annotations['other']}", "ns", None),
        // What deletes has no claim to read.
        ("provisioner", "${pvc.annotations['example.com/secret']}", "ns", None),
        // The claim's author must not choose the namespace.
        ("node-stage", "s", "${pvc.name}", None),
        ("node-stage", "s", "${pvc.annotations['example.com/secret']}", None),
        ("node-stage", "${", "ns", None),
        ("node-stage", "$pvc.name", "ns", None),
        ("node-stage", "Upper", "ns", None),
        ("node-stage", "", "ns", None),
        ("node-stage", "s", "a.b", None),
        ("node-stage", "s/../x", "ns", None),
    ] {
        let keys = [key(&format!("{kind}-secret-name")), key(&format!("{kind}-secret-namespace"))];
        let found = of(&[(&keys[0], name), (&keys[1], namespace)]);
        if let Some(said) = said {
            let secrets = found.unwrap().secrets;
            let one = if kind == "provisioner" { secrets.provisioner } else { secrets.node_stage };
            assert_eq!(one.as_deref(), Some(said), "{name} {namespace}");
        } else {
            let words = found.unwrap_err().to_string();
            assert!(words.contains(&format!("{kind}-secret-name")), "{name} {namespace}: {words}");
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused_by_its_key() {
    let half = key("node-stage-secret-name");
    let other_half = key("node-stage-secret-namespace");
    let unknown = key("nodestage-secret-name");
    for (pairs, words) in [
        (vec![(unknown.as_str(), "s")], unknown.as_str()),
        (vec![(half.as_str(), "s")], other_half.as_str()),
        (vec![(other_half.as_str(), "s")], half.as_str()),
        (vec![("fstype", "ext4"), ("csi.storage.k8s.io/fstype", "ext4")], "keep one"),
        (vec![("fstype", "ext4"), ("FSType", "ext4")], "keep one"),
        (
            vec![(half.as_str(), "s"), (other_half.as_str(), "n"), ("csiNodeStageSecretName", "s")],
            "keep the second",
        ),
    ] {
        let said = of(&pairs).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}
