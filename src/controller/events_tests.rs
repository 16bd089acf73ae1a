//! Which pass an event asks for.

use std::time::Duration;

use serde_json::json;

use super::super::caches::instance_cache;
use super::super::objects_tests::{attachment, claim, key_of};
use super::*;
use crate::api::ClaimUid;
use crate::api::caller::ControllerRef;
use crate::api::instance::{Capacity, PluginInstanceSpec, PluginInstanceStatus};
use crate::api::plugin::{ControllerNodes, PluginSpec};
use crate::api::volume::{VolumeAssignment, VolumeOperation, VolumeSpec};
use crate::claim::ClaimSeen;
use crate::claim::admission::Verdict;
use crate::claim::reason::Waiting;
use crate::controller::known::site;
use crate::k8s::Next;

fn nothing() -> Arc<Known> {
    Arc::new(Known::new(site(), Duration::from_secs(60), Duration::ZERO))
}

/// Also a Volume that is not there yet (trap L18, T67).
#[tokio::test]
async fn a_claim_wakes_its_own_volume_only() {
    let known = nothing();
    known.claims.apply(claim("a", "1", "one"));
    known.claims.apply(claim("a", "2", "two"));
    connect(&known);
    let mut changed = claim("a", "1", "one");
    changed.metadata.resource_version = Some("2".into());
    known.claims.apply(changed);
    assert_eq!(known.queue.len(), 1);
    assert_eq!(known.queue.next().await, key_of("a", "one"));
}

/// Each of a thousand nodes says how much room it has.
#[tokio::test(start_paused = true)]
async fn what_many_instances_say_of_their_room_is_one_pass() {
    let Large(known) = large();
    for place in 0..NODES {
        let mut says = instance(place);
        says.metadata.resource_version = Some("2".into());
        says.status.get_or_insert_default().capacities.insert("csisc-1".into(), Capacity::default());
        known.instances.apply(says);
    }
    let mut keys = Vec::new();
    for _ in 0..known.queue.len() {
        keys.push(known.queue.next().await);
    }
    assert_eq!(keys, [Key::Plugin("driver".into())]);
    assert_eq!(known.queue.next().await, Key::Capacities("driver".into()));
    assert_eq!(known.queue.len(), 0);
}

/// The younger Plugin of a driver says whose it is, and its Volumes wait for that to end. One was removed by hand.
#[test]
fn plugins_of_one_driver_wake_each_other() {
    let plugin = |name: &str, version: &str, driver: &str| {
        let spec = PluginSpec { driver_name: Some(driver.into()), ..PluginSpec::default() };
        let mut plugin = Plugin::new(name, spec);
        plugin.metadata.uid = Some(name.into());
        plugin.metadata.resource_version = Some(version.into());
        plugin
    };
    let woken = |change: &dyn Fn(&Cache<Plugin>)| {
        let known = nothing();
        for name in ["older", "younger"] {
            known.plugins.apply(plugin(name, "1", "driver"));
        }
        known.plugins.apply(plugin("other", "1", "other"));
        let spec = VolumeSpec { plugin_name: "younger".into(), ..VolumeSpec::default() };
        let mut waits = Volume::new("waits", spec);
        waits.metadata.uid = Some("waits".into());
        waits.metadata.resource_version = Some("1".into());
        known.volumes.apply(waits);
        let mut left = attachment("left", "driver", "node-1");
        left.spec.fixed.plugin_name = "younger".into();
        left.spec.volume.name = "removed".into();
        known.attachments.apply(left);
        connect(&known);
        change(&known.plugins);
        known.queue.len()
    };
    let (both_and_volumes, itself) = (4, 1);
    assert_eq!(woken(&|plugins| plugins.remove_confirmed("older")), both_and_volumes);
    assert_eq!(woken(&|plugins| plugins.apply(plugin("older", "2", "renamed"))), both_and_volumes);
    assert_eq!(woken(&|plugins| plugins.apply(plugin("older", "2", "driver"))), itself, "its status");
    assert_eq!(woken(&|plugins| plugins.remove_confirmed("other")), itself);
    let mut learnt = plugin("younger", "2", "driver");
    learnt.status.get_or_insert_default().capabilities.controller.push("CLONE_VOLUME".into());
    assert_eq!(woken(&|plugins| plugins.apply(learnt.clone())), itself, "what all instances have in common");
}

/// A cluster of a thousand nodes and three thousand Volumes that are in order. `data-5` has a claim that waits for
/// `node-7`, `data-6` waits for whatever instance there may be.
struct Large(Arc<Known>);

