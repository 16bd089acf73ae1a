//! Who uses a volume on this node after it was unmounted: whoever has a mount namespace of his own, as a container has,
//! keeps his copies of the mounts (rule R14, docs/adr/0010-the-kernel-says-when-a-volume-is-free.md).

mod device;
mod raw;
mod survey;
mod words;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use survey::Space;
pub(crate) use words::Users;

use super::error::HostError;
use super::mount_namespace::MountNamespace;
use super::mounts::{KERNEL, LOOKS, folder_of, same_disk};
use super::paths::HostPath;
use super::recent::Recent;
use crate::agent::failed_at::failed_at;
use crate::attachment::record::{Imprint, Left};
use crate::mount_table::{Mount, Place};

const PROC: &str = "/proc";
/// Folders within a Pod's folder in which kubelet keeps what it binds for the Pod's containers. A subPath of "." is
/// all of the volume, and so is a `local` PersistentVolume of the claim's path. Other folders may have the same from
/// elsewhere: an export that the stock stack has mounted, too.
const OF_PODS: [&str; 2] = ["volume-subpaths", "kubernetes.io~local-volume"];
/// The name under which a walk through the open files of all processes is bounded in time.
const OPEN_FILES: &str = "/proc/*/fd";
/// Time that a file system which was just unmounted gets to end.
const ENDING: Duration = Duration::from_millis(200);

static SURVEY: Recent<Vec<Space>> = Recent::new();

/// The question who still uses a volume.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The mounts that were unmounted, by the UID of their claim or Attachment.
    pub left: BTreeMap<String, Left>,
    /// Paths of the claims and of the Attachment that have the same mounted by right.
    pub by_right: BTreeSet<String>,
    /// The folders of moor's own in which volumes are mounted.
    pub folders: Vec<String>,
    /// The directories in `folders` that some record speaks of.
    pub recorded: Recorded,
    /// Whether the staging path is mounted, so that the file system is in use by moor itself.
    pub staged: bool,
    /// Whether the driver has given the volume up: NodeUnstageVolume is done, or the driver has none.
    pub unstaged: bool,
    /// Whether only users that can write are looked for, because the claims that stay only read.
    pub writers: bool,
    /// Places on the node where the driver has the same mounted for itself.
    pub kept_by_driver: Vec<String>,
    /// The driver's process.
    pub driver: Option<i32>,
}

/// Tells the directories that some record speaks of. There are as many as there are claims on the node, so they are asked for
/// only where something looks foreign.
#[derive(Clone)]
pub(crate) struct Recorded(Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>);

impl Recorded {
    /// As `tell` tells them.
    pub fn new(tell: impl Fn() -> BTreeSet<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorded")
    }
}

/// Finds the users of what was unmounted. The kernel's own tables come first, which no file system can keep from
/// being read. What may be kept by a dead one is asked for each volume by itself.
pub(crate) async fn find(question: Question, node: &MountNamespace) -> Result<Users, HostError> {
    let survey = take_survey().await?;
    let (asked, of_node) = (question.clone(), node.clone());
    let ask = move |proc: &Path| {
        let me = fs::read_link("/proc/self/ns/mnt").ok();
        let driver = asked.driver.and_then(|process| survey::namespace(proc, process));
        let node = of_node.name().inspect_err(|error| tracing::warn!("{error}")).ok();
        let tables = Tables { survey, own: me.into_iter().chain(driver).collect(), node };
        Ok(asked.ask_tables(&tables).map(|users| (tables, users)))
    };
    let Some((tables, mut users)) = KERNEL.at(&HostPath::recorded(PROC), ask).await? else {
        return Ok(Users::default());
    };
    if users.is_empty() {
        for left in question.left.values() {
            question.ask_device(&left.imprint, &tables, node, &mut users).await?;
        }
    }
    Ok(users)
}

/// Whether anything is mounted, in any mount namespace that can be seen, on `path` or at a path that has this UID in it.
pub(crate) async fn is_mounted_somewhere(uid: &str, path: &HostPath) -> Result<bool, HostError> {
    let own = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
    Ok(Tables { survey: take_survey().await?, own, node: None }.have_mounted(uid, path))
}

