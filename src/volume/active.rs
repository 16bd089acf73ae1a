//! Which instance makes all controller calls of a driver that is written for one (rule R2). Pure.

use std::collections::BTreeSet;

use super::instance::InstanceSeen;
use crate::api::PluginInstanceStatus;
use crate::api::attachment::ControllerRef;
use crate::api::plugin::Balancing;

/// How controller calls are spread where a Plugin does not say so. `instances` are those that have said what they serve, each
/// with whether it makes controller calls where its Plugin wants that.
///
/// A driver with a process on every node that does all for a place of its own has its storage there. Any other one is taken to
/// be written for one that is active, as most are: nothing is lost where it is not.
#[must_use]
pub fn balancing<'a>(instances: impl Iterator<Item = (&'a PluginInstanceStatus, bool)>) -> Balancing {
    let mut places = BTreeSet::new();
    for (status, controls) in instances {
        let serves_all = controls && status.node && !status.topology.is_empty();
        if !serves_all || !places.insert(&status.topology) {
            return Balancing::SingleActive;
        }
    }
    if places.is_empty() { Balancing::SingleActive } else { Balancing::PerTopology }
}

/// The instance that makes a driver's controller calls: the one `before`, for as long as a call that it was given can be
/// running. `controllers` are those that could make them, and the one before in any case.
#[must_use]
pub fn elect(before: Option<&ControllerRef>, controllers: &[InstanceSeen]) -> Option<ControllerRef> {
    let is_over = |before: &&ControllerRef| {
        controllers.iter().any(|i| i.name == before.instance && i.is_dead_for(before))
    };
    if let Some(before) = before.filter(|before| !is_over(before)) {
        return Some(before.clone());
    }
    let next = controllers.iter().filter(|i| i.healthy).min_by(|a, b| a.name.cmp(&b.name));
    // Where nobody else is there, it is still told whom all wait for.
    next.map(InstanceSeen::to_ref).or_else(|| before.cloned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::fixtures;

    fn status(place: &str, node: bool) -> PluginInstanceStatus {
        let topology: BTreeMap<_, _> =
            (!place.is_empty()).then(|| ("place".to_owned(), place.to_owned())).into_iter().collect();
        PluginInstanceStatus { node, controller: true, topology, ..PluginInstanceStatus::default() }
    }

    fn by_itself(instances: &[(&str, bool, bool)]) -> Balancing {
        let all: Vec<_> =
            instances.iter().map(|(place, node, controls)| (status(place, *node), *controls)).collect();
        balancing(all.iter().map(|(status, controls)| (status, *controls)))
    }

    #[test]
    fn storage_is_local_where_every_instance_serves_a_place_of_its_own() {
        use Balancing::{PerTopology, SingleActive};
        assert_eq!(by_itself(&[("a", true, true), ("b", true, true)]), PerTopology);
        assert_eq!(by_itself(&[("a", true, true)]), PerTopology);
        assert_eq!(by_itself(&[]), SingleActive);
        assert_eq!(by_itself(&[("a", true, true), ("a", true, true)]), SingleActive, "a zone of two nodes");
        assert_eq!(by_itself(&[("a", true, true), ("b", true, false)]), SingleActive, "b has nobody");
        assert_eq!(by_itself(&[("a", true, true), ("", true, true)]), SingleActive, "b is anywhere");
        assert_eq!(by_itself(&[("a", true, true), ("b", false, true)]), SingleActive, "apart from nodes");
    }

    fn instance(name: &str, tenure: i64, relieved: i64) -> InstanceSeen {
        let at = ControllerRef { instance: name.into(), agent: name.into(), tenure };
        InstanceSeen { healthy: true, serving: true, tenure, relieved, ..fixtures::instance(&at) }
    }

    #[test]
    fn who_is_active_stays_so_while_its_calls_may_run() {
        let (a, b) = (instance("a", 0, 0), instance("b", 0, 0));
        let active = elect(None, &[b.clone(), a.clone()]);
        assert_eq!(active, Some(a.to_ref()));
        let b_active = Some(b.to_ref());
        assert_eq!(elect(b_active.as_ref(), &[a.clone(), b.clone()]), b_active, "though a comes first");
        let sick = InstanceSeen { healthy: false, serving: false, ..b.clone() };
        assert_eq!(elect(b_active.as_ref(), &[a.clone(), sick.clone()]), b_active);
        let dead = InstanceSeen { dead: true, ..sick.clone() };
        assert_eq!(elect(b_active.as_ref(), &[a.clone(), dead.clone()]), Some(a.to_ref()));
        assert_eq!(elect(b_active.as_ref(), std::slice::from_ref(&dead)), b_active, "nobody else is there");
        let asked = InstanceSeen { tenure: 7, ..b.clone() };
        assert_eq!(elect(b_active.as_ref(), &[a.clone(), asked]), b_active, "it has not answered yet");
        let relieved = instance("b", 7, 7);
        assert_eq!(elect(b_active.as_ref(), &[a.clone(), relieved]), Some(a.to_ref()));
    }

    proptest! {
        /// Rule R2 for a whole driver: whatever becomes of the instances, the next is active only when no call of the one
        /// before can be running.
        #[test]
        fn two_are_never_active_at_once(
            all in prop::collection::vec((any::<bool>(), any::<bool>(), 0_i64..3, 0_i64..3), 1..4),
            was in 0_usize..4,
            tenure in 0_i64..3,
        ) {
            let seen: Vec<_> = all
                .iter()
                .enumerate()
                .map(|(n, &(healthy, dead, tenure, relieved))| {
                    let relieved = relieved.min(tenure);
                    InstanceSeen { healthy: healthy && !dead, dead, ..instance(&n.to_string(), tenure, relieved) }
                })
                .collect();
            prop_assume!(was < seen.len());
            let before = ControllerRef { tenure, ..seen[was].to_ref() };
            let next = elect(Some(&before), &seen).unwrap();
            if next != before {
                prop_assert!(seen[was].is_dead_for(&before));
                prop_assert!(seen.iter().any(|i| i.healthy && i.to_ref() == next));
            }
        }
    }
}
