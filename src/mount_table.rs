//! The table of mounts of a mount namespace, as /proc/PID/mountinfo has it (proc_pid_mountinfo(5)).

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::mount::MountFlags;

/// Flags that a mount has by itself, whatever its file system, as the table calls them.
const OF_A_MOUNT: [(&str, MountFlags); 8] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
];

/// The flag that the table calls so; none for any other word.
pub(crate) fn flag_of(word: &str) -> MountFlags {
    OF_A_MOUNT.iter().find(|(name, _)| *name == word).map_or(MountFlags::empty(), |(_, flag)| *flag)
}

/// One mount, in the words of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub id: u64,
    /// The mount on which it is mounted.
    pub parent: u64,
    /// `major:minor`.
    pub device: String,
    /// Which part of its file system.
    pub root: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Flags of the mount, not of its file system.
    flags: String,
    /// Kind of the file system.
    pub kind: String,
    /// What was mounted.
    pub source: String,
    /// Whether the file system takes writes, however it is mounted here.
    pub writes: Writes,
}

/// Whether a file system takes writes. Of its options nothing else is kept: there may be words in them that nobody is to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Taken,
    /// It was mounted so, or the kernel has made it so after an error.
    Refused,
    /// After an error nothing of it can be used any more.
    ShutDown,
}

impl Writes {
    fn of(options: &str) -> Self {
        let has = |word: &str| options.split(',').any(|option| option == word);
        if has("shutdown") {
            Self::ShutDown
        } else if has("ro") || has("emergency_ro") {
            Self::Refused
        } else {
            Self::Taken
        }
    }
}

impl Mount {
    /// Its flags, for a remount, which replaces all of them.
    pub fn flags(&self) -> MountFlags {
        self.flags.split(',').map(flag_of).collect()
    }

    /// Whether it has the flag of this name.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|one| one == flag)
    }

    fn place_below(&self, path: &Path) -> Option<Place> {
        let rest = path.strip_prefix(&self.point).ok()?;
        Some(Place { device: self.device.clone(), path: Path::new(&self.root).join(rest) })
    }

    /// Of a line, if `is_one` says so of its device, its root and its place.
    fn read(line: &str, is_one: impl Fn(&str, &str, &str) -> bool) -> Option<Self> {
        let mut fields = line.split(' ');
        let (id, parent, device) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        if !is_one(device, &root, &point) {
            return None;
        }
        let (id, parent) = (id.parse().ok()?, parent.parse().ok()?);
        let flags = fields.next()?.to_owned();
        // Behind as many optional fields as the kernel has.
        let mut rest = fields.skip_while(|field| *field != "-").skip(1);
        let mut text = || unescaped(rest.next().unwrap_or_default()).into_owned();
        let (kind, source) = (text(), text());
        let writes = Writes::of(rest.next().unwrap_or_default());
        let (device, root, point) = (device.to_owned(), root.into_owned(), PathBuf::from(point.into_owned()));
        Some(Self { id, parent, device, root, point, flags, kind, source, writes })
    }
}

/// A directory or file of a file system, on which something can be mounted. It is the same wherever the file system is
/// mounted, in any namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    device: String,
    path: PathBuf,
}

impl Place {
    /// Whether this place is in the given directory, or is that directory.
    pub fn is_within(&self, folder: &Self) -> bool {
        self.device == folder.device && self.path.starts_with(&folder.path)
    }
}

/// The mounts of a table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    mounts: Vec<Mount>,
    /// Made for the first question. There may be thousands of mounts, and as many questions of each table.
    index: OnceLock<Index>,
}

/// Where in the table a mount is.
#[derive(Clone, Debug, Default)]
struct Index {
    ids: HashMap<u64, usize>,
    parents: HashMap<u64, Vec<usize>>,
    points: HashMap<PathBuf, Vec<usize>>,
}

impl Index {
    fn of(mounts: &[Mount]) -> Self {
        let mut index = Self::default();
        for (at, mount) in mounts.iter().enumerate() {
            index.ids.entry(mount.id).or_insert(at);
            index.parents.entry(mount.parent).or_default().push(at);
            index.points.entry(mount.point.clone()).or_default().push(at);
        }
        index
    }
}

impl Table {
    /// From the text of the file. What cannot be read in it is left out.
    pub fn read(text: &str) -> Self {
        Self::read_those(text, |_, _, _| true)
    }

