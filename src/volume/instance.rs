//! Which controller instance makes a volume's calls (rule R2).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::api::caller::ControllerRef;
use crate::api::instance::{PluginInstanceStatus, Service};
use crate::api::plugin::Balancing;
use crate::api::secrets::SecretTemplates;
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

/// Whether a controller instance can be making a call, by live reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerNow {
    /// The instance may be making a call, as far as anybody can know.
    MayCall,
    /// The instance's agent has been silent for longer than any call takes, or is silent on a machine that is off.
    CutOff,
    /// The instance's agent says that it was relieved of what it was given in that tenure, and that none of those calls is
    /// running. It may have been given others since.
    Relieved,
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
    /// The Plugin itself says that storage is local to its instances, and it is not only taken to be.
    pub is_local: bool,
    /// The instance that makes the controller calls with `SingleActive`, as the Plugin's status names it.
    pub active: Option<&'a ControllerRef>,
    /// The Plugin is being deleted, and begins nothing new.
    pub ends: bool,
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
    /// The Secrets that the Plugin names, if it names any.
    pub secrets: Option<&'a SecretTemplates>,
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
        self.choose_by(self.balancing?, places, key)
    }

    fn choose_by(&self, balancing: Balancing, places: Places<'_>, key: &str) -> Option<ControllerRef> {
        let healthy = self.controllers.iter().filter(|i| i.healthy);
        let is_in_place = |i: &&InstanceSeen| reaches(places.required, &i.topology);
        let by_place = |i: &&InstanceSeen| (is_in_place(i), Reverse(places.rank(i)), i.weight(key));
        let chosen = match balancing {
            Balancing::SingleActive => healthy.into_iter().find(|i| self.is_active(i)),
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
        // What the Plugin does not say itself may be otherwise, and what is left may be for any instance to end.
        let is_taken_so = self.balancing == Some(Balancing::PerTopology) && !self.is_local;
        let balancing = if is_taken_so { Balancing::Spread } else { self.balancing? };
        self.choose_by(balancing, places, key).filter(|next| self.is_dead(current) && is_other(next))
    }

    /// Whether the instance makes all controller calls. One that is being relieved is given nothing: what it has begun may move
    /// to another, and then two would be at work.
    fn is_active(&self, instance: &InstanceSeen) -> bool {
        let is_it = |active: &ControllerRef| {
            active.instance == instance.name
                && instance.tenure <= active.tenure
                && !instance.is_dead_for(active)
        };
        self.active.is_some_and(is_it)
    }

    /// The instance that all new calls wait for: it is to make them, and cannot now.
    #[must_use]
    pub fn waits_for_active(&self) -> Option<&ControllerRef> {
        let active = self.active.filter(|_| self.balancing == Some(Balancing::SingleActive))?;
        let makes = |i: &InstanceSeen| i.healthy && self.is_active(i);
        (!self.controllers.iter().any(makes)).then_some(active)
    }
}

impl InstanceSeen {
    /// The reference by which objects name this instance.
    #[must_use]
    pub fn to_ref(&self) -> ControllerRef {
        let (instance, agent) = (self.name.clone(), self.agent.clone());
        ControllerRef::new(instance, agent, self.tenure)
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
#[path = "instance_tests.rs"]
mod tests;
