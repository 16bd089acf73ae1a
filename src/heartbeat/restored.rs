//! The annotation by which an agent's Lease says that etcd was restored, from when the agent has found that out (rule
//! R7).
//!
//! Whoever leads later has to know whether that was before or after the last leader was heard. Both Leases are in one etcd,
//! so the revision at which it was first said tells, and no clock is asked. An agent learns that revision only by saying it:
//! at first it says `now`, which is the version of the Lease that says so.

use k8s_openapi::api::coordination::v1::Lease;

use crate::k8s::lease::revision;

/// Annotation with the revision at which the agent first said so.
const WENT_BACK: &str = "moor.dev/went-back";
const NOW: &str = "now";

/// When an agent first said that etcd was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// No Lease has said so yet, or the answer to the write that did is missing.
    Now,
    /// With the write that had this revision.
    At(u64),
}

impl Restored {
    /// Reads the annotation's text. A text that cannot be read was written by halves, so nothing was said.
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.trim().parse().map_or(Self::Now, Self::At)
    }

    /// The annotation's text.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Now => NOW.to_owned(),
            Self::At(revision) => revision.to_string(),
        }
    }

    /// The revision at which a Lease first said so. None can be later than the Lease is.
    #[must_use]
    pub fn said_in(lease: &Lease) -> Option<u64> {
        let said = lease.metadata.annotations.as_ref()?.get(WENT_BACK)?;
        let now = revision(lease);
        Some(match Self::read(said) {
            Self::Now => now,
            Self::At(revision) => revision.min(now),
        })
    }

    /// Writes the annotation into a Lease.
    pub fn say_in(self, lease: &mut Lease) {
        lease.metadata.annotations.get_or_insert_default().insert(WENT_BACK.into(), self.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_with_the_revision_of_the_first_write() {
        let mut lease = Lease::default();
        assert_eq!(Restored::said_in(&lease), None);
        lease.metadata.resource_version = Some("20".into());
        Restored::Now.say_in(&mut lease);
        assert_eq!(Restored::said_in(&lease), Some(20));
        Restored::At(20).say_in(&mut lease);
        lease.metadata.resource_version = Some("30".into());
        assert_eq!(Restored::said_in(&lease), Some(20));
        Restored::At(40).say_in(&mut lease);
        assert_eq!(Restored::said_in(&lease), Some(30), "of another history");
        for said in [Restored::Now, Restored::At(7)] {
            assert_eq!(Restored::read(&said.text()), said);
        }
    }
}
