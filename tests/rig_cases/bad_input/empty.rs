//! Specs, lists and maps that are empty, as templates write them.

use std::sync::Arc;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use moor::api::{Plugin, Volume, VolumeClaim};
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig, SPACE, volume, volume_claim};

/// As it is written, and not as our types would write it.
async fn make<K: kube::Resource<DynamicType = ()>>(
    rig: &Rig,
    space: Option<&str>,
    name: &str,
    content: Value,
) {
    let kind = ApiResource::erase::<K>(&());
    let client = rig.cluster.admin.clone();
    let all: Api<DynamicObject> = match space {
        Some(space) => Api::namespaced_with(client, space, &kind),
        None => Api::all_with(client, &kind),
    };
    let object = DynamicObject::new(name, &kind).data(content);
    all.create(&PostParams::default(), &object).await.unwrap();
}

/// Every field has a default, and so has the spec. One that is written without anything below it is null.
pub async fn a_plugin_of_just_a_name_is_one(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    for (key, content) in [("absent", json!({})), ("null", json!({ "spec": null }))] {
        rig.delete_plugin().await;
        make::<Plugin>(&rig, None, DRIVER, content).await;
        rig.until_counted(&[("node-1", true)]).await;
        let spec = rig.until_plugin(DRIVER, "is there", |plugin| Some(plugin.spec.clone())).await;
        assert_eq!(spec, serde_json::from_value(json!({})).unwrap());
        rig.make_volume(&volume(key)).await;
        rig.make_claim(&volume_claim(key, key, "node-1")).await;
        rig.until_ready(key).await;
        rig.remove(&[key], &[key]).await;
    }
}

pub async fn what_is_empty_goes_like_what_is_absent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let created = json!({
        "pluginName": DRIVER, "capacity": "1Mi", "parameters": {"key": "made"},
        "mountOptions": {"mountFlags": []}, "topology": {"required": [], "preferred": []}, "secrets": {},
    });
    make::<Volume>(&rig, Some(SPACE), "made", json!({ "spec": created })).await;
    let handle = rig.fake.backend().add("found");
    let registered = json!({
        "pluginName": DRIVER, "volumeHandle": handle, "volumeContext": {}, "mountOptions": {},
    });
    make::<Volume>(&rig, Some(SPACE), "found", json!({ "spec": registered })).await;
    for name in ["made", "found"] {
        let spec = json!({"volumeName": name, "nodeName": "node-2", "mountOptions": {"mountFlags": []}});
        make::<VolumeClaim>(&rig, Some(SPACE), name, json!({ "spec": spec })).await;
        rig.until_ready(name).await;
    }
    rig.remove(&["made", "found"], &["made", "found"]).await;
}