async fn take_survey() -> Result<Arc<Vec<Space>>, HostError> {
    let look = |path: &Path| survey::take(path).map_err(failed_at(path, HostError::Look));
    SURVEY.get(async || KERNEL.at(&HostPath::recorded(PROC), look).await).await
}

/// The mount tables of all processes, and which of them are the agent's, the driver's and the node's.
#[derive(Clone, Debug)]
struct Tables {
    survey: Arc<Vec<Space>>,
    /// The mount namespaces of the agent and of the driver.
    own: Vec<PathBuf>,
    /// The node's mount namespace, if it can be told which it is.
    node: Option<PathBuf>,
}

impl Tables {
    /// The places of moor's own `paths`, as the agent and the driver see them. A container has a path of that name, or
    /// with that UID in it, wherever whoever makes its Pod wants.
    fn places<'a>(&self, paths: impl Iterator<Item = &'a String>) -> Vec<Place> {
        let known: Vec<&Space> = self.survey.iter().filter(|space| self.are_own(space)).collect();
        paths.flat_map(|path| known.iter().filter_map(|s| s.table().place_at(Path::new(path)))).collect()
    }

    /// Whether anything is mounted on `path`, or at a path that has this UID in it.
    fn have_mounted(&self, uid: &str, path: &HostPath) -> bool {
        let there = self.places(std::iter::once(&path.text()));
        let is_there = |space: &Space, mount: &Mount| mount.is_below(uid) || space.has_at(mount, &there);
        self.survey.iter().any(|space| space.table().all().iter().any(|mount| is_there(space, mount)))
    }

    /// Names the user of a mount. The agent's, the driver's and the node's namespaces are those of no one process.
    fn add_mount(&self, users: &mut Users, space: &Space, mount: &Mount) {
        let point = &mount.point;
        if is_of_pod(mount) {
            users.add_mount_of_pod(point);
        } else if self.is_node(space) {
            users.add_mount_of_node(point);
        } else {
            users.add_mount(Path::new(PROC), point, (!self.are_own(space)).then_some(space.process));
        }
    }

    fn are_own(&self, space: &Space) -> bool {
        self.own.contains(&space.namespace)
    }

    fn is_node(&self, space: &Space) -> bool {
        self.node.as_ref() == Some(&space.namespace)
    }
}

/// A copy of a mount, in some mount namespace.
#[derive(Debug)]
struct Copy<'a> {
    space: &'a Space,
    mount: &'a Mount,
}

impl Question {
    /// The users by their mounts; nothing where they cannot be told from others.
    fn ask_tables(&self, tables: &Tables) -> Option<Users> {
        let mut users = Users::default();
        for copy in self.copies(tables)? {
            tables.add_mount(&mut users, copy.space, copy.mount);
        }
        Some(users)
    }

