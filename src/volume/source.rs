//! What a Volume is to be made from, and whether it can be now.

use super::size::asked;
use super::{handle_of, is_of_driver};
use crate::api::snapshot::SnapshotMember;
use crate::api::volume::{AssignedSource, Segments};
use crate::api::{Snapshot, SnapshotState, Volume, VolumeState, quantity};

/// What `spec.source` of a Volume names, as the caches have it.
#[derive(Clone, Copy, Debug, Default)]
pub enum SourceSeen<'a> {
    /// Nothing: the volume is to be empty.
    #[default]
    Nothing,
    /// A Volume of its namespace, which the driver copies.
    Volume {
        /// Its name.
        name: &'a str,
        /// The Volume, if there is one.
        volume: Option<&'a Volume>,
        /// Whether the driver has `CLONE_VOLUME`; None while no instance has said so.
        clones: Option<bool>,
        /// The driver that is to make the copy.
        driver: &'a str,
    },
    /// A Snapshot of its namespace.
    Snapshot {
        /// Its name.
        name: &'a str,
        /// The Snapshot, if there is one.
        snapshot: Option<&'a Snapshot>,
        /// Of a group, the Volume whose snapshot it is to be.
        member: Option<&'a str>,
        /// The driver that is to make a volume of it.
        driver: &'a str,
    },
}

/// Why a Volume cannot be made from what it names, or not yet. Objects are named by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SourceLack {
    /// There is no such object.
    #[error(
        "spec.source: this namespace has no {0}; create it, or delete this Volume and create one that names another"
    )]
    Missing(String),
    /// It is being deleted.
    #[error("spec.source: {0} is being deleted, and nothing is made of it any more; delete this Volume")]
    Ends(String),
    /// It was deleted, or gone, right before the driver was to be asked.
    #[error(
        "spec.source: what the volume was to be made of was deleted before it was begun; delete this Volume"
    )]
    Gone,
    /// Another Snapshot stands for the same.
    #[error(
        "spec.source: {0} stands for the same snapshot of the driver, which two may not have been given; look at the driver and at \
         the node that took them"
    )]
    Shared(String),
    /// It was made when its Plugin had another driver.
    #[error(
        "spec.source: {0} is another driver's than its Plugin has now, which knows other things by the same ids; create the \
         Plugin with that driver again"
    )]
    OtherDriver(String),
    /// It is not Ready.
    #[error("spec.source: {0} is not Ready, and its own condition says why; the volume is made when it is")]
    NotReady(String),
    /// It is another Plugin's.
    #[error(
        "spec.source: {object} is of Plugin {plugin}, and only its own driver makes something of it; create the Volume with \
         pluginName {plugin}"
    )]
    OfOther {
        /// The object.
        object: String,
        /// Name of its Plugin.
        plugin: String,
    },
    /// It is a group, and the Volume does not say of which Volume's snapshot it is to be made, or of one that the group has not.
    #[error(
        "spec.source.volumeName: {object} is of the Volumes {volumes}; delete this Volume and create one that names one of them"
    )]
    WhichMember {
        /// The object.
        object: String,
        /// The names of its Volumes.
        volumes: String,
    },
    /// It is a group that was registered, of which nobody knows which snapshot is of which volume.
    #[error(
        "spec.source: {0} is a group that was registered, and its members are not known by Volumes; register the one that is wanted \
         by a Snapshot with spec.snapshotHandle"
    )]
    RegisteredGroup(String),
    /// It is of one volume, and the Volume names one beside it.
    #[error(
        "spec.source.volumeName: {0} is of one volume; delete this Volume and create one that names just the Snapshot, or just the \
         Volume"
    )]
    NotGroup(String),
    /// It is larger than the Volume is to be.
    #[error(
        "spec.capacity is less than the {size} that {object} has; delete this Volume and create one that is at least as large"
    )]
    Larger {
        /// The object.
        object: String,
        /// Its size.
        size: String,
    },
    /// The driver of this Plugin copies no volumes.
    #[error(
        "spec.source.volumeName: the driver of Plugin {0} copies no volumes (no CLONE_VOLUME); create the Volume without, or \
         from a Snapshot, and copy the data"
    )]
    CannotCopy(String),
}

/// Where the source can be reached from; empty means everywhere, or that it is not known. What is made of it has to be made there.
pub(super) fn place(source: SourceSeen<'_>) -> &[Segments] {
    match source {
        SourceSeen::Nothing => &[],
        SourceSeen::Volume { volume, .. } => {
            volume.and_then(|volume| volume.status.as_ref()).map_or(&[], |status| &status.accessible_topology)
        }
        SourceSeen::Snapshot { snapshot, .. } => {
            let assignment = snapshot.and_then(|snapshot| snapshot.spec.assignment.as_ref());
            assignment.map_or(&[], |assignment| &assignment.accessible_topology)
        }
    }
}

