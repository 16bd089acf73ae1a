//! Which controller instance makes a volume's calls (rule R2).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::api::attachment::ControllerRef;
use crate::api::instance::{PluginInstanceStatus, Service};
use crate::api::plugin::Balancing;
use crate::api::volume::Segments;
use crate::claim::observed::reaches;

/// A controller instance as the choice sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSeen {
    /// Name of the PluginInstance.
    pub name: String,
    /// Its agent.
    pub agent: String,
    /// Whether the instance may be given new work: it is healthy, and its agent's Lease is fresh.
    pub healthy: bool,
    /// Whether the instance makes the calls that it was given: as `healthy`, also where its Plugin does not want it
    /// to get new work.
    pub serving: bool,
    /// Whether its agent is not heard: its Lease has expired. Until it is heard again it calls nothing and tells nothing.
    pub silent: bool,
    /// Whether the instance's work may move, because none of its calls can be running: its agent's Lease expired
    /// longer ago than the longest call may take, or has expired on a machine that is marked as off (rule R2).
    pub dead: bool,
    /// The tenure in which it is given new work.
    pub tenure: i64,
    /// What it was given in an earlier tenure than this may move: its agent says that none of those calls is running.
    pub relieved: i64,
    /// Topology segments of the instance's node.
    pub topology: BTreeMap<String, String>,
}

/// Where an instance has to be to make a volume's calls, and where it should be. Without any, everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places<'a> {
    /// The instance must be in one of these topology terms.
    pub required: &'a [Segments],
    /// It should be in one of these, best first.
    pub preferred: &'a [Segments],
}

impl Places<'_> {
    /// How many of the preferred places come before the instance's own.
    fn rank(&self, instance: &InstanceSeen) -> usize {
        let is_there = |place: &Segments| reaches(std::slice::from_ref(place), &instance.topology);
        self.preferred.iter().position(is_there).unwrap_or(self.preferred.len())
    }
}

/// By whom a driver's volumes are made larger: EXPAND_VOLUME of its services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grows {
    /// By its Controller service, which says whether nodes have to follow.
    ByController,
    /// By its Node service alone.
    OnNodes,
    /// By none.
    NotAtAll,
}

impl Grows {
    /// As instances of the driver have said. None where a service is not known that may say otherwise. `called` is whether
    /// the driver has a Controller service that made or took the volume.
    pub fn of<'a>(
        instances: impl Iterator<Item = &'a PluginInstanceStatus> + Clone,
        called: bool,
    ) -> Option<Self> {
        const EXPAND: &str = "EXPAND_VOLUME";
        if instances.clone().any(|status| status.capabilities.controller_has(EXPAND)) {
            return Some(Self::ByController);
        }
        let says = |service| {
            move |status: &PluginInstanceStatus| match service {
                Service::Controller => status.controller && status.is_healthy_for(service),
                Service::Node => status.node && status.is_healthy_for(service),
            }
        };
        if called && !instances.clone().any(says(Service::Controller)) {
            return None;
        }
        if instances.clone().any(|status| status.capabilities.node_has(EXPAND)) {
            return Some(Self::OnNodes);
        }
        let mut instances = instances;
        instances.any(says(Service::Node)).then_some(Self::NotAtAll)
    }
}

/// Whether a driver's volumes can be modified, as its instances have said. None where the Controller service is not known,
/// which may say otherwise. `called` is whether the driver has one that made or took the volume.
pub fn modifies<'a>(
    instances: impl Iterator<Item = &'a PluginInstanceStatus> + Clone,
    called: bool,
) -> Option<bool> {
    if instances.clone().any(|status| status.capabilities.controller_has("MODIFY_VOLUME")) {
        return Some(true);
    }
    let mut instances = instances;
    let has_said = |status: &PluginInstanceStatus| {
        if called {
            status.controller && status.is_healthy_for(Service::Controller)
        } else {
            status.is_healthy_for_any()
        }
    };
    instances.any(has_said).then_some(false)
}

/// Who says that a driver has a Controller service which need not be there yet: its Volumes wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaidBy {
    /// The Plugin, by `spec.controllerNodes`.
    Plugin,
    /// The Plugin, by `spec.controller`.
    Pods,
    /// An instance of the driver, by CONTROLLER_SERVICE. The node process of a driver in two parts says it too.
    Driver,
}

