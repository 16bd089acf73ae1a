//! Whose calls are wanted: by which ids drivers know it, and which agents have made them.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::super::args::TraceOf;
use super::super::error::KubectlError;
use super::super::scene::{Scene, Scope};
use super::super::status::origin::may_be_of;
use super::super::words::full_name;
use crate::api::names::create_name;
use crate::api::{Snapshot, Volume};

/// What agents are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// What it is, for people.
    pub titles: Vec<String>,
    /// The drivers, where all are known; else calls of any driver.
    pub drivers: BTreeSet<String>,
    /// The drivers' ids of it, and the names by which it was to be made.
    pub ids: BTreeSet<String>,
    /// The nodes whose agents have or had to do with it. None known: all are asked.
    pub nodes: BTreeSet<String>,
}

impl Wanted {
    /// Of objects of this name, of which there is at least one; or of an id.
    pub fn of(scene: &Scene, of: &TraceOf, scope: &Scope) -> Result<Self, KubectlError> {
        let mut wanted = Self::default();
        let (kind, name) = match of {
            TraceOf::Handle(id) => {
                wanted.titles.push(format!("what a driver knows as {id}"));
                wanted.ids.insert(id.clone());
                return Ok(wanted);
            }
            TraceOf::Volume(name) => {
                let is_it =
                    |volume: &&Volume| volume.metadata.name.as_ref() == Some(name) && is_in(*volume, scope);
                scene.volumes.iter().filter(is_it).for_each(|volume| wanted.add_volume(scene, volume));
                ("Volume", name)
            }
            TraceOf::Snapshot(name) => {
                let is_it = |snapshot: &&Snapshot| {
                    snapshot.metadata.name.as_ref() == Some(name) && is_in(*snapshot, scope)
                };
                scene.snapshots.iter().filter(is_it).for_each(|snapshot| {
                    wanted.titles.push(format!("Snapshot {}", full_name(&snapshot.metadata)));
                    wanted.add_snapshot(scene, snapshot);
                });
                ("Snapshot", name)
            }
        };
        if wanted.titles.is_empty() {
            return Err(KubectlError::NotThere { kind, name: name.clone(), place: scope.place() });
        }
        Ok(wanted)
    }

    fn add_volume(&mut self, scene: &Scene, volume: &Volume) {
        self.titles.push(format!("Volume {}", full_name(&volume.metadata)));
        let status = volume.status.as_ref();
        let handle =
            status.and_then(|status| status.handle_name.as_deref()).and_then(|name| scene.handle(name));
        let said =
            status.and_then(|status| status.volume_handle.as_ref()).or(volume.spec.volume_handle.as_ref());
        self.ids.extend(said.cloned());
        self.ids.extend(handle.map(|handle| handle.spec.volume_handle.clone()));
        self.ids.insert(create_name(volume.spec.create_name.as_deref(), volume.metadata.uid.as_deref()));
        let of_plugin =
            || scene.plugin(&volume.spec.plugin_name).map(|plugin| plugin.driver_name().to_owned());
        self.drivers.extend(handle.map(|handle| handle.spec.driver_name.clone()).or_else(of_plugin));
        let own = volume.spec.assignment.as_ref().and_then(|assignment| assignment.controller.as_ref());
        let locked = handle.and_then(|handle| handle.spec.controller.as_ref());
        self.nodes.extend(own.into_iter().chain(locked).map(|controller| controller.agent.clone()));
        for attachment in scene.attachments_of(volume) {
            let spec = &attachment.spec;
            self.nodes.insert(spec.node_name.clone());
            self.nodes.extend(spec.controller.as_ref().map(|controller| controller.agent.clone()));
        }
        let name = volume.metadata.name.as_ref();
        let of_it = scene.snapshots.iter().filter(|snapshot| {
            snapshot.metadata.namespace == volume.metadata.namespace
                && snapshot.spec.volumes().any(|of| Some(of) == name)
                && may_be_of(snapshot, volume)
        });
        of_it.for_each(|snapshot| self.add_snapshot(scene, snapshot));
    }

    fn add_snapshot(&mut self, scene: &Scene, snapshot: &Snapshot) {
        let spec = &snapshot.spec;
        let ids = [snapshot.said_handle(), spec.snapshot_handle.as_deref()];
        self.ids.extend(ids.into_iter().flatten().chain(snapshot.handles()).map(str::to_owned));
        if spec.snapshot_handle.is_none() {
            self.ids.insert(create_name(spec.create_name.as_deref(), snapshot.metadata.uid.as_deref()));
        }
        if let Some(assignment) = &spec.assignment {
            self.nodes.insert(assignment.controller.agent.clone());
            self.drivers.insert(assignment.driver_name.clone());
        } else if let Some(plugin) = spec.plugin_name.as_deref().and_then(|name| scene.plugin(name)) {
            self.drivers.insert(plugin.driver_name().to_owned());
        }
    }
}

fn is_in(object: &impl kube::Resource, scope: &Scope) -> bool {
    scope.namespace().is_none_or(|namespace| object.namespace().as_deref() == Some(namespace))
}
