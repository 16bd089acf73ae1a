//! What a Volume or a Snapshot says of its storage: all that the comparison needs of either.

use crate::api::conditions::{STORAGE_FOUND, find_as};
use crate::api::names::create_name;
use crate::api::storage::StorageKind;
use crate::api::{Snapshot, SnapshotState, Volume, VolumeState};
use crate::volume::handle_of;

/// A Volume or a Snapshot, reduced to what it says of its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub kind: StorageKind,
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Its Plugin.
    pub plugin: String,
    /// Its driver, where the object itself names it.
    pub driver: Option<String>,
    /// The name by which moor has it made; None of what is registered.
    pub made_as: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// What else it answers for: what its driver made and nobody can use.
    pub rejected: Option<String>,
    /// Of a group the ids of its members, which its driver lists, and not the group.
    pub members: Vec<String>,
    /// The controller instance that was given its calls.
    pub caller: Option<String>,
    /// The storage is there, as moor knows, and is to stay.
    pub stands: bool,
    /// It is told that its storage is missing.
    pub is_missed: bool,
}

impl From<&Volume> for Said {
    fn from(volume: &Volume) -> Self {
        let meta = &volume.metadata;
        let conditions = volume.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
        let made_as = || create_name(volume.spec.create_name.as_deref(), meta.uid.as_deref());
        Self {
            kind: StorageKind::Volume,
            uid: meta.uid.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            plugin: volume.spec.plugin_name.clone(),
            driver: None,
            made_as: volume.spec.volume_handle.is_none().then(made_as),
            id: handle_of(volume).map(str::to_owned),
            rejected: volume.rejected().map(|rejected| rejected.volume_handle.clone()),
            members: Vec::new(),
            caller: volume.caller().map(|caller| caller.instance.clone()),
            stands: volume.state() == VolumeState::Ready && meta.deletion_timestamp.is_none(),
            is_missed: find_as(conditions, STORAGE_FOUND, "False").is_some(),
        }
    }
}

impl From<&Snapshot> for Said {
    fn from(snapshot: &Snapshot) -> Self {
        let (meta, spec) = (&snapshot.metadata, &snapshot.spec);
        let conditions = snapshot.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
        let made_as = || create_name(spec.create_name.as_deref(), meta.uid.as_deref());
        let assignment = spec.assignment.as_ref();
        let plugin = assignment.map(|assignment| assignment.plugin_name.clone());
        let id = snapshot.handle().or(snapshot.said_handle()).or(spec.snapshot_handle.as_deref());
        let is_there = matches!(snapshot.state(), SnapshotState::Created | SnapshotState::Ready);
        Self {
            kind: StorageKind::Snapshot,
            uid: meta.uid.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            plugin: plugin.or_else(|| spec.plugin_name.clone()).unwrap_or_default(),
            driver: assignment.map(|assignment| assignment.driver_name.clone()),
            made_as: spec.snapshot_handle.is_none().then(made_as),
            id: id.map(str::to_owned),
            rejected: None,
            members: members_of(snapshot),
            caller: snapshot.caller().map(|caller| caller.instance.clone()),
            stands: is_there && !snapshot.is_group() && meta.deletion_timestamp.is_none(),
            is_missed: find_as(conditions, STORAGE_FOUND, "False").is_some(),
        }
    }
}

fn members_of(snapshot: &Snapshot) -> Vec<String> {
    let known = snapshot.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    let said = snapshot.status.iter().flat_map(|status| &status.members);
    let ids = known.map(|member| &member.snapshot_handle).chain(said.map(|member| &member.snapshot_handle));
    let mut ids: Vec<String> = ids.chain(&snapshot.spec.member_handles).cloned().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
