//! What must be left when everything has been undone: nothing.

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::time::Instant;

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use moor::api::{Attachment, Volume, VolumeClaim, VolumeHandle};
use serde::de::DeserializeOwned;

use super::{LOOK, PATIENCE, Rig};

impl Rig {
    /// What is left of claims anywhere: objects, records, mounts, paths, and what the storage has attached.
    async fn leaks(&self) -> Vec<String> {
        let mut leaks = self.fake.backend().in_use();
        let admin = || self.cluster.admin.clone();
        leaks.extend(all(self.claim_api()).await.iter().map(|c| format!("VolumeClaim {}", c.name_any())));
        let attachments: Vec<Attachment> = all(Api::all(admin())).await;
        leaks.extend(attachments.iter().map(|a| format!("Attachment {}", a.name_any())));
        // A VolumeHandle belongs to its Volume.
        let handles: Vec<VolumeHandle> = all(Api::all(admin())).await;
        let volumes: Vec<Volume> = all(Api::all(admin())).await;
        let volumes: Vec<_> = volumes.iter().filter_map(ResourceExt::uid).collect();
        let orphans = handles.iter().filter(|handle| !volumes.contains(&handle.spec.volume.uid));
        leaks.extend(orphans.map(|handle| format!("VolumeHandle {}", handle.name_any())));
        for node in self.nodes.lock().unwrap().iter() {
            leaks.extend(self.leaks_on(node));
        }
        leaks
    }

    /// What is left on a node's disk and in the mount table.
    pub fn leaks_on(&self, node: &str) -> Vec<String> {
        let mut leaks = Vec::new();
        for record in entries(&self.state_dir(node).join("records")) {
            leaks.push(format!("record {record} on {node}"));
        }
        let ours = self.kubelet_dir(node).join("plugins/kubernetes.io/csi/moor.dev");
        for part in ["staging", "claims"] {
            for path in entries(&ours.join(part)) {
                leaks.push(format!("{part}/{path} on {node}"));
            }
        }
        let below = self.kubelet_dir(node);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        // The folder of all targets is no target, and that of all that is staged may be a disk of its own.
        let folders = ["targets", "staging"].map(|folder| ours.join(folder));
        let points = points.filter(|point| folders.iter().all(|folder| Path::new(point) != folder));
        leaks.extend(
            points.filter(|point| Path::new(point).starts_with(&below)).map(|point| format!("mount {point}")),
        );
        leaks
    }

    /// Waits until nothing is left of any claim, and asserts that the driver was called as CSI wants.
    pub async fn assert_nothing_left(&self) {
        self.until_nothing_left().await;
        self.fake.assert_obeyed();
    }

    /// Waits until nothing is left of any claim.
    pub async fn until_nothing_left(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let leaks = self.leaks().await;
            if leaks.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "this is left:\n{}", leaks.join("\n"));
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn all<K>(api: Api<K>) -> Vec<K>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.list(&ListParams::default()).await.unwrap().items
}

fn entries(directory: &Path) -> Vec<String> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
