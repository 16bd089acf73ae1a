//! The Deployment and the DaemonSet of a Plugin: written, put right, and taken away. There is nobody here who makes Pods of them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};
use moor::api::Volume;
use moor::api::conditions::{DEPLOYED, REMOVABLE, find};
use moor::api::lock::{DriverVolume, handle_name};
use moor::api::names::imported_volume;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::{CONTROLLER, Case, Cluster, NAMESPACE, Options, Rig, SPACE, condition, pod_template};

/// Its driver is nowhere.
const NAME: &str = "run.test";

fn deployments(rig: &Rig) -> Api<Deployment> {
    Api::namespaced(rig.cluster.admin.clone(), NAMESPACE)
}

fn daemon_sets(rig: &Rig) -> Api<DaemonSet> {
    Api::namespaced(rig.cluster.admin.clone(), NAMESPACE)
}

async fn change(rig: &Rig, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    rig.plugin_api().patch(NAME, &PatchParams::default(), &patch).await.unwrap();
}

/// Makes a volume that exists, which the driver was asked about or not.
async fn make_volume(rig: &Rig, name: &str, asked: bool) {
    let spec = json!({"pluginName": NAME, "volumeHandle": name});
    let volume = json!({"metadata": {"name": name, "namespace": SPACE}, "spec": spec});
    rig.make_volume(&serde_json::from_value(volume).unwrap()).await;
    if asked {
        let caller = json!({"instance": "nobody", "agent": "nobody", "tenure": 0});
        let assignment = json!({"operation": "Validate", "controller": caller});
        let patch = Patch::Merge(json!({"spec": {"assignment": assignment}}));
        rig.volume_api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Waits until the Plugin says this of its workloads.
async fn until_said(rig: &Rig, reason: &str, words: &str) {
    rig.until_plugin_says(NAME, DEPLOYED, reason, &[words]).await;
}

/// The images of the Deployment's and the DaemonSet's drivers.
async fn images(rig: &Rig) -> [Option<String>; 2] {
    let image = |spec: Option<k8s_openapi::api::core::v1::PodSpec>| {
        spec.unwrap().containers[0].image.clone().unwrap()
    };
    let controller = deployments(rig).get_opt("plugin-run.test-controller").await.unwrap();
    let node = daemon_sets(rig).get_opt("plugin-run.test-node").await.unwrap();
    [
        controller.map(|found| image(found.spec.unwrap().template.spec)),
        node.map(|found| image(found.spec.unwrap().template.spec)),
    ]
}

async fn until_images(rig: &Rig, controller: Option<&str>, node: Option<&str>) {
    let wanted = [controller, node].map(|image| image.map(str::to_owned));
    rig.poll(&format!("the drivers are {wanted:?}"), || async { images(rig).await == wanted }).await;
}

/// What the garbage collector would do.
async fn collect(rig: &Rig) {
    let all = DeleteParams::default();
    let _ = deployments(rig).delete("plugin-run.test-controller", &all).await;
    let _ = daemon_sets(rig).delete("plugin-run.test-node", &all).await;
}

async fn what_a_plugin_declares_is_written_and_put_right(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_plugin_named(
        NAME,
        json!({"controller": {"template": pod_template("a:1")}, "node": {"template": pod_template("a:1")}}),
    )
    .await;
    until_images(&rig, Some("a:1"), Some("a:1")).await;
    until_said(&rig, "RollingOut", "kubectl get pods").await;
    let kept = rig.plugin_api().get(NAME).await.unwrap();
    assert_eq!(kept.finalizers(), ["moor.dev/detach"]);

    // Somebody has an own idea of it, before and while no leader is there.
    let other = Patch::Strategic(json!({"spec": {"replicas": 5, "template": pod_template("other:1")}}));
    let patch = |rig: &Rig| {
        let api = deployments(rig);
        let other = other.clone();
        async move { api.patch("plugin-run.test-controller", &PatchParams::default(), &other).await.unwrap() }
    };
    patch(&rig).await;
    until_images(&rig, Some("a:1"), Some("a:1")).await;
    rig.stop(CONTROLLER).await;
    patch(&rig).await;
    rig.run(CONTROLLER);
    until_images(&rig, Some("a:1"), Some("a:1")).await;
    let put_right = deployments(&rig).get("plugin-run.test-controller").await.unwrap();
    assert_eq!(put_right.spec.unwrap().replicas, Some(1));

    // What is as it should be is not rolled out again, by this leader or the next.
    let generations = |rig: &Rig| {
        let (controller, node) = (deployments(rig), daemon_sets(rig));
        async move {
            let controller = controller.get("plugin-run.test-controller").await.unwrap().metadata.generation;
            (controller, node.get("plugin-run.test-node").await.unwrap().metadata.generation)
        }
    };
    let before = generations(&rig).await;
    rig.restart_and_wait(CONTROLLER).await;
    change(&rig, json!({"healthTimeoutSeconds": 31})).await;
    let wanted = rig.plugin_api().get(NAME).await.unwrap().metadata.generation;
    rig.until_plugin(NAME, "is seen as it is", |plugin| {
        (plugin.status.as_ref()?.observed_generation == wanted).then_some(())
    })
    .await;
    assert_eq!(generations(&rig).await, before);

    change(&rig, json!({"node": {"template": pod_template("a:2")}})).await;
    until_images(&rig, Some("a:1"), Some("a:2")).await;
    change(&rig, json!({"node": null})).await;
    until_images(&rig, Some("a:1"), None).await;
    change(&rig, json!({"controller": null})).await;
    until_images(&rig, None, None).await;
    rig.until_plugin(NAME, "says nothing of Pods", |plugin| {
        find(&plugin.status.as_ref()?.conditions, DEPLOYED).is_none().then_some(())
    })
    .await;
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.until_plugin_is_gone(NAME).await;
}

async fn what_cannot_be_written_is_told_by_its_field(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_plugin_named(NAME, json!({"node": {"template": pod_template("a:1")}})).await;
    until_images(&rig, None, Some("a:1")).await;
    let mut wrong = pod_template("a:2");
    wrong["spec"]["hostNetworking"] = json!(true);
    change(&rig, json!({"node": {"template": wrong}})).await;
    let words = "spec.node.template.spec.hostNetworking: Pods have no such field";
    until_said(&rig, "TemplateRefused", words).await;
    change(&rig, json!({"node": {"template": {"spec": {"hostNetworking": null, "dnsPolicy": "Nowhere"}}}}))
        .await;
    until_said(&rig, "TemplateRefused", "dnsPolicy").await;
    until_images(&rig, None, Some("a:1")).await;
    change(&rig, json!({"node": {"template": {"spec": {"dnsPolicy": null}}}})).await;
    until_images(&rig, None, Some("a:2")).await;

    // The name of the other one is somebody else's.
    let foreign = json!({"metadata": {"name": "plugin-run.test-controller"}, "spec": {
        "selector": {"matchLabels": {"moor.dev/plugin": "x"}},
        "template": {"metadata": {"labels": {"moor.dev/plugin": "x"}}, "spec": pod_template("theirs:1")["spec"]},
    }});
    deployments(&rig)
        .create(&PostParams::default(), &serde_json::from_value(foreign).unwrap())
        .await
        .unwrap();
    change(&rig, json!({"controller": {"template": pod_template("a:1")}})).await;
    until_said(&rig, "TemplateRefused", "was not made by moor and is not touched").await;
    until_images(&rig, Some("theirs:1"), Some("a:2")).await;
    deployments(&rig).delete("plugin-run.test-controller", &DeleteParams::default()).await.unwrap();
    until_images(&rig, Some("a:1"), Some("a:2")).await;
    // One that says it is of this Plugin, and whose, and is not: it keeps nobody.
    let forget = Patch::Merge(json!({"metadata": {"labels": {"moor.dev/plugin-uid": null}}}));
    deployments(&rig).patch("plugin-run.test-controller", &PatchParams::default(), &forget).await.unwrap();
    until_said(&rig, "TemplateRefused", "was not made by moor and is not touched").await;
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.until_plugin_is_gone(NAME).await;
    collect(&rig).await;
}

/// With the Plugin its Pods would go, and with them who could delete the volume.
async fn a_plugin_is_kept_while_its_driver_is_needed(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_plugin_named(NAME, json!({"node": {"template": pod_template("a:1")}})).await;
    until_images(&rig, None, Some("a:1")).await;
    make_volume(&rig, "data", true).await;
    rig.poll("the leader has it", || async {
        rig.plugin_api().get(NAME).await.unwrap().finalizers().len() == 1
    })
    .await;
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    let words = format!("not needed for Volume {SPACE}/data");
    rig.until_plugin_says(NAME, REMOVABLE, "InUse", &[&words]).await;
    rig.restart_and_wait(CONTROLLER).await;
    // Whoever needs another image to have it unmounted gets that, and what is declared no more stays.
    change(&rig, json!({"node": {"template": pod_template("a:2")}})).await;
    until_images(&rig, None, Some("a:2")).await;
    change(&rig, json!({"node": null})).await;
    let wanted = rig.plugin_api().get(NAME).await.unwrap().metadata.generation;
    rig.until_plugin(NAME, "is seen as it is", |plugin| {
        (plugin.status.as_ref()?.observed_generation == wanted).then_some(())
    })
    .await;
    until_images(&rig, None, Some("a:2")).await;
    rig.delete_volume("data").await;
    rig.until_plugin_is_gone(NAME).await;
    collect(&rig).await;
}

/// Somebody else waits for the end of a Plugin too, and deletes what is left of it after moor.
async fn a_deleted_plugin_that_others_hold_runs_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_plugin_named(NAME, json!({"node": {"template": pod_template("a:1")}})).await;
    until_images(&rig, None, Some("a:1")).await;
    let hold = |all: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": all}}));
        let api = rig.plugin_api();
        async move { api.patch(NAME, &PatchParams::default(), &patch).await.unwrap() }
    };
    hold(json!(["moor.dev/detach", "example.com/audit"])).await;
    make_volume(&rig, "before", true).await;
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    let words = format!("not needed for Volume {SPACE}/before");
    rig.until_plugin_says(NAME, REMOVABLE, "InUse", &[&words]).await;
    make_volume(&rig, "after", false).await;
    rig.until_volume_says("after", "PluginNotFound", &["is being deleted"]).await;
    rig.delete_volume("before").await;
    rig.delete_volume("after").await;
    rig.poll("only the other one holds it", || async {
        rig.plugin_api().get(NAME).await.unwrap().finalizers() == ["example.com/audit"]
    })
    .await;
    until_images(&rig, None, None).await;
    // What is changed about it, and whoever leads, makes none of it anew.
    rig.restart_and_wait(CONTROLLER).await;
    change(&rig, json!({"healthTimeoutSeconds": 31, "controller": {"template": pod_template("a:1")}})).await;
    let wanted = rig.plugin_api().get(NAME).await.unwrap().metadata.generation;
    rig.until_plugin(NAME, "is seen as it is", |plugin| {
        (plugin.status.as_ref()?.observed_generation == wanted).then_some(())
    })
    .await;
    assert_eq!(images(&rig).await, [None, None]);
    hold(json!([])).await;
    rig.until_plugin_is_gone(NAME).await;
    collect(&rig).await;
}

