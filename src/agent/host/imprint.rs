//! The imprints of mounts, by which their copies are recognised elsewhere. An imprint is taken from the agent's own
//! mount table when a volume is mounted, and is kept in the record for the time after it was unmounted.

use std::fs;
use std::path::Path;

use super::error::HostError;
use super::mount_namespace::MountNamespace;
use super::mounts::{self, KERNEL, LOOKS, TABLE};
use super::paths::HostPath;
use super::recent::Recent;
use crate::agent::failed_at::failed_at;
use crate::attachment::record::Imprint;
use crate::mount_table::{Mount, Table, text_of};

/// The table of the mount namespace in which the calling thread is.
const OF_THREAD: &str = "/proc/thread-self/mountinfo";
/// What the kernel adds to the root of a mount whose directory was removed.
const REMOVED: &str = "//deleted";

/// The agent's own mount table. It is read as a whole, so passes that mount at the same time share one reading.
static OWN: Recent<String> = Recent::new();

/// The imprint of the file system that is mounted at `path`; nothing if none is.
pub(crate) async fn of_mount(path: &HostPath) -> Result<Option<Imprint>, HostError> {
    let table = own_table().await?;
    let mount = topmost(&table, path);
    let Some(found) = mount else { return Ok(None) };
    let number = found.device.clone();
    // The kernel's own folder answers also where what is mounted does not.
    let disk = match mounts::folder_of(&number) {
        Some(folder) => KERNEL.at(&folder, move |_| Ok(mounts::disk(&number))).await?,
        None => None,
    };
    Ok(Some(Imprint { disk, ..found }))
}

/// The imprint of whatever a look shows at `path`, where no record says which it is: a file system or a raw device.
pub(crate) async fn of_whatever(path: &HostPath) -> Result<Option<Imprint>, HostError> {
    let Some(device) = mounts::look(path).await? else { return Ok(None) };
    of(path, &device, mounts::is_device(path).await?).await
}

/// As [`of_mount`], or of the raw device at `path`. A look has said `device`.
pub(crate) async fn of(
    path: &HostPath,
    device: &mounts::Device,
    raw: bool,
) -> Result<Option<Imprint>, HostError> {
    if !raw {
        return of_mount(path).await;
    }
    let table = own_table().await?;
    // A node that the driver has made itself is no mount.
    let node = topmost(&table, path).unwrap_or_default();
    Ok(Some(Imprint { disk: Some(device.text().to_owned()), source: None, raw, ..node }))
}

/// Where else on the node these, or parts of them, are mounted. What is below kubelet's directory is left out.
pub(crate) async fn elsewhere(
    node: &MountNamespace,
    kubelet: HostPath,
    imprints: Vec<Imprint>,
) -> Result<Vec<String>, HostError> {
    let node = node.clone();
    let look = move |path: &Path| {
        let failed = failed_at(path, HostError::Look);
        let read = || {
            let kubelet = fs::canonicalize(kubelet.as_path()).map_err(&failed)?;
            Ok((fs::read(path).map_err(&failed)?, kubelet))
        };
        let (table, kubelet) = node.run(read)?;
        let of_them = |device: &str, root: &str, _: &str| imprints.iter().any(|i| i.may_be_of(device, root));
        Ok(outside(&Table::read_those(&text_of(&table), of_them), &kubelet, &imprints))
    };
    LOOKS.at(&HostPath::recorded(OF_THREAD), look).await
}

fn outside(table: &Table, kubelet: &Path, imprints: &[Imprint]) -> Vec<String> {
    let is_of_them = |mount: &&Mount| imprints.iter().any(|imprint| mount.is_part_of(imprint));
    let is_outside = |mount: &&Mount| !mount.point.starts_with(kubelet) && mount.point != Path::new("/");
    let found = table.all().iter().filter(is_of_them).filter(is_outside);
    found.map(|mount| mount.point.to_string_lossy().into_owned()).collect()
}

async fn own_table() -> Result<std::sync::Arc<String>, HostError> {
    let read = |path: &Path| {
        let table = fs::read(path).map_err(failed_at(path, HostError::Look))?;
        Ok(text_of(&table).into_owned())
    };
    OWN.get(async || KERNEL.at(&HostPath::recorded(TABLE), read).await).await
}

fn topmost(table: &str, path: &HostPath) -> Option<Imprint> {
    Table::read_at(table, path.as_path()).at(path.as_path()).pop().map(Mount::imprint)
}

impl Mount {
    /// The imprint of this mount, without its disk.
    fn imprint(&self) -> Imprint {
        let shows_no_part = self.kind.starts_with("nfs");
        Imprint {
            device: self.device.clone(),
            root: self.kept_root().to_owned(),
            source: shows_no_part.then(|| self.source.clone()),
            disk: None,
            raw: false,
        }
    }