/// What CreateVolume is to name for `volume`, or what it waits for.
pub(super) fn assigned(
    volume: &Volume,
    source: SourceSeen<'_>,
) -> Result<Option<AssignedSource>, SourceLack> {
    match source {
        SourceSeen::Nothing => Ok(None),
        SourceSeen::Volume { name, volume: of, clones, driver } => {
            let what = format!("Volume {name}");
            let of = of.ok_or_else(|| SourceLack::Missing(what.clone()))?;
            if of.metadata.deletion_timestamp.is_some() {
                return Err(SourceLack::Ends(what));
            }
            if of.spec.plugin_name != volume.spec.plugin_name {
                return Err(other_plugin(what, &of.spec.plugin_name));
            }
            // One whose calls nobody makes is not known to be of any driver.
            if of.caller().is_none() {
                return Err(SourceLack::NotReady(what));
            }
            if !is_of_driver(of, driver) {
                return Err(SourceLack::OtherDriver(what));
            }
            if clones == Some(false) {
                return Err(SourceLack::CannotCopy(volume.spec.plugin_name.clone()));
            }
            let id = handle_of(of).filter(|_| of.state() == VolumeState::Ready && clones.is_some());
            let id = id.ok_or_else(|| SourceLack::NotReady(what.clone()))?;
            let size = of.status.as_ref().and_then(|status| status.capacity_bytes);
            is_large_enough(volume, what, size)?;
            let uid = of.metadata.uid.clone().unwrap_or_default();
            Ok(Some(AssignedSource { uid, volume_handle: Some(id.to_owned()), snapshot_handle: None }))
        }
        SourceSeen::Snapshot { name, snapshot: of, member, driver } => {
            let what = format!("Snapshot {name}");
            let of = of.ok_or_else(|| SourceLack::Missing(what.clone()))?;
            if of.metadata.deletion_timestamp.is_some() {
                return Err(SourceLack::Ends(what));
            }
            if let Some(other) = of.plugin_name().filter(|plugin| *plugin != volume.spec.plugin_name) {
                return Err(other_plugin(what, other));
            }
            if of.spec.assignment.as_ref().is_some_and(|assignment| assignment.driver_name != driver) {
                return Err(SourceLack::OtherDriver(what));
            }
            let (id, size) = kept(of, member, &what)?;
            is_large_enough(volume, what, size)?;
            let uid = of.metadata.uid.clone().unwrap_or_default();
            Ok(Some(AssignedSource { uid, volume_handle: None, snapshot_handle: Some(id) }))
        }
    }
}

/// The snapshot of the driver that a Snapshot stands for, of a group that of the Volume `member`, and what a volume of it needs at
/// least, in bytes.
fn kept(of: &Snapshot, member: Option<&str>, what: &str) -> Result<(String, Option<i64>), SourceLack> {
    let not_ready = || SourceLack::NotReady(what.to_owned());
    let is_ready = of.state() == SnapshotState::Ready;
    if !of.is_group() {
        if member.is_some() {
            return Err(SourceLack::NotGroup(what.to_owned()));
        }
        let id = of.handle().filter(|_| is_ready).ok_or_else(not_ready)?;
        let size = of.status.as_ref().and_then(|status| status.restore_size_bytes);
        return Ok((id.to_owned(), size));
    }
    if of.spec.volume_names.is_empty() {
        return Err(SourceLack::RegisteredGroup(what.to_owned()));
    }
    let member = member.filter(|member| of.spec.volume_names.iter().any(|name| name == member));
    let member = member.ok_or_else(|| SourceLack::WhichMember {
        object: what.to_owned(),
        volumes: of.spec.volume_names.join(", "),
    })?;
    let volume = of.taken_of().into_iter().find(|(name, _)| *name == member).and_then(|(_, of)| of);
    let is_of = |kept: &&SnapshotMember| {
        volume.is_some_and(|volume| kept.volume_handle.as_ref() == Some(&volume.volume_handle))
    };
    let mut members = of.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    let id = members.find(is_of).filter(|_| is_ready).ok_or_else(not_ready)?.snapshot_handle.clone();
    let mut said = of.status.iter().flat_map(|status| &status.members);
    let size = said.find(|said| said.snapshot_handle == id).and_then(|said| said.restore_size_bytes);
    Ok((id, size))
}

fn other_plugin(object: String, plugin: &str) -> SourceLack {
    SourceLack::OfOther { object, plugin: plugin.to_owned() }
}

/// A driver that is asked for less than its source holds refuses it or cuts it off; nobody means that.
fn is_large_enough(volume: &Volume, object: String, size: Option<i64>) -> Result<(), SourceLack> {
    match size {
        Some(size) if size > asked(volume) => Err(SourceLack::Larger { object, size: quantity::human(size) }),
        Some(_) | None => Ok(()),
    }
}