const NODES: usize = 1000;
const VOLUMES: usize = 3000;
/// How many instances make calls.
const CONTROLLERS: usize = 10;

fn instance(place: usize) -> PluginInstance {
    let spec = PluginInstanceSpec {
        plugin_name: "driver".into(),
        driver_name: "driver".into(),
        node_name: format!("node-{place}"),
        node_uid: format!("node-{place}"),
        agent: format!("node-{place}"),
        ..PluginInstanceSpec::default()
    };
    let mut instance = PluginInstance::new(&format!("instance-{place}"), spec);
    instance.metadata.uid = Some(place.to_string());
    instance.metadata.resource_version = Some("1".into());
    let controller = place < CONTROLLERS;
    instance.status = Some(PluginInstanceStatus {
        healthy: true,
        node: true,
        controller,
        ..PluginInstanceStatus::default()
    });
    instance
}

fn large() -> Large {
    let known = nothing();
    for place in 0..NODES {
        known.instances.apply(instance(place));
    }
    for n in 0..VOLUMES {
        let to = ControllerRef::new(format!("instance-{}", n % CONTROLLERS), "", 0);
        let assignment = VolumeAssignment {
            operation: VolumeOperation::Create,
            controller: Some(to),
            ..VolumeAssignment::default()
        };
        let spec = VolumeSpec {
            plugin_name: "driver".into(),
            assignment: Some(assignment),
            ..VolumeSpec::default()
        };
        let mut volume = Volume::new(&format!("data-{n}"), spec);
        volume.metadata.uid = Some(n.to_string());
        volume.metadata.resource_version = Some("1".into());
        known.volumes.apply(volume);
    }
    for n in 0..NODES {
        let mut on = attachment(&n.to_string(), "driver", &format!("node-{n}"));
        on.spec.volume.name = format!("data-{n}");
        known.attachments.apply(on);
    }
    known.nodes.apply(node("1", &json!({})));
    known.plugins.apply(plugin("1", None));
    let mut waiting = claim("", "c", "data-5");
    waiting.spec.node_name = Some("node-7".into());
    let why = Verdict::Wait(Waiting::NodeNotUsable { node: "node-7".into(), why: "ill".into() });
    let uid = ClaimUid::of(&waiting.metadata);
    known.room.wait(&key_of("", "data-5"), &[ClaimSeen::of(&waiting)], &[(uid, why)]);
    known.unsettled.mark(&key_of("", "data-6"), Some("driver"));
    connect(&known);
    Large(known)
}

/// The Node on which `instance-17` is, with these fields too.
fn node(version: &str, with: &serde_json::Value) -> LeanNode {
    let mut node: LeanNode = serde_json::from_value(json!({"metadata": {}})).unwrap();
    if let Some(taint) = with.get("taint") {
        node = serde_json::from_value(json!({"metadata": {}, "spec": {"taints": [taint]}})).unwrap();
    }
    let text = |field: &str| with.get(field).and_then(|v| v.as_str()).map(str::to_owned);
    node.metadata.name = Some("node-17".into());
    node.metadata.uid = text("uid").or(Some("node-17".into()));
    node.metadata.resource_version = Some(version.into());
    node.metadata.labels = text("role").map(|role| [("role".to_owned(), role)].into());
    node
}

fn plugin(version: &str, controller_nodes: Option<ControllerNodes>) -> Plugin {
    let mut plugin = Plugin::new("driver", PluginSpec { controller_nodes, ..PluginSpec::default() });
    plugin.metadata.uid = Some("driver".into());
    plugin.metadata.resource_version = Some(version.into());
    plugin
}

impl Large {
    /// The Volumes that are looked at when these instances become what `edit` makes of them.
    async fn woken(
        &self,
        places: std::ops::Range<usize>,
        edit: impl Fn(&mut PluginInstanceStatus),
    ) -> Vec<String> {
        for place in places {
            let mut after = instance(place);
            after.metadata.resource_version = Some("2".into());
            edit(after.status.as_mut().unwrap());
            self.0.instances.apply(after);
        }
        self.looked_at().await
    }

    async fn looked_at(&self) -> Vec<String> {
        let mut woken = Vec::new();
        while self.0.queue.len() > 0 {
            let key = self.0.queue.next().await;
            if let Key::Volume(volume) = &key {
                woken.push(volume.name.clone());
            }
            self.0.queue.finish(key, Next::Done);
        }
        woken.sort();
        woken
    }
}