    /// Of the mounts of which something is true of their device, their root and their place. A table of thousands is mostly
    /// read for a few of them.
    pub fn read_those(text: &str, is_one: impl Fn(&str, &str, &str) -> bool) -> Self {
        let mounts = text.lines().filter_map(|line| Mount::read(line, &is_one)).collect();
        Self { mounts, index: OnceLock::new() }
    }

    /// Of what is mounted at exactly `path`, which is all that [`Self::at`] looks at for this path.
    pub fn read_at(text: &str, path: &Path) -> Self {
        // Written as the kernel does, it need not be compared part by part with each of thousands.
        let path: PathBuf = path.components().collect();
        let path = path.to_string_lossy();
        Self::read_those(text, |_, _, point| point == path)
    }

    /// All of them.
    pub fn all(&self) -> &[Mount] {
        &self.mounts
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.mounts))
    }

    /// Those that an index has under some key, in the order of the table.
    fn those<'a>(&'a self, found: Option<&'a Vec<usize>>) -> impl DoubleEndedIterator<Item = &'a Mount> {
        found.into_iter().flatten().filter_map(|at| self.mounts.get(*at))
    }

    fn mounted_at(&self, point: &Path) -> impl DoubleEndedIterator<Item = &Mount> {
        self.those(self.index().points.get(point))
    }

    /// The mounts at exactly `path`, each with the one over it behind it: the last is the one that is seen. The order of
    /// the table is no help, as a mount can be put below another one (propagation does).
    pub fn at(&self, path: &Path) -> Vec<&Mount> {
        let here = || self.mounted_at(path);
        // Where something was mounted over a directory above, the younger ones are those that are seen.
        let bottom = here().rfind(|mount| here().all(|other| other.id != mount.parent));
        bottom.map(|bottom| self.stack(bottom)).unwrap_or_default()
    }

    /// What is seen at `path` and at the places below it where something is mounted.
    pub fn seen_from(&self, path: &Path) -> Vec<&Mount> {
        let mut seen: Vec<&Mount> = self.at(path).pop().into_iter().collect();
        let mut next = 0;
        while let Some(&mount) = seen.get(next) {
            let over = self.those(self.index().parents.get(&mount.id));
            let below = over.filter(|m| m.point != mount.point);
            seen.extend(below.filter_map(|m| self.stack(m).pop()));
            next += 1;
        }
        seen
    }

    /// On what a mount is mounted; nothing where that is out of sight of whoever has this table.
    pub fn place_of(&self, mount: &Mount) -> Option<Place> {
        let by_id = |id| self.mounts.get(*self.index().ids.get(&id)?);
        let under = |mount: &&Mount| by_id(mount.parent).filter(|m| m.id != mount.id);
        let mut all = std::iter::successors(under(&mount), under).take(self.mounts.len());
        all.find(|m| m.point != mount.point)?.place_below(&mount.point)
    }

    /// What is seen at `path`: on this, or below it, is what is mounted there next.
    pub fn place_in(&self, path: &Path) -> Option<Place> {
        path.ancestors().find_map(|above| self.at(above).pop())?.place_below(path)
    }

    /// On what is mounted, or would be, what is seen at `path`.
    pub fn place_at(&self, path: &Path) -> Option<Place> {
        let mounted = self.at(path).first().and_then(|mount| self.place_of(mount));
        let next = || path.ancestors().skip(1).find_map(|above| self.at(above).pop());
        mounted.or_else(|| next()?.place_below(path))
    }

    /// A mount, the one over it at the same place, and so on.
    fn stack<'a>(&'a self, bottom: &'a Mount) -> Vec<&'a Mount> {
        let over = |mount: &&'a Mount| {
            self.mounted_at(&mount.point).find(|m| m.parent == mount.id && m.id != mount.id)
        };
        // Mounts lie on each other in no circle; the bound is for a table that changes while it is read.
        std::iter::successors(Some(bottom), over).take(self.mounts.len()).collect()
    }
}

/// The text of the file. Somebody else's path may be anything, and must not hide the others.
pub(crate) fn text_of(file: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(file)
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescaped(field: &str) -> Cow<'_, str> {
    if !field.contains('\\') {
        return Cow::Borrowed(field);
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            bytes.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[path = "mount_table_tests.rs"]
mod tests;
