//! Where volumes are staged and published on this node. Pure.
//!
//! Paths hold UIDs and no names: what a user chooses never becomes a path, and two objects of one
//! name never share one.

use std::path::{Path, PathBuf};

/// Below the kubelet directory: inside the tree that drivers mount with propagation already, and in the folder that
/// kubelet leaves to CSI, so that no socket is looked for there.
const ROOT: &str = "plugins/kubernetes.io/csi/moor.dev";

const TARGET: &str = "target";

/// A path as the host sees it, which is also how the agent sees it: the chart mounts the kubelet directory at its own
/// path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPath(PathBuf);

/// A path cannot be made from what an object says.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A UID that could leave its directory. No API server gives such a one.
    #[error("make a path from the UID {0:?}: it has other characters than letters, digits and dashes")]
    BadUid(String),
    /// CSI passes paths as text.
    #[error("make a path below {0}: it is not UTF-8")]
    NotText(PathBuf),
}

/// The directories of one node.
#[derive(Clone, Debug)]
pub struct Paths {
    kubelet: PathBuf,
    root: PathBuf,
}

impl Paths {
    /// For kubelet's directory on the host.
    #[must_use]
    pub fn below(kubelet_dir: &Path) -> Self {
        Self { kubelet: kubelet_dir.to_owned(), root: kubelet_dir.join(ROOT) }
    }

    /// kubelet's directory.
    #[must_use]
    pub fn kubelet(&self) -> HostPath {
        HostPath(self.kubelet.clone())
    }

    /// Where an Attachment is staged: one directory, also for a raw block volume (CSI NodeStageVolume).
    pub fn staging(&self, attachment_uid: &str) -> Result<HostPath, PathError> {
        HostPath::new(self.staging_folder().0.join(checked(attachment_uid)?))
    }

    /// The folder of all that is staged.
    #[must_use]
    pub fn staging_folder(&self) -> HostPath {
        HostPath(self.root.join("staging"))
    }

    /// Where a claim is published. Its parent belongs to this claim alone.
    pub fn target(&self, claim_uid: &str) -> Result<HostPath, PathError> {
        HostPath::new(self.targets().0.join(checked(claim_uid)?).join(TARGET))
    }

    /// The folder of all targets, on which a tmpfs is mounted.
    #[must_use]
    pub fn targets(&self) -> HostPath {
        HostPath(self.root.join("targets"))
    }

    /// The folder on the node's disk in which an earlier version had them. A target that was recorded there stays there.
    #[must_use]
    pub fn old_targets(&self) -> HostPath {
        HostPath(self.root.join("claims"))
    }

    /// The folders in which volumes are mounted.
    #[must_use]
    pub fn of_volumes(&self) -> [HostPath; 3] {
        [self.staging_folder(), self.targets(), self.old_targets()]
    }

    /// A target in either folder, by the name of its parent.
    #[must_use]
    pub fn target_in(folder: &HostPath, name: &std::ffi::OsStr) -> HostPath {
        HostPath(folder.0.join(name).join(TARGET))
    }

    /// Whether a path is one of those that this module makes; nothing else is ever removed (rule R11).
    #[must_use]
    pub fn owns(&self, path: &HostPath) -> bool {
        let plain = path.0.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        plain && path.0.starts_with(&self.root) && path.0 != self.root
    }
}

impl HostPath {
    fn new(path: PathBuf) -> Result<Self, PathError> {
        if path.to_str().is_none() {
            return Err(PathError::NotText(path));
        }
        Ok(Self(path))
    }

    /// A path that a record holds: after an upgrade the recorded one counts, not the one computed now.
    #[must_use]
    pub fn recorded(path: &str) -> Self {
        Self(PathBuf::from(path))
    }

    /// As the operating system takes it.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// To be recorded or shown.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// The same place for a plugin, as an argument of CSI calls. The same text today: plugins mount kubelet's directory at
    /// its own path.
    #[must_use]
    pub fn seen_by_plugin(&self) -> String {
        self.text()
    }
}

impl std::fmt::Display for HostPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.display().fmt(f)
    }
}

fn checked(uid: &str) -> Result<&str, PathError> {
    let plain = !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain { Ok(uid) } else { Err(PathError::BadUid(uid.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_of_uids() {
        let paths = Paths::below(Path::new("/var/lib/kubelet"));
        assert_eq!(
            paths.staging("a-1").unwrap().text(),
            "/var/lib/kubelet/plugins/kubernetes.io/csi/moor.dev/staging/a-1"
        );
        assert_eq!(
            paths.target("c-1").unwrap().text(),
            "/var/lib/kubelet/plugins/kubernetes.io/csi/moor.dev/targets/c-1/target"
        );
    }

    #[test]
    fn a_uid_cannot_leave_its_directory() {
        let paths = Paths::below(Path::new("/k"));
        for bad in ["", "..", "a/b", "a\0", "../../etc"] {
            assert!(paths.staging(bad).is_err(), "{bad:?}");
            assert!(paths.target(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_paths_below_our_root_are_ours() {
        let paths = Paths::below(Path::new("/k"));
        assert!(paths.owns(&paths.target("c").unwrap()));
        for other in [
            "/k/pods/x",
            "/k/plugins/kubernetes.io/csi/moor.dev",
            "/k/plugins/kubernetes.io/csi/moor.dev/../x",
        ] {
            assert!(!paths.owns(&HostPath::recorded(other)), "{other}");
        }
    }

    #[test]
    fn staging_and_target_stay_below_the_limit_of_every_kernel() {
        let paths = Paths::below(Path::new("/var/lib/kubelet"));
        let uid = "0123456789abcdef0123456789abcdef0123";
        // CSI lets a plugin refuse paths that are longer than 128 bytes.
        assert!(paths.target(uid).unwrap().text().len() <= 128);
        assert!(paths.staging(uid).unwrap().text().len() <= 128);
    }
}
