//! PersistentVolumes of one volumeHandle that have the driver given different things.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::objects::PodVolume;
use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig};

/// A source whose share the driver would mount.
fn source(handle: &str, share: &str) -> Value {
    json!({"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": {"server": "s", "share": share}})
}

impl Rig {
    /// Makes a PersistentVolume of storage that is there, a claim that is bound to it, and a Pod that uses that.
    async fn make_pod_with_share(&self, name: &str, handle: &str, share: &str) -> PodVolume {
        self.cluster.bind(name, name, &source(handle, share)).await;
        self.make_pod_of(name, "node-1", name, handle.to_owned()).await
    }

    /// What the driver is given of the volume for a claim that is granted.
    fn context_of(&self, claim: &str) -> BTreeMap<String, String> {
        let assigned = self.kept_claim(claim).unwrap().spec.assignment.clone().unwrap();
        self.cluster.attachment(&assigned.attachment).unwrap().spec.fixed.volume_context.clone()
    }

    /// Asks for a Pod's volume, and again when that is refused, as kubelet does. Returns the claim that is granted.
    async fn ask_until_granted(&self, pod: &PodVolume) -> String {
        let (claim, attempts) = (tokio::sync::Mutex::new(None), std::sync::atomic::AtomicU32::new(1));
        self.until(&format!("Pod {} has its volume", pod.pod), || async {
            let mut claim = claim.lock().await;
            if claim.is_none() {
                let end = format!("{:016x}", attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                *claim = Some(self.ask_as(pod, &end, |_| {}).await.unwrap());
            }
            let name = claim.clone()?;
            let found = self.kept_claim(&name)?;
            if found.spec.assignment.is_some() {
                return Some(name);
            }
            let said = found.status.iter().flat_map(|status| &status.conditions);
            if said.into_iter().any(|condition| condition.reason == "PodNotEntitled") {
                *claim = None;
            }
            None
        })
        .await
    }

    async fn end_kept_claim(&self, claim: &str) {
        self.kept_claims().delete(claim, &DeleteParams::default()).await.unwrap();
        self.until_kept_claim_gone(claim).await;
    }
}

/// The second Pod would write into the first one's share, and nobody would know.
pub(super) async fn what_another_persistent_volume_describes_is_not_mounted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let handle = rig.fake.backend().add("nfs");
    let first = rig.make_pod_with_share("first", &handle, "red-share").await;
    let second = rig.make_pod_with_share("second", &handle, "blue-share").await;
    let holds = rig.ask(&first, |_| {}).await;
    rig.until_granted(&holds).await;
    let before = rig.kept(&handle).unwrap();
    let refused = rig.ask(&second, |_| {}).await;
    let said = rig.until_kept_claim_says(&refused, "PodNotEntitled").await;
    let volume = before.metadata.name.clone().unwrap();
    for words in ["PersistentVolume second", volume.as_str(), "differ in: share", "a volumeHandle of its own"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("-share") && !said.contains("server"), "values may be secret: {said}");
    assert_eq!(rig.kept(&handle).unwrap().metadata.uid, before.metadata.uid, "the first one keeps it");
    assert_eq!(rig.context_of(&holds)["share"], "red-share");

    // Nobody uses it any more, and who asks next has it as its PersistentVolume says.
    rig.end_kept_claim(&holds).await;
    let next = rig.ask_until_granted(&second).await;
    assert_eq!(rig.context_of(&next)["share"], "blue-share");
    assert_ne!(rig.kept(&handle).unwrap().metadata.uid, before.metadata.uid);
    assert!(rig.has_storage("nfs") && rig.count("nfs", Rpc::DeleteVolume) == 0);
    let again = rig.ask_as(&first, "fedcba9876543210", |_| {}).await.unwrap();
    rig.until_kept_claim_says(&again, "PodNotEntitled").await;
}

