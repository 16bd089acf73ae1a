//! Pods of one template, each with the Volume of its ordinal: they name `data[ordinal]`.

use std::fs;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::api::ordinal::POD_INDEX;
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use super::{NODE, OTHER, claims, forged, kubelet, make, naming, start, until_no_claims};
use crate::rig::{Cluster, SPACE, volume_claim};

const TEMPLATE: &str = "data[ordinal]";

pub async fn each_pod_of_a_set_has_the_volume_of_its_ordinal(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let here = kubelet(&rig, NODE, naming(TEMPLATE)).await;
    let there = kubelet(&rig, OTHER, naming(TEMPLATE)).await;
    for key in ["data-0", "data-1"] {
        make(&rig, key).await;
    }
    let content = |key: &str| rig.fake.backend().content(key).join("word");
    for (kubelet, pod, key) in [(&here, "web-0", "data-0"), (&there, "web-1", "data-1")] {
        let target = kubelet.mount(pod, "own").await;
        fs::write(target.join("word"), pod).unwrap();
        assert_eq!(fs::read_to_string(content(key)).unwrap(), pod);
    }

    let status = here.publish("web-2", "own").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let missing = "there is no Volume default/data-2, which the Pod names in \
                   spec.volumes[own].csi.volumeAttributes.volume (data[ordinal] of Pod web-2)";
    assert!(status.message().contains(missing), "{status}");
    make(&rig, "data-2").await;
    here.mount("web-2", "own").await;

    // The set's next Pod of a name finds what that one has written, wherever it comes to.
    here.unmount("web-0", "own").await;
    let pods: Api<Pod> = Api::namespaced(rig.cluster.admin.clone(), SPACE);
    pods.delete("web-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    let target = there.mount("web-0", "own").await;
    assert_eq!(fs::read_to_string(target.join("word")).unwrap(), "web-0");
    for (kubelet, pod) in [(&there, "web-0"), (&there, "web-1"), (&here, "web-2")] {
        kubelet.unmount(pod, "own").await;
    }
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data-0", "data-1", "data-2"]).await;
}

pub async fn a_pod_has_no_volume_of_another_ordinal(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let kubelet = kubelet(&rig, NODE, naming(TEMPLATE)).await;
    for key in ["data-0", "data-1"] {
        make(&rig, key).await;
    }
    for pod in ["lone", "web-01", "web-1-x"] {
        let status = kubelet.publish(pod, "own").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let why = format!(
            "spec.volumes[own].csi.volumeAttributes.volume is {TEMPLATE:?}, and the name of Pod {pod} has no ordinal"
        );
        assert!(status.message().contains(&why), "{status}");
        kubelet.forget(pod);
    }
    assert!(claims(&rig).await.is_empty(), "a claim was made");

    // The claim of a Pod says which one that is. A claim of nobody's Pod has no ordinal.
    let refused = rig
        .claim_api()
        .create(&PostParams::default(), &volume_claim("own", TEMPLATE, NODE))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("must be the name of an object"), "{refused}");

    // Whoever has an agent's token gets no other one by it.
    kubelet.take("web-0", "own").await;
    let uid = kubelet.uid("web-0");
    let name = format!("pod-{uid}-{}", "1".repeat(16));
    let pod = json!({ "namespace": SPACE, "name": "web-0", "uid": uid, "inlineVolume": "own" });
    let rogue = rig.rogue(NODE).await;
    rogue.claims(SPACE).create(&PostParams::default(), &forged(&name, "data-1", &pod)).await.unwrap();
    let said = rig.until_told(&name, "Ready", "False", "PodNotEntitled").await;
    assert!(said.contains("does not name Volume default/data-1"), "{said}");
    rig.delete_claim(&name).await;

    // A label that says another ordinal than the name.
    let pods: Api<Pod> = Api::namespaced(rig.cluster.admin.clone(), SPACE);
    let labelled = |index: &str| Patch::Merge(json!({ "metadata": { "labels": { POD_INDEX: index } } }));
    pods.patch("web-0", &PatchParams::default(), &labelled("1")).await.unwrap();
    let status = kubelet.publish("web-0", "own").await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains(POD_INDEX), "{status}");
    for key in ["data-0", "data-1"] {
        assert_eq!(rig.count(key, Rpc::ControllerPublishVolume), 0, "{key}");
    }
    pods.patch("web-0", &PatchParams::default(), &labelled("0")).await.unwrap();
    kubelet.mount("web-0", "own").await;
    kubelet.unmount("web-0", "own").await;
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data-0", "data-1"]).await;
}