    /// The copies that there are; nothing where they cannot be told from those of others: the driver has the same
    /// mounted for itself, or for somebody else's volume that is the same tree.
    fn copies<'a>(&self, tables: &'a Tables) -> Option<Vec<Copy<'a>>> {
        let may_be =
            |device: &str, root: &str| self.left.values().any(|left| left.imprint.may_be_of(device, root));
        // Of most volumes that are given up no table shows anything, and none has to be taken apart.
        let shown: Vec<&Space> = tables.survey.iter().filter(|space| space.shows_any(may_be)).collect();
        if shown.is_empty() {
            return Some(Vec::new());
        }
        let by_right = tables.places(self.by_right.iter());
        let theirs = tables.places(self.left.values().map(|left| &left.path));
        let recorded = LazyCell::new(|| tables.places((self.recorded.0)().iter()));
        let known = || tables.survey.iter().filter(|space| tables.are_own(space));
        let inside = |folder| known().filter_map(move |space| space.table().place_in(Path::new(folder)));
        let folders: Vec<Place> = self.folders.iter().flat_map(inside).collect();
        let meant = |space: &Space, mount: &Mount| {
            (!self.writers || mount.has("rw")) && !space.has_at(mount, &by_right)
        };
        let root_of_node = LazyCell::new(|| {
            let mut of_node = tables.survey.iter().filter(|space| tables.is_node(space));
            of_node.find_map(|space| space.table().at(Path::new("/")).pop())
        });
        let kept = |space: &Space, mount: &Mount| {
            let known = tables.are_own(space) || tables.is_node(space);
            self.kept_by_driver.iter().map(Path::new).any(|place| {
                known && mount.point == place
                    || root_of_node.is_some_and(|root| is_seen_through(space, root, place, &mount.point))
            })
        };
        let part = |mount: &Mount| self.left.values().any(|left| mount.is_part_of(&left.imprint));
        let hides = |space: &Space, mount: &Mount| {
            self.left.values().any(|left| mount.is_copy_of(&left.imprint))
                && !is_of_pod(mount)
                && !space.has_at(mount, &theirs)
                && meant(space, mount)
                && !kept(space, mount)
                // What no record speaks of is nobody's by right. There are many records, so this comes last.
                && (!space.has_within(mount, &folders) || space.has_within(mount, &recorded))
        };
        if known().any(|space| space.table().all().iter().any(|mount| hides(space, mount))) {
            return None;
        }
        let of = |space: &'a Space| {
            let counts = |mount: &&Mount| part(mount) && meant(space, mount) && !kept(space, mount);
            let found = space.table().all().iter().filter(counts);
            found.map(|mount| Copy { space, mount }).collect::<Vec<_>>()
        };
        Some(shown.into_iter().flat_map(of).collect())
    }

    /// Whether the device is in use, if it is still the same and all of it is the volume.
    async fn ask_device(
        &self,
        imprint: &Imprint,
        tables: &Tables,
        node: &MountNamespace,
        users: &mut Users,
    ) -> Result<(), HostError> {
        if imprint.raw {
            return self.ask_raw(imprint, tables, node, users).await;
        }
        // Beside claims that stay, or where it is staged, the file system is in use by right.
        let whole = imprint.root == "/" && !self.staged && !self.writers;
        let Some(disk) = imprint.disk.clone().filter(|_| whole) else { return Ok(()) };
        let Some(folder) = folder_of(&disk) else { return Ok(()) };
        // A disk that is dead may keep whoever opens it.
        let node = node.clone();
        let state = move |_: &Path| match same_disk(&disk) {
            Some(number) if is_kept(number, &node)? => Ok(Some(number)),
            _ => Ok(None),
        };
        let Some(number) = LOOKS.at(&folder, state).await? else { return Ok(()) };
        let look = move |_: &Path| device::users_of_file_system(Path::new(PROC), number);
        let found = LOOKS.at(&HostPath::recorded(OPEN_FILES), look).await;
        // Who it is is for people: what they have to wait for is known without.
        let found = found.unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        name(users, found.into_iter().collect(), Some(text_of(number))).await
    }
}

/// Names processes; without any, the device that is `busy`.
async fn name(users: &mut Users, found: BTreeSet<i32>, busy: Option<String>) -> Result<(), HostError> {
    let mut named = std::mem::take(users);
    let naming = move |proc: &Path| {
        named.add_processes(proc, &found);
        if let Some(number) = busy.filter(|_| named.is_empty()) {
            named.add_unseen(&number);
        }
        Ok(named)
    };
    *users = KERNEL.at(&HostPath::recorded(PROC), naming).await?;
    Ok(())
}

/// Whether kubelet has made a mount for a Pod, of something that is mounted already.
fn is_of_pod(mount: &Mount) -> bool {
    OF_PODS.iter().any(|folder| mount.is_below(folder))
}

/// Whether `point` is a place of the node's as it is seen by who has mounted the node's tree, and not a place of his own
/// with the same name.
fn is_seen_through(space: &Space, root_of_node: &Mount, place: &Path, point: &Path) -> bool {
    let is_root = |mount: &&Mount| mount.device == root_of_node.device && mount.root == root_of_node.root;
    let below = place.strip_prefix("/").unwrap_or(place);
    space.table().all().iter().filter(is_root).any(|mount| mount.point.join(below) == point)
}

/// Whether the kernel has the device in use, and not only for a moment more.
fn is_kept(number: (u32, u32), node: &MountNamespace) -> Result<bool, HostError> {
    let number = text_of(number);
    if !device::is_taken(&number, node)? {
        return Ok(false);
    }
    std::thread::sleep(ENDING);
    device::is_taken(&number, node)
}

fn text_of((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
