//! The folders in which sockets are looked for, each by itself.
//!
//! A driver may have something mounted in its folder, and when that is dead, whoever looks into the folder hangs. That
//! must not keep the agent from seeing the sockets of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

/// Where kubelet keeps the volumes of CSI drivers, ours included; no plugin listens there.
const NOT_PLUGINS: &str = "kubernetes.io";
/// Longest wait for a folder.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file of a socket as it was found; a new process binds a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketFile {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

/// What is in folders.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub sockets: HashMap<PathBuf, SocketFile>,
    /// What is no socket where one is looked for, in words.
    pub others: BTreeMap<PathBuf, &'static str>,
}

/// The result of a look for sockets.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub found: Contents,
    /// Folders that did not answer, so that nothing is known of them now.
    pub unanswered: BTreeSet<PathBuf>,
}

impl Scan {
    /// Whether nothing is known now of what is at a path.
    pub fn hides(&self, path: &Path) -> bool {
        path.parent().is_some_and(|folder| self.unanswered.contains(folder))
    }
}

/// The plugin directory and what is in it.
#[derive(Debug)]
pub(crate) struct Folders {
    directory: PathBuf,
    /// Looks that have not come back. Nobody looks into the same folder meanwhile.
    hanging: BTreeMap<PathBuf, JoinHandle<Contents>>,
    /// The look at which folders there are, if it has not come back; and what the last one showed.
    listing: Option<JoinHandle<Vec<PathBuf>>>,
    listed: Vec<PathBuf>,
}

impl Folders {
    /// The folders of a plugin directory.
    pub fn of(directory: PathBuf) -> Self {
        Self { directory, hanging: BTreeMap::new(), listing: None, listed: Vec::new() }
    }

    /// Finds the sockets `<directory>/<plugin>/<name>.sock` and those that are named.
    pub async fn look(&mut self, named: Vec<PathBuf>) -> Scan {
        let mut wanted: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        let mut scan = Scan::default();
        self.list(&mut scan).await;
        for folder in &self.listed {
            wanted.entry(folder.clone()).or_default();
        }
        for path in named {
            let folder = path.parent().unwrap_or(&path).to_owned();
            wanted.entry(folder).or_default().push(path);
        }
        let due = Instant::now() + PATIENCE;
        let mut looks = Vec::new();
        for (folder, named) in wanted {
            let hanging = self.hanging.remove(&folder);
            let until = if hanging.is_some() { Instant::now() } else { due };
            let all = self.listed.contains(&folder).then(|| folder.clone());
            let look = hanging.unwrap_or_else(|| spawn_blocking(move || contents(all.as_deref(), named)));
            looks.push((folder, look, until));
        }
        for (folder, mut look, until) in looks {
            if let Ok(found) = timeout_at(until, &mut look).await {
                let Contents { sockets, others } = found.unwrap_or_default();
                scan.found.sockets.extend(sockets);
                scan.found.others.extend(others);
                continue;
            }
            if until == due {
                tracing::error!(folder = %folder.display(), "the folder does not answer; the sockets in it are left as they were");
            }
            self.hanging.insert(folder.clone(), look);
            scan.unanswered.insert(folder);
        }
        // What nobody asks for any more is not waited for.
        self.hanging.retain(|folder, _| scan.unanswered.contains(folder));
        scan
    }

    async fn list(&mut self, scan: &mut Scan) {
        let directory = self.directory.clone();
        let mut listing = self.listing.take().unwrap_or_else(|| spawn_blocking(move || folders(&directory)));
        if let Ok(listed) = timeout_at(Instant::now() + PATIENCE, &mut listing).await {
            self.listed = listed.unwrap_or_default();
        } else {
            self.listing = Some(listing);
            scan.unanswered.insert(self.directory.clone());
        }
    }
}

fn folders(directory: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(|path| path.file_name().is_some_and(|name| name != NOT_PLUGINS)).collect()
}

/// Finds what is in `folder` under the name of a socket, and at the paths that are named.
fn contents(folder: Option<&Path>, named: Vec<PathBuf>) -> Contents {
    let files = folder.map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let paths = files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "sock"));
    let mut contents = Contents::default();
    for path in paths.chain(named) {
        match SocketFile::at(&path) {
            Some(Ok(file)) => drop(contents.sockets.insert(path, file)),
            Some(Err(other)) => drop(contents.others.insert(path, other)),
            None => {}
        }
    }
    contents
}

