//! `kubectl moor`, the built binary, against a cluster on which moor runs.

pub mod doctor;
pub mod trace;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use moor::api::SnapshotState;
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::{Case, Cluster, Fault, Options, Rig, SPACE, volume, volume_claim};
use crate::snapshots::objects::snapshot;

/// Somebody who has the role moor-edit in the namespace, and nothing else.
const JANE: &str = "jane";

/// What `kubectl-moor` has said.
pub(crate) struct Said {
    is_done: bool,
    out: String,
    error: String,
}

impl Said {
    /// Asserts that it went well and that the page has these lines, or parts of lines.
    pub(crate) fn has(&self, parts: &[&str]) {
        assert!(self.is_done, "{}{}", self.out, self.error);
        for part in parts {
            assert!(self.out.contains(part), "{part:?} is not in\n{}", self.out);
        }
    }

    /// Asserts that it was refused in these words.
    fn is_refused(&self, words: &str) {
        assert!(!self.is_done && self.error.contains(words), "{}{}", self.out, self.error);
    }
}

/// Runs the binary in the namespace of the test's objects.
pub(crate) async fn kubectl_moor(kubeconfig: &Path, line: &str) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-moor"));
    command.args(line.split(' ')).arg("--kubeconfig").arg(kubeconfig);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, error] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
    let code = done.status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {out}{error}");
    let said = Said { is_done: code == Some(0), out, error };
    // With it docs/kubectl.md gets its pages.
    if std::env::var_os("MOOR_SHOW_PAGES").is_some() {
        crate::rig::say(&format!("$ kubectl moor {line}\n{}{}", said.out, said.error));
    }
    said
}

/// On the first node a claim has a volume, and this process a file of it open. On the second another claim waits for it, and
/// one waits for its driver.
async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, File) {
    let rig = Rig::start(cluster, Options { snapshots: true, ..Options::default() }).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("db", "data", "node-1")).await;
    let file = Path::new(&rig.until_ready("db").await).join("word");
    fs::write(&file, "kept").unwrap();
    rig.make_claim(&volume_claim("next", "data", "node-2")).await;
    rig.until_says("next", "Held", &["default/db"]).await;
    rig.make_snapshot(&snapshot("before", "data")).await;
    rig.until_snapshot("before", SnapshotState::Ready).await;
    rig.make_volume(&volume("ill")).await;
    rig.fake.fail("ill", Rpc::NodeStageVolume, Fault::CodeBefore(tonic::Code::Unavailable));
    rig.make_claim(&volume_claim("ill", "ill", "node-2")).await;
    rig.until_says("ill", "NodeStageFailed", &["the storage is on strike"]).await;
    (rig, File::open(file).unwrap())
}

async fn end(rig: &Rig) {
    rig.fake.heal("ill", Rpc::NodeStageVolume);
    rig.delete_snapshot("before").await;
    rig.until_snapshot_gone("before").await;
    rig.remove(&["db", "next", "ill"], &["data", "ill"]).await;
}

async fn pages_tell_who_has_what_and_why_others_wait(cluster: Arc<Cluster>) {
    let (rig, open) = start(&cluster).await;
    let admin = cluster.kubeconfig("admin", None).await;
    let ask = |line: &'static str| kubectl_moor(&admin, line);
    ask("status").await.has(&[
        "  fake.moor.dev  fake.moor.dev  yes   1/1          2/2",
        "Volumes       2: 2 Ready\n",
        "Snapshots     1: 1 Ready\n",
        "Claims        3: 1 Pending, 1 Ready, 1 Taken\n",
        "VolumeClaim default/next  Held: the volume is held by default/db on node node-1 (Ready)",
        "VolumeClaim default/ill   NodeStageFailed: ",
        "\nNo node is silent\n",
    ]);
    ask("status volume data").await.has(&[
        "Volume default/data\n  Plugin        fake.moor.dev (driver fake.moor.dev), well\n",
        "\nUsed by\n",
        "  default/db  data    node-1  Ready ",
        "\nWaited for by\n",
        "  default/next  data    node-2  Pending ",
        "\nAttachments\n",
        "  default/data  node-1  Attached ",
        "\nSnapshots of it\n",
        "  default/before  Ready ",
    ]);
    ask("status claim next")
        .await
        .has(&["  Waits for     default/db on node node-1 (Ready), which has it for "]);
    ask("status vc db -n default")
        .await
        .has(&["  Node          node-1; its agent was heard ", "  Mounted at    /"]);
    ask("status claim ill -A")
        .await
        .has(&["  Last said     NodeStageVolume: Unavailable: the storage is on strike; attempt "]);
    ask("status plugin fake.moor.dev").await.has(&["  Nodes         2 of 2 well\n", "  node-2  yes "]);
    ask("status node node-2")
        .await
        .has(&["Claims that have a volume there\n", "Claims that wait for one there\n"]);
    ask("status snapshot before")
        .await
        .has(&["  Of            Volume data, Ready\n", "  Handle        snap-before\n"]);
    ask("snapshots").await.has(&["before    data    Ready  ", "  snap-before  "]);
    ask("snapshots -A").await.has(&["default    before    data "]);
    ask("events claim ill").await.has(&[
        "CallFailed",
        "VolumeClaim default/ill",
        "agent node-2",
        "the storage is on strike",
    ]);
    ask("events claim db").await.has(&["There is no Event."]);
    ask("events plugin fake.moor.dev").await.has(&["Healthy", "PluginInstance node-2-"]);
    ask("events -A").await.has(&["VolumeClaim default/ill", "Plugin fake.moor.dev"]);
    ask("status claim none").await.is_refused("there is no VolumeClaim none in namespace default");
    ask("status node none").await.is_refused("no agent on a node none");
    ask("status --context none").await.is_refused("the kubeconfig cannot be used");
    // Nothing is unmounted while somebody has a file of it open.
    drop(open);
    end(&rig).await;
}

