//! Whether a claim of a Volume could be served anew, as far as its Plugin goes. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::Plugin;
use crate::api::conditions::{Desired, READY, Reason, find, time_left};

/// Time for which a Plugin may be without a healthy instance before its Volumes say so: a controller that is rolled, or all of moor
/// that is started again, is away for a moment, and thousands of Volumes would be written twice for it. Claims and the Plugin
/// say it at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a Volume of the Plugin `name` says in its condition Schedulable; or after which time it may say it. `is_begun` is
/// whether its driver was asked for it. `looked_since` is when this leader has begun to lead: before it nobody may have looked.
pub fn schedulable(
    name: &str,
    plugin: Option<&Plugin>,
    is_begun: bool,
    looked_since: Timestamp,
    now: Timestamp,
) -> Result<Desired, Duration> {
    let Some(plugin) = plugin else {
        return Ok(Desired::new(Reason::PluginMissing, format!("Plugin {name} does not exist; create it")));
    };
    if plugin.metadata.deletion_timestamp.is_some() && !is_begun {
        let words = format!("Plugin {name} is being deleted and takes no new volume; create it again");
        return Ok(Desired::new(Reason::PluginMissing, words));
    }
    let ready = plugin.status.as_ref().and_then(|status| find(&status.conditions, READY));
    if ready.is_some_and(|ready| ready.status == "True") {
        return Ok(Desired::new(Reason::Schedulable, format!("Plugin {name} has what a claim needs")));
    }
    let since = ready.map(|ready| ready.last_transition_time.0.max(looked_since));
    match since.and_then(|since| time_left(since, now, PATIENCE)) {
        Some(left) => Err(left),
        None => Ok(Desired::new(Reason::NoHealthyInstance, lacks(name, plugin))),
    }
}

/// Without numbers, which would have thousands of Volumes written when an instance comes or goes.
fn lacks(name: &str, plugin: &Plugin) -> String {
    let status = plugin.status.clone().unwrap_or_default();
    let node = status.nodes_healthy == 0;
    // Where the nodes are well it is what is missing, also where nobody knows how many there should be.
    let controller = (status.controllers_expected > 0 || !node) && status.controllers_healthy == 0;
    let what = match (controller, node) {
        (true, true) => "no healthy controller and no healthy node",
        (true, false) => "no healthy controller",
        (false, true) => "no healthy node",
        (false, false) => "not all that it needs",
    };
    format!(
        "Plugin {name} has {what}, so no claim is served anew before that has changed, and what is mounted stays; its condition \
         Ready says why"
    )
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;
    use crate::api::PluginStatus;

    const OLD: Timestamp = Timestamp::UNIX_EPOCH;

    fn plugin(ready: bool, since: Timestamp, controllers: (i64, i64), nodes: (i64, i64)) -> Plugin {
        let mut plugin = Plugin::new("p", crate::api::PluginSpec::default());
        let ready = Condition {
            type_: READY.into(),
            status: if ready { "True" } else { "False" }.into(),
            reason: String::new(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(since),
        };
        plugin.status = Some(PluginStatus {
            controllers_healthy: controllers.0,
            controllers_expected: controllers.1,
            nodes_healthy: nodes.0,
            nodes_expected: nodes.1,
            conditions: vec![ready],
            ..PluginStatus::default()
        });
        plugin
    }

    #[test]
    fn a_volume_says_what_its_plugin_lacks() {
        let now = Timestamp::UNIX_EPOCH + 60.seconds();
        let said = |ready, controllers, nodes| {
            let Desired { reason, message } =
                schedulable("p", Some(&plugin(ready, OLD, controllers, nodes)), true, OLD, now).unwrap();
            (reason, message.split(',').next().unwrap().to_owned())
        };
        let has = "Plugin p has what a claim needs".to_owned();
        assert_eq!(said(true, (1, 1), (2, 3)), (Reason::Schedulable, has));
        for (controllers, nodes, lacks) in [
            ((0, 1), (2, 3), "no healthy controller"),
            ((1, 1), (0, 3), "no healthy node"),
            ((0, 2), (0, 0), "no healthy controller and no healthy node"),
            ((1, 1), (1, 1), "not all that it needs"),
        ] {
            let lacks = format!("Plugin p has {lacks}");
            assert_eq!(said(false, controllers, nodes), (Reason::NoHealthyInstance, lacks));
        }
        let gone = schedulable("p", None, true, OLD, now).unwrap();
        assert_eq!(gone.reason, Reason::PluginMissing);
        let mut ends = plugin(true, OLD, (1, 1), (1, 1));
        ends.metadata.deletion_timestamp = Some(Time(now));
        let said = |is_begun| schedulable("p", Some(&ends), is_begun, OLD, now).unwrap().reason;
        assert_eq!([true, false].map(said), [Reason::Schedulable, Reason::PluginMissing]);
        let new = Plugin::new("p", crate::api::PluginSpec::default());
        assert_eq!(schedulable("p", Some(&new), true, OLD, now).unwrap().reason, Reason::NoHealthyInstance);
    }

    #[test]
    fn what_is_away_for_a_moment_is_not_told_by_every_volume() {
        let at = |seconds: i64| Timestamp::UNIX_EPOCH + seconds.seconds();
        let said = |since, now| {
            schedulable("p", Some(&plugin(false, at(100), (0, 1), (1, 1))), true, at(since), at(now))
        };
        let left = Err(Duration::from_secs(27));
        assert_eq!(said(0, 104), left, "of times that are cut off a second is missing");
        assert!(said(0, 131).is_ok());
        assert!(said(0, 40).is_ok(), "the clocks differ");
        assert_eq!(said(1000, 1004), left, "nobody has looked since");
        assert!(said(1000, 1031).is_ok());
        let well = plugin(true, at(100), (1, 1), (1, 1));
        assert!(schedulable("p", Some(&well), true, at(100), at(100)).is_ok(), "what is well at once");
    }
}
