//! `kubectl moor doctor` against a real API server, on which agents and controller run as processes: what their Pods would say it
//! has to miss.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::PostParams;

use super::kubectl_moor;
use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig};

async fn an_installation_is_checked(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let admin = cluster.kubeconfig("admin", None).await;
    let said = kubectl_moor(&admin, "doctor").await;
    said.is_refused("faults: 3");
    for line in [
        "ok           Kubernetes            v1.",
        "ok           this machine's clock  ",
        "ok           kinds                 all 7, as this program knows them\n",
        "FAULT        controller            there is no Deployment moor-controller in namespace moor-system\n",
        "FAULT        agents                there is no DaemonSet moor-agent in namespace moor-system\n",
        "FAULT        versions              no Pod of moor is in namespace moor-system\n",
        "             -> install the chart, ",
        "ok           admission policies    all 12 are there and bound\n",
        "not checked  agents' Leases        no agent has a Pod\n",
        // By what the API server itself says of each write.
        "ok           clocks of nodes       all 3 within 5 s, ",
        "ok           mounts                none of 0 claims says MountNotVisible\n",
        // There is no kubelet.
        "warning      drivers               fake.moor.dev: kubelet has not said yet whether it comes to moor on node-1, node-2\n",
        "ok           CSIDrivers            1 served to Pods, each as its Plugin says\n",
        "ok           other installations   none\n",
        "ok           left of nodes         nothing\n",
        "ok           left of Plugins       nothing\n",
        "ok           deletions             none takes longer than 10 minutes\n",
        "ok           your rights           all that kubectl moor can need\n",
        "ok           controller's rights   all ",
        "ok           agents' rights        all ",
    ] {
        assert!(said.out.contains(line), "{line:?} is not in\n{}", said.out);
    }
    drop(rig);
}

async fn missing_rights_are_found(cluster: Arc<Cluster>) {
    let roles = Api::<ClusterRole>::all(cluster.admin.clone());
    let whole = roles.get("moor-agent").await.unwrap();
    let mut less = whole.clone();
    less.rules
        .as_mut()
        .unwrap()
        .retain(|rule| rule.api_groups.as_deref() != Some(&["storage.k8s.io".to_owned()]));
    roles.replace("moor-agent", &PostParams::default(), &less).await.unwrap();
    let admin = cluster.kubeconfig("admin", None).await;
    // The API server heeds it a little later.
    let found = "system:serviceaccount:moor-system:moor-agent may not do 1 of ";
    let mut said = kubectl_moor(&admin, "doctor").await;
    while !said.out.contains(found) {
        said = kubectl_moor(&admin, "doctor").await;
    }
    assert!(said.out.contains(": get csidrivers.storage.k8s.io\n"), "{}", said.out);
    let now = roles.get("moor-agent").await.unwrap();
    let restored = ClusterRole { metadata: now.metadata, ..whole };
    roles.replace("moor-agent", &PostParams::default(), &restored).await.unwrap();
}

/// Who may nothing is not told that anything is well which he could not look at.
async fn what_may_not_be_read_is_not_checked(cluster: Arc<Cluster>) {
    let nobody = cluster.kubeconfig("nobody", Some("nobody")).await;
    let said = kubectl_moor(&nobody, "doctor").await;
    let well: Vec<&str> = said.out.lines().filter(|line| line.starts_with("ok ")).collect();
    assert!(said.is_done, "{}{}", said.out, said.error);
    assert!(
        well.iter().all(|line| line.contains(" Kubernetes ") || line.contains(" this machine's clock "))
            && well.len() == 2,
        "{}",
        said.out
    );
    said.has(&[
        "warning      your rights           you may not: list plugins.moor.dev, ",
        "not checked  controller's rights   create SubjectAccessReview ",
        "not checked  kinds                 list CustomResourceDefinition : forbidden: ",
        "\n2 ok, 1 warnings, 0 faults, ",
    ]);
}

/// The cases of this file.
pub const CASES: &[Case] =
    cases![an_installation_is_checked, missing_rights_are_found, what_may_not_be_read_is_not_checked];