impl SocketFile {
    /// The socket at a path, also at the end of symbolic links; what else is there; or None, if nothing is.
    fn at(path: &Path) -> Option<Result<Self, &'static str>> {
        let Ok(file) = fs::metadata(path) else {
            return fs::symlink_metadata(path).ok().map(|_| Err("a symbolic link that leads nowhere"));
        };
        let kind = file.file_type();
        Some(if kind.is_socket() {
            let modified = (file.mtime(), file.mtime_nsec());
            Ok(Self { device: file.dev(), inode: file.ino(), modified })
        } else if kind.is_dir() {
            Err("a directory")
        } else if kind.is_file() {
            Err("a file")
        } else if kind.is_fifo() {
            Err("a pipe")
        } else {
            Err("a device")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn sockets_are_found_one_folder_down_and_where_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["a", "b", NOT_PLUGINS] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let path = |name: &str| dir.path().join(name);
        let listeners = ["a/csi.sock", "b/other.sock", "kubernetes.io/x.sock", "b/ctl.socket", "top.sock"]
            .map(|name| UnixListener::bind(path(name)).unwrap());
        fs::write(path("a/plain.sock"), "").unwrap();
        let by_plugins = vec![path("b/ctl.socket"), path("missing.sock")];
        let found = Folders::of(dir.path().to_owned()).look(by_plugins).await.found;
        let mut names: Vec<_> = found.sockets.keys().cloned().collect();
        names.sort();
        assert_eq!(names, [path("a/csi.sock"), path("b/ctl.socket"), path("b/other.sock")]);
        drop(listeners);
    }

    #[tokio::test]
    async fn what_is_no_socket_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("a/folder.sock")).unwrap();
        fs::write(path("a/file.sock"), "").unwrap();
        let listener = UnixListener::bind(path("a/real")).unwrap();
        for (to, from) in [("real", "good.sock"), ("nowhere", "bad.sock"), ("/dev/null", "device.sock")] {
            symlink(to, path("a").join(from)).unwrap();
        }
        let found =
            Folders::of(dir.path().to_owned()).look(vec![path("a/file.sock"), path("b/none")]).await.found;
        assert_eq!(found.sockets.into_keys().collect::<Vec<_>>(), [path("a/good.sock")]);
        let others = [
            ("a/bad.sock", "a symbolic link that leads nowhere"),
            ("a/device.sock", "a device"),
            ("a/file.sock", "a file"),
            ("a/folder.sock", "a directory"),
        ];
        assert_eq!(found.others, others.map(|(name, what)| (path(name), what)).into());
        drop(listener);
    }

    /// And is not looked into a second time while it hangs.
    #[tokio::test]
    async fn a_folder_that_hangs_hides_nothing_but_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::create_dir(path("dead")).unwrap();
        let listeners = ["a/csi.sock", "dead/csi.sock"].map(|name| UnixListener::bind(path(name)).unwrap());
        let (come_back, held) = std::sync::mpsc::channel::<()>();
        let mut folders = Folders::of(dir.path().to_owned());
        let look = spawn_blocking(move || {
            let _ = held.recv();
            Contents::default()
        });
        folders.hanging.insert(path("dead"), look);
        for _ in 0..2 {
            let scan = folders.look(Vec::new()).await;
            assert_eq!(scan.found.sockets.into_keys().collect::<Vec<_>>(), [path("a/csi.sock")]);
            assert_eq!(scan.unanswered, [path("dead")].into());
        }
        drop(come_back);
        while folders.look(Vec::new()).await.found.sockets.len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(folders.hanging.is_empty());
        drop(listeners);
    }

    #[tokio::test]
    async fn a_socket_that_was_bound_anew_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let first = UnixListener::bind(&path).unwrap();
        let before = SocketFile::at(&path).unwrap();
        assert!(before.is_ok());
        assert_eq!(SocketFile::at(&path), Some(before));
        drop(first);
        // Some file systems give its inode to the next one at once, and the clock of files is a coarse one.
        fs::hard_link(&path, dir.path().join("kept")).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(SocketFile::at(&path), None);
        let _second = UnixListener::bind(&path).unwrap();
        assert_ne!(SocketFile::at(&path), Some(before));
    }
}
