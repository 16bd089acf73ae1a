//! etcd is set back to a backup while volumes are in use (trap B2, N15).
//!
//! What follows the objects of an API server does not survive that: a case that is not the last has a server of its own.

mod pods;
mod unlisted;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cases;
use crate::rig::{
    CONTROLLER, Case, Cluster, NAMESPACE, Options, PATIENCE, Rig, SPACE, condition, volume, volume_claim,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use moor::api::instance::{ForgottenMount, UNDO_FORGOTTEN};
use moor::api::names::agent_lease_name;
use moor::api::{ClaimState, PluginInstance};
use moor::csi::Rpc;
use moor::heartbeat::Restored;
use serde_json::json;

/// Asks until the answer is there. The API server is asked each time: the caches of the rig are of the old history.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < end, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn instance(rig: &Rig, node: &str) -> Option<PluginInstance> {
    let all: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    let all = all.list(&ListParams::default()).await.ok()?;
    all.into_iter().find(|i| i.spec.node_name == node)
}

/// What a node reports, by volume.
async fn forgotten(rig: &Rig, node: &str) -> Vec<ForgottenMount> {
    let mut all = instance(rig, node).await.and_then(|i| i.status).unwrap_or_default().forgotten;
    all.sort_by(|a, b| a.volume_handle.cmp(&b.volume_handle));
    all
}

async fn until_forgotten(rig: &Rig, node: &str, volumes: &[&str]) -> Vec<ForgottenMount> {
    until(&format!("{node} reports {volumes:?}"), || async {
        let all = forgotten(rig, node).await;
        let said: Vec<_> = all.iter().map(|m| m.volume_handle.as_str()).collect();
        (said == volumes).then_some(all)
    })
    .await
}

async fn state_of(rig: &Rig, claim: &str) -> Option<(ClaimState, String, String)> {
    let status = rig.claim_api().get(claim).await.ok()?.status?;
    let ready = condition(&status.conditions)?;
    Some((status.state, ready.reason.to_string(), ready.message.clone()))
}

async fn make_volumes(rig: &Rig, names: &[&str]) {
    for name in names {
        rig.make_volume(&volume(name)).await;
        rig.until_volume_ready(name).await;
    }
}

/// Makes a claim and writes into its volume.
async fn use_volume(rig: &Rig, claim: &str, volume: &str, node: &str) -> String {
    rig.make_claim(&volume_claim(claim, volume, node)).await;
    let path = rig.until_ready(claim).await;
    fs::write(format!("{path}/data"), claim).unwrap();
    path
}

async fn until_ended(rig: &Rig, actor: &str) {
    until(&format!("{actor} ends"), || async { rig.has_ended(actor).then_some(()) }).await;
}

/// As kubelet does with a container that has ended. Waits until it has.
async fn run_again(rig: &Rig, actor: &str) {
    until_ended(rig, actor).await;
    rig.restart(actor);
}

/// Writes until etcd is further than it was: from then on no revision tells that it was set back.
async fn pass_the_old_revision(rig: &Rig, old: u64) {
    let maps: Api<ConfigMap> = Api::namespaced(rig.cluster.admin.clone(), SPACE);
    let revision = |map: &ConfigMap| map.metadata.resource_version.as_ref().unwrap().parse::<u64>().unwrap();
    for number in 0.. {
        let fields = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}, "data": {"number": number.to_string()}});
        let how = PatchParams::apply("rig").force();
        if revision(&maps.patch("counter", &how, &Patch::Apply(fields)).await.unwrap()) > old {
            return;
        }
    }
}

/// Waits until these agents have renewed their Leases since this moment, which is after the backup, and kept the version on
/// disk: the only thing by which they can tell that etcd was restored when it is further than it was, as on a busy machine
/// it may be before they have connected to it again.
async fn until_renewed(rig: &Rig, nodes: &[&str]) {
    let leases: Api<Lease> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    let mut before = Vec::new();
    for node in nodes {
        before.push(leases.get(&agent_lease_name(node)).await.unwrap().metadata.resource_version.unwrap());
    }
    for (node, before) in nodes.iter().zip(before) {
        let before: u64 = before.parse().unwrap();
        until(&format!("{node} has renewed its Lease"), || async {
            let kept = fs::read_to_string(rig.state_dir(node).join("lease")).ok()?;
            kept.trim().parse().is_ok_and(|kept: u64| kept > before).then_some(())
        })
        .await;
    }
}

