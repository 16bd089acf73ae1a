//! PersistentVolumes in number: each registered Volume has to know that none of them names its handle.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Cluster, Options, Rig, is_whole, registered, say};

/// At rest a controller takes less than half of it, and the chart gives it 256 MiB.
const MOST_MEMORY: u64 = 100 << 20;
/// Volumes that are registered at once.
const VOLUMES: usize = 32;

/// As heavy as those that a provisioner makes.
fn persistent_volume(number: usize) -> PersistentVolume {
    let name = format!("pv-{number:05}");
    let spec = json!({
        "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {
            "driver": DRIVER, "volumeHandle": format!("vol-of-{name}"),
            "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "x".repeat(64)},
        },
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b", "c"]}]}
        ]}},
    });
    let annotations = json!({"pv.kubernetes.io/provisioned-by": DRIVER, "note": "x".repeat(256)});
    serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec}))
        .unwrap()
}

pub async fn many_of_them_take_little_memory(cluster: Arc<Cluster>) {
    let number = if is_whole() { 20_000 } else { 2_000 };
    let all: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let made = futures::stream::iter(0..number).for_each_concurrent(32, |n| {
        let all = all.clone();
        async move { drop(all.create(&PostParams::default(), &persistent_volume(n)).await.unwrap()) }
    });
    made.await;
    let rig = Rig::start(&cluster, Options::default()).await;
    // The last but one of the PersistentVolumes names one of them.
    let taken = format!("vol-of-pv-{:05}", number - 2);
    rig.fake.backend().add(taken.trim_start_matches("vol-"));
    rig.make_volume(&registered("taken", &taken)).await;
    let names: Vec<String> = (1..VOLUMES).map(|n| format!("data-{n}")).collect();
    for name in &names {
        let handle = rig.fake.backend().add(name);
        rig.make_volume(&registered(name, &handle)).await;
    }
    for name in &names {
        rig.until_volume_ready(name).await;
    }
    let said = rig.until_volume_says("taken", "HandleInPersistentVolume", &[]).await;
    assert!(said.contains(&format!("PersistentVolume pv-{:05} ", number - 2)), "{said}");
    let peak = rig.peak_memory(CONTROLLER);
    say(&format!("    the controller had {} MiB at most, beside {number} PersistentVolumes", peak >> 20));
    assert!(peak < MOST_MEMORY, "{} MiB", peak >> 20);

    // One at a time: a request for all of them takes longer than an API server on a busy machine gives it.
    let gone = futures::stream::iter(0..number).for_each_concurrent(32, |n| {
        let all = all.clone();
        async move { drop(all.delete(&format!("pv-{n:05}"), &DeleteParams::default()).await.unwrap()) }
    });
    gone.await;
    rig.remove(&[] as &[&str], &names).await;
}
