//! Where kubelet has what on its disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::Kubelet;
use crate::rig::fake::DRIVER;

impl Kubelet {
    /// UID of a Pod; its name for one that is not on the node.
    pub fn uid(&self, pod: &str) -> String {
        self.pods.lock().unwrap().get(pod).cloned().unwrap_or_else(|| pod.to_owned())
    }

    /// Folder of a Pod.
    pub fn pod_dir(&self, pod: &str) -> PathBuf {
        self.directory.join("pods").join(self.uid(pod))
    }

    /// Where a Pod has a volume.
    pub fn target(&self, pod: &str, key: &str) -> PathBuf {
        if self.wish.is_block {
            return self.devices().join("publish").join(self.wish.volume(key)).join(self.uid(pod));
        }
        self.pod_dir(pod).join("volumes/kubernetes.io~csi").join(self.wish.volume(key)).join("mount")
    }

    /// Where a volume is staged.
    pub fn staging(&self, key: &str) -> PathBuf {
        if self.wish.is_block {
            return self.devices().join("staging").join(self.wish.volume(key));
        }
        // kubelet has a hash of the handle here.
        self.directory.join("plugins/kubernetes.io/csi").join(DRIVER).join(key).join("globalmount")
    }

    /// What kubelet writes down of what it has staged; of a raw device it does elsewhere.
    pub(super) fn volume_data(&self, key: &str) -> PathBuf {
        self.staging(key).parent().unwrap().join("vol_data.json")
    }

    /// What kubelet writes down of a volume that a Pod has, before it calls for it.
    pub(super) fn pods_data(&self, pod: &str, key: &str) -> PathBuf {
        self.target(pod, key).parent().unwrap().join("vol_data.json")
    }

    /// Folder of the raw devices of all Pods.
    pub(super) fn devices(&self) -> PathBuf {
        self.directory.join("plugins/kubernetes.io/csi/volumeDevices")
    }

    /// Removes the folder of a Pod that is gone, in which nothing is mounted.
    pub fn forget(&self, pod: &str) {
        let folder = self.pod_dir(pod);
        let volumes = folder.join("volumes/kubernetes.io~csi");
        for left in fs::read_dir(&volumes).into_iter().flatten().flatten() {
            remove(&left.path().join("mount"));
            let _ = fs::remove_file(left.path().join("vol_data.json"));
            remove(&left.path());
        }
        for part in [volumes, folder.join("volumes"), folder] {
            remove(&part);
        }
    }
}

/// kubelet's `removeMountDir`: an empty directory, and no more.
pub(super) fn remove(path: &Path) {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", path.display()),
        Ok(()) | Err(_) => {}
    }
}