/// On the same node too: nothing is attached beside the old mount, which could only be detached under it.
async fn ask_beside_the_mount(rig: &Rig, volume: &str, node: &str) {
    rig.make_claim(&volume_claim("again", volume, node)).await;
    until("the same node waits", || async {
        let (state, reason, text) = state_of(rig, "again").await?;
        // Not only for a node that has yet to say what it has.
        let is_told = reason == "Forgotten" && text.contains(UNDO_FORGOTTEN) && text.contains(node);
        (is_told && state == ClaimState::Pending).then_some(())
    })
    .await;
    rig.claim_api().delete("again", &DeleteParams::default()).await.unwrap();
    until("it goes", || async {
        rig.claim_api().get_opt("again").await.is_ok_and(|found| found.is_none()).then_some(())
    })
    .await;
}

async fn nothing_is_unmounted_and_nothing_granted_twice(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true), ("node-2", false), ("node-3", false)];
    let rig = Rig::start(&cluster, Options { nodes, supervised: false, ..Options::default() }).await;
    make_volumes(&rig, &["kept", "shared", "away"]).await;
    let kept = use_volume(&rig, "kept", "kept", "node-2").await;
    // It is in the backup as it is before it is granted.
    rig.make_claim(&volume_claim("early", "late", "node-2")).await;
    // In the backup nobody but the rival asks for this volume, and its node cannot take it yet.
    rig.stop("node-3").await;
    rig.until_counted(&[("node-1", true), ("node-2", false)]).await;
    rig.make_claim(&volume_claim("rival", "shared", "node-3")).await;
    // Its Lease could end while the API server is stopped for the copy, and nobody starts it again.
    rig.stop(CONTROLLER).await;
    cluster.back_up().await;
    rig.run(CONTROLLER);

    rig.make_volume(&volume("late")).await;
    let early = rig.until_ready("early").await;
    fs::write(format!("{early}/data"), "early").unwrap();
    let user = use_volume(&rig, "user", "shared", "node-2").await;
    rig.run("node-3");
    let away = use_volume(&rig, "away", "away", "node-1").await;
    let mounts = [(kept, "kept"), (early, "early"), (user, "user"), (away, "away")];
    let intact = || {
        for (path, content) in &mounts {
            assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), *content);
        }
    };
    until_renewed(&rig, &["node-1", "node-2", "node-3"]).await;
    // One agent lives through it, the other is away, and comes back when etcd is further than it was.
    rig.kill("node-1");
    let (before, old) = (rig.journal.now(), rig.revision().await);
    cluster.restore().await;
    rig.leaves(&["vol-late"], "its Volume was made after the backup to which etcd was set back");
    // Each notices it in its own time. The leader waits for a node no longer than that node's Lease lasts.
    for actor in [CONTROLLER, "node-3", "node-2"] {
        until_ended(&rig, actor).await;
    }
    // The leader is there before the nodes have said what they have mounted: it waits for them.
    rig.restart("node-3");
    rig.restart(CONTROLLER);
    until("the leader waits for node-2", || async {
        state_of(&rig, "rival").await.filter(|(_, reason, _)| reason == "Forgotten")
    })
    .await;
    rig.restart("node-2");
    let mounted = until_forgotten(&rig, "node-2", &["vol-late", "vol-shared"]).await;
    assert!(mounted.iter().all(|m| m.reason == "WentBack" && m.since.is_some()), "{mounted:?}");
    assert_eq!(mounted[1].claims, ["default/user"]);
    pass_the_old_revision(&rig, old + 100).await;
    rig.run("node-1");
    run_again(&rig, "node-1").await;
    until_forgotten(&rig, "node-1", &["vol-away"]).await;
    intact();

    // The volumes are there, and no claim on them: whoever asks waits, and reads why.
    let said = until("the rival waits", || async {
        let (.., text) = state_of(&rig, "rival").await.filter(|(_, reason, _)| reason == "Forgotten")?;
        text.contains(UNDO_FORGOTTEN).then_some(text)
    })
    .await;
    for word in ["node-2", UNDO_FORGOTTEN, &mounted[1].attachment_uid, "reboot"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    ask_beside_the_mount(&rig, "away", "node-1").await;
    let undone = |entry: &crate::rig::Entry| {
        let undo = [
            Rpc::NodeUnpublishVolume,
            Rpc::NodeUnstageVolume,
            Rpc::ControllerUnpublishVolume,
            Rpc::DeleteVolume,
        ];
        entry.call().is_some_and(|call| undo.contains(&call.rpc))
    };
    assert_eq!(rig.journal.since(before, undone).len(), 0, "undone by itself");
    assert_eq!(
        rig.journal.since(before, |e| e.call().is_some_and(|c| c.rpc == Rpc::NodePublishVolume)).len(),
        0
    );
    intact();
    // A restart changes nothing.
    rig.restart_and_wait("node-2").await;
    until_forgotten(&rig, "node-2", &["vol-late", "vol-shared"]).await;

    // The order. Its node lets go; the storage still has it attached, of which only the driver knows.
    let name = instance(&rig, "node-2").await.unwrap().metadata.name.unwrap();
    let order = json!({"metadata": {"annotations": {UNDO_FORGOTTEN: mounted[1].attachment_uid}}});
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    instances.patch(&name, &PatchParams::default(), &Patch::Merge(order)).await.unwrap();
    until_forgotten(&rig, "node-2", &["vol-late"]).await;
    rig.fake.backend().volumes.get_mut("shared").unwrap().attached.remove("node-2");
    until("the rival is Ready", || async {
        state_of(&rig, "rival").await.filter(|(state, ..)| *state == ClaimState::Ready)
    })
    .await;

    // The other way out: a reboot.
    rig.crash_node("node-2");
    rig.boot_node("node-2", false);
    until_forgotten(&rig, "node-2", &[]).await;
    until("what was in the backup is mounted again", || async {
        state_of(&rig, "kept").await.filter(|(state, ..)| *state == ClaimState::Ready)
    })
    .await;
}

