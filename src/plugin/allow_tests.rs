use serde_json::{Value, json};

use super::*;

fn plugin(allow: &Value) -> Plugin {
    serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": { "allow": allow } })).unwrap()
}

fn team() -> NamespaceSeen {
    NamespaceSeen { name: "team".into(), labels: BTreeMap::new() }
}

fn asks(allow: &Value, spec: &Value) -> Option<(Right, &'static str)> {
    let spec = with(spec, &json!({ "pluginName": "p" }));
    let object: Volume =
        serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec })).unwrap();
    volume(Some(&plugin(allow)), &team(), &object).map(|lack| (lack.right, lack.field))
}

fn with(one: &Value, other: &Value) -> Value {
    let mut all = one.clone();
    all.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    all
}

fn created() -> Value {
    json!({ "capacity": "1Gi" })
}

fn registered() -> Value {
    json!({ "volumeHandle": "h" })
}

#[test]
fn each_field_asks_for_its_right() {
    let nobody = json!({ "namespaces": [] });
    let all = || json!({ "namespaces": ["*"] });
    let without = |entry: &str| {
        let mut allow =
            json!({ "create": all(), "register": all(), "parameterise": all(), "deleteRegistered": all() });
        allow[entry] = nobody.clone();
        allow
    };
    let flags = json!({ "mountOptions": { "mountFlags": ["noatime"] } });
    let rows = [
        ("create", Right::Create, "spec.capacity", created()),
        ("register", Right::Register, "spec.volumeHandle", registered()),
        (
            "parameterise",
            Right::Parameterise,
            "spec.parameters",
            with(&created(), &json!({ "parameters": { "a": "b" } })),
        ),
        (
            "parameterise",
            Right::Parameterise,
            "spec.mutableParameters",
            with(&created(), &json!({ "mutableParameters": { "a": "b" } })),
        ),
        (
            "parameterise",
            Right::Parameterise,
            "spec.volumeContext",
            with(&registered(), &json!({ "volumeContext": { "a": "b" } })),
        ),
        (
            "parameterise",
            Right::Parameterise,
            "spec.mountOptions.fsType",
            with(&created(), &json!({ "mountOptions": { "fsType": "xfs" } })),
        ),
        ("parameterise", Right::Parameterise, "spec.mountOptions.mountFlags", with(&created(), &flags)),
        (
            "parameterise",
            Right::Parameterise,
            "spec.secrets",
            with(&created(), &json!({ "secrets": { "nodeStage": "s" } })),
        ),
        (
            "deleteRegistered",
            Right::DeleteRegistered,
            "spec.deletionPolicy",
            with(&registered(), &json!({ "deletionPolicy": "Delete" })),
        ),
    ];
    for (entry, right, field, spec) in rows {
        assert_eq!(asks(&without(entry), &spec), Some((right, field)), "{entry}");
        let others =
            ["create", "register", "parameterise", "deleteRegistered"].into_iter().filter(|o| *o != entry);
        for other in others {
            let lack = asks(&without(other), &spec);
            assert!(
                lack.is_none_or(|(asked, _)| asked != right),
                "{field} asks for {entry}, not for {other}"
            );
        }
    }
    // What is there and empty asks for nothing, nor does the policy that leaves storage alone.
    let empty = json!({ "parameters": {}, "mountOptions": { "mountFlags": [] }, "secrets": {} });
    assert_eq!(asks(&without("parameterise"), &with(&created(), &empty)), None);
    for policy in ["Delete", "Retain"] {
        let policy = json!({ "deletionPolicy": policy });
        assert_eq!(asks(&without("deleteRegistered"), &with(&created(), &policy)), None, "its own storage");
    }
    assert_eq!(
        asks(&without("deleteRegistered"), &with(&registered(), &json!({ "deletionPolicy": "Retain" }))),
        None
    );
}

#[test]
fn a_plugin_that_says_nothing_lets_make_and_not_register() {
    let words =
        json!({ "parameters": { "a": "b" }, "mountOptions": { "fsType": "xfs", "mountFlags": ["noatime"] } });
    assert_eq!(asks(&json!({}), &with(&created(), &words)), None);
    assert_eq!(asks(&json!({}), &registered()), Some((Right::Register, "spec.volumeHandle")));
    let register = json!({ "register": { "namespaces": ["team"] } });
    assert_eq!(asks(&register, &registered()), None);
    let delete = with(&registered(), &json!({ "deletionPolicy": "Delete" }));
    assert_eq!(asks(&register, &delete), Some((Right::DeleteRegistered, "spec.deletionPolicy")));
}

