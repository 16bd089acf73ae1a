//! What the scheduler is told of the room that drivers have: CSIStorageCapacity objects, and whether the CSIDriver object
//! says that they count.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use moor::api::conditions::PODS;
use moor::api::names::{DriverOn, instance_name};
use moor::api::{Plugin, PluginInstance};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::GetCapacityRequest;
use moor::csi::proto::csi::v1::volume_capability::AccessType;
use prost::Message as _;
use serde_json::json;
use tonic::Code;

use crate::cases;
use crate::provision::class;
use crate::rig::fake::{DRIVER, ZONE, room};
use crate::rig::{Binder, CONTROLLER, Case, Cluster, Entry, Fault, NAMESPACE, Options, Rig};

const MI: i64 = 1 << 20;
const NODES: [&str; 2] = ["node-1", "node-2"];

/// A driver with a zone for each node, of which kubelet has told the nodes, and an instance in each, or in the first alone.
async fn start(cluster: &Arc<Cluster>, in_each: bool) -> Arc<Rig> {
    let nodes = vec![("node-1", true), ("node-2", in_each)];
    started(cluster, Options { nodes, topology: true, capacity: true, ..Options::default() }).await
}

async fn started(cluster: &Arc<Cluster>, options: Options) -> Arc<Rig> {
    let rig = Rig::start(cluster, options).await;
    for (node, size) in NODES.into_iter().zip([100, 200]) {
        rig.fake.backend().room.insert(node.into(), size * MI);
        rig.label_node(node, ZONE, Some(node)).await;
    }
    rig
}

/// Waits until the Plugin says of Pods what contains these words, or does not say them.
async fn until_served(rig: &Rig, words: &str, says: bool) {
    let look = |plugin: &Plugin| {
        let conditions = &plugin.status.as_ref()?.conditions;
        let said = conditions.iter().find(|c| c.type_ == PODS && c.reason == "Served")?;
        (said.message.contains(words) == says).then_some(())
    };
    rig.until_plugin(DRIVER, &format!("says {words}: {says}"), look).await;
}

async fn make_late_class(rig: &Rig, name: &str) {
    let parameters = json!({ "key": "v", "csi.storage.k8s.io/fstype": "xfs",
        "csi.storage.k8s.io/node-stage-secret-name": "s", "csi.storage.k8s.io/node-stage-secret-namespace": "n" });
    let more = json!({ "parameters": parameters, "volumeBindingMode": "WaitForFirstConsumer" });
    rig.make_class(&class(name, &more)).await;
}

fn api(rig: &Rig) -> Api<CSIStorageCapacity> {
    Api::namespaced(rig.cluster.admin.clone(), NAMESPACE)
}

async fn objects(rig: &Rig) -> Vec<CSIStorageCapacity> {
    api(rig).list(&ListParams::default()).await.unwrap().items
}

/// What the scheduler is told: sizes by class and zone.
async fn told(rig: &Rig) -> BTreeMap<(String, String), String> {
    let place = |object: &CSIStorageCapacity| {
        let selector = object.node_topology.clone().unwrap();
        assert_eq!(selector.match_expressions, None);
        let labels = selector.match_labels.unwrap();
        assert_eq!(labels.len(), 1);
        labels[ZONE].clone()
    };
    let told = |object: CSIStorageCapacity| {
        ((object.storage_class_name.clone(), place(&object)), object.capacity.unwrap_or_default().0)
    };
    objects(rig).await.into_iter().map(told).collect()
}

async fn until_told(rig: &Rig, what: &[(&str, &str, &str)]) {
    let wanted: BTreeMap<_, _> =
        what.iter().map(|(class, zone, size)| (((*class).into(), (*zone).into()), (*size).into())).collect();
    rig.until(&format!("the scheduler is told {wanted:?}"), || async {
        (told(rig).await == wanted).then_some(())
    })
    .await;
}

/// Waits until the CSIDriver object says whether the scheduler goes by what it is told.
async fn until_it_counts(rig: &Rig, counts: bool) {
    let drivers: Api<CSIDriver> = Api::all(rig.cluster.admin.clone());
    rig.until(&format!("storageCapacity is {counts}"), || async {
        let found = drivers.get_opt(DRIVER).await.unwrap()?;
        (found.spec.storage_capacity == Some(counts)).then_some(())
    })
    .await;
}

fn asked(rig: &Rig, zone: &str, since: usize) -> Vec<Entry> {
    let key = room(zone);
    rig.journal.since(since, |e| e.call().is_some_and(|call| call.rpc == Rpc::GetCapacity && call.key == key))
}