    /// Whether this mount shows the same part of the same file system as the imprint.
    pub(crate) fn is_copy_of(&self, imprint: &Imprint) -> bool {
        let same_source = imprint.source.as_ref().is_none_or(|source| source == &self.source);
        self.device == imprint.device && self.kept_root() == imprint.root && same_source
    }

    /// Whether this mount shows the imprint's part of the file system, or something in it.
    pub(crate) fn is_part_of(&self, imprint: &Imprint) -> bool {
        let within_source = imprint.source.as_ref().is_none_or(|source| is_within(&self.source, source));
        imprint.may_be_of(&self.device, &self.root) && within_source
    }

    /// Whether a part of this mount's path has this name.
    pub(crate) fn is_below(&self, name: &str) -> bool {
        self.point.components().any(|part| part.as_os_str() == name)
    }

    fn kept_root(&self) -> &str {
        kept(&self.root)
    }
}

impl Imprint {
    /// Whether a mount with this device and root may show its part of the file system, or something in it.
    pub(crate) fn may_be_of(&self, device: &str, root: &str) -> bool {
        self.device == device && is_within(kept(root), &self.root)
    }
}

/// The root of a mount, whether its directory is there or was removed.
fn kept(root: &str) -> &str {
    root.strip_suffix(REMOVED).unwrap_or(root)
}

fn is_within(path: &str, whole: &str) -> bool {
    let rest = path.strip_prefix(whole.strip_suffix('/').unwrap_or(whole));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::host::mounts::tests::hang_at;

    const SAMPLE: &str = "\
40 22 8:16 / /k/staging/a rw,relatime shared:9 master:3 - ext4 /dev/sdb rw
41 22 8:16 /part /var/data rw - ext4 /dev/sdb rw
42 22 8:1 /vols/one /x rw - ext4 /dev/sda1 rw
43 22 8:1 /vols/one-and-a-half /y rw - ext4 /dev/sda1 rw
44 22 8:1 /vols/one//deleted /z rw - ext4 /dev/sda1 rw
45 22 0:50 / /n rw - nfs4 server:/export/one rw
46 22 0:50 / /m rw - nfs4 server:/export/two rw
47 22 0:50 / /l rw - nfs4 server:/export/one/sub rw
";

    /// The lines, counted from 0, that show the line `of` or a part of it.
    fn parts(of: usize) -> Vec<usize> {
        let table = Table::read(SAMPLE);
        let imprint = table.all()[of].imprint();
        (0..table.all().len()).filter(|at| table.all()[*at].is_part_of(&imprint)).collect()
    }

    #[test]
    fn a_part_of_a_file_system_is_told_from_its_neighbours() {
        assert_eq!(parts(0), [0, 1]);
        assert_eq!(parts(1), [1]);
        assert_eq!(parts(2), [2, 4], "also if its directory was removed, and not by the beginning of a name");
        assert_eq!(parts(5), [5, 7], "NFS shows the part in what was mounted");
    }

    #[test]
    fn a_copy_shows_all_of_it() {
        let table = Table::read(SAMPLE);
        let is_copy = |one: usize, of: usize| table.all()[one].is_copy_of(&table.all()[of].imprint());
        assert!(is_copy(4, 2));
        assert!(!is_copy(1, 0) && !is_copy(7, 5));
        assert!(table.all()[0].is_below("staging") && !table.all()[0].is_below("stag"));
    }

    #[test]
    fn what_is_mounted_elsewhere_is_told_by_its_place() {
        let table = Table::read(SAMPLE);
        let of = |at: usize, kubelet: &str| outside(&table, Path::new(kubelet), &[table.all()[at].imprint()]);
        assert_eq!(of(0, "/k"), ["/var/data"]);
        assert_eq!(of(2, "/x"), ["/z"]);
        assert_eq!(of(1, "/var"), [""; 0]);
    }

    /// What users have of it is found by this when it is unmounted by force.
    #[tokio::test(start_paused = true)]
    async fn a_mount_that_hangs_has_an_imprint_all_the_same() {
        let table = fs::read_to_string(TABLE).unwrap();
        let table = Table::read(&table);
        let is_apart = |mount: &&Mount| mount.point != Path::new("/") && !mount.point.starts_with("/proc");
        let mounted = table.all().iter().rev().find(is_apart).unwrap();
        let path = HostPath::recorded(mounted.point.to_str().unwrap());
        let _hanging = hang_at(&path).await;
        let found = of_whatever(&path).await.unwrap().unwrap();
        assert_eq!((&found.device, found.raw), (&table.at(&mounted.point).pop().unwrap().device, false));
    }

    #[tokio::test]
    async fn a_mount_has_an_imprint_and_a_directory_has_none() {
        let proc = of_mount(&HostPath::recorded("/proc")).await.unwrap().unwrap();
        assert_eq!((proc.root.as_str(), proc.disk, proc.raw), ("/", None, false));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of_mount(&HostPath::recorded(dir.path().to_str().unwrap())).await.unwrap(), None);
    }
}
