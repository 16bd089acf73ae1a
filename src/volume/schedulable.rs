//! Whether a claim of a Volume could be served anew, as far as its Plugin goes. Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;

use crate::api::Plugin;
use crate::api::conditions::{Desired, READY, Reason, find, time_left};

/// Time for which a Plugin may be without a healthy instance before its Volumes say so: a controller that is rolled, or all of moor
/// that is started again, is away for a moment, and thousands of Volumes would be written twice for it. Claims and the Plugin
/// say it at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time between two Volumes of a Plugin that say how it is when that has changed. All of them at once would keep everybody else's
/// writes waiting; fifty in a second are a tenth of what a small API server can do.
const BETWEEN: Duration = Duration::from_millis(20);

/// What there is to know of a Volume, beside its Plugin, to tell whether claims of it could be served anew.
#[derive(Clone, Copy, Debug)]
pub struct OfVolume {
    /// Whether its driver was asked for it.
    pub is_begun: bool,
    /// Whether it says that none could be.
    pub is_denied: bool,
    /// When this leader has begun to lead: before it nobody may have looked.
    pub looked_since: Timestamp,
    /// How long it waits for other Volumes of the Plugin: [`turn`].
    pub turn: Duration,
}

/// How long a Volume waits, when its Plugin has changed, while `volumes` of them tell it one after the other. It follows from the
/// UID, so nobody has to keep an order.
#[must_use]
pub fn turn(uid: &str, volumes: usize) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let volumes = u32::try_from(volumes).unwrap_or(u32::MAX).max(1);
    let place = u32::try_from(hasher.finish() % u64::from(volumes)).unwrap_or_default();
    BETWEEN.saturating_mul(place)
}

/// What a Volume of the Plugin `name` says in its condition Schedulable; or after which time it may say it.
pub fn schedulable(
    name: &str,
    plugin: Option<&Plugin>,
    volume: OfVolume,
    now: Timestamp,
) -> Result<Desired, Duration> {
    let Some(plugin) = plugin else {
        return Ok(Desired::new(Reason::PluginMissing, format!("Plugin {name} does not exist; create it")));
    };
    if plugin.ends() && !volume.is_begun {
        let words = format!("Plugin {name} is being deleted and takes no new volume; create it again");
        return Ok(Desired::new(Reason::PluginMissing, words));
    }
    let ready = plugin.status.as_ref().and_then(|status| find(&status.conditions, READY));
    let is_well = ready.is_some_and(|ready| ready.status == "True");
    let desired = if is_well {
        Desired::new(Reason::Schedulable, format!("Plugin {name} has what a claim needs"))
    } else {
        Desired::new(Reason::NoHealthyInstance, lacks(name))
    };
    if is_well && !volume.is_denied {
        return Ok(desired);
    }
    let since = since(plugin).map_or(volume.looked_since, |since| since.max(volume.looked_since));
    let patience = if is_well { Duration::ZERO } else { PATIENCE };
    time_left(since, now, volume.turn.saturating_add(patience)).map_or(Ok(desired), Err)
}

/// Since when the Plugin is as it says; since it was made, if nobody has looked yet.
fn since(plugin: &Plugin) -> Option<Timestamp> {
    let ready = plugin.status.as_ref().and_then(|status| find(&status.conditions, READY));
    let created = || plugin.metadata.creation_timestamp.as_ref();
    Some(ready.map(|ready| &ready.last_transition_time).or_else(created)?.0)
}