/// Another Plugin with the driver needs its name. What users have made stays theirs.
async fn an_import_that_was_not_begun_goes_with_its_plugin(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_plugin_named(NAME, json!({"kubernetes": {"enabled": false}})).await;
    make_volume(&rig, "theirs", false).await;
    let all: Api<Volume> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let import = imported_volume(&handle_name(DriverVolume { driver: NAME, handle: "left" }));
    let spec = json!({"pluginName": NAME, "volumeHandle": "left"});
    let volume = json!({"metadata": {"name": import, "namespace": NAMESPACE}, "spec": spec});
    let volume: Volume = serde_json::from_value(volume).unwrap();
    all.create(&PostParams::default(), &volume).await.unwrap();
    let says = || {
        let status = cluster.volumes.get(&ObjectRef::new(&import).within(NAMESPACE))?.status.clone()?;
        condition(&status.conditions).map(drop)
    };
    cluster.until("it is known to the leader", says, String::new).await;
    let gone = || async { all.get_opt(&import).await.unwrap().is_none() };
    let hold = |finalizers: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let plugins = rig.plugin_api();
        async move { plugins.patch(NAME, &PatchParams::default(), &patch).await.unwrap() }
    };
    let found = rig.plugin_api().get(NAME).await.unwrap();
    hold(json!([found.finalizers(), &["test/held".to_owned()]].concat())).await;
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.poll("its name is free", gone).await;
    // Somebody holds the Plugin, and a leader that did not know yet that it goes has made another one; or it is gone.
    all.create(&PostParams::default(), &volume).await.unwrap();
    rig.poll("its name is free again", gone).await;
    hold(json!(null)).await;
    rig.until_plugin_is_gone(NAME).await;
    all.create(&PostParams::default(), &volume).await.unwrap();
    rig.poll("its name is free without the Plugin", gone).await;
    rig.delete_volume("theirs").await;
    rig.until_volume_gone("theirs").await;
}

