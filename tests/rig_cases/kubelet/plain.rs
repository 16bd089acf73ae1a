//! A Pod comes and goes, and nothing goes wrong.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use moor::csi::Rpc;
use tonic::Code;

use super::NODE;
use super::ends::said;
use crate::rig::fake::DRIVER;
use crate::rig::{Can, Cluster, Entry, Kubelet, Options, Rig, is_final};

pub(super) async fn a_pod_gets_its_volume_and_leaves_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let target = kubelet.mount("pod-a", "data").await;
    fs::write(target.join("word"), "kept").unwrap();
    let content = rig.fake.backend().content("data");
    assert_eq!(fs::read_to_string(content.join("word")).unwrap(), "kept");
    let claims = rig.pod_claims().await;
    let [claim] = claims.as_slice() else { panic!("{claims:?}") };
    let status = claim.status.as_ref().unwrap();
    assert_eq!(status.target_path.as_deref(), target.to_str());

    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    let calls = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
    let made = rig.journal.trace_of("data");
    let made: Vec<_> = made.into_iter().filter(|call| call.starts_with("Node")).collect();
    assert_eq!(made, calls);
    rig.remove_for_pods("data").await;
}

pub(super) async fn two_pods_on_one_node_share_what_is_staged(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let first = kubelet.mount("pod-a", "data").await;
    let second = kubelet.mount("pod-b", "data").await;
    fs::write(first.join("word"), "of both").unwrap();
    assert_eq!(fs::read_to_string(second.join("word")).unwrap(), "of both");

    kubelet.unmount("pod-a", "data").await;
    assert_eq!(fs::read_to_string(second.join("word")).unwrap(), "of both");
    kubelet.unmount("pod-b", "data").await;
    kubelet.give_up("data").await;
    let counts = [Rpc::NodeStageVolume, Rpc::NodePublishVolume].map(|rpc| rig.count("data", rpc));
    assert_eq!(counts, [1, 2]);
    rig.remove_for_pods("data").await;
}

/// What an agent does for a Pod: reports about drivers, its Lease and Events have a time of their own.
pub(super) fn is_work(entry: &Entry) -> bool {
    let apart = ["leases", "plugininstances", "events"];
    entry.actor == NODE && entry.write().is_none_or(|write| !apart.contains(&write.kind.as_str()))
}

pub(super) async fn a_kubelet_that_starts_anew_costs_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    for agent_too in [false, true] {
        if agent_too {
            rig.restart_and_wait(NODE).await;
        }
        let since = rig.journal.now();
        kubelet.register(true, "").await;
        kubelet.mount("pod-a", "data").await;
        let made = rig.journal.since(since, is_work);
        assert!(made.is_empty(), "with the agent {agent_too}: {made:?}");
    }
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
}

/// Which link it is: the number of its inode may be given again.
pub(super) fn identity(kubelet: &Kubelet) -> Option<(u64, i64, i64)> {
    let found = fs::symlink_metadata(kubelet.link()?).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Another file is another registration, with two writes of the CSINode, and Pods that wait meanwhile.
pub(super) async fn the_link_outlives_the_agent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let before = identity(&kubelet);
    assert!(before.is_some());
    rig.restart_and_wait(NODE).await;
    rig.make_volume_for_pods("data").await;
    // Answered by the new process.
    kubelet.mount("pod-a", "data").await;
    assert_eq!(identity(&kubelet), before);
    rig.stop(NODE).await;
    assert_eq!(identity(&kubelet), before);
    rig.run(NODE);
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    assert_eq!(identity(&kubelet), before);
    let status = rig.kubelet_status(NODE).unwrap();
    assert!(status.registered && status.message.is_none(), "{status:?}");
    rig.remove_for_pods("data").await;

    rig.patch_plugin(serde_json::json!({"kubernetes": {"enabled": false}})).await;
    rig.poll("the link is gone", || async { kubelet.link().is_none() }).await;
}

/// kubelet writes it into the CSINode object, whose entries cannot be changed.
pub(super) async fn kubelet_is_asked_anew_when_the_driver_says_something_else_of_the_node(
    cluster: Arc<Cluster>,
) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let before = identity(&kubelet);
    rig.fake.backend().node_ids.insert(NODE.to_owned(), "another-id".to_owned());
    // The process of the driver starts anew.
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    let is_new = || async { identity(&kubelet).is_some_and(|now| Some(now) != before) };
    rig.poll("the link is made anew", is_new).await;
    let (_, said) = kubelet.register(true, "").await;
    assert_eq!(said.node_id, "another-id");
}

/// Of two processes that answer with the driver's name. The one at the usual path is better placed, and has another id.
pub(super) async fn kubelet_is_told_of_the_process_that_the_plugin_names(cluster: Arc<Cluster>) {
    const NAMED: &str = "named";
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    assert_eq!(kubelet.register(true, "").await.1.node_id, NODE);
    rig.fake.serve(NAMED, &rig.plugin_dir(NODE).join(NAMED), false);
    rig.patch_plugin(serde_json::json!({"socketPath": format!("{NAMED}/{DRIVER}/csi.sock")})).await;
    let is_named = || async { kubelet.register(true, "").await.1.node_id == NAMED };
    rig.poll("kubelet is told of the named process", is_named).await;
    rig.patch_plugin(serde_json::json!({"socketPath": format!("{DRIVER}/csi.sock")})).await;
    let is_usual = || async { kubelet.register(true, "").await.1.node_id == NODE };
    rig.poll("kubelet is told of the one at the usual path", is_usual).await;
}

