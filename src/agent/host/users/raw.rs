//! Who uses a raw device.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::survey::folder_of as process_folder;
use super::{PROC, Question, Tables, Users, device, is_kept, name, text_of};
use crate::agent::failed_at::failed_at;
use crate::agent::host::error::HostError;
use crate::agent::host::mount_namespace::MountNamespace;
use crate::agent::host::mounts::{KERNEL, LOOKS, folder_of, number_of, same_disk};
use crate::agent::host::paths::HostPath;
use crate::attachment::record::Imprint;
use crate::mount_table::Mount;

/// The kernel's folders of block devices, by their names.
const BLOCK: &str = "/sys/block";
/// The kernel's folders of block devices and of partitions, by their names.
const BY_NAME: &str = "/sys/class/block";

impl Question {
    /// Whether the device is in use, if it is still the same.
    pub(super) async fn ask_raw(
        &self,
        imprint: &Imprint,
        tables: &Tables,
        node: &MountNamespace,
        users: &mut Users,
    ) -> Result<(), HostError> {
        let Some((disk, folder)) = imprint.disk.clone().and_then(|d| Some((d.clone(), folder_of(&d)?)))
        else {
            return Ok(());
        };
        let (asked, seen) = (self.clone(), tables.clone());
        let mut named = std::mem::take(users);
        let holding = move |folder: &Path| {
            let Some(number) = same_disk(&disk) else { return Ok((named, None)) };
            let parts = parts(folder, number)?;
            asked.add_holders(&seen, &parts, &mut named);
            let numbers: BTreeSet<_> = parts.iter().filter_map(|part| number_of(&part.number)).collect();
            Ok((named, Some((number, numbers))))
        };
        let (named, found) = KERNEL.at(&folder, holding).await?;
        *users = named;
        let Some((number, numbers)) = found else { return Ok(()) };
        let own = tables.own.clone();
        let list = move |proc: &Path| device::open_files(proc, &own);
        let mut files = KERNEL.at(&HostPath::recorded(PROC), list).await?;
        if self.writers {
            for files in files.values_mut() {
                files.retain(|file| file.writes);
            }
        }
        self.add_loops(tables, &numbers, &text_of(number), users).await?;
        let are_it = numbers.clone();
        let found = device::who_has(files, move |link| device::is_device(link, &are_it)).await?;
        name(users, found, None).await?;
        // Swap, a target of the kernel's own, a volume manager without holders: while it is staged that may be the driver.
        if users.is_empty() && self.unstaged && !self.writers {
            let node = node.clone();
            let busy = LOOKS.at(&folder, move |_| is_kept(number, &node)).await?;
            name(users, BTreeSet::new(), busy.then(|| text_of(number))).await?;
        }
        Ok(())
    }

    /// The users of a raw device, or of a part of it, that have no file of it open: mounts of what is on it, wherever
    /// they are, and other devices that are made of it (device mapper, RAID).
    fn add_holders(&self, tables: &Tables, parts: &[Part], users: &mut Users) {
        let by_right = tables.places(self.by_right.iter());
        for part in parts {
            let shows = |device: &str, _: &str| device == part.number;
            for space in tables.survey.iter().filter(|space| space.shows_any(shows)) {
                let of_it = |mount: &&Mount| {
                    mount.device == part.number && self.means(mount) && !space.has_at(mount, &by_right)
                };
                for mount in space.table().all().iter().filter(of_it) {
                    tables.add_mount(users, space, mount);
                }
            }
            for holder in part.holders.iter().filter(|holder| self.means_device(holder)) {
                users.add_holder(holder, &part.number);
            }
        }
    }