async fn each_late_class_has_an_object_in_each_place_and_loses_it(cluster: Arc<Cluster>) {
    let rig = start(&cluster, true).await;
    rig.make_class(&class("now", &json!({}))).await;
    until_it_counts(&rig, false).await;
    until_served(&rig, "no StorageClass of the driver has WaitForFirstConsumer", true).await;
    make_late_class(&rig, "late").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")]).await;
    until_it_counts(&rig, true).await;
    until_served(&rig, "the scheduler does not go by its room", false).await;
    for object in objects(&rig).await {
        assert_eq!(object.labels()["csi.storage.k8s.io/drivername"], DRIVER);
        assert_eq!(object.labels()["csi.storage.k8s.io/managed-by"], "moor");
        let largest = if object.capacity.unwrap().0 == "100Mi" { "50Mi" } else { "100Mi" };
        assert_eq!(object.maximum_volume_size.unwrap().0, largest);
    }
    for node in NODES {
        let calls = asked(&rig, node, 0);
        assert!(calls.iter().all(|e| e.call().unwrap().node == node), "asked elsewhere");
        let request = GetCapacityRequest::decode(calls[0].call().unwrap().arguments.as_slice()).unwrap();
        assert_eq!(request.parameters, BTreeMap::from([("key".into(), "v".into())]));
        assert_eq!(request.accessible_topology.as_ref().unwrap().segments[ZONE], node);
        let [capability] = &request.volume_capabilities[..] else { panic!("{request:?}") };
        let Some(AccessType::Mount(mount)) = &capability.access_type else { panic!("{capability:?}") };
        assert_eq!(mount.fs_type, "xfs");
    }

    make_late_class(&rig, "later").await;
    let size = |class, zone| (class, zone, if zone == "node-1" { "100Mi" } else { "200Mi" });
    let (late, later) = (NODES.map(|zone| size("late", zone)), NODES.map(|zone| size("later", zone)));
    until_told(&rig, &[late, later].concat()).await;
    until_it_counts(&rig, true).await;
    rig.delete_class("late").await;
    until_told(&rig, &later).await;
    // What somebody else changes or deletes is put right.
    let one = objects(&rig).await.remove(0).name_any();
    let patch = Patch::Merge(json!({ "capacity": "7" }));
    api(&rig).patch(&one, &PatchParams::default(), &patch).await.unwrap();
    until_told(&rig, &later).await;
    api(&rig).delete(&one, &DeleteParams::default()).await.unwrap();
    until_told(&rig, &later).await;
    // One without its labels is nobody's by what it says, and has the name all the same.
    let one = objects(&rig).await.remove(0).name_any();
    api(&rig)
        .patch(&one, &PatchParams::default(), &Patch::Merge(json!({ "metadata": { "labels": null } })))
        .await
        .unwrap();
    rig.until("it has its labels again", || async {
        let found = api(&rig).get_opt(&one).await.unwrap()?;
        found.labels().contains_key("moor.dev/plugin").then_some(())
    })
    .await;
    until_told(&rig, &later).await;

    // The place goes, then the name at kubelets.
    rig.label_node("node-2", ZONE, None).await;
    until_told(&rig, &later[..1]).await;
    until_it_counts(&rig, true).await;
    rig.patch_plugin(json!({ "kubernetes": { "enabled": false } })).await;
    until_told(&rig, &[]).await;
    rig.patch_plugin(json!({ "kubernetes": null })).await;
    until_told(&rig, &later[..1]).await;
    until_it_counts(&rig, true).await;
    rig.delete_class("later").await;
    until_told(&rig, &[]).await;
    until_it_counts(&rig, false).await;
}

async fn the_room_is_told_after_each_volume_that_is_made_or_deleted(cluster: Arc<Cluster>) {
    // No round of questions comes by itself.
    let rig = start(&cluster, true).await;
    let _binder = Binder::start(&cluster.admin);
    // Who makes a volume is who is asked about the room for it.
    rig.patch_plugin(json!({ "balancing": "PerTopology" })).await;
    make_late_class(&rig, "late").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")]).await;
    rig.make_pvc("data", "late", json!({})).await;
    rig.choose("data", "node-2").await;
    rig.until_bound("data").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "199Mi")]).await;
    rig.fake.backend().room.insert("node-2".into(), 300 * MI);
    rig.delete_pvc("data").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "300Mi")]).await;
    rig.until_nothing_provisioned().await;
    rig.make_pvc("again", "late", json!({})).await;
    rig.choose("again", "node-1").await;
    rig.until_bound("again").await;
    until_told(&rig, &[("late", "node-1", "99Mi"), ("late", "node-2", "300Mi")]).await;
}

