//! When a controller instance is relieved of the volumes whose calls it makes (rule R2, docs/adr/0037). Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::PluginInstance;
use crate::api::instance::Service;
use crate::api::plugin::Balancing;

/// Time for which a process may be away before another one takes its place. Most that end are started again sooner.
const AWAY: Duration = Duration::from_secs(10);

/// An instance, and why it may have to be relieved.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// The instance.
    pub instance: &'a PluginInstance,
    /// For how long it has made no calls; None if it makes them.
    pub gone: Option<Duration>,
    /// Its Plugin selects it for controller calls.
    pub selected: bool,
    /// moor runs one controller of the driver: where another one is well, it has come in the place of this one.
    pub is_moved: bool,
    /// How its Plugin spreads volumes over instances; None without the Plugin.
    pub balancing: Option<Balancing>,
}

impl Leaving<'_> {
    /// Whether it is to be relieved. If it is away for a moment only, or its Plugin selects others, one of the `others`, which
    /// are given new work, has to be there to take its place.
    #[must_use]
    pub fn is_due<'a>(
        &self,
        longest_call: Duration,
        mut others: impl Iterator<Item = &'a PluginInstance>,
    ) -> bool {
        let is_asked = self.instance.relieved() < self.instance.spec.tenure;
        let away = if self.is_moved { Duration::ZERO } else { AWAY };
        let leaves = !self.selected || self.gone > Some(away);
        !is_asked && (self.gone > Some(longest_call) || leaves && others.any(|other| self.is_like(other)))
    }

    /// Where storage is local to places, another place's instance would look for the volumes and not find them.
    fn is_like(&self, other: &PluginInstance) -> bool {
        let (Some(own), Some(others)) = (&self.instance.status, &other.status) else { return false };
        let serves = others.controller && others.is_healthy_for(Service::Controller);
        let is_other = self.instance.metadata.uid != other.metadata.uid;
        is_other
            && serves
            && (self.balancing == Some(Balancing::SingleActive) || own.topology == others.topology)
    }
}

/// The tenure that begins when an instance is relieved of what it was given, of which this is the latest tenure. By the clock,
/// so that an object that was made anew goes on with larger numbers than the one before.
#[must_use]
pub fn next_tenure(given: i64, now: Timestamp) -> i64 {
    now.as_millisecond().max(given.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PluginInstanceSpec, PluginInstanceStatus};

    const LONGEST: Duration = Duration::from_secs(300);

    fn instance(name: &str, edit: impl FnOnce(&mut PluginInstanceStatus)) -> PluginInstance {
        let mut instance = PluginInstance::new(name, PluginInstanceSpec::default());
        instance.metadata.uid = Some(name.into());
        let topology = [("zone".to_owned(), name.to_owned())].into();
        let mut status = PluginInstanceStatus {
            healthy: true,
            controller: true,
            topology,
            ..PluginInstanceStatus::default()
        };
        edit(&mut status);
        instance.status = Some(status);
        instance
    }

    fn is_due(gone: u64, balancing: Balancing, own: &PluginInstance, other: &PluginInstance) -> bool {
        let gone = Some(Duration::from_secs(gone));
        let leaving =
            Leaving { instance: own, gone, selected: true, is_moved: false, balancing: Some(balancing) };
        leaving.is_due(LONGEST, [own, other].into_iter())
    }

    #[test]
    fn one_that_is_not_selected_any_more_is_succeeded_by_who_is() {
        let (a, b) = (instance("a", |_| {}), instance("b", |_| {}));
        let is_due = |selected, others: &[PluginInstance]| {
            let balancing = Some(Balancing::SingleActive);
            Leaving { instance: &a, gone: None, selected, is_moved: false, balancing }
                .is_due(LONGEST, others.iter())
        };
        assert!(is_due(false, std::slice::from_ref(&b)) && !is_due(true, std::slice::from_ref(&b)));
        assert!(!is_due(false, &[]), "what it has begun it ends");
    }

    #[test]
    fn one_that_is_away_is_succeeded_by_who_can_take_its_place() {
        use Balancing::{PerTopology, SingleActive, Spread};
        let (a, b) = (instance("a", |_| {}), instance("b", |_| {}));
        assert!(is_due(11, SingleActive, &a, &b) && !is_due(10, SingleActive, &a, &b));
        for balancing in [PerTopology, Spread] {
            assert!(!is_due(11, balancing, &a, &b), "b is at another place");
            let beside =
                instance("b", |status| status.topology = a.status.as_ref().unwrap().topology.clone());
            assert!(is_due(11, balancing, &a, &beside));
            assert!(is_due(301, balancing, &a, &b));
        }
        for other in [
            instance("b", |status| status.healthy = false),
            instance("b", |status| status.controller = false),
            instance("a", |_| {}),
        ] {
            assert!(!is_due(11, SingleActive, &a, &other), "{other:?}");
        }
    }

    #[test]
    fn the_only_one_that_moor_runs_is_succeeded_at_once_by_the_one_in_its_place() {
        let (a, b) = (instance("a", |_| {}), instance("b", |_| {}));
        let is_due = |gone: Option<u64>, others: &[PluginInstance]| {
            let (gone, balancing) = (gone.map(Duration::from_millis), Some(Balancing::SingleActive));
            Leaving { instance: &a, gone, selected: true, is_moved: true, balancing }
                .is_due(LONGEST, others.iter())
        };
        assert!(is_due(Some(1), std::slice::from_ref(&b)));
        assert!(!is_due(Some(1), &[]), "it is started again where it was");
        assert!(!is_due(None, std::slice::from_ref(&b)), "both are there for a moment");
    }

    #[test]
    fn nobody_is_asked_twice_before_he_has_answered() {
        let (mut a, b) = (instance("a", |_| {}), instance("b", |_| {}));
        a.spec.tenure = 5;
        assert!(!is_due(301, Balancing::SingleActive, &a, &b));
        a.status.as_mut().unwrap().tenure = 5;
        assert!(is_due(301, Balancing::SingleActive, &a, &b));
    }

    #[test]
    fn a_tenure_is_later_than_the_one_before_whatever_the_clock_says() {
        let now = Timestamp::from_millisecond(7).unwrap();
        assert_eq!([0, 6, 7, 9].map(|given| next_tenure(given, now)), [7, 7, 8, 10]);
    }
}
