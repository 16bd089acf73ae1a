//! Lists and maps that are there and empty, as templates write them.

use std::sync::Arc;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use moor::api::{Volume, VolumeClaim};
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig, SPACE};

/// As it is written, and not as our types would write it.
async fn make<K: kube::Resource<DynamicType = ()>>(rig: &Rig, name: &str, spec: Value) {
    let kind = ApiResource::erase::<K>(&());
    let all: Api<DynamicObject> = Api::namespaced_with(rig.cluster.admin.clone(), SPACE, &kind);
    let object = DynamicObject::new(name, &kind).data(json!({ "spec": spec }));
    all.create(&PostParams::default(), &object).await.unwrap();
}

pub async fn what_is_empty_goes_like_what_is_absent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let created = json!({
        "pluginName": DRIVER, "capacity": "1Mi", "parameters": {"key": "made"},
        "mountOptions": {"mountFlags": []}, "topology": {"required": [], "preferred": []}, "secrets": {},
    });
    make::<Volume>(&rig, "made", created).await;
    let handle = rig.fake.backend().add("found");
    let registered = json!({
        "pluginName": DRIVER, "volumeHandle": handle, "volumeContext": {}, "mountOptions": {},
    });
    make::<Volume>(&rig, "found", registered).await;
    for name in ["made", "found"] {
        let spec = json!({"volumeName": name, "nodeName": "node-2", "mountOptions": {"mountFlags": []}});
        make::<VolumeClaim>(&rig, name, spec).await;
        rig.until_ready(name).await;
    }
    rig.remove(&["made", "found"], &["made", "found"]).await;
}