/// What is known of a Volume's Plugin and of its instances.
#[derive(Clone, Copy, Debug)]
pub struct PluginSeen<'a> {
    /// How the Plugin spreads volumes over its instances; None if there is no such Plugin.
    pub balancing: Option<Balancing>,
    /// Name of an older Plugin that has the same driver, and so has it instead.
    pub older: Option<&'a str>,
    /// Instances that could make controller calls, and those that are named and are gone.
    pub controllers: &'a [InstanceSeen],
    /// Who says that the driver has a Controller service, whether or not there is an instance that serves it.
    pub controllers_said: Option<SaidBy>,
    /// Some instance of the Plugin is healthy, of whatever role.
    pub any_healthy: bool,
    /// A healthy controller instance lists CREATE_DELETE_VOLUME.
    pub can_create: bool,
    /// A controller instance has said that its driver attaches: PUBLISH_UNPUBLISH_VOLUME.
    pub attaches: bool,
    /// By whom the driver's volumes grow; None while no instance has said so.
    pub grows: Option<Grows>,
    /// Its volumes can be modified: MODIFY_VOLUME of its Controller service; None while no instance has said so.
    pub modifies: Option<bool>,
}

impl PluginSeen<'_> {
    /// Whether the agent of this instance is known not to be heard.
    #[must_use]
    pub fn is_silent(&self, caller: &ControllerRef) -> bool {
        self.controllers.iter().any(|i| i.name == caller.instance && i.silent)
    }

    /// Whether it is known that no call of this instance can be running any more.
    #[must_use]
    pub fn is_dead(&self, caller: &ControllerRef) -> bool {
        self.controllers.iter().any(|i| i.name == caller.instance && i.is_dead_for(caller))
    }

    /// Chooses a healthy instance for new work on the volume `key`; the same one every time while the set of
    /// healthy instances stays the same. Without the Plugin there is none.
    ///
    /// Where it is decides with `PerTopology`, and comes first with `Spread`.
    #[must_use]
    pub fn choose(&self, places: Places<'_>, key: &str) -> Option<ControllerRef> {
        let healthy = self.controllers.iter().filter(|i| i.healthy);
        let is_in_place = |i: &&InstanceSeen| reaches(places.required, &i.topology);
        let by_place = |i: &&InstanceSeen| (is_in_place(i), Reverse(places.rank(i)), i.weight(key));
        let chosen = match self.balancing? {
            Balancing::SingleActive => healthy.min_by(|a, b| a.name.cmp(&b.name)),
            Balancing::PerTopology => healthy.max_by_key(by_place).filter(is_in_place),
            // Where storage is local to nodes nobody else finds the volume, and nowhere is the way shorter.
            Balancing::Spread => healthy.max_by_key(by_place),
        };
        chosen.map(InstanceSeen::to_ref)
    }

    /// The instance that takes over from `current`, if `current` may be left at all. It may be the same one in a later tenure.
    #[must_use]
    pub fn successor(&self, current: &ControllerRef, places: Places<'_>, key: &str) -> Option<ControllerRef> {
        let is_other =
            |next: &ControllerRef| next.instance != current.instance || next.tenure > current.tenure;
        self.choose(places, key).filter(|next| self.is_dead(current) && is_other(next))
    }
}

impl InstanceSeen {
    /// The reference by which objects name this instance.
    #[must_use]
    pub fn to_ref(&self) -> ControllerRef {
        let (instance, agent) = (self.name.clone(), self.agent.clone());
        ControllerRef { instance, agent, tenure: self.tenure }
    }

    /// Whether it can be making no call that it was given like this.
    #[must_use]
    pub fn is_dead_for(&self, given: &ControllerRef) -> bool {
        self.dead || given.tenure < self.relieved
    }