pub(super) async fn a_refused_registration_is_told(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let before = identity(&kubelet);
    let why = "Another driver with the same name is already registered with a higher supported version";
    kubelet.register(false, why).await;
    let told = || rig.kubelet_status(NODE).filter(|status| !status.registered)?.message;
    let told = cluster.until("the refusal is told", told, || format!("{:?}", rig.kubelet_status(NODE))).await;
    assert_eq!(told, why);
    rig.poll("the Plugin says so", || async { said(&cluster).await.0 == "KubeletNameTaken" }).await;
    let (_, words) = said(&cluster).await;
    for part in [NODE, why, "node-driver-registrar", "spec.kubernetes.driverName"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let is_counted = |so_many| rig.gauge("moor_plugins_kept_from_pods", so_many);
    rig.poll("it is counted", || is_counted(1)).await;
    // kubelet looks again by itself only at what is new in its folder.
    let is_new = || async { identity(&kubelet).is_some_and(|now| Some(now) != before) };
    rig.poll("the link is made anew", is_new).await;
    let still = rig.kubelet_status(NODE).and_then(|status| status.message);
    assert_eq!(still.as_deref(), Some(why), "it says so until kubelet says otherwise");
    kubelet.register(true, "").await;
    let taken = || rig.kubelet_status(NODE).filter(|status| status.registered);
    let status = cluster.until("it is registered", taken, String::new).await;
    assert_eq!((status.driver_name.as_str(), status.message), (DRIVER, None));
    rig.poll("Pods are served", || async { said(&cluster).await.0 == "Served" }).await;
    rig.poll("it is counted no more", || is_counted(0)).await;
}

/// After a boot the driver may begin after kubelet has asked, and kubelet asks once.
pub(super) async fn a_driver_that_begins_late_is_registered(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let (before, (_, said)) = (identity(&kubelet), kubelet.register(true, "").await);
    rig.kill(NODE);
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.run(NODE);
    let (_, again) = kubelet.register(true, "").await;
    assert_eq!(again, said);
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    rig.until_served(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    assert_eq!(identity(&kubelet), before, "nothing has changed, so nothing is registered anew");
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
}

pub(super) async fn wrong_requests_make_no_claim(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let right = kubelet.publication("pod-a", "data");
    let at = |target: &str| {
        let mut request = right.clone();
        target.clone_into(&mut request.target_path);
        request
    };
    let below = rig.kubelet_dir(NODE);
    let below = below.to_str().unwrap();
    let mut wrong = vec![
        ("target_path", at("")),
        ("target_path", at("/etc")),
        ("target_path", at(&format!("{below}/pods/pod-a/volumes/kubernetes.io~empty-dir/pv/mount"))),
        ("target_path", at(&format!("{below}/pods/../pods/pod-a/volumes/kubernetes.io~csi/pv/mount"))),
        ("Pod pod-b", at(&format!("{below}/pods/pod-b/volumes/kubernetes.io~csi/pv-data/mount"))),
    ];
    for (word, field) in [("volume_id", 0), ("volume_capability", 1), ("access mode", 2)] {
        let mut request = right.clone();
        match field {
            0 => request.volume_id.clear(),
            1 => request.volume_capability = None,
            _ => request.volume_capability.as_mut().unwrap().access_mode = None,
        }
        wrong.push((word, request));
    }
    for (word, request) in wrong {
        let status = kubelet.send(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{word}: {status}");
        assert!(status.message().contains(word) && is_final(status.code()), "{word}: {status}");
    }
    let mut unnamed = right.clone();
    unnamed.volume_context.clear();
    let status = kubelet.send(unnamed).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("podInfoOnMount"), "{status}");
    assert!(rig.pod_claims().await.is_empty());
    let posts = rig.journal.since(0, |entry| entry.actor == NODE && entry.label() == "POST volumeclaims");
    assert!(posts.is_empty(), "{posts:?}");
    rig.remove_for_pods("data").await;
}

/// The driver does not say it, so the kernel does.
pub(super) async fn how_full_a_volume_is(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let target = kubelet.mount("pod-a", "data").await;
    let usage = kubelet.stats("data", &target).await.unwrap().usage;
    assert!(usage.len() == 2 && usage.iter().all(|one| one.total > 0), "{usage:?}");
    for (key, path) in [("data", rig.kubelet_dir(NODE).join("pods")), ("other", target.clone())] {
        let status = kubelet.stats(key, &path).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    kubelet.unmount("pod-a", "data").await;
    let status = kubelet.stats("data", &target).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
}

/// kubelet asks for each Pod apart, and for all at once.
pub(super) async fn a_driver_is_asked_how_full_a_volume_is_once_at_a_time(cluster: Arc<Cluster>) {
    let options = Options { can: vec![Can::GetVolumeStats], ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let a = kubelet.mount("pod-a", "data").await;
    let b = kubelet.mount("pod-b", "data").await;
    let rpc = Rpc::NodeGetVolumeStats;
    rig.fake.hold("data", rpc);
    let first = tokio::spawn({
        let (kubelet, a) = (kubelet.clone(), a.clone());
        async move { kubelet.stats("data", &a).await }
    });
    rig.poll("it is asked", || async { rig.count("data", rpc) == 1 }).await;
    // Its answer comes 5 s before this.
    let hasty = kubelet.within(Duration::from_secs(6));
    let status = hasty.stats("data", &b).await.unwrap_err();
    assert!(!is_final(status.code()), "{status}");
    assert_eq!(rig.count("data", rpc), 1);
    let leaving = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.unmount("pod-b", "data").await }
    });
    rig.fake.let_go("data", rpc);
    assert_eq!(first.await.unwrap().unwrap().usage[0].used, 3);
    leaving.await.unwrap();
    assert_eq!(kubelet.stats("data", &a).await.unwrap().usage[0].used, 3);
    assert_eq!(kubelet.stats("data", &b).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(rig.count("data", rpc), 2);
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
    rig.fake.assert_obeyed();
}
