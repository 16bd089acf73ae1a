//! What an agent still has mounted of volumes that were taken from its node while it was silent (rule R4).
//!
//! It is said in the agent's Lease itself: who reads that the agent is heard again reads in the same object what has to
//! be undone first, and saying it costs no write of its own.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;

/// Annotation with the names of the VolumeHandles, separated by commas; `*` where the agent has yet to find out.
const LEFTOVERS: &str = "moor.dev/leftovers";
const ANY: &str = "*";
/// Most names that are written: 64 KiB of them, far below what an object may have.
const MOST: usize = 1000;

/// VolumeHandles of which a node may have mounts that nobody granted. They are not granted on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// The node has yet to find out: it may have mounts of any volume.
    Any,
    /// The node has mounts of these volumes; of none, mostly.
    Of(BTreeSet<String>),
}

impl Leftovers {
    /// No leftovers.
    #[must_use]
    pub const fn none() -> Self {
        Self::Of(BTreeSet::new())
    }

    /// Reads the leftovers from a Lease.
    #[must_use]
    pub fn said_in(lease: &Lease) -> Self {
        let said = lease.metadata.annotations.as_ref().and_then(|all| all.get(LEFTOVERS));
        match said.map(String::as_str).unwrap_or_default() {
            ANY => Self::Any,
            names => Self::Of(names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()),
        }
    }

    /// Writes the leftovers into a Lease.
    pub fn say_in(&self, lease: &mut Lease) {
        let text = match self {
            Self::Of(names) if names.len() <= MOST => {
                names.iter().map(String::as_str).collect::<Vec<_>>().join(",")
            }
            Self::Of(_) | Self::Any => ANY.to_owned(),
        };
        let annotations = lease.metadata.annotations.get_or_insert_default();
        if text.is_empty() {
            annotations.remove(LEFTOVERS);
        } else {
            annotations.insert(LEFTOVERS.into(), text);
        }
    }

    /// Whether the VolumeHandle of this name is, or may be, one of them.
    #[must_use]
    pub fn cover(&self, handle_name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(names) => names.contains(handle_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(leftovers: &Leftovers) -> Lease {
        let mut lease = Lease::default();
        leftovers.say_in(&mut lease);
        lease
    }

    #[test]
    fn what_is_said_is_read() {
        for leftovers in [
            Leftovers::none(),
            Leftovers::Any,
            Leftovers::Of(["a".into()].into()),
            Leftovers::Of(["a".into(), "b".into()].into()),
        ] {
            assert_eq!(Leftovers::said_in(&said(&leftovers)), leftovers);
        }
        assert_eq!(Leftovers::said_in(&Lease::default()), Leftovers::none());
    }

    #[test]
    fn each_handle_is_named_and_more_than_can_be_named_is_any() {
        let some = Leftovers::Of(["a".into(), "b".into()].into());
        assert!(some.cover("a") && some.cover("b") && !some.cover("ab") && !some.cover(""));
        assert!(Leftovers::Any.cover("a") && !Leftovers::none().cover("a"));
        let many = Leftovers::Of((0..=MOST).map(|n| n.to_string()).collect());
        assert_eq!(Leftovers::said_in(&said(&many)), Leftovers::Any);
    }

    #[test]
    fn what_is_undone_is_taken_back() {
        let mut lease = said(&Leftovers::Any);
        Leftovers::none().say_in(&mut lease);
        assert_eq!(lease.metadata.annotations, Some(std::collections::BTreeMap::new()));
    }
}