/// Says in the Lease who leads, and for how long that counts.
async fn give_lease(rig: &Rig, who: &str, seconds: u32) {
    let leases: Api<Lease> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    let spec = json!({"holderIdentity": who, "leaseDurationSeconds": seconds});
    leases
        .patch("moor-controller", &PatchParams::default(), &Patch::Merge(json!({"spec": spec})))
        .await
        .unwrap();
}

/// A leader that gives its Lease back has written in its last moment what the next one has not heard of.
async fn what_an_earlier_leader_has_written_is_not_taken_back(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_plugin_named(NAME, json!({"node": {"template": pod_template("a:1")}})).await;
    rig.make_plugin_named("gone.test", json!({"node": {"template": pod_template("a:1")}})).await;
    until_images(&rig, None, Some("a:1")).await;
    until_said(&rig, "RollingOut", "kubectl get pods").await;
    rig.until_plugin_says("gone.test", DEPLOYED, "RollingOut", &[]).await;
    rig.stop(CONTROLLER).await;
    give_lease(&rig, "another", 3600).await;
    let watched = rig.lead(CONTROLLER, &cluster.admin);
    rig.run(CONTROLLER);
    rig.until_watching(CONTROLLER, &watched).await;
    rig.stall(CONTROLLER, "plugins");
    change(&rig, json!({"node": {"template": pod_template("a:2")}})).await;
    let rolled = Patch::Strategic(json!({"spec": {"template": pod_template("a:2")}}));
    let name = "plugin-run.test-node";
    let rolled = daemon_sets(&rig).patch(name, &PatchParams::default(), &rolled).await.unwrap();
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    rig.plugin_api().patch("gone.test", &PatchParams::default(), &free).await.unwrap();
    rig.plugin_api().delete("gone.test", &DeleteParams::default()).await.unwrap();
    give_lease(&rig, "", 1).await;
    let wanted = rig.plugin_api().get(NAME).await.unwrap().metadata.generation;
    rig.until_plugin(NAME, "is seen as it is", |plugin| {
        (plugin.status.as_ref()?.observed_generation == wanted).then_some(())
    })
    .await;
    let found = daemon_sets(&rig).get(name).await.unwrap();
    assert_eq!(found.metadata.generation, rolled.metadata.generation);
    rig.poll("nothing runs for a Plugin that is gone", || async {
        daemon_sets(&rig).get_opt("plugin-gone.test-node").await.unwrap().is_none()
    })
    .await;
    rig.unstall(CONTROLLER, "plugins");
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.until_plugin_is_gone(NAME).await;
    collect(&rig).await;
}

/// The cases of this file.
pub const CASES: &[Case] = cases![
    what_a_plugin_declares_is_written_and_put_right,
    what_cannot_be_written_is_told_by_its_field,
    a_plugin_is_kept_while_its_driver_is_needed,
    a_deleted_plugin_that_others_hold_runs_nothing,
    an_import_that_was_not_begun_goes_with_its_plugin,
    what_an_earlier_leader_has_written_is_not_taken_back,
];
