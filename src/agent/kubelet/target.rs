//! The paths that kubelet names in its calls, and what they say. Pure.
//!
//! kubelet makes them (kubernetes `pkg/volume/csi`), and a claim of a Pod is named by what they say, so that a call that
//! is repeated, also to another process of the agent, finds the same claim.

use std::path::{Component, Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::agent::host::paths::HostPath;
use crate::api::AttachmentMode;
use crate::api::claim::PodUse;
use crate::api::lock;

/// Folder of the Pods' folders, below kubelet's.
pub(crate) const PODS: &str = "pods";

/// Folder of a Pod's mounted volumes, in the Pod's own folder.
const MOUNTED: &str = "volumes/kubernetes.io~csi";
/// Folder of what is staged as a file system, below kubelet's.
const STAGED: &str = "plugins/kubernetes.io/csi";
/// Folder of the raw block volumes of all Pods, below kubelet's.
const DEVICES: &str = "plugins/kubernetes.io/csi/volumeDevices";

/// Where kubelet wants a volume for a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// The path itself.
    pub path: HostPath,
    /// UID of the Pod.
    pub pod_uid: String,
    /// Name of the PersistentVolume; of an inline volume its name in the Pod.
    pub volume: String,
}

/// A path that kubelet does not use for a Pod's volume.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "target_path {path:?} is no path of a Pod's volume below {kubelet}: expected pods/UID/{MOUNTED}/NAME/mount or \
     {DEVICES}/publish/NAME/UID"
)]
pub(crate) struct NotKubelets {
    path: String,
    kubelet: PathBuf,
}

impl Target {
    /// Reads a target path. `kubelet` is kubelet's own directory.
    pub fn parse(kubelet: &Path, path: &str) -> Result<Self, NotKubelets> {
        let wrong = || NotKubelets { path: path.to_owned(), kubelet: kubelet.to_owned() };
        let below = Path::new(path).strip_prefix(kubelet).map_err(|_| wrong())?;
        let parts: Option<Vec<&str>> = below.components().map(plain).collect();
        let parts = parts.ok_or_else(wrong)?;
        let (pod_uid, volume) = match parts.as_slice() {
            ["pods", uid, "volumes", "kubernetes.io~csi", volume, "mount"] => (*uid, *volume),
            ["plugins", "kubernetes.io", "csi", "volumeDevices", "publish", volume, uid] => (*uid, *volume),
            _ => return Err(wrong()),
        };
        if !is_uid(pod_uid) {
            return Err(wrong());
        }
        let path = HostPath::recorded(path);
        Ok(Self { path, pod_uid: pod_uid.to_owned(), volume: volume.to_owned() })
    }

    /// Where kubelet wants the volume of a claim; nothing where what the claim says makes no path of kubelet's.
    pub fn of(kubelet: &Path, pod: &PodUse, mode: AttachmentMode) -> Option<Self> {
        let volume = pod.volume().name();
        let path = match mode {
            AttachmentMode::FileSystem => {
                folder_of(kubelet, &pod.uid).join(MOUNTED).join(volume).join("mount")
            }
            AttachmentMode::BlockDevice => kubelet.join(DEVICES).join("publish").join(volume).join(&pod.uid),
        };
        let found = Self::parse(kubelet, path.to_str()?).ok()?;
        (found.pod_uid == pod.uid && found.volume == volume).then_some(found)
    }

    /// Name of the VolumeClaim for this volume at this path. `driver` is the name under which kubelet knows it.
    pub fn claim_name(&self, driver: &str, volume_id: &str) -> String {
        let hash = lock::pod_claim_hash(driver, volume_id, &self.path.text());
        format!("pod-{}-{hash}", self.pod_uid)
    }
}

/// The folder of a Pod, which kubelet keeps for as long as it has anything of the Pod's volumes.
pub(crate) fn folder_of(kubelet: &Path, pod_uid: &str) -> PathBuf {
    kubelet.join(PODS).join(pod_uid)
}

