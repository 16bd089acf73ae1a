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

/// Declares a kind of ids by what they begin with. What `parse` makes of a text is `None` for anything that this driver does
/// not give out: what it names cannot exist, and such a text must not become part of a path.
macro_rules! id {
    ($(#[$doc:meta])+ $id:ident, $prefix:literal) => {
        $(#[$doc])+
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $id(String);

        impl $id {
            const PREFIX: &str = $prefix;

            pub(super) fn of_name(name: &str) -> Self {
                Self(format!("{}{}", Self::PREFIX, digits(name)))
            }

            pub(super) fn as_str(&self) -> &str {
                &self.0
            }

            /// What stands behind the prefix.
            fn rest(&self) -> &str {
                self.0.strip_prefix(Self::PREFIX).unwrap_or_default()
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
    /// A snapshot's id. That of a member of a group tells the group and the volume.
    SnapshotId,
    "snap-"
);

id!(
    /// The id of a group of snapshots.
    GroupId,
    "group-"
);

impl VolumeId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.strip_prefix(Self::PREFIX).is_some_and(are_digits).then(|| Self(text.to_owned()))
    }
}

impl GroupId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.strip_prefix(Self::PREFIX).is_some_and(are_digits).then(|| Self(text.to_owned()))
    }
}

impl SnapshotId {
    pub(super) fn of_member(group: &GroupId, volume: &VolumeId) -> Self {
        Self(format!("{}{}-{}", Self::PREFIX, group.rest(), volume.rest()))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(Self::PREFIX)?;
        let is_one = match rest.split_once('-') {
            Some((group, volume)) => are_digits(group) && are_digits(volume),
            None => are_digits(rest),
        };
        is_one.then(|| Self(text.to_owned()))
    }

    /// The group that the snapshot is a member of.
    pub(super) fn group(&self) -> Option<GroupId> {
        let (group, _) = self.rest().split_once('-')?;
        Some(GroupId(format!("{}{group}", GroupId::PREFIX)))
    }
}

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
    fn a_member_tells_its_group() {
        let (group, volume) = (GroupId::of_name("one"), VolumeId::of_name("two"));
        assert_eq!(GroupId::parse(group.as_str()), Some(group.clone()));
        let member = SnapshotId::of_member(&group, &volume);
        assert!(member.as_str().len() <= 128);
        let parsed = SnapshotId::parse(member.as_str());
        assert_eq!(parsed.as_ref().and_then(SnapshotId::group), Some(group));
        assert_eq!(SnapshotId::of_name("one").group(), None);
        let digits = volume.rest();
        for bad in
            [format!("snap-{digits}-"), format!("snap-{digits}-{digits}-{digits}"), format!("snap--{digits}")]
        {
            assert_eq!(SnapshotId::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_volume_and_a_snapshot_of_one_name_differ() {
        let (volume, snapshot) = (VolumeId::of_name("one"), SnapshotId::of_name("one"));
        assert_eq!(VolumeId::parse(snapshot.as_str()), None);
        assert_eq!(SnapshotId::parse(volume.as_str()), None);
    }
}