/// Both ask before there is a Volume. What was found for the one before the other had it made grants nothing.
pub(super) async fn of_two_who_ask_at_once_one_is_refused(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let handle = rig.fake.backend().add("nfs");
    let mut claims = Vec::new();
    for (name, share) in [("first", "red-share"), ("second", "blue-share")] {
        let pod = rig.make_pod_with_share(name, &handle, share).await;
        claims.push((pod, share));
    }
    let (first, second) = tokio::join!(rig.ask(&claims[0].0, |_| {}), rig.ask(&claims[1].0, |_| {}));
    let names = [first, second];
    rig.until("one has it and the other one is refused", || async {
        let is_refused = |claim: &String| {
            let status = rig.kept_claim(claim)?.status.clone()?;
            Some(status.conditions.iter().any(|c| c.reason == "PodNotEntitled"))
        };
        let refused = names.iter().filter(|claim| is_refused(claim) == Some(true)).count();
        let has =
            |claim: &&String| rig.kept_claim(claim).is_some_and(|found| found.spec.assignment.is_some());
        (refused == 1 && names.iter().filter(has).count() == 1).then_some(())
    })
    .await;
    for (name, (_, share)) in names.iter().zip(&claims) {
        let granted = rig.kept_claim(name).is_some_and(|found| found.spec.assignment.is_some());
        assert!(!granted || rig.context_of(name)["share"] == *share, "{name} has the other one's");
    }
}

/// Its user deletes Pod, claim and PersistentVolume and writes them anew, faster than the volume is detached.
pub(super) async fn a_persistent_volume_that_is_written_anew_counts(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let handle = rig.fake.backend().add("nfs");
    let wrong = rig.make_pod_with_share("wrong", &handle, "red-share").await;
    let claim = rig.ask(&wrong, |_| {}).await;
    rig.until_granted(&claim).await;
    rig.until_called("nfs", Rpc::ControllerPublishVolume).await;
    rig.fake.hold("nfs", Rpc::ControllerUnpublishVolume);
    rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    rig.until_called("nfs", Rpc::ControllerUnpublishVolume).await;
    rig.remove_pod("wrong").await;
    let all: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    all.patch("wrong", &PatchParams::default(), &free).await.unwrap();
    all.delete("wrong", &DeleteParams::default()).await.unwrap();
    let right = rig.make_pod_with_share("right", &handle, "blue-share").await;
    let early = rig.ask(&right, |_| {}).await;
    rig.until_kept_claim_says(&early, "PodNotEntitled").await;
    rig.fake.let_go("nfs", Rpc::ControllerUnpublishVolume);
    rig.until_kept_claim_gone(&claim).await;
    // kubelet asks again.
    let next = rig.ask_until_granted(&right).await;
    assert_eq!(rig.context_of(&next)["share"], "blue-share");
    assert!(rig.has_storage("nfs") && rig.count("nfs", Rpc::DeleteVolume) == 0);
}

/// Its Volume would have the name that the next Plugin with the driver needs.
pub(super) async fn what_a_plugin_that_goes_has_is_not_taken_up(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let handle = rig.fake.backend().add("nfs");
    let pod = rig.make_pod_with_share("late", &handle, "share").await;
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["test/held"]}}));
    rig.plugin_api().patch(DRIVER, &PatchParams::default(), &hold).await.unwrap();
    rig.plugin_api().delete(DRIVER, &DeleteParams::default()).await.unwrap();
    let refused = rig.ask(&pod, |_| {}).await;
    let said = rig.until_kept_claim_says(&refused, "PodNotEntitled").await;
    assert!(said.contains("PersistentVolume late") && said.contains("is being deleted"), "{said}");
    assert!(rig.kept(&handle).is_none());
    rig.delete_plugin().await;
    rig.make_plugin().await;
    let granted = rig.ask_until_granted(&pod).await;
    assert_eq!(rig.context_of(&granted)["share"], "share");
}