/// Where kubelet stages a volume (kubernetes `csi_attacher.go`, `makeDeviceMountPath`; `csi_block.go`). `volume.driver` is the
/// name under which kubelet knows the driver.
pub(crate) fn staging(
    kubelet: &Path,
    volume: lock::DriverVolume<'_>,
    persistent_volume: &str,
    mode: AttachmentMode,
) -> HostPath {
    let path = match mode {
        AttachmentMode::FileSystem => {
            let hash = HEXLOWER.encode(&Sha256::digest(volume.handle.as_bytes()));
            kubelet.join(STAGED).join(volume.driver).join(hash).join("globalmount")
        }
        AttachmentMode::BlockDevice => kubelet.join(DEVICES).join("staging").join(persistent_volume),
    };
    HostPath::recorded(&path.to_string_lossy())
}

/// A part of a path, if it is a name and UTF-8.
fn plain(part: Component<'_>) -> Option<&str> {
    match part {
        Component::Normal(name) => name.to_str(),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    }
}

/// Whether a text can be part of an object's name. UIDs of static Pods are hashes without dashes.
fn is_uid(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-';
    (1..=36).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.ends_with('-')
        && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "5a8c3d52-0a4e-4a28-9a0b-2d7f3c1e9b10";

    fn parse(path: &str) -> Result<Target, NotKubelets> {
        Target::parse(Path::new("/var/lib/kubelet"), path)
    }

    #[test]
    fn kubelets_paths_say_pod_and_volume() {
        for path in [
            format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount"),
            format!("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/{UID}"),
        ] {
            let target = parse(&path).unwrap();
            assert_eq!((target.pod_uid.as_str(), target.volume.as_str()), (UID, "pvc-1"));
            assert_eq!(target.path.text(), path);
        }
    }

    #[test]
    fn other_paths_are_refused_by_name() {
        for path in [
            "",
            "relative",
            "/etc",
            "/var/lib/kubelet",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount/more",
            "/var/lib/kubelet/pods/../../etc/volumes/kubernetes.io~csi/pv/mount",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/pv/mount",
            "/var/lib/kubelet/pods/U/volumes/kubernetes.io~csi/pv/mount",
            "/var/lib/kubelet2/pods/u/volumes/kubernetes.io~csi/pv/mount",
        ] {
            let error = parse(path).unwrap_err().to_string();
            assert!(error.contains("target_path") && error.contains(&format!("{path:?}")), "{error}");
        }
    }

    #[test]
    fn a_claim_says_where_its_target_is() {
        let pod = |uid: &str| PodUse {
            uid: uid.to_owned(),
            persistent_volume: Some("pvc-1".to_owned()),
            ..PodUse::default()
        };
        let of = |uid: &str, mode| Target::of(Path::new("/var/lib/kubelet"), &pod(uid), mode);
        for (mode, path) in [
            (AttachmentMode::FileSystem, format!("pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount")),
            (
                AttachmentMode::BlockDevice,
                format!("plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/{UID}"),
            ),
        ] {
            let path = format!("/var/lib/kubelet/{path}");
            assert_eq!(of(UID, mode), Some(parse(&path).unwrap()));
            assert_eq!(of("../x", mode), None);
        }
        let volume = lock::DriverVolume { driver: "d", handle: "v" };
        let staged = |mode| staging(Path::new("/k"), volume, "pvc-1", mode).text();
        // As `printf v | sha256sum` says.
        let hash = "4c94485e0c21ae6c41ce1dfe7b6bfaceea5ab68e40a2476f50208e526f506080";
        assert_eq!(
            staged(AttachmentMode::FileSystem),
            format!("/k/plugins/kubernetes.io/csi/d/{hash}/globalmount")
        );
        assert_eq!(
            staged(AttachmentMode::BlockDevice),
            "/k/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1"
        );
    }

    #[test]
    fn a_claims_name_tells_driver_volume_and_path_apart() {
        let of = |pv: &str| {
            parse(&format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/{pv}/mount")).unwrap()
        };
        let name = of("a").claim_name("d", "v");
        assert_eq!(name, of("a").claim_name("d", "v"));
        assert!(name.starts_with(&format!("pod-{UID}-")) && name.len() <= 63, "{name}");
        let others =
            [of("b").claim_name("d", "v"), of("a").claim_name("e", "v"), of("a").claim_name("d", "w")];
        assert!(!others.contains(&name));
    }
}
