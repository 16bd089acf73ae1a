//! The ids that the driver gives out. An id is made from the name of what it is for, so that a repeated call finds what an
//! interrupted one has left behind without an index that could itself be interrupted.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// How many digits of a name's hash an id has.
const DIGITS: usize = 32;

/// The digits of an id that is made from a name.
fn digits(name: &str) -> String {
    let mut digest = HEXLOWER.encode(&Sha256::digest(name.as_bytes()));
    digest.truncate(DIGITS);
    digest
}

fn are_digits(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == DIGITS && text.bytes().all(is_digit)
}

/// Declares a kind of ids by what they begin with.
macro_rules! id {
    ($(#[$doc:meta])+ $id:ident, $prefix:literal) => {
        $(#[$doc])+
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $id(String);

        impl $id {
            pub(super) fn of_name(name: &str) -> Self {
                Self(format!(concat!($prefix, "{}"), digits(name)))
            }

            /// The id that a text is. It is `None` for anything that this driver does not give out: what it names cannot
            /// exist, and such a text must not become part of a path.
            pub(super) fn parse(text: &str) -> Option<Self> {
                text.strip_prefix($prefix).is_some_and(are_digits).then(|| Self(text.to_owned()))
            }

            pub(super) fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// The id in quotation marks, as messages show it.
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A volume's id.
    VolumeId,
    "vol-"
);

id!(
    /// A snapshot's id.
    SnapshotId,
    "snap-"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_from_names_and_never_leave_the_directory() {
        let id = VolumeId::of_name("a name/with ../ everything");
        assert_eq!(VolumeId::parse(id.as_str()), Some(id));
        for bad in ["", "vol-", "../../etc", "vol-../../../../../../../etc/passwd-", "VOL-0"] {
            assert_eq!(VolumeId::parse(bad), None, "{bad}");
        }
        let id = SnapshotId::of_name("a name/with ../ everything");
        assert_eq!(SnapshotId::parse(id.as_str()), Some(id));
        for bad in ["", "snap-", "../../etc", "snap-../../../../../../../etc/passwd", "SNAP-0"] {
            assert_eq!(SnapshotId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_volume_and_a_snapshot_of_one_name_differ() {
        let (volume, snapshot) = (VolumeId::of_name("one"), SnapshotId::of_name("one"));
        assert_eq!(VolumeId::parse(snapshot.as_str()), None);
        assert_eq!(SnapshotId::parse(volume.as_str()), None);
    }
}