/// Without saying what is missing, which would have thousands of Volumes written whenever that changes.
fn lacks(name: &str) -> String {
    format!(
        "Plugin {name} has no healthy controller or no healthy node, so no claim is served anew before that has changed, and what \
         is mounted stays; its condition Ready says why"
    )
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::PluginStatus;
    use crate::api::conditions::Condition;

    const OLD: Timestamp = Timestamp::UNIX_EPOCH;

    fn plugin(ready: bool, since: Timestamp) -> Plugin {
        let mut plugin = Plugin::new("p", crate::api::PluginSpec::default());
        let ready = Condition {
            type_: READY.into(),
            status: if ready { "True" } else { "False" }.into(),
            last_transition_time: Time(since),
            ..Condition::default()
        };
        plugin.status = Some(PluginStatus { conditions: vec![ready], ..PluginStatus::default() });
        plugin
    }

    /// A Volume that says nothing, and waits for no other.
    const SILENT: OfVolume =
        OfVolume { is_begun: true, is_denied: false, looked_since: OLD, turn: Duration::ZERO };

    fn at(seconds: i64) -> Timestamp {
        OLD + seconds.seconds()
    }

    #[test]
    fn a_volume_says_how_its_plugin_is() {
        let said = |plugin: Option<&Plugin>, volume| {
            schedulable("p", plugin, volume, at(60)).map(|said| said.reason)
        };
        assert_eq!(said(Some(&plugin(true, OLD)), SILENT), Ok(Reason::Schedulable));
        assert_eq!(said(Some(&plugin(false, OLD)), SILENT), Ok(Reason::NoHealthyInstance));
        assert_eq!(said(None, SILENT), Ok(Reason::PluginMissing));
        let mut ends = plugin(true, OLD);
        ends.metadata.deletion_timestamp = Some(Time(at(60)));
        assert_eq!(said(Some(&ends), SILENT), Ok(Reason::Schedulable));
        assert_eq!(said(Some(&ends), OfVolume { is_begun: false, ..SILENT }), Ok(Reason::PluginMissing));
        let mut new = Plugin::new("p", crate::api::PluginSpec::default());
        assert_eq!(said(Some(&new), SILENT), Ok(Reason::NoHealthyInstance));
        new.metadata.creation_timestamp = Some(Time(at(50)));
        assert_eq!(said(Some(&new), SILENT), Err(Duration::from_secs(21)), "nobody has looked at it yet");
    }

    #[test]
    fn what_is_away_for_a_moment_is_not_told_by_every_volume() {
        let said = |looked_since, now| {
            schedulable(
                "p",
                Some(&plugin(false, at(100))),
                OfVolume { looked_since: at(looked_since), ..SILENT },
                at(now),
            )
        };
        let left = Err(Duration::from_secs(27));
        assert_eq!(said(0, 104), left, "of times that are cut off a second is missing");
        assert!(said(0, 131).is_ok());
        assert!(said(0, 40).is_ok(), "the clocks differ");
        assert_eq!(said(1000, 1004), left, "nobody has looked since");
        assert!(said(1000, 1031).is_ok());
    }

    #[test]
    fn volumes_tell_one_after_the_other_what_has_changed() {
        let turn = Duration::from_secs(600);
        let said = |is_well, is_denied, now| {
            schedulable("p", Some(&plugin(is_well, at(100))), OfVolume { is_denied, turn, ..SILENT }, at(now))
                .is_ok()
        };
        assert!(said(true, false, 100), "a new one says at once that it is well");
        assert_eq!([700, 701].map(|now| said(true, true, now)), [false, true]);
        assert_eq!([730, 731].map(|now| said(false, false, now)), [false, true]);
        assert_eq!([730, 731].map(|now| said(false, true, now)), [false, true]);
    }

    #[test]
    fn of_many_volumes_few_have_their_turn_in_the_same_second() {
        const ALL: usize = 5000;
        let mut seconds = vec![0; ALL / 50];
        for volume in 0..ALL {
            seconds[usize::try_from(turn(&format!("uid-{volume}"), ALL).as_secs()).unwrap()] += 1;
        }
        assert!(seconds.iter().all(|of_one| *of_one < 100), "{seconds:?}");
        assert!(seconds.iter().filter(|of_one| **of_one > 0).count() > seconds.len() / 10 * 9);
        assert_eq!([0, 1].map(|few| turn("uid", few)), [Duration::ZERO; 2]);
    }
}