async fn what_others_do_with_the_room_is_told_with_the_next_round(cluster: Arc<Cluster>) {
    let options = Options { topology: true, capacity: true, capacity_interval: 1, ..Options::default() };
    let rig = started(&cluster, options).await;
    make_late_class(&rig, "late").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")]).await;
    rig.fake.backend().room.insert("node-2".into(), 150 * MI);
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "150Mi")]).await;
}

/// Nothing is written by who is told the same once more.
async fn what_does_not_change_is_not_written(cluster: Arc<Cluster>) {
    let rig = start(&cluster, true).await;
    make_late_class(&rig, "late").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")]).await;
    until_it_counts(&rig, true).await;
    let since = rig.journal.now();
    for node in NODES {
        come_anew(&rig, node);
        rig.until(&format!("{node} is asked again"), || async {
            asked(&rig, node, since).iter().any(Entry::is_ok).then_some(())
        })
        .await;
    }
    rig.restart_and_wait(CONTROLLER).await;
    // A later answer goes the same way, and after those that were the same.
    rig.fake.backend().room.insert("node-1".into(), 90 * MI);
    rig.restart("node-1");
    until_told(&rig, &[("late", "node-1", "90Mi"), ("late", "node-2", "200Mi")]).await;
    let kinds = ["csistoragecapacities", "csidrivers"];
    let written = rig.journal.since(since, |e| e.write().is_some_and(|w| kinds.contains(&w.kind.as_str())));
    assert_eq!(written.len(), 1, "{written:#?}");
}

async fn an_instance_that_does_not_answer_keeps_its_figure_until_its_node_is_gone(cluster: Arc<Cluster>) {
    let rig = start(&cluster, true).await;
    make_late_class(&rig, "late").await;
    let both = [("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")];
    until_told(&rig, &both).await;
    until_it_counts(&rig, true).await;
    rig.fake.fail(&room("node-2"), Rpc::GetCapacity, Fault::CodeBefore(Code::Internal));
    rig.restart("node-2");
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    let name = instance_name(DriverOn { driver: DRIVER, node: "node-2" });
    rig.until("the PluginInstance says what the driver answers", || async {
        let said = instances.get(&name).await.unwrap().status.unwrap_or_default().capacities;
        let failed = said.values().find_map(|said| said.last_error.clone())?;
        assert!(failed.contains("Internal"), "{failed}");
        Some(())
    })
    .await;
    rig.kill("node-2");
    rig.expire_lease("node-2").await;
    // Who is there goes on, and nobody speaks for who is not.
    rig.fake.backend().room.insert("node-1".into(), 90 * MI);
    rig.restart("node-1");
    until_told(&rig, &[("late", "node-1", "90Mi"), both[1]]).await;
    until_it_counts(&rig, true).await;
    assert!(asked(&rig, "node-2", 0).iter().all(|e| e.call().unwrap().node == "node-2"));
    rig.delete_node("node-2").await;
    until_told(&rig, &[("late", "node-1", "90Mi")]).await;
    until_it_counts(&rig, true).await;
}

/// The CSIDriver object outlasts the service: it must not have the scheduler look for what nobody tells any more.
async fn an_object_that_stays_for_pods_counts_on_nothing(cluster: Arc<Cluster>) {
    let rig = start(&cluster, true).await;
    make_late_class(&rig, "late").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")]).await;
    until_it_counts(&rig, true).await;
    let pod = rig.make_pod_volume("web", "node-2").await;
    let claim = rig.ask(&pod, |_| {}).await;
    rig.until_granted(&claim).await;
    let since = rig.journal.now();
    rig.patch_plugin(json!({ "kubernetes": { "enabled": false } })).await;
    until_told(&rig, &[]).await;
    until_it_counts(&rig, false).await;
    let kinds = ["csistoragecapacities", "csidrivers"];
    let written = rig.journal.since(since, |e| e.write().is_some_and(|w| kinds.contains(&w.kind.as_str())));
    let verbs: Vec<_> = written.iter().map(|e| e.write().unwrap().verb.as_str()).collect();
    assert_eq!(verbs, ["PATCH", "DELETE", "DELETE"], "the scheduler counted on objects that were gone");
    rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
}