/// What has no namespace is not theirs to see, and the page says so.
async fn who_may_see_a_namespace_only_gets_its_pages(cluster: Arc<Cluster>) {
    let (rig, open) = start(&cluster).await;
    let jane = cluster.kubeconfig(JANE, Some(JANE)).await;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.admin.clone(), SPACE);
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "jane" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "moor-edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": JANE }],
    }))
    .unwrap();
    let nobody = kubectl_moor(&jane, "status claim next").await;
    nobody.is_refused("ask for the role moor-view");
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    // The API server heeds it a little later.
    rig.until_so("jane may read", "next", || async {
        kubectl_moor(&jane, "status claim next").await.is_done
    })
    .await;
    kubectl_moor(&jane, "status claim next").await.has(&[
        "  Waits for     default/db on node node-1 (Ready)",
        "\nNot seen\n",
        "attachments: list Attachment : forbidden: ",
        "whether agents are heard: ",
    ]);
    // Nothing that she may not read is said not to be there.
    kubectl_moor(&jane, "status claim db").await.has(&["  Attachment    ", ", which is not seen\n"]);
    kubectl_moor(&jane, "status node node-1 -n default")
        .await
        .has(&["\nIts drivers are not seen\n", " of namespace default that have"]);
    kubectl_moor(&jane, "status node none -n default").await.is_refused("; not seen: ");
    kubectl_moor(&jane, "events claim ill").await.is_refused("(for Events: view)");
    kubectl_moor(&jane, "status").await.is_refused("give a namespace in which you have it with -n");
    kubectl_moor(&jane, "status -n default")
        .await
        .has(&["No Plugin is seen", "Objects of namespace default"]);
    bindings.delete("jane", &DeleteParams::default()).await.unwrap();
    // Nothing is unmounted while somebody has a file of it open.
    drop(open);
    end(&rig).await;
}

async fn force_is_refused_explained_and_given(cluster: Arc<Cluster>) {
    let (rig, _open) = start(&cluster).await;
    let admin = cluster.kubeconfig("admin", None).await;
    let ask = |line: &'static str| kubectl_moor(&admin, line);
    ask("force-detach db").await.is_refused("VolumeClaim default/db is not being deleted");
    ask("force-detach db --yes").await.is_refused("VolumeClaim default/db is not being deleted");
    ask("force-detach none --yes").await.is_refused("there is no VolumeClaim none");
    ask("force-detach db -A").await.is_refused("leave -A out");
    let elsewhere = kubectl_moor(&admin, "status --moor-namespace default").await;
    elsewhere.has(&["none has a Lease in namespace default: is that moor's (--moor-namespace)?"]);
    let is_forced = || async { rig.read_claim("db").await.spec.force_detach };
    assert!(!is_forced().await);
    rig.delete_claim("db").await;
    rig.until_says("db", "NodeUnpublishFailed", &["busy"]).await;
    let uid = rig.read_claim("db").await.uid();
    ask("force-detach db").await.has(&[
        "VolumeClaim default/db, which is being deleted\n",
        "It now says NodeUnpublishFailed: ",
        "is an order to it: it unmounts the volume even while somebody uses it",
        "Nothing was changed. To do it: kubectl moor force-detach db --namespace default --yes\n",
    ]);
    assert!(!is_forced().await);
    assert_eq!(rig.read_claim("db").await.uid(), uid);
    ask("force-detach db --yes")
        .await
        .has(&["spec.forceDetach is set. See what becomes of it: kubectl moor status claim db"]);
    rig.until_claim_gone("db").await;
    rig.until_ready("next").await;
    let forced = || async { kubectl_moor(&admin, "events claim db").await.out.contains("Forced") };
    rig.until_so("the Event Forced is there", "db", forced).await;
    end(&rig).await;
}

/// The cases of this file.
pub const CASES: &[Case] = cases![
    pages_tell_who_has_what_and_why_others_wait,
    who_may_see_a_namespace_only_gets_its_pages,
    force_is_refused_explained_and_given,
];
