//! What the agent of a node makes of a look at a volume that is in use there, and what an agent reports of it.
//!
//! A finding ends when it is known to have ended: what could not be looked at this time stays as it is reported. Room has two
//! bounds, so that a volume at the edge does not turn with every file.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::shortened;
use crate::api::health::{HealthFinding, HealthKind, MAX_WORDS};

/// Questions to a driver that fail in a row before that is a finding: a driver that is started anew is away for a moment.
pub const FAILURES: u32 = 3;
/// Nothing that anybody calls a volume has so many bytes or inodes.
const MOST: u64 = 1 << 60;
/// A volume is full when no more of it is available than this part of it, and than [`LITTLE`].
const PART: u64 = 100;
/// Bytes that are little in a volume of any size.
const LITTLE: u64 = 1 << 30;
/// How many times as much has to be available before it is not full any more.
const AGAIN: u64 = 3;

/// How a mount is, as its machine sees it. The words are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSeen {
    /// Nothing could be found out this time.
    Unseen,
    /// Nothing is mounted.
    NotMounted(String),
    /// Nothing is behind it any more.
    Stale(String),
    /// It does not answer.
    Hangs(String),
    /// It is as it should be.
    There {
        /// The file system takes no writes.
        read_only: bool,
    },
}

/// What a driver says of a volume. The words are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverSeen {
    /// It has nothing to say, by its capabilities.
    Mute,
    /// It cannot be asked now.
    Away,
    /// It was asked and has not said.
    Failed {
        /// Why.
        words: String,
        /// How many times in a row.
        in_a_row: u32,
    },
    /// The volume is as it should be, or the driver says nothing else.
    Normal,
    /// The volume is not as it should be.
    Abnormal(String),
}

/// How much of something there is, and is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// What there is.
    pub total: u64,
    /// What is taken.
    pub used: u64,
    /// What can still be taken.
    pub available: u64,
}

impl Amount {
    /// What a driver says; nothing if that cannot be.
    #[must_use]
    pub fn told(total: i64, used: i64, available: i64) -> Option<Self> {
        let number = |told: i64| u64::try_from(told).ok().filter(|told| *told <= MOST);
        let amount = Self { total: number(total)?, used: number(used)?, available: number(available)? };
        let fits = |part: u64| part <= amount.total || amount.total == 0;
        (fits(amount.used) && fits(amount.available)).then_some(amount)
    }

    /// Whether there is next to nothing left, by whether that is reported already.
    fn is_short(&self, little: u64, reported: bool) -> bool {
        // CSI leaves out what a driver does not know, which reads as 0.
        let is_told = self.total > 0 && (self.available > 0 || self.used >= self.total / 5 * 4);
        let bound = (self.total / PART).min(little);
        is_told && self.available <= if reported { bound.saturating_mul(AGAIN) } else { bound }
    }
}

/// A look at a volume that is in use on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The mount.
    pub mount: MountSeen,
    /// What the driver says.
    pub driver: DriverSeen,
    /// Its bytes; nothing if they are not known.
    pub bytes: Option<Amount>,
    /// Its inodes; nothing if they are not known.
    pub inodes: Option<Amount>,
    /// Whether a claim that uses it may write.
    pub is_written: bool,
}

/// What is wrong, in words, by kind.
pub type Found = BTreeMap<HealthKind, String>;

/// What is wrong with a volume by this look, and by what is reported of what was not seen.
#[must_use]
pub fn found(look: &Look, reported: &[HealthFinding]) -> Found {
    let was = |kind: HealthKind| reported.iter().find(|finding| finding.kind == kind);
    let kept = |kind: HealthKind| was(kind).map(|finding| (kind, finding.message.clone()));
    let mut found = Found::new();
    match &look.mount {
        MountSeen::Unseen => {
            let kinds =
                [HealthKind::NotMounted, HealthKind::Stale, HealthKind::NoAnswer, HealthKind::ReadOnly];
            found.extend(kinds.into_iter().filter_map(kept));
        }
        MountSeen::NotMounted(words) => {
            found.insert(HealthKind::NotMounted, words.clone());
        }
        MountSeen::Stale(words) => {
            found.insert(HealthKind::Stale, words.clone());
        }
        MountSeen::Hangs(words) => {
            found.insert(HealthKind::NoAnswer, words.clone());
            found.extend([HealthKind::Stale, HealthKind::ReadOnly].into_iter().filter_map(kept));
        }
        MountSeen::There { read_only } => {
            if *read_only && look.is_written {
                let words = "the file system takes no writes, though claims may write";
                found.insert(HealthKind::ReadOnly, words.to_owned());
            }
        }
    }
    match &look.driver {
        DriverSeen::Mute | DriverSeen::Normal => {}
        DriverSeen::Away => found.extend([HealthKind::Abnormal].into_iter().filter_map(kept)),
        DriverSeen::Failed { words, in_a_row } => {
            found.extend([HealthKind::Abnormal].into_iter().filter_map(kept));
            if *in_a_row >= FAILURES || was(HealthKind::NoAnswer).is_some() {
                found.entry(HealthKind::NoAnswer).or_insert_with(|| words.clone());
            }
        }
        DriverSeen::Abnormal(words) => {
            found.insert(HealthKind::Abnormal, words.clone());
        }
    }
    if look.driver == DriverSeen::Away && !found.contains_key(&HealthKind::NoAnswer) {
        // It may be of the driver's silence.
        found.extend(kept(HealthKind::NoAnswer));
    }
    short(HealthKind::Full, look.bytes, LITTLE, was(HealthKind::Full), &mut found);
    // A file system that makes inodes of its room has none when that is gone, which says nothing more.
    if !found.contains_key(&HealthKind::Full) {
        short(HealthKind::OutOfInodes, look.inodes, u64::MAX, was(HealthKind::OutOfInodes), &mut found);
    }
    found
}

fn short(
    kind: HealthKind,
    amount: Option<Amount>,
    little: u64,
    reported: Option<&HealthFinding>,
    found: &mut Found,
) {
    match (amount, reported) {
        (None, Some(finding)) => drop(found.insert(kind, finding.message.clone())),
        (Some(amount), _) if amount.is_short(little, reported.is_some()) => {
            let what = if kind == HealthKind::Full { "bytes" } else { "inodes" };
            // Not how many, which is otherwise every time.
            found.insert(kind, format!("next to none of its {} {what} are left", amount.total));
        }
        (Some(_) | None, _) => {}
    }
}

/// What is to be reported of what was found. What is reported already keeps its time, and its words unless they are to be put
/// `anew`: those of a driver may be others every time.
#[must_use]
pub fn report(found: &Found, reported: &[HealthFinding], now: &Time, anew: bool) -> Vec<HealthFinding> {
    let finding = |(kind, words): (&HealthKind, &String)| {
        let was = reported.iter().find(|finding| finding.kind == *kind);
        let message = was.filter(|_| !anew).map_or_else(|| shortened(words, MAX_WORDS), |was| &was.message);
        let since = was.map_or(now, |was| &was.since).clone();
        HealthFinding { kind: *kind, message: message.to_owned(), since }
    };
    found.iter().map(finding).collect()
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