async fn says_that_etcd_was_restored(rig: &Rig, node: &str) -> bool {
    let leases: Api<Lease> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    leases.get(&agent_lease_name(node)).await.is_ok_and(|lease| Restored::said_in(&lease).is_some())
}

/// One agent has found it out, and the other, whose volume is in use, is not heard before its Lease has expired.
async fn a_silent_node_is_waited_for_when_etcd_was_restored(shared: Arc<Cluster>) {
    let cluster = Arc::new(shared.start_another().await);
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    make_volumes(&rig, &["kept", "v"]).await;
    use_volume(&rig, "kept", "kept", "node-2").await;
    // In the backup its Lease lasts for a second.
    rig.kill("node-2");
    rig.expire_lease("node-2").await;
    rig.stop(CONTROLLER).await;
    cluster.back_up().await;
    rig.run(CONTROLLER);
    rig.run("node-2");
    let path = use_volume(&rig, "user", "v", "node-2").await;
    until_renewed(&rig, &["node-1"]).await;
    assert!(!says_that_etcd_was_restored(&rig, "node-1").await);
    rig.kill("node-2");
    cluster.restore().await;
    until_ended(&rig, CONTROLLER).await;
    // It says so before there is a leader to hear it.
    run_again(&rig, "node-1").await;
    until("node-1 says it", || async { says_that_etcd_was_restored(&rig, "node-1").await.then_some(()) })
        .await;
    rig.restart(CONTROLLER);

    rig.make_claim(&volume_claim("rival", "v", "node-1")).await;
    until("the leader knows that node-2 is silent", || async {
        let status = rig.claim_api().get("kept").await.ok()?.status?;
        status.conditions.iter().any(|c| c.type_ == "NodeSilent" && c.status == "True").then_some(())
    })
    .await;
    // From here on it looks at the volume once more.
    rig.make_claim(&volume_claim("late", "v", "node-1")).await;
    let (.., said) = until("the rivals are judged", || state_of(&rig, "late")).await;
    // Until it is heard again the rival's own node is waited for first.
    let (state, reason, said_first) = until("the rival waits for node-2, or is granted", || async {
        let is_over =
            |state, text: &str| state != ClaimState::Pending || text.contains("agent of node node-2");
        state_of(&rig, "rival").await.filter(|(state, _, text)| is_over(*state, text))
    })
    .await;
    assert_eq!((state, reason.as_str()), (ClaimState::Pending, "Forgotten"), "{said_first}; {said}");
    for word in ["node-2", "restored", "delete Node node-2", "node.kubernetes.io/out-of-service"] {
        assert!(said_first.contains(word), "{word}: {said_first}");
    }
    assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), "user");

    // The machine is off, says somebody. What the storage still has attached only the driver knows.
    rig.fake.stop("node-2", &rig.plugin_dir("node-2"));
    rig.fake.backend().forget_node("node-2");
    rig.fake.backend().volumes.get_mut("v").unwrap().attached.remove("node-2");
    rig.mark_out_of_service("node-2", true).await;
    until("the rival is Ready", || async {
        state_of(&rig, "rival").await.filter(|(state, ..)| *state == ClaimState::Ready)
    })
    .await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    pods::a_pod_keeps_what_only_its_node_knows_of,
    unlisted::a_node_without_a_plugin_instance_is_waited_for_too,
    a_silent_node_is_waited_for_when_etcd_was_restored,
    nothing_is_unmounted_and_nothing_granted_twice,
];
