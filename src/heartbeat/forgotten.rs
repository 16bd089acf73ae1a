//! Mounts of an agent that the API server does not account for, as its Lease names them (rule R7).
//!
//! They are described in the status of a PluginInstance, which goes with its Node, its socket and its Plugin while the mounts
//! stay. The Lease stays for as long as its agent can be there, so it says as much as must not be lost: which volumes. It
//! costs no write of its own, and a leader that has just started finds it.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;

/// Annotation with the names of the VolumeHandles, separated by commas.
const FORGOTTEN: &str = "moor.dev/forgotten";
/// Most names that are written, and that are believed: with what else a Lease says they fit into the 256 KiB that an
/// object's annotations may have. An agent stages as many volumes of one driver; of more drivers' the rest is said by
/// their PluginInstances alone.
pub const MOST: usize = 2048;

/// VolumeHandles of which a node has, or may have, a mount that the API server does not account for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten(BTreeSet<String>);

impl Forgotten {
    /// A report of these VolumeHandles. Empty names are left out: they stand for records that cannot be read.
    pub fn of(handles: impl Iterator<Item = String>) -> Self {
        Self(handles.filter(|name| !name.is_empty()).collect())
    }

    /// Reads the report from a Lease.
    #[must_use]
    pub fn said_in(lease: &Lease) -> Self {
        let said = lease.metadata.annotations.as_ref().and_then(|all| all.get(FORGOTTEN));
        Self::of(said.map(String::as_str).unwrap_or_default().split(',').take(MOST).map(str::to_owned))
    }

    /// Writes this report into a Lease.
    pub fn say_in(&self, lease: &mut Lease) {
        let names: Vec<_> = self.names().take(MOST).collect();
        let annotations = lease.metadata.annotations.get_or_insert_default();
        if names.is_empty() {
            annotations.remove(FORGOTTEN);
        } else {
            annotations.insert(FORGOTTEN.into(), names.join(","));
        }
    }

    /// The names of the VolumeHandles.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether the report names this VolumeHandle.
    #[must_use]
    pub fn has(&self, handle: &str) -> bool {
        self.0.contains(handle)
    }

    /// Whether the report names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Forgotten {
        Forgotten::of(all.iter().map(|&name| name.to_owned()))
    }

    #[test]
    fn what_is_said_is_read_and_taken_back() {
        let mut lease = Lease::default();
        assert!(Forgotten::said_in(&lease).is_empty());
        for said in [names(&["b", "a"]), names(&["a"]), names(&[])] {
            said.say_in(&mut lease);
            assert_eq!(Forgotten::said_in(&lease), said);
            assert_eq!(said.has("a"), !said.is_empty());
        }
        assert_eq!(lease.metadata.annotations, Some(std::collections::BTreeMap::new()));
        names(&["", "a"]).say_in(&mut lease);
        assert_eq!(Forgotten::said_in(&lease), names(&["a"]), "what cannot be named");
    }

    /// A Lease that is too large is not renewed, and a node must not hold up more than it may have.
    #[test]
    fn no_more_is_said_or_believed_than_fits() {
        let all = Forgotten::of((0..=MOST).map(|n| format!("{n:063}")));
        let mut lease = Lease::default();
        all.say_in(&mut lease);
        assert_eq!(Forgotten::said_in(&lease).names().count(), MOST);
        let text = &lease.metadata.annotations.as_ref().unwrap()[FORGOTTEN];
        assert!(text.len() < 150 << 10, "{}", text.len());
        let longer = format!("{text},one-more");
        lease.metadata.annotations.as_mut().unwrap().insert(FORGOTTEN.into(), longer);
        assert_eq!(Forgotten::said_in(&lease).names().count(), MOST);
    }
}