    /// Rendezvous hashing: an instance that comes or goes moves only the volumes it wins or held.
    fn weight(&self, key: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update((key.len() as u64).to_be_bytes());
        hash.update(key);
        hash.update(&self.name);
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn instance(name: &str, healthy: bool, dead: bool) -> InstanceSeen {
        let at = ControllerRef { instance: name.into(), agent: format!("agent-of-{name}"), tenure: 0 };
        let topology = BTreeMap::from([("zone".into(), name.into())]);
        InstanceSeen { healthy, serving: healthy, dead, topology, ..fixtures::instance(&at) }
    }

    fn zone(name: &str) -> Segments {
        Segments { segments: BTreeMap::from([("zone".into(), name.into())]) }
    }

    fn plugin(controllers: &[InstanceSeen], balancing: Balancing) -> PluginSeen<'_> {
        PluginSeen {
            balancing: Some(balancing),
            older: None,
            controllers,
            controllers_said: None,
            any_healthy: true,
            can_create: true,
            attaches: true,
            grows: None,
            modifies: None,
        }
    }

    /// What is known of a driver's growth by these instances: a Controller or a Node service, healthy or not, with the
    /// capability or without.
    fn grows(called: bool, instances: &[(Service, bool, bool)]) -> Option<Grows> {
        let status = |&(service, healthy, expands): &(Service, bool, bool)| {
            let mut status = PluginInstanceStatus { healthy, ..PluginInstanceStatus::default() };
            let named = expands.then(|| "EXPAND_VOLUME".to_owned()).into_iter().collect();
            match service {
                Service::Controller => (status.controller, status.capabilities.controller) = (true, named),
                Service::Node => (status.node, status.capabilities.node) = (true, named),
            }
            status
        };
        let all: Vec<_> = instances.iter().map(status).collect();
        Grows::of(all.iter(), called)
    }

    #[test]
    fn a_volume_grows_by_who_has_said_so() {
        use Service::{Controller, Node};
        assert_eq!(grows(true, &[(Controller, true, true), (Node, true, true)]), Some(Grows::ByController));
        assert_eq!(grows(true, &[(Controller, false, true)]), Some(Grows::ByController), "it once said so");
        assert_eq!(grows(true, &[(Controller, true, false), (Node, true, true)]), Some(Grows::OnNodes));
        assert_eq!(grows(false, &[(Node, true, true)]), Some(Grows::OnNodes));
        assert_eq!(grows(true, &[(Controller, true, false), (Node, true, false)]), Some(Grows::NotAtAll));
    }

    #[test]
    fn of_a_service_that_was_not_heard_nothing_is_said() {
        use Service::{Controller, Node};
        assert_eq!(grows(true, &[(Node, true, true)]), None, "its controller process is not there");
        assert_eq!(grows(true, &[(Controller, false, false), (Node, true, true)]), None);
        assert_eq!(grows(true, &[(Controller, true, false), (Node, false, false)]), None);
        assert_eq!(grows(false, &[]), None);
    }

    #[test]
    fn a_volume_is_modified_where_the_controller_says_so() {
        let of = |called, healthy, named: &[&str], node: bool| {
            let mut status = PluginInstanceStatus { healthy, ..PluginInstanceStatus::default() };
            (status.controller, status.node) = (!node, node);
            status.capabilities.controller = named.iter().map(|&name| name.to_owned()).collect();
            modifies([status].iter(), called)
        };
        assert_eq!(of(true, true, &["MODIFY_VOLUME"], false), Some(true));
        assert_eq!(of(true, false, &["MODIFY_VOLUME"], false), Some(true), "it once said so");
        assert_eq!(of(true, true, &["EXPAND_VOLUME"], false), Some(false));
        assert_eq!(of(true, false, &[], false), None, "it is not there");
        assert_eq!(of(true, true, &[], true), None, "its controller process is not there");
        assert_eq!(of(false, true, &[], true), Some(false), "it has none");
    }

    #[test]
    fn an_unhealthy_instance_gets_nothing_new() {
        let all = [instance("a", false, false), instance("b", true, false)];
        for key in ["1", "2", "3", "4"] {
            assert_eq!(plugin(&all, Balancing::Spread).choose(Places::default(), key).unwrap().instance, "b");
        }
    }

    #[test]
    fn volumes_are_spread_over_instances() {
        let all = [instance("a", true, false), instance("b", true, false)];
        let on_a = (0..100)
            .filter(|i| {
                plugin(&all, Balancing::Spread).choose(Places::default(), &i.to_string()).unwrap().instance
                    == "a"
            })
            .count();
        assert!((25..=75).contains(&on_a), "{on_a} of 100");
    }