    /// Loop devices whose content is one of these devices. The kernel says by what path it was opened, in one of the mount
    /// namespaces; whose path does not answer is on no device's node.
    async fn add_loops(
        &self,
        tables: &Tables,
        numbers: &BTreeSet<(u32, u32)>,
        number: &str,
        users: &mut Users,
    ) -> Result<(), HostError> {
        for (name, path) in KERNEL.at(&HostPath::recorded(BLOCK), loops).await? {
            let (survey, numbers) = (tables.survey.clone(), numbers.clone());
            let below = path.strip_prefix("/").unwrap_or(&path).to_owned();
            let is_it = move |proc: &Path| {
                let roots = survey.iter().map(|space| process_folder(proc, space.process).join("root"));
                Ok(roots.map(|root| root.join(&below)).any(|file| device::is_device(&file, &numbers)))
            };
            let key = HostPath::recorded(&format!("{PROC}/*/root{}", path.display()));
            match LOOKS.at(&key, move |_| is_it(Path::new(PROC))).await {
                Ok(true) if self.means_device(&name) => users.add_holder(&name, number),
                Ok(_) => {}
                Err(error @ HostError::Hangs(_)) => tracing::warn!("{error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Leaves out processes that only read, where only writers are asked for.
    fn means(&self, mount: &Mount) -> bool {
        !self.writers || mount.has("rw")
    }

    fn means_device(&self, name: &str) -> bool {
        let says = fs::read_to_string(Path::new(BY_NAME).join(name).join("ro"));
        !(self.writers && says.is_ok_and(|says| says.trim() == "1"))
    }
}

/// A disk or one of its partitions.
#[derive(Debug)]
struct Part {
    /// `major:minor` of the device.
    number: String,
    /// The devices that are made of this one.
    holders: Vec<String>,
}

/// A block device and its partitions, by the kernel's folder of it.
fn parts(folder: &Path, (major, minor): (u32, u32)) -> Result<Vec<Part>, HostError> {
    let names = |folder: &Path| -> io::Result<Vec<String>> {
        let all = match fs::read_dir(folder) {
            // A disk that has gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            all => all?,
        };
        all.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    let read = || {
        let whole = Part { number: format!("{major}:{minor}"), holders: names(&folder.join("holders"))? };
        let mut found = vec![whole];
        for below in names(folder)?.into_iter().map(|name| folder.join(name)) {
            if below.join("partition").exists() {
                let number = fs::read_to_string(below.join("dev"))?.trim().to_owned();
                found.push(Part { number, holders: names(&below.join("holders"))? });
            }
        }
        Ok(found)
    };
    read().map_err(failed_at(folder, HostError::Look))
}

/// Loop devices by their names, and the paths of their content.
fn loops(block: &Path) -> Result<Vec<(String, PathBuf)>, HostError> {
    let failed = failed_at(block, HostError::Look);
    let mut found = Vec::new();
    for entry in fs::read_dir(block).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name().to_string_lossy().into_owned();
        // One that is free has none.
        if let Ok(path) = fs::read_to_string(block.join(&name).join("loop/backing_file")) {
            found.push((name, PathBuf::from(path.trim_end_matches('\n'))));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_a_device_or_of_its_partitions_is_named() {
        let sys = tempfile::tempdir().unwrap();
        for folder in ["holders/dm-3", "part1/holders/md0", "part2/holders", "queue"] {
            fs::create_dir_all(sys.path().join(folder)).unwrap();
        }
        for (part, number) in [("part1", "8:17\n"), ("part2", "8:18\n")] {
            fs::write(sys.path().join(part).join("partition"), "1\n").unwrap();
            fs::write(sys.path().join(part).join("dev"), number).unwrap();
        }
        let mut found = parts(sys.path(), (8, 16)).unwrap();
        found.sort_by(|one, other| one.number.cmp(&other.number));
        let found: Vec<_> = found.into_iter().map(|part| (part.number, part.holders.join(","))).collect();
        let wanted = [("8:16", "dm-3"), ("8:17", "md0"), ("8:18", "")];
        assert_eq!(found, wanted.map(|(number, holders)| (number.to_owned(), holders.to_owned())));
        assert!(
            !parts(&sys.path().join("gone"), (8, 16)).unwrap().iter().any(|part| !part.holders.is_empty())
        );
    }

    #[test]
    fn a_loop_device_names_its_content() {
        let sys = tempfile::tempdir().unwrap();
        for folder in ["loop0/loop", "loop1", "sda"] {
            fs::create_dir_all(sys.path().join(folder)).unwrap();
        }
        fs::write(sys.path().join("loop0/loop/backing_file"), "/dev/a disk\n").unwrap();
        assert_eq!(loops(sys.path()).unwrap(), [("loop0".to_owned(), PathBuf::from("/dev/a disk"))]);
    }
}