/// A version that says how much room there is comes on one node after the other.
async fn nothing_counts_before_every_place_can_be_asked_about(cluster: Arc<Cluster>) {
    let rig = start(&cluster, true).await;
    rig.patch_plugin(json!({ "balancing": "PerTopology" })).await;
    rig.fake.backend().incapable.extend(NODES.map(str::to_owned));
    for node in NODES {
        come_anew(&rig, node);
    }
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    for node in NODES {
        let name = instance_name(DriverOn { driver: DRIVER, node });
        rig.until(&format!("{node} says that it cannot tell"), || async {
            let status = instances.get(&name).await.unwrap().status?;
            (status.healthy && !status.capabilities.controller_has("GET_CAPACITY")).then_some(())
        })
        .await;
    }
    make_late_class(&rig, "late").await;
    rig.fake.backend().incapable.remove("node-1");
    come_anew(&rig, "node-1");
    until_told(&rig, &[("late", "node-1", "100Mi")]).await;
    // What would count comes after what is told, in the same pass, and the next one begins with this.
    make_late_class(&rig, "later").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("later", "node-1", "100Mi")]).await;
    let true_was_written = |e: &Entry| {
        e.write().is_some_and(|w| w.kind == "csidrivers" && w.body["spec"]["storageCapacity"] == true)
    };
    assert!(rig.journal.since(0, true_was_written).is_empty(), "no Pod would go to node-2");
    rig.fake.backend().incapable.clear();
    come_anew(&rig, "node-2");
    until_it_counts(&rig, true).await;
    rig.fake.backend().incapable.insert("node-1".to_owned());
    come_anew(&rig, "node-1");
    until_it_counts(&rig, false).await;
}

/// The driver's process on a node ends and comes back.
fn come_anew(rig: &Rig, node: &str) {
    rig.fake.stop(node, &rig.plugin_dir(node));
    rig.fake.serve(node, &rig.plugin_dir(node), true);
}

async fn a_driver_with_one_controller_is_asked_there_about_every_place(cluster: Arc<Cluster>) {
    let rig = start(&cluster, false).await;
    make_late_class(&rig, "late").await;
    let both = [("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")];
    until_told(&rig, &both).await;
    until_it_counts(&rig, true).await;
    for node in NODES {
        assert!(asked(&rig, node, 0).iter().all(|e| e.call().unwrap().node == "node-1"));
    }
    // A driver that makes volumes only where it runs says nothing of other places.
    rig.patch_plugin(json!({ "balancing": "PerTopology" })).await;
    until_told(&rig, &both[..1]).await;
    // It can say nothing any more: another version of it has come.
    rig.fake.backend().incapable.insert("node-1".to_owned());
    come_anew(&rig, "node-1");
    until_told(&rig, &[]).await;
    until_it_counts(&rig, false).await;
}

/// With the token of an agent somebody says that his node is where another one is, and how much room there is.
async fn a_node_says_nothing_of_the_room_of_another(cluster: Arc<Cluster>) {
    let rig = start(&cluster, true).await;
    make_late_class(&rig, "late").await;
    until_told(&rig, &[("late", "node-1", "100Mi"), ("late", "node-2", "200Mi")]).await;
    // The name that sorts first would be asked, were it there.
    rig.kill("node-1");
    let all: Vec<String> = objects(&rig).await.iter().map(kube::ResourceExt::name_any).collect();
    let huge: BTreeMap<_, _> =
        all.iter().map(|name| (name, json!({ "availableCapacity": MI * MI }))).collect();
    let rogue = rig.rogue("node-1").await;
    rogue.say_of_driver(json!({ "topology": { ZONE: "node-2" }, "capacities": huge })).await;
    // Its own place is not there any more, and that is all that has come of it.
    until_told(&rig, &[("late", "node-2", "200Mi")]).await;
    rig.fake.backend().room.insert("node-2".into(), 190 * MI);
    rig.restart("node-2");
    until_told(&rig, &[("late", "node-2", "190Mi")]).await;
    let refused = |error: kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    let (capacities, patch) = (rogue.capacities(), Patch::Merge(json!({ "capacity": "1Ei" })));
    let foreign = capacities.patch(&all[0], &PatchParams::default(), &patch).await;
    assert!(refused(foreign.unwrap_err()), "it writes what the scheduler reads");
}

pub const CASES: &[Case] = cases![
    each_late_class_has_an_object_in_each_place_and_loses_it,
    the_room_is_told_after_each_volume_that_is_made_or_deleted,
    what_others_do_with_the_room_is_told_with_the_next_round,
    what_does_not_change_is_not_written,
    an_instance_that_does_not_answer_keeps_its_figure_until_its_node_is_gone,
    an_object_that_stays_for_pods_counts_on_nothing,
    nothing_counts_before_every_place_can_be_asked_about,
    a_driver_with_one_controller_is_asked_there_about_every_place,
    a_node_says_nothing_of_the_room_of_another,
];