    /// So that a driver with storage of its own on each node works as it comes.
    #[test]
    fn spread_begins_where_the_volume_is_or_should_be_and_goes_elsewhere_if_it_must() {
        let all = [instance("a", true, false), instance("b", true, false), instance("c", false, false)];
        let chosen = |required: &[Segments], preferred: &[Segments], key: &str| {
            let places = Places { required, preferred };
            plugin(&all, Balancing::Spread).choose(places, key).unwrap().instance
        };
        let mut anywhere = std::collections::BTreeSet::new();
        for key in (0..16).map(|n| n.to_string()) {
            assert_eq!(chosen(&[zone("b")], &[], &key), "b");
            assert_eq!(chosen(&[zone("a"), zone("b")], &[zone("b"), zone("a")], &key), "b");
            assert_eq!(chosen(&[zone("a")], &[zone("b")], &key), "a", "what must be comes first");
            anywhere.insert(chosen(&[zone("c")], &[zone("c")], &key));
        }
        assert_eq!(anywhere.len(), 2, "nobody is well there, so all others are alike");
    }

    #[test]
    fn per_topology_stays_where_the_volume_is() {
        let all = [instance("a", true, false), instance("b", true, false)];
        let place = [zone("b")];
        let at = Places { required: &place, preferred: &[] };
        assert_eq!(plugin(&all, Balancing::PerTopology).choose(at, "k").unwrap().instance, "b");
        let elsewhere = [zone("c")];
        let at = Places { required: &elsewhere, preferred: &[] };
        assert!(plugin(&all, Balancing::PerTopology).choose(at, "k").is_none());
    }

    #[test]
    fn per_topology_begins_at_the_best_place() {
        let all = [instance("a", true, false), instance("b", true, false), instance("c", false, false)];
        let chosen = |required: &[Segments], preferred: &[Segments], key: &str| {
            let places = Places { required, preferred };
            plugin(&all, Balancing::PerTopology).choose(places, key).unwrap().instance
        };
        let everywhere = [zone("a"), zone("b"), zone("c")];
        for key in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            assert_eq!(chosen(&everywhere, &[zone("b"), zone("a")], key), "b");
            assert_eq!(chosen(&everywhere, &[zone("a"), zone("b")], key), "a");
            // The best place has nobody who is well.
            assert_eq!(chosen(&everywhere, &[zone("c"), zone("b")], key), "b");
            // What must be comes before what should be.
            assert_eq!(chosen(&[zone("a")], &[zone("b")], key), "a");
        }
    }

    #[test]
    fn work_moves_only_away_from_the_dead() {
        let all = [instance("a", false, false), instance("b", true, false)];
        assert!(
            plugin(&all, Balancing::Spread).successor(&all[0].to_ref(), Places::default(), "k").is_none()
        );
        let all = [instance("a", false, true), instance("b", true, false)];
        assert_eq!(
            plugin(&all, Balancing::Spread)
                .successor(&all[0].to_ref(), Places::default(), "k")
                .unwrap()
                .instance,
            "b"
        );
    }

    #[test]
    fn work_moves_away_from_who_was_relieved_of_it() {
        let mut all = [instance("a", false, false), instance("b", true, false)];
        let given = |tenure| ControllerRef { tenure, ..instance("a", true, false).to_ref() };
        let next = |all: &[InstanceSeen], tenure| {
            plugin(all, Balancing::SingleActive).successor(&given(tenure), Places::default(), "k")
        };
        // Told to give it up, and has not said yet that it has.
        all[0].tenure = 7;
        assert_eq!(next(&all, 0), None);
        all[0].relieved = 7;
        assert_eq!(next(&all, 0).unwrap().instance, "b");
        assert_eq!(next(&all, 7), None, "given to it since");
        // It is back before anybody has taken over.
        all[0].healthy = true;
        assert_eq!(next(&all, 0), Some(given(7)));
    }

    #[test]
    fn an_unknown_instance_is_not_concluded_dead() {
        let all = [instance("b", true, false)];
        let gone = ControllerRef { instance: "a".into(), agent: "x".into(), tenure: 0 };
        assert!(plugin(&all, Balancing::Spread).successor(&gone, Places::default(), "k").is_none());
    }
}
