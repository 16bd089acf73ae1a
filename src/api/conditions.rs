//! Conditions: types, reasons and the rule by which one replaces another.
//!
//! The rule is apimachinery's SetStatusCondition: the transition time moves only when the status does.

use std::borrow::Borrow;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::condition::Condition;
pub use super::reason::Reason;

/// The condition that every kind has, for `kubectl wait --for=condition=Ready`.
pub const READY: &str = "Ready";

/// The type of the condition that a claim has while the agent of its node is silent. It is True for that time, and
/// its transition time says since when.
pub const SILENT: &str = "NodeSilent";

/// The condition of a Volume about whose attachments the storage says otherwise than moor's objects.
pub const DRIFTED: &str = "Drifted";

/// The condition of a Volume that says whether anything is wrong with it, where anybody has looked.
pub const HEALTHY: &str = "Healthy";

/// The condition of a registered Volume that says whether its driver has confirmed what the Volume says of its storage.
pub const CONFIRMED: &str = "Confirmed";

/// The condition of a Volume that says whether its Plugin has what a claim needs.
pub const SCHEDULABLE: &str = "Schedulable";

/// The condition of a Volume that says whether its PersistentVolume is there.
pub const PERSISTENT_VOLUME: &str = "PersistentVolume";

/// The condition of a Volume, and of an Attachment, that says whether it has the size that is asked for.
pub const EXPANDED: &str = "Expanded";

/// The condition of a Volume that says whether Pods can use it by the PersistentVolumeClaim that it names.
pub const EXPORTED: &str = "Exported";
/// The condition of a Volume that says whether its driver has taken the mutable parameters that are asked for.
pub const MODIFIED: &str = "Modified";

/// The condition of a Volume that says whether claims get it as its capabilities and mount options say since they were edited.
pub const APPLIED: &str = "Applied";

/// The condition of a Plugin that says which of its instances do not count as they say, and which hold up others.
pub const IN_ORDER: &str = "InstancesInOrder";

/// The condition of a Plugin that says how the Pods do that moor runs for it. One that declares none does not have it.
pub const DEPLOYED: &str = "Deployed";

/// The condition of a deleted Plugin that waits.
pub const REMOVABLE: &str = "Removable";

/// The condition of a Plugin that says whether kubelets come to moor for its driver's volumes.
pub const PODS: &str = "PodsServed";

/// The condition of a Plugin whose driver lists storage that no object stands for.
pub const ORPHANS: &str = "Orphans";

/// The condition of a Volume or a Snapshot that says whether its driver lists its storage.
pub const STORAGE_FOUND: &str = "StorageFound";

/// The condition of a PluginInstance that says what waits to be undone on its node and has no claim to say so.
pub const UNDONE: &str = "Undone";

/// Longest condition message moor writes, in bytes; the API server allows 32 KiB.
pub const MAX_MESSAGE: usize = 1024;

/// What somebody waits for is written when the wait has lasted this long: most are over before anybody looks, and each
/// write costs the API server as much as a grant.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// For how long a wait that began at `since` is not written yet; None: it is to be written. Objects' times are whole seconds,
/// cut off. Where the clocks differ by more than seconds nothing is held back.
#[must_use]
pub fn patience_left(since: Timestamp, now: Timestamp) -> Option<Duration> {
    time_left(since, now, PATIENCE)
}

/// What is left of `whole`, which began at `since`; None: nothing, as for [`patience_left`].
#[must_use]
pub fn time_left(since: Timestamp, now: Timestamp, whole: Duration) -> Option<Duration> {
    let longest = whole + Duration::from_secs(1);
    let waited = now.duration_since(since);
    let left = SignedDuration::try_from(longest).ok()? - waited;
    Duration::try_from(left).ok().filter(|left| !left.is_zero() && *left <= longest * 2)
}

/// A condition as a decision wants it, before times are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Desired {
    /// It says the condition's type and status, too.
    pub reason: Reason,
    /// A sentence for the person who reads `kubectl describe`.
    pub message: String,
}

impl Desired {
    /// The condition of this reason.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// A failed call as it is shown in a status: what was tried and what the driver said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallFailure {
    /// CSI call, for example NodeStageVolume.
    pub rpc: String,
    /// gRPC code, for example DeadlineExceeded.
    pub code: String,
    /// The driver's words, shortened, without secrets and mount flags.
    pub message: String,
}

