//! Which instance makes all controller calls of a driver that is written for one (rule R2). Pure.

use std::collections::BTreeSet;

use super::instance::InstanceSeen;
use crate::api::PluginInstanceStatus;
use crate::api::caller::ControllerRef;
use crate::api::plugin::Balancing;

/// How controller calls are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Like this.
    Known(Balancing),
    /// No instance has said enough yet.
    Unknown,
}

/// How controller calls are spread where a Plugin does not say so. It was `before`, and an instance `is_active` by that.
/// `instances` come each with whether it makes controller calls where its Plugin wants that.
///
/// A driver with one process on every node that does all for a place of its own has its storage there. Any other one is taken to
/// be written for one that is active, as most are: nothing is lost where it is not. What was found once stays: a node that comes
/// or goes would else have two instances active, or the volumes of one place made in another. Storage is not local after all
/// where two nodes say one place.
#[must_use]
pub fn balancing<'a>(
    before: Option<Balancing>,
    is_active: bool,
    instances: impl Iterator<Item = (&'a PluginInstanceStatus, bool)>,
) -> Spread {
    let mut places = BTreeSet::new();
    let (mut is_shared, mut is_apart) = (false, false);
    for (status, controls) in instances {
        // A node that has not said its id has not said its place either.
        let has_said = if status.node { !status.node_id.is_empty() } else { status.controller };
        if !has_said {
            continue;
        }
        let sockets: BTreeSet<_> = status.services.iter().map(|service| &service.socket_path).collect();
        let serves_all = controls && status.node && sockets.len() <= 1 && !status.topology.is_empty();
        is_apart |= !serves_all;
        is_shared |= status.node && !status.topology.is_empty() && !places.insert(&status.topology);
    }
    match before {
        Some(Balancing::PerTopology) if !is_shared => Spread::Known(Balancing::PerTopology),
        Some(Balancing::SingleActive) if is_active => Spread::Known(Balancing::SingleActive),
        _ if is_shared || is_apart => Spread::Known(Balancing::SingleActive),
        _ if places.is_empty() => Spread::Unknown,
        _ => Spread::Known(Balancing::PerTopology),
    }
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
    next.map(InstanceSeen::to_ref)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::api::instance::{Service, ServiceStatus};
    use crate::fixtures;

    /// An instance at a place, of these services, in as many processes.
    fn status(place: &str, node: bool, controller: bool, processes: usize) -> PluginInstanceStatus {
        let topology: BTreeMap<_, _> =
            (!place.is_empty()).then(|| ("place".to_owned(), place.to_owned())).into_iter().collect();
        let row = |n: usize| ServiceStatus {
            service: Service::Node,
            socket_path: n.to_string(),
            healthy: true,
            gone: false,
        };
        let services = (0..processes).map(row).collect();
        let node_id = if node { "id".to_owned() } else { String::new() };
        PluginInstanceStatus { controller, node, node_id, topology, services, ..Default::default() }
    }

    fn own(place: &str) -> PluginInstanceStatus {
        status(place, true, true, 0)
    }

    fn after(before: Option<Balancing>, is_active: bool, all: &[PluginInstanceStatus]) -> Spread {
        balancing(before, is_active, all.iter().map(|status| (status, status.controller)))
    }

    #[test]
    fn storage_is_local_where_every_process_serves_a_place_of_its_own() {
        use Balancing::{PerTopology, SingleActive};
        let found = |all: &[PluginInstanceStatus]| after(None, false, all);
        let (local, single) = (Spread::Known(PerTopology), Spread::Known(SingleActive));
        assert_eq!(found(&[own("a"), own("b")]), local);
        assert_eq!(found(&[own("a")]), local);
        assert_eq!(found(&[]), Spread::Unknown);
        assert_eq!(found(&[own("a"), own("a")]), single, "a zone of two nodes");
        assert_eq!(found(&[own("a"), status("b", true, false, 0)]), single, "b has nobody");
        assert_eq!(found(&[own("a"), own("")]), single, "anywhere");
        assert_eq!(found(&[own("a"), status("", false, true, 0)]), single, "apart from nodes");
        assert_eq!(found(&[own("a"), status("b", true, true, 2)]), single, "two processes on one node");
        // A node that has not said where it is.
        let mute = || PluginInstanceStatus { node_id: String::new(), ..own("") };
        assert_eq!(found(&[mute()]), Spread::Unknown);
        assert_eq!(found(&[mute(), own("a")]), local);
    }

    #[test]
    fn what_was_found_once_stays() {
        use Balancing::{PerTopology, SingleActive, Spread as Spreads};
        let (local, single) = (Spread::Known(PerTopology), Spread::Known(SingleActive));
        let (a, b) = (own("a"), own("b"));
        let both = [a.clone(), b.clone()];
        assert_eq!(after(Some(SingleActive), true, &both), single, "two would be active");
        assert_eq!(after(Some(SingleActive), false, &both), local, "there was nobody yet");
        assert_eq!(after(Some(Spreads), false, &both), local, "somebody had said so");
        let less = [a.clone(), status("b", true, false, 0)];
        for left in [&less[..], &[]] {
            assert_eq!(after(Some(PerTopology), false, left), local, "{left:?}");
        }
        assert_eq!(after(Some(PerTopology), false, &[a.clone(), b, a]), single);
    }

    fn instance(name: &str, tenure: i64, relieved: i64) -> InstanceSeen {
        let at = ControllerRef::new(name, name, tenure);
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
        assert_eq!(elect(b_active.as_ref(), std::slice::from_ref(&dead)), None, "nobody else is there");
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
            let before = seen[was].to_ref().in_tenure(tenure);
            let next = elect(Some(&before), &seen);
            if next.as_ref() != Some(&before) {
                prop_assert!(seen[was].is_dead_for(&before));
                prop_assert!(next.is_none_or(|next| seen.iter().any(|i| i.healthy && i.to_ref() == next)));
            }
        }
    }
}
