//! A driver that answers with OK what it has not done: its word is not enough (design R8).

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use kube::ResourceExt as _;
use moor::csi::Rpc;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};

use super::{NODE, UNDO, course};
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

pub async fn published_without_a_mount(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.pretend("v", Rpc::NodePublishVolume);
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    let words = ["nothing is mounted at", "/moor.dev/", "mountPropagation Bidirectional", "next in"];
    let status = rig.until_says("v", "MountNotVisible", &words).await;
    assert_eq!(status.target_path, None);
    until_attempted(&rig, "v", 2).await;
    assert!(!rig.was_written("volumeclaims", "v", "Ready"));

    rig.fake.behave("v", Rpc::NodePublishVolume);
    let target = rig.until_ready("v").await;
    fs::write(Path::new(&target).join("word"), "kept").unwrap();
    rig.delete_claim("v").await;
    rig.until_claim_gone("v").await;
    rig.remove_volume("v").await;
}

/// A driver that makes its own mount read-only, of which nobody else hears: the claim's is read-only all the same, also in
/// other mount namespaces, and the driver finds its own again.
pub async fn read_only_and_writable(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let elsewhere = Elsewhere::of(&rig.kubelet_dir(NODE));
    rig.fake.backend().writable.insert("v".to_owned());
    rig.make_volume(&volume("v")).await;
    let mut claim = volume_claim("v", "v", NODE);
    claim.spec.read_only = true;
    rig.make_claim(&claim).await;
    let target = rig.until_ready("v").await;
    fs::write(Path::new(&target).join("word"), "no").unwrap_err();
    assert_eq!(elsewhere.mounts_at(&target), ["rw", "ro"]);
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), 1);

    // A new process knows of it, and takes it off only while it is not used.
    fs::write(rig.fake.backend().content("v").join("word"), "kept").unwrap();
    let open = File::open(Path::new(&target).join("word")).unwrap();
    rig.restart(NODE);
    rig.delete_claim("v").await;
    rig.until_says("v", "TargetInUse", &[&target, "busy", "next in"]).await;
    assert_eq!(rig.count("v", Rpc::NodeUnpublishVolume), 0);
    drop(open);
    rig.until_claim_gone("v").await;
    assert_eq!(elsewhere.mounts_at(&target), [""; 0]);

    // Busy or not, on order.
    rig.make_claim(&claim).await;
    let open = File::open(Path::new(&rig.until_ready("v").await).join("word")).unwrap();
    rig.delete_claim("v").await;
    rig.force_detach("v").await;
    rig.until_claim_gone("v").await;
    drop((open, elsewhere));
    assert_eq!(fs::read_to_string(rig.fake.backend().content("v").join("word")).unwrap(), "kept");
    rig.remove_volume("v").await;
}

/// Another mount namespace, to which mounts below a directory are copied, as that of a driver's Pod is.
struct Elsewhere(Child, PathBuf);

impl Elsewhere {
    fn of(directory: &Path) -> Self {
        mount_bind(directory, directory).unwrap();
        mount_change(directory, MountPropagationFlags::SHARED).unwrap();
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "unchanged", "sh", "-c", "echo made; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n");
        Self(child, directory.to_owned())
    }

    /// `ro` or `rw` of what is mounted there, the topmost last.
    fn mounts_at(&self, path: &str) -> Vec<String> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.0.id())).unwrap();
        let here =
            table.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|line| line[4] == path);
        here.map(|line| line[5].split(',').next().unwrap().to_owned()).collect()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        unmount(&self.1, UnmountFlags::DETACH).unwrap();
    }
}

pub async fn unpublished_and_still_mounted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    still_mounted(&rig, Rpc::NodeUnpublishVolume, 1).await;
}

pub async fn unstaged_and_still_mounted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    still_mounted(&rig, Rpc::NodeUnstageVolume, 2).await;
}

/// The driver does not do `lie`, and the undo gets no further than the first `far` of its calls.
async fn still_mounted(rig: &Rig, lie: Rpc, far: usize) {
    let target = rig.in_use("v").await;
    fs::write(Path::new(&target).join("word"), "kept").unwrap();
    let since = rig.journal.now();
    rig.fake.pretend("v", lie);
    rig.delete_claim("v").await;
    let words = [lie.name(), "is done", "still mounted", "/moor.dev/", "next in"];
    rig.until_says("v", "StillMounted", &words).await;
    until_attempted(rig, "v", 2).await;
    let attachment = rig.read_attachment_of("v").await.name_any();
    assert!(!rig.was_written("volumeclaims", "v", "NodeDetached"));
    assert!(!rig.was_written("attachments", &attachment, "NodeDetached"));
    assert_eq!(course(&rig.calls_since(since, "v")), UNDO[..far]);

    rig.fake.behave("v", lie);
    rig.until_claim_gone("v").await;
    assert_eq!(course(&rig.calls_since(since, "v")), UNDO);
    assert_eq!(fs::read_to_string(rig.fake.backend().content("v").join("word")).unwrap(), "kept");
    rig.remove_volume("v").await;
}

async fn until_attempted(rig: &Rig, claim: &str, times: i64) {
    let look = || {
        let attempts = rig.cluster.claim(claim)?.status.as_ref()?.attempts?;
        (attempts >= times).then_some(())
    };
    rig.cluster.until(&format!("{times} attempts are counted"), look, || rig.story(claim)).await;
}