/// What a driver last said, how often, and when it is asked again; nothing if nothing failed.
#[must_use]
pub fn story(failed: Option<&CallFailure>, attempts: Option<i64>, next: Option<&Time>) -> Option<String> {
    let CallFailure { rpc, code, message } = failed?;
    let attempts = attempts.map(|n| format!("; attempt {n}")).unwrap_or_default();
    let next = next.map(|at| format!(", next at {}", at.0)).unwrap_or_default();
    Some(format!("{rpc}: {code}: {message}{attempts}{next}"))
}

/// The first few names, and how many more there are, so that a message stays readable.
#[must_use]
pub fn first_few<S: Borrow<str>>(names: impl IntoIterator<Item = S>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown = names.by_ref().take(most).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Puts `desired` into `conditions`. Returns whether anything changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    desired: &Desired,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let place = desired.reason.group();
    let mut wanted = Condition {
        type_: place.condition.into(),
        status: if place.status { "True" } else { "False" }.into(),
        reason: desired.reason.as_str().into(),
        message: shortened(&desired.message, MAX_MESSAGE).to_owned(),
        observed_generation: generation,
        last_transition_time: whole_second(now),
    };
    let Some(found) = conditions.iter_mut().find(|found| found.type_ == wanted.type_) else {
        conditions.push(wanted);
        return true;
    };
    if found.status == wanted.status {
        wanted.last_transition_time.clone_from(&found.last_transition_time);
    }
    let changes = *found != wanted;
    *found = wanted;
    changes
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(conditions: impl IntoIterator<Item = &'a Condition>, type_: &str) -> Option<&'a Condition> {
    conditions.into_iter().find(|condition| condition.type_ == type_)
}

/// The condition of this type, if its status is this one.
#[must_use]
pub fn find_as<'a>(
    conditions: impl IntoIterator<Item = &'a Condition>,
    type_: &str,
    status: &str,
) -> Option<&'a Condition> {
    find(conditions, type_).filter(|condition| condition.status == status)
}

/// Whether the condition of this type is True.
#[must_use]
pub fn is_true<'a>(conditions: impl IntoIterator<Item = &'a Condition>, type_: &str) -> bool {
    find_as(conditions, type_, "True").is_some()
}

/// The API server keeps whole seconds; a finer time would differ from its own read-back for ever.
#[must_use]
pub fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// At most so many bytes of a text, cut between characters.
pub(crate) fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn desired(status: bool, message: &str) -> Desired {
        Desired::new(if status { Reason::Published } else { Reason::Staging }, message)
    }

    /// Since when something holds must not be lost to a later word about it.
    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut all = Vec::new();
        let since = |all: &[Condition]| all[0].last_transition_time.0.as_second();
        assert!(set(&mut all, &desired(false, "waits"), Some(1), at(10)));
        assert_eq!(since(&all), 10);
        assert!(set(&mut all, &desired(false, "still waits"), Some(1), at(20)));
        assert_eq!((since(&all), all[0].message.as_str()), (10, "still waits"));
        assert!(!set(&mut all, &desired(false, "still waits"), Some(1), at(30)), "nothing to write");
        assert!(set(&mut all, &desired(true, "there"), Some(1), at(40)));
        assert_eq!((since(&all), all.len()), (40, 1));
    }

    #[test]
    fn a_clock_that_jumps_holds_no_condition_back() {
        let left = |now: i64| patience_left(at(1_700_000_000), at(1_700_000_000 + now));
        let second = Duration::from_secs(1);
        assert_eq!((left(0), left(2), left(3)), (Some(3 * second), Some(second), None));
        assert_eq!(left(-2), Some(5 * second), "clocks differ a little");
        // An hour ahead, an hour behind.
        assert_eq!((left(3600), left(-3600)), (None, None));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut all = Vec::new();
        set(&mut all, &desired(false, &"ä".repeat(MAX_MESSAGE)), None, at(1));
        assert_eq!(all[0].message.len(), MAX_MESSAGE);
        assert!(all[0].message.chars().all(|c| c == 'ä'));
    }
}