#[test]
fn a_ready_volume_asks_only_for_the_parameters_that_can_be_changed() {
    let nothing = json!({ "create": { "namespaces": [] }, "parameterise": { "namespaces": [] } });
    let ready = |mutable: &Value| {
        let controller = json!({ "instance": "i", "agent": "a" });
        let spec = json!({ "pluginName": "p", "capacity": "1Gi", "parameters": { "a": "b" },
            "mutableParameters": mutable, "assignment": { "operation": "Create", "controller": controller } });
        let object = json!({ "metadata": { "name": "v" }, "spec": spec, "status": { "state": "Ready" } });
        let object: Volume = serde_json::from_value(object).unwrap();
        volume(Some(&plugin(&nothing)), &team(), &object)
    };
    assert_eq!(ready(&json!({})), None);
    let lack = ready(&json!({ "tier": "gold" })).unwrap();
    assert_eq!((lack.right, lack.field), (Right::Parameterise, "spec.mutableParameters"));
    assert!(lack.message_or("set it back").contains("set it back, or have an administrator"), "{lack:?}");
}

#[test]
fn a_deleted_volume_asks_only_for_the_end_of_its_storage() {
    let nothing = json!({ "create": { "namespaces": [] }, "parameterise": { "namespaces": [] } });
    let deleted = |plugin: Option<&Plugin>, spec: &Value| {
        let spec = with(spec, &json!({ "pluginName": "p" }));
        let meta = json!({ "name": "v", "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let object: Volume = serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap();
        volume(plugin, &team(), &object)
    };
    let plugin = plugin(&nothing);
    assert_eq!(deleted(Some(&plugin), &with(&created(), &json!({ "parameters": { "a": "b" } }))), None);
    assert_eq!(deleted(Some(&plugin), &registered()), None);
    let delete = with(&registered(), &json!({ "deletionPolicy": "Delete" }));
    let lack = deleted(Some(&plugin), &delete).unwrap();
    assert_eq!((lack.right, lack.exists), (Right::DeleteRegistered, true));
    let lack = deleted(None, &delete).unwrap();
    assert!(lack.message().contains("Plugin p does not exist"), "{}", lack.message());
    assert_eq!(deleted(None, &created()), None, "its own storage is nobody's to allow");
}

#[test]
fn flags_of_a_claim_are_words_of_the_driver() {
    let flagged = |flags: &Value| -> VolumeClaim {
        let spec = json!({ "volumeName": "v", "mountOptions": { "mountFlags": flags } });
        serde_json::from_value(json!({ "metadata": { "name": "c" }, "spec": spec })).unwrap()
    };
    let only_others = plugin(&json!({ "parameterise": { "namespaces": ["other"] } }));
    let asks = |plugin: Option<&Plugin>, flags: &Value| claim(plugin, "p", &team(), &flagged(flags));
    let lack = asks(Some(&only_others), &json!(["covert"])).unwrap();
    assert_eq!((lack.right, lack.field), (Right::Parameterise, "spec.mountOptions.mountFlags"));
    assert!(!lack.message().contains("covert"));
    assert_eq!(asks(Some(&only_others), &json!([])), None);
    assert_eq!(asks(Some(&plugin(&json!({}))), &json!(["covert"])), None);
    // A Plugin that is gone allows nothing that needs a right.
    let lack = asks(None, &json!(["covert"])).unwrap();
    assert_eq!((lack.right, lack.exists), (Right::Parameterise, false));
    assert!(lack.message().contains("Plugin p does not exist"), "{}", lack.message());
    assert_eq!(asks(None, &json!([])), None);
}

#[test]
fn the_message_names_field_plugin_namespace_and_what_to_do() {
    let lack = NotAllowed {
        plugin: "p".into(),
        exists: true,
        namespace: "team".into(),
        right: Right::Register,
        field: "spec.volumeHandle",
    };
    assert_eq!(
        lack.message(),
        "spec.volumeHandle: Plugin p does not allow this in namespace team; make a volume with spec.capacity instead, \
         or have an administrator add the namespace to spec.allow.register of the Plugin"
    );
}
