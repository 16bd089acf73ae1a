//! The table of mounts of a mount namespace, as /proc/PID/mountinfo has it (proc_pid_mountinfo(5)).

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

    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let id = fields.next()?.parse().ok()?;
        let parent = fields.next()?.parse().ok()?;
        let device = fields.next()?.to_owned();
        let root = unescaped(fields.next()?);
        let point = PathBuf::from(unescaped(fields.next()?));
        let flags = fields.next()?.to_owned();
        // Behind as many optional fields as the kernel has.
        let mut rest = fields.skip_while(|field| *field != "-").skip(1);
        let mut text = || unescaped(rest.next().unwrap_or_default());
        let (kind, source) = (text(), text());
        let writes = Writes::of(rest.next().unwrap_or_default());
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
        Self { mounts: text.lines().filter_map(Mount::read).collect(), index: OnceLock::new() }
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

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescaped(field: &str) -> String {
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
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 98:0 /mnt1 /mnt/with\\040space rw,noatime master:1 - ext3 /dev/root rw
40 22 7:1 / /x rw - ext4 /dev/loop1 rw
41 40 7:2 / /x rw,nosuid shared:9 master:3 - xfs /dev/loop2 rw
50 51 7:1 / /tucked ro - ext4 /dev/loop1 rw
51 22 7:1 / /tucked rw - ext4 /dev/loop1 rw
60 22 7:3 / /t rw - ext4 /dev/loop3 rw
61 60 7:4 / /t/sub rw - ext4 /dev/loop4 rw
62 60 7:5 / /t ro - ext4 /dev/loop3 rw
63 62 7:6 / /t/sub rw - ext4 /dev/loop6 rw
64 63 7:7 / /t/sub rw - ext4 /dev/loop7 rw
65 64 7:8 / /t/sub/deeper rw - ext4 /dev/loop8 rw
66 22 7:9 / /t-other rw - ext4 /dev/loop9 rw
garbage
";

    fn devices(mounts: &[&Mount]) -> Vec<String> {
        mounts.iter().map(|mount| mount.device.clone()).collect()
    }

    #[test]
    fn the_last_one_at_a_path_is_the_one_that_is_seen() {
        let table = Table::read(SAMPLE);
        assert_eq!(devices(&table.at(Path::new("/x"))), ["7:1", "7:2"]);
        let tucked: Vec<u64> = table.at(Path::new("/tucked")).iter().map(|mount| mount.id).collect();
        assert_eq!(tucked, [51, 50], "whatever their order in the table");
        assert!(table.at(Path::new("/x/y")).is_empty() && table.at(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn a_file_system_takes_writes_or_not_however_it_is_mounted() {
        let of = |options: &str| {
            let table = Table::read(&format!("1 0 7:1 / /x ro,noatime - ext4 /dev/loop1 {options}\n"));
            table.all()[0].writes
        };
        assert_eq!(of("rw,errors=remount-ro"), Writes::Taken);
        assert_eq!(of(""), Writes::Taken);
        assert_eq!((of("ro,seclabel"), of("rw,emergency_ro")), (Writes::Refused, Writes::Refused));
        assert_eq!(of("rw,shutdown"), Writes::ShutDown);
    }

    #[test]
    fn what_is_hidden_is_not_seen_from_above() {
        let table = Table::read(SAMPLE);
        assert_eq!(devices(&table.seen_from(Path::new("/t"))), ["7:5", "7:7", "7:8"]);
        assert_eq!(devices(&table.seen_from(Path::new("/nowhere"))), [""; 0]);
    }

    #[test]
    fn a_place_is_the_same_by_whatever_way_it_is_reached() {
        let of = |text: &str, path: &str| Table::read(text).place_at(Path::new(path));
        let node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let mounted = node.to_owned() + "5 1 7:1 / /k/a rw - ext4 /d rw\n6 5 7:1 / /k/a ro - ext4 /d rw\n";
        let pod = "2 0 0:9 / / rw - overlay o rw\n3 2 8:1 /k /host rw - ext4 /dev/sda1 rw\n\
                   4 3 7:1 / /host/a rw - ext4 /dev/loop1 rw\n7 2 7:1 / /k/a rw - ext4 /dev/loop1 rw\n";
        let place = of(node, "/k/a").unwrap();
        assert_eq!(place, Place { device: "8:1".into(), path: "/k/a".into() });
        for (table, path) in [(mounted.as_str(), "/k/a"), (pod, "/host/a")] {
            assert_eq!(of(table, path).as_ref(), Some(&place), "{path}");
        }
        let copies = Table::read(pod);
        let places: Vec<_> = copies.all().iter().map(|mount| copies.place_of(mount)).collect();
        assert_eq!(places[2], Some(place.clone()));
        assert!(places[0].is_none(), "out of sight");
        assert_ne!(places[3], Some(place), "of that name in a container");
    }

    /// As the index answers, by looks at every mount.
    fn found_by_looking(table: &Table, path: &Path) -> Vec<u64> {
        let all = table.all();
        let here = || all.iter().filter(|mount| mount.point == path);
        let bottom = here().rfind(|mount| here().all(|other| other.id != mount.parent));
        let over = |mount: &&Mount| {
            let (id, point) = (mount.id, mount.point.clone());
            all.iter().find(|m| m.parent == id && m.point == point && m.id != id)
        };
        std::iter::successors(bottom, over).take(all.len()).map(|mount| mount.id).collect()
    }

    proptest::proptest! {
        #[test]
        fn what_is_at_a_path_is_found_as_by_looking_at_every_mount(
            mounts in proptest::collection::vec((1..8_u64, 0..8_u64, "(/[ab]){1,2}"), 0..9),
        ) {
            let line = |(id, parent, point): &(u64, u64, String)| format!("{id} {parent} 7:1 / {point} rw - ext4 /d rw");
            let table = Table::read(&mounts.iter().map(line).collect::<Vec<_>>().join("\n"));
            for path in ["/a", "/b", "/a/a", "/a/b", "/b/a", "/b/b/", "/"].map(Path::new) {
                let found: Vec<u64> = table.at(path).iter().map(|mount| mount.id).collect();
                proptest::prop_assert_eq!(found, found_by_looking(&table, path), "{}", path.display());
            }
            for mount in table.all() {
                let under = table.all().iter().find(|m| m.id == mount.parent && m.id != mount.id);
                let is_elsewhere = under.is_some_and(|under| under.point != mount.point);
                let place = is_elsewhere.then(|| under.and_then(|under| under.place_below(&mount.point)));
                proptest::prop_assert!(place.is_none_or(|place| table.place_of(mount) == place));
            }
        }
    }

    #[test]
    fn flags_are_whole_words() {
        let table = Table::read(SAMPLE);
        let mount = table.at(Path::new("/x")).pop().unwrap();
        assert!(mount.has("nosuid") && mount.has("rw") && !mount.has("ro") && !mount.has("suid"));
    }

    #[test]
    fn a_remount_can_say_the_flags_again() {
        let table = Table::read("36 35 7:2 / /mnt ro,nosuid,relatime shared:1 - ext4 /dev/loop2 ro");
        assert_eq!(table.all()[0].flags(), MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::RELATIME);
    }

    #[test]
    fn escapes_are_read() {
        let table = Table::read(SAMPLE);
        let found = table.at(Path::new("/mnt/with space"));
        assert_eq!((devices(&found), found[0].root.as_str()), (vec!["98:0".to_owned()], "/mnt1"));
        assert_eq!(unescaped("a\\134b\\011c\\9"), "a\\b\tc\\9");
    }
}