/// The agents write versions, words and who they are anew in every rollout.
#[tokio::test]
async fn a_change_of_all_instances_that_decides_nothing_wakes_no_volume() {
    let large = large();
    let woken = large.woken(0..NODES, |status| {
        status.version = "2".into();
        status.writer_uid = "another Pod".into();
        status.last_error = Some("it was starting".into());
        status.capacities.insert("csisc-1".into(), Capacity::default());
    });
    assert_eq!(woken.await.len(), 0);
}

#[tokio::test]
async fn an_instance_wakes_the_volumes_on_its_node_and_those_that_wait() {
    let ill = |status: &mut PluginInstanceStatus| status.healthy = false;
    assert_eq!(large().woken(700..701, ill).await, ["data-6", "data-700"]);
    assert_eq!(
        large().woken(17..18, |status| status.node_id = "x".into()).await,
        ["data-17", "data-5", "data-6"]
    );
    // Node 7 has an instance that makes the calls of each tenth Volume.
    let of_controller = large().woken(7..8, ill).await;
    assert_eq!(of_controller.len(), VOLUMES / CONTROLLERS + 2);
    assert!(
        ["data-5", "data-6", "data-7", "data-2997"]
            .iter()
            .all(|name| of_controller.contains(&(*name).into()))
    );
}

/// With every instance ill and well again, each Volume is looked at for its node and its calls, not for each of them.
#[tokio::test]
async fn a_rollout_wakes_each_volume_for_what_concerns_it() {
    let mut looks = 0;
    let large = large();
    for place in 0..NODES {
        looks += large.woken(place..place + 1, |status| status.healthy = false).await.len();
    }
    // Those that wait are woken by each; of the others each once for its calls and once where it is attached.
    let (waiting, calls) = (NODES + 1, VOLUMES);
    assert!(looks <= waiting + calls + NODES, "{looks} looks");
}

/// A driver may know two nodes by one id, and then neither gets claims until the other is off or gone.
#[tokio::test]
async fn a_node_that_is_off_or_gone_wakes_who_waits_for_another() {
    let large = large();
    let off = json!({"taint": {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}});
    let concerned = ["data-17", "data-5", "data-6"];
    large.0.nodes.apply(node("2", &off));
    assert_eq!(large.looked_at().await, concerned);
    large.0.nodes.apply(node("3", &json!({})));
    assert_eq!(large.looked_at().await, concerned);
    large.0.nodes.apply(node("4", &json!({"role": "storage"})));
    assert_eq!(large.looked_at().await.len(), 0, "the Plugin goes by no labels");
    large.0.nodes.remove_confirmed("node-17");
    assert_eq!(large.looked_at().await, concerned);
}

#[tokio::test]
async fn what_a_plugin_selects_by_wakes_all_its_volumes() {
    let large = large();
    large.0.plugins.apply(plugin("2", Some(ControllerNodes::default())));
    let all = |woken: &[String]| (0..VOLUMES).all(|n| woken.contains(&format!("data-{n}")));
    large.0.nodes.apply(node("2", &json!({"role": "storage"})));
    assert!(all(&large.looked_at().await));
    large.0.nodes.apply(node("3", &json!({"role": "storage"})));
    assert_eq!(large.looked_at().await.len(), 0, "nothing is different");
    large.0.nodes.remove_confirmed("node-17");
    assert!(all(&large.looked_at().await), "the labels are gone with it");
    // Its name, its labels: but another machine than the instance was on.
    large.0.nodes.apply(node("4", &json!({"role": "storage", "uid": "another"})));
    assert!(all(&large.looked_at().await));
}

/// An agent may fill its PluginInstances with them, as many as it likes.
#[test]
fn the_leader_keeps_no_annotation_of_an_instance() {
    let mut instance = PluginInstance::new("i", PluginInstanceSpec::default());
    instance.metadata.uid = Some("i".into());
    instance.metadata.resource_version = Some("1".into());
    instance.metadata.annotations = Some([("moor.dev/force-undo".to_owned(), "a".to_owned())].into());
    let cache = instance_cache();
    cache.apply(instance.clone());
    assert_eq!(cache.get("i").unwrap().metadata.annotations, None);
    let of_agent = Cache::new(&["agent"]);
    of_agent.apply(instance.clone());
    assert_eq!(of_agent.get("i").unwrap().metadata.annotations, instance.metadata.annotations);
}
