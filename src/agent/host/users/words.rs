//! Who uses a volume, in words: processes by number, program and Pod. Never by their arguments, which may hold secrets.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use crate::api::conditions::first_few;

/// How many users are named.
const NAMED: usize = 3;

/// Who uses a volume.
#[derive(Debug, Default)]
pub(crate) struct Users(BTreeSet<String>);

impl Users {
    /// No user.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds processes. One that has ended meanwhile is named by its number.
    pub(super) fn add_processes(&mut self, proc: &Path, processes: &BTreeSet<i32>) {
        self.0.extend(processes.iter().map(|process| named(proc, *process)));
    }

    /// Adds a mount, in the mount namespace of a process or on the node itself.
    pub(super) fn add_mount(&mut self, proc: &Path, point: &Path, process: Option<i32>) {
        let point = shown(point);
        let whose = process.map(|process| named(proc, process));
        self.0
            .insert(whose.map_or_else(|| format!("the mount at {point}"), |who| format!("{who} at {point}")));
    }

    /// Adds a mount in the node's own mount namespace, which no process there has to itself.
    pub(super) fn add_mount_of_node(&mut self, point: &Path) {
        let point = shown(point);
        self.0.insert(format!("the mount at {point} on the node itself (whoever made it has to unmount it)"));
    }

    /// Adds a mount that kubelet has made for a Pod.
    pub(super) fn add_mount_of_pod(&mut self, point: &Path) {
        self.0.insert(format!("a Pod, by kubelet's mount at {}", shown(point)));
    }

    /// Adds another device of the kernel's that is made of this one.
    pub(super) fn add_holder(&mut self, holder: &str, number: &str) {
        self.0.insert(format!("the block device {holder} on this node, which is made of device {number}"));
    }

    /// Adds a device that the kernel has in use, where it cannot be seen by whom.
    pub fn add_unseen(&mut self, number: &str) {
        self.0.insert(format!("somebody who cannot be seen from here (device {number} is busy)"));
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&first_few(self.0.iter().map(String::as_str), NAMED))
    }
}

fn named(proc: &Path, process: i32) -> String {
    let read = |file| fs::read_to_string(proc.join(process.to_string()).join(file)).unwrap_or_default();
    let program: String = read("comm").trim().chars().map(plain).collect();
    let pod = pod_uid(&read("cgroup")).map(|uid| format!(" of Pod {uid}")).unwrap_or_default();
    format!("pid {process} ({program}){pod}")
}

fn shown(point: &Path) -> String {
    point.display().to_string().chars().map(plain).collect()
}

/// A process names itself.
fn plain(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

/// The Pod whose cgroup it is: kubelet makes `.../pod<UID>/...`, or with systemd `...-pod<UID with underscores>.slice`.
fn pod_uid(cgroups: &str) -> Option<String> {
    let parts = cgroups.lines().flat_map(|line| line.split('/'));
    parts.filter(|part| part.starts_with("pod") || part.starts_with("kubepods")).find_map(|part| {
        let (_, rest) = part.rsplit_once("pod")?;
        let uid = rest.strip_suffix(".slice").unwrap_or(rest).replace('_', "-");
        let plain = uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        (plain && (32..=36).contains(&uid.len())).then_some(uid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-0000-4000-8000-00000000beef";

    #[test]
    fn the_pod_is_read_from_both_forms_of_its_cgroup() {
        let plain = format!("0::/kubepods/burstable/pod{UID}/3fe0\n");
        let systemd = format!(
            "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.slice/cri-3fe0.scope\n",
            UID.replace('-', "_")
        );
        for cgroups in [plain, systemd] {
            assert_eq!(pod_uid(&cgroups).as_deref(), Some(UID), "{cgroups}");
        }
        for other in ["0::/system.slice/podman.service\n", "0::/\n", "0::/kubepods/burstable\n", ""] {
            assert_eq!(pod_uid(other), None, "{other}");
        }
    }

    #[test]
    fn only_some_are_named() {
        let mut users = Users::default();
        assert!(users.is_empty());
        (1..=5)
            .for_each(|n| users.add_mount(Path::new("/proc"), &Path::new("/").join(format!("m{n}")), None));
        assert_eq!(users.to_string(), "the mount at /m1, the mount at /m2, the mount at /m3 and 2 more");
    }

    #[test]
    fn a_process_is_named_by_number_and_program() {
        let mut users = Users::default();
        let me = i32::try_from(std::process::id()).unwrap();
        users.add_processes(Path::new("/proc"), &BTreeSet::from([me]));
        assert!(users.to_string().starts_with(&format!("pid {me} (")), "{users}");
    }
}
