//! What must be left when everything has been undone: nothing.

use std::fs;

use kube::ResourceExt as _;

use super::Rig;

impl Rig {
    /// What is left of claims anywhere: objects, records, mounts, paths, and what the storage has attached.
    pub fn leaks(&self) -> Vec<String> {
        let mut leaks = self.fake.backend().in_use();
        let cluster = &self.cluster;
        leaks.extend(cluster.claims.state().iter().map(|c| format!("VolumeClaim {}", c.name_any())));
        leaks.extend(cluster.attachments.state().iter().map(|a| format!("Attachment {}", a.name_any())));
        // A VolumeHandle belongs to its Volume.
        let volumes: Vec<_> = cluster.volumes.state().iter().filter_map(|v| v.uid()).collect();
        let handles = cluster.handles.state();
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
        let below = self.kubelet_dir(node).to_string_lossy().into_owned();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        leaks.extend(points.filter(|point| point.starts_with(&below)).map(|point| format!("mount {point}")));
        leaks
    }

    /// Waits until nothing is left of any claim, and asserts that the driver was called as CSI wants.
    pub async fn assert_nothing_left(&self) {
        let none = || self.leaks().is_empty().then_some(());
        self.cluster.until("nothing is left", none, || self.leaks().join("\n")).await;
        self.fake.assert_obeyed();
    }
}

fn entries(directory: &std::path::Path) -> Vec<String> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
