//! What whoever has an agent's token may ask for, and does not get.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::objects::{PodVolume, kept_volume};
use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, NAMESPACE, Options, Rig, SPACE};

/// A Volume that holds what somebody else's Pod uses is there, and none of these opens it.
pub(super) async fn a_claim_that_lies_about_a_pod_is_never_granted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let precious = rig.make_pod_volume("precious", "node-2").await;
    let own = rig.make_pod_volume("own", "node-1").await;

    // The Pod is on another node than the claim.
    refused(&rig, &precious, "is not on node node-1", |spec| spec["nodeName"] = "node-1".into()).await;
    // A Pod of the node, and a volume that it does not use.
    refused(&rig, &own, "does not use PersistentVolumeClaim default/precious", |spec| {
        spec["volumeName"] = kept_volume(&precious.handle).into();
        spec["pod"]["persistentVolume"] = "precious".into();
    })
    .await;
    // The Pod's own PersistentVolume, for another one's Volume.
    refused(&rig, &own, "stands for another volume", |spec| {
        spec["volumeName"] = kept_volume(&precious.handle).into();
    })
    .await;
    // The other one's PersistentVolume, for the Pod's own Volume.
    refused(&rig, &own, "does not use PersistentVolumeClaim default/precious", |spec| {
        spec["pod"]["persistentVolume"] = "precious".into();
    })
    .await;
    // A PersistentVolume that is bound to nothing, or not there.
    let csi = json!({"driver": DRIVER, "volumeHandle": precious.handle});
    rig.cluster.make_persistent_volume("loose", &csi, &Value::Null).await;
    for name in ["loose", "none"] {
        refused(&rig, &own, "not there or not bound", |spec| {
            spec["volumeName"] = kept_volume(&precious.handle).into();
            spec["pod"]["persistentVolume"] = name.into();
        })
        .await;
    }
    // One that says that it is bound to the Pod's PersistentVolumeClaim, which is bound to another.
    let to = json!({"namespace": SPACE, "name": "own", "uid": "any"});
    rig.cluster.make_persistent_volume("claims-it", &csi, &to).await;
    refused(&rig, &own, "which is not the one that PersistentVolume claims-it is bound to", |spec| {
        spec["volumeName"] = kept_volume(&precious.handle).into();
        spec["pod"]["persistentVolume"] = "claims-it".into();
    })
    .await;
    // One that is bound in another namespace to a PersistentVolumeClaim of that name.
    let to = json!({"namespace": "kube-system", "name": "own", "uid": "any"});
    rig.cluster.make_persistent_volume("elsewhere", &csi, &to).await;
    refused(&rig, &own, "does not use PersistentVolumeClaim kube-system/own", |spec| {
        spec["volumeName"] = kept_volume(&precious.handle).into();
        spec["pod"]["persistentVolume"] = "elsewhere".into();
    })
    .await;
    // A mode in which other nodes could have it too.
    let claim = rig.ask(&own, |spec| spec["accessMode"] = "MultiNodeMultiWriter".into()).await;
    let said = rig.until_kept_claim_says(&claim, "UseNotListed").await;
    assert!(said.contains("MultiNodeMultiWriter"), "{said}");
    rig.kept_claims().delete(&claim, &kube::api::DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
    // A PersistentVolume of a driver that no Plugin serves.
    rig.cluster
        .bind("foreign", "foreign", &json!({"driver": "other.example.com", "volumeHandle": precious.handle}))
        .await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "foreign"}}]);
    let foreign = made(&rig, &own, "foreign", &volumes).await;
    refused(&rig, &foreign, "not of a driver that a Plugin serves to Pods (other.example.com)", |_| {}).await;
    // A Pod with an ephemeral volume whose claim would have the name of a PersistentVolumeClaim that is not its.
    rig.cluster.bind("thief-data", "thief-data", &csi).await;
    let template =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    let volumes = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}]);
    let thief = made(&rig, &own, "thief", &volumes).await;
    refused(&rig, &thief, "does not own PersistentVolumeClaim default/thief-data", |spec| {
        spec["volumeName"] = kept_volume(&precious.handle).into();
        spec["pod"]["persistentVolume"] = "thief-data".into();
    })
    .await;

    // Nobody waits for these: a Pod that was, one that has ended, and one that never was.
    for change in
        [(|spec: &mut Value| spec["pod"]["uid"] = "before".into()) as fn(&mut Value), |spec: &mut Value| {
            spec["pod"]["name"] = "none".into();
        }]
    {
        let claim = rig.ask(&own, change).await;
        rig.until_kept_claim_gone(&claim).await;
    }
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    rig.pod_api().patch_status("own", &PatchParams::default(), &ended).await.unwrap();
    let claim = rig.ask(&own, |_| {}).await;
    rig.until_kept_claim_gone(&claim).await;

    assert!(cluster.attachments.state().is_empty(), "something was attached");
    let granted = |e: &crate::rig::Entry| {
        e.write().is_some_and(|w| w.kind == "volumeclaims" && w.body.pointer("/spec/assignment").is_some())
    };
    assert!(rig.journal.since(0, granted).is_empty());
    // Other names than that of the Pod's own claim, of which there would be any number.
    for name in ["0123456789abcdef0", "0123456789abcde", "0123456789abcdez", "x.0123456789abcdef"] {
        let refused = rig.ask_as(&precious, name, |_| {}).await.unwrap_err().to_string();
        assert!(refused.contains("under the name pod-<UID of the Pod>"), "{name}: {refused}");
    }
    // Its own Pod gets it all the same.
    let claim = rig.ask(&precious, |_| {}).await;
    rig.until_granted(&claim).await;
}

async fn made(rig: &Rig, like: &PodVolume, name: &str, volumes: &Value) -> PodVolume {
    let pod = rig.cluster.make_pod(name, &like.node, volumes).await;
    PodVolume {
        pod: name.to_owned(),
        pod_uid: pod.metadata.uid.unwrap(),
        node: like.node.clone(),
        volume: name.to_owned(),
        handle: like.handle.clone(),
    }
}

/// Asks for a Pod's volume with a lie, and waits until that is refused in these words.
async fn refused(rig: &Rig, pod: &PodVolume, words: &str, lie: impl FnOnce(&mut Value)) {
    let claim = rig.ask(pod, lie).await;
    let said = rig.until_kept_claim_says(&claim, "PodNotEntitled").await;
    assert!(said.contains(words) && said.contains(&format!("Pod {SPACE}/{}", pod.pod)), "{words}: {said}");
    let now = rig.kept_claims().get(&claim).await.unwrap();
    assert!(now.spec.assignment.is_none() && now.metadata.namespace.as_deref() == Some(NAMESPACE));
    rig.kept_claims().delete(&claim, &kube::api::DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
}
