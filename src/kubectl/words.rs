//! Ages, conditions and failures in words.

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::page::Page;
use crate::api::claim::PodUse;
use crate::api::conditions::{CallFailure, Condition, DRIFTED, ORPHANS, PODS, READY, SILENT, find, story};
use crate::api::reason::Reason;

/// How long ago something was, as kubectl says it. The clocks of two machines differ: what seems to come is now.
pub(super) fn age(now: Timestamp, since: Timestamp) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = now.duration_since(since).as_secs().max(0);
    let two = |large: i64, of: &str, small: i64, and: &str| {
        let (whole, rest) = (seconds / large, seconds % large / small);
        if rest == 0 { format!("{whole}{of}") } else { format!("{whole}{of}{rest}{and}") }
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        _ => format!("{}d", seconds / DAY),
    }
}

/// How long something has lasted, and since which moment.
pub(super) fn since(now: Timestamp, at: Timestamp) -> String {
    format!("for {} (since {at})", age(now, at))
}

/// Name of an object, with its namespace if it has one.
pub(super) fn full_name(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    meta.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Since when an object is in its state: since its Ready condition turned, else since it was created.
pub(super) fn turned(meta: &ObjectMeta, conditions: &[Condition]) -> Option<Timestamp> {
    let ready = find(conditions, READY).map(|ready| ready.last_transition_time.0);
    ready.or_else(|| meta.creation_timestamp.as_ref().map(|time| time.0))
}

/// The age of that, for a column.
pub(super) fn turned_age(now: Timestamp, meta: &ObjectMeta, conditions: &[Condition]) -> String {
    turned(meta, conditions).map_or_else(String::new, |at| age(now, at))
}

/// The reason of the Ready condition, for a column.
pub(super) fn why(conditions: &[Condition]) -> String {
    find(conditions, READY).map_or_else(String::new, |ready| ready.reason.to_string())
}

/// A condition's reason and message.
pub(super) fn reason_and_message(condition: &Condition) -> String {
    let Condition { reason, message, .. } = condition;
    if message.is_empty() { reason.to_string() } else { format!("{reason}: {message}") }
}

/// What the driver last said, how often, and when it is asked again.
pub(super) fn last_said(
    now: Timestamp,
    failed: Option<&CallFailure>,
    attempts: Option<i64>,
    next: Option<&Time>,
) -> Option<String> {
    let told = story(failed, attempts, next)?;
    Some(match next {
        Some(next) if next.0 > now => format!("{told} (in {})", age(next.0, now)),
        Some(_) => format!("{told} (due)"),
        None => told,
    })
}

/// Whether a condition says that something is not as it should be.
pub(super) fn is_trouble(condition: &Condition) -> bool {
    match &*condition.type_ {
        // It is there only while there is something to say.
        SILENT => true,
        DRIFTED | ORPHANS => condition.status == "True",
        PODS if condition.reason == Reason::PodsNotServed.as_str() => false,
        _ => condition.status != "True",
    }
}

/// The conditions of trouble, with Ready before all others.
pub(super) fn troubles(conditions: &[Condition]) -> Vec<&Condition> {
    let mut all: Vec<_> = conditions.iter().filter(|condition| is_trouble(condition)).collect();
    all.sort_by_key(|condition| condition.type_ != READY);
    all
}

/// What a reason means, and what to do, where it is one of moor's.
fn meaning(kind: &str, condition: &Condition) -> Option<String> {
    let is = |reason: &&Reason| {
        let place = reason.group();
        reason.as_str() == condition.reason
            && place.condition == condition.type_
            && place.status == (condition.status == "True")
            && place.kinds.split(", ").any(|of| of == kind)
    };
    let found = Reason::ALL.iter().find(is)?;
    Some(found.meaning().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Adds the conditions of an object of this kind, those of trouble with what they mean.
pub(super) fn conditions(page: &mut Page, now: Timestamp, kind: &str, all: &[Condition]) {
    if all.is_empty() {
        return;
    }
    page.heading("Conditions");
    for condition in all {
        let Condition { type_, status, .. } = condition;
        let lasted = since(now, condition.last_transition_time.0);
        page.line(2, &format!("{type_} is {status} {lasted}"));
        page.line(4, &reason_and_message(condition));
        if let Some(meaning) = meaning(kind, condition).filter(|_| is_trouble(condition)) {
            page.line(4, &format!("({meaning})"));
        }
    }
}

/// How many there are, and how many in which state.
pub(super) fn tally<S: Debug>(states: impl IntoIterator<Item = S>) -> String {
    let mut by_state: BTreeMap<String, usize> = BTreeMap::new();
    for state in states {
        *by_state.entry(format!("{state:?}")).or_default() += 1;
    }
    let all: usize = by_state.values().sum();
    if all == 0 {
        return "none".into();
    }
    let each: Vec<_> = by_state.iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{all}: {}", each.join(", "))
}

/// The Pod that a claim was made for.
pub(super) fn pod(pod: &PodUse) -> String {
    format!("Pod {}/{}, by {}", pod.namespace, pod.name, pod.volume())
}

/// Since when an object is being deleted.
pub(super) fn deleted(now: Timestamp, meta: &ObjectMeta) -> Option<String> {
    let at = meta.deletion_timestamp.as_ref()?.0;
    Some(since(now, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::{Desired, set};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, said) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (86_400, "24h"),
            (180_000, "2d2h"),
            (40_000_000, "462d"),
        ] {
            assert_eq!(age(at(seconds), at(0)), said, "{seconds}");
        }
    }

    #[test]
    fn what_failed_says_when_it_is_tried_again() {
        let failed =
            CallFailure { rpc: "NodeStageVolume".into(), code: "Internal".into(), message: "no".into() };
        let said = |next: Option<Time>| last_said(at(100), Some(&failed), Some(3), next.as_ref());
        let wanted = "NodeStageVolume: Internal: no; attempt 3, next at 1970-01-01T00:02:10Z (in 30s)";
        assert_eq!(said(Some(Time(at(130)))).unwrap(), wanted);
        assert!(said(Some(Time(at(90)))).unwrap().ends_with("00:01:30Z (due)"));
        assert_eq!(said(None).unwrap(), "NodeStageVolume: Internal: no; attempt 3");
        assert_eq!(last_said(at(0), None, None, None), None);
    }

    #[test]
    fn a_condition_of_trouble_is_shown_with_what_it_means() {
        let mut all = Vec::new();
        set(&mut all, &Desired::new(Reason::Held, "by another"), None, at(60));
        set(&mut all, &Desired::new(Reason::NoHeartbeat, "silent"), None, at(60));
        let mut page = Page::default();
        conditions(&mut page, at(90), "VolumeClaim", &all);
        let text = page.to_string();
        for line in [
            "  Ready is False for 30s (since 1970-01-01T00:01:00Z)\n    Held: by another\n    (Another claim holds the \
             volume; status.waitingFor names it.",
            "  NodeSilent is True for 30s (since 1970-01-01T00:01:00Z)\n    NoHeartbeat: silent\n    (Nothing is heard",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let mut well = Vec::new();
        set(&mut well, &Desired::new(Reason::InStep, ""), None, at(60));
        set(&mut well, &Desired::new(Reason::PodsNotServed, ""), None, at(60));
        set(&mut well, &Desired::new(Reason::Ready, ""), None, at(60));
        assert!(troubles(&well).is_empty());
    }

    #[test]
    fn objects_are_counted_by_state() {
        assert_eq!(tally(["Ready"; 0]), "none");
        let states = [crate::api::VolumeState::Ready, crate::api::VolumeState::Pending];
        assert_eq!(tally(states), "2: 1 Pending, 1 Ready");
    }
}
