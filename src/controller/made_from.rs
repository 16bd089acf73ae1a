//! What Volumes are made from, and what is made of Volumes and Snapshots: as the caches have it, and live.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Api, ResourceExt as _};

use super::caches::{BY_SOURCE, BY_VOLUME, from_snapshot, from_volume};
use super::context::Context;
use super::instances::Instances;
use super::key::VolumeKey;
use super::known::Known;
use crate::api::instance::{Capabilities, PluginInstanceStatus, Service};
use crate::api::snapshot::SnapshotOperation;
use crate::api::{PluginInstance, Snapshot, Volume};
use crate::k8s::read::{Readable, equals, list_live};
use crate::k8s::{ApiError, Named};
use crate::snapshot::{Holder, is_being_made, is_taken_of};
use crate::volume::{SourceSeen, is_of_driver};

/// How many LISTs of one look run at a time: a group has a hundred members at most.
const AT_ONCE: usize = 8;

/// What `spec.source` of a Volume names, as the caches have it.
#[derive(Default)]
pub(crate) enum Source {
    /// Nothing.
    #[default]
    Nothing,
    /// A Volume, and whether the driver copies volumes.
    Volume(String, Option<Arc<Volume>>, Option<bool>),
    /// A Snapshot, and of a group the name of the Volume whose it is.
    Snapshot(String, Option<Arc<Snapshot>>, Option<String>),
}

impl Source {
    /// Finds it.
    pub(crate) fn of(known: &Known, volume: Option<&Volume>, namespace: &str, instances: &Instances) -> Self {
        let Some(source) = volume.and_then(|volume| volume.spec.source.as_ref()) else {
            return Self::Nothing;
        };
        match (&source.snapshot_name, &source.volume_name) {
            (Some(name), member) => {
                let snapshot = known.snapshots.get_in(Named { namespace, name });
                Self::Snapshot(name.clone(), snapshot, member.clone())
            }
            (None, Some(name)) => {
                let clones = offers(instances.iter(), |can| can.controller_has("CLONE_VOLUME"));
                Self::Volume(name.clone(), known.volumes.get_in(Named { namespace, name }), clones)
            }
            (None, None) => Self::Nothing,
        }
    }

    /// As the decision sees it.
    pub(crate) fn seen<'a>(&'a self, driver: &'a str) -> SourceSeen<'a> {
        match self {
            Self::Nothing => SourceSeen::Nothing,
            Self::Volume(name, volume, clones) => {
                SourceSeen::Volume { name, volume: volume.as_deref(), clones: *clones, driver }
            }
            Self::Snapshot(name, snapshot, member) => {
                let member = member.as_deref();
                SourceSeen::Snapshot { name, snapshot: snapshot.as_deref(), member, driver }
            }
        }
    }
}

/// What a Volume is made from, and what is made of it, as the caches have it.
pub(crate) struct Copies {
    /// What it is made from.
    pub(crate) source: Source,
    /// What is being made of it, in words.
    pub(crate) made_of: Option<String>,
}

impl Copies {
    /// Looks for both.
    pub(crate) fn observe(
        known: &Known,
        key: &VolumeKey,
        volume: Option<&Volume>,
        instances: &Instances,
    ) -> Self {
        Self {
            source: Source::of(known, volume, &key.namespace, instances),
            made_of: copied_by(known, key, volume),
        }
    }
}

/// Whether the driver can do this, as instances of the driver have said; None while none of them has.
pub(crate) fn offers<'a>(
    instances: impl Iterator<Item = &'a Arc<PluginInstance>> + Clone,
    can: impl Fn(&Capabilities) -> bool,
) -> Option<bool> {
    let mut statuses = instances.filter_map(|instance| instance.status.as_ref());
    let said = statuses.clone().any(|status| can(&status.capabilities));
    let speaks =
        |status: &PluginInstanceStatus| status.controller && status.is_healthy_for(Service::Controller);
    if said { Some(true) } else { statuses.any(speaks).then_some(false) }
}

/// What is being made of a Volume, in words, as far as the caches know.
fn copied_by(known: &Known, key: &VolumeKey, volume: Option<&Volume>) -> Option<String> {
    let uid = volume?.metadata.uid.as_deref()?;
    let snapshots = known.snapshots.by_index(BY_VOLUME, &key.to_string());
    let taken = snapshots.iter().find(|snapshot| is_taken_of(snapshot, uid));
    taken.map(|snapshot| format!("Snapshot {}", snapshot.name_any())).or_else(|| {
        let copies = known.volumes.by_index(BY_SOURCE, &from_volume(key));
        copies.iter().find_map(|copy| is_made_from(copy, uid))
    })
}

/// What is being made of the volume of a Volume with this UID, in words, as of a moment after it was deleted. `deleted` is that Volume
/// as it was seen then, unless it is gone.
///
/// Snapshots are listed. Volumes only where their watch has not come to that moment yet: what it has delivered until then is all that
/// was assigned before, as a LIST would show it (docs/adr/0040-what-is-copied-stays-until-it-is.md).
pub(crate) async fn copied_by_now(
    ctx: &Context,
    uid: &str,
    deleted: Option<(&VolumeKey, &Volume)>,
) -> Result<Option<String>, ApiError> {
    let snapshots = selected::<Snapshot>(ctx, [equals("spec.assignment.volume.uid", uid), groups()]);
    let copies = async {
        if let Some((key, _)) = deleted.filter(|(_, volume)| ctx.volumes.has_all_before(volume)) {
            let copies = ctx.volumes.by_index(BY_SOURCE, &from_volume(key));
            return Ok(copies.iter().find_map(|copy| is_made_from(copy, uid)));
        }
        let copies = selected::<Volume>(ctx, [equals("spec.assignment.source.uid", uid)]).await?;
        Ok(copies.iter().find_map(|copy| is_made_from(copy, uid)))
    };
    let (snapshots, copy) = tokio::try_join!(snapshots, copies)?;
    let taken = snapshots.iter().find(|snapshot| is_taken_of(snapshot, uid));
    Ok(taken.map(|snapshot| format!("Snapshot {}", snapshot.name_any())).or(copy))
}

/// What any of these selectors selects, by LISTs of etcd, some of them at a time: each waits until the API server's cache is as new as
/// etcd.
async fn selected<K: Readable>(
    ctx: &Context,
    selectors: impl IntoIterator<Item = String>,
) -> Result<Vec<K>, ApiError> {
    let list = |selects: String| {
        let api = Api::all(ctx.client.clone());
        async move { list_live(&api, Some(&selects)).await }
    };
    let lists: Vec<_> = selectors.into_iter().map(list).collect();
    stream::iter(lists).buffered(AT_ONCE).try_concat().await
}

/// Selects the Snapshots that are groups. Of these there are few, and no selector looks into lists.
fn groups() -> String {
    equals("spec.assignment.isGroup", "true")
}

/// What is being made of a Snapshot, in words, as far as the caches know.
pub(crate) fn restored_by(known: &Known, key: &VolumeKey, snapshot: &Snapshot) -> Option<String> {
    let is_of = |volume: &Volume| is_made_from(volume, snapshot.metadata.uid.as_deref()?);
    let all = known.volumes.by_index(BY_SOURCE, &from_snapshot(key));
    all.iter().find_map(|volume| is_of(volume))
}

/// The same by LISTs of etcd: also what is made of the same snapshot of the driver by another Snapshot's name.
pub(crate) async fn restored_by_now(
    ctx: &Context,
    snapshot: &Snapshot,
    driver: &str,
) -> Result<Option<String>, ApiError> {
    let uid = snapshot.metadata.uid.as_deref().unwrap_or_default();
    let of_this = Some(equals("spec.assignment.source.uid", uid));
    let of_the_same = snapshot.handles().map(|id| equals("spec.assignment.source.snapshotHandle", id));
    let all: Vec<Volume> = selected(ctx, of_this.into_iter().chain(of_the_same)).await?;
    let is_of = |volume: &&Volume| is_being_made(volume) && is_of_driver(volume, driver);
    Ok(all.iter().find(is_of).map(|volume| {
        let is_near = volume.metadata.namespace == snapshot.metadata.namespace;
        if is_near {
            format!("Volume {}", volume.name_any())
        } else {
            "a Volume of another namespace".to_owned()
        }
    }))
}

/// A Volume that is being made of the object with this UID, in words.
fn is_made_from(volume: &Volume, uid: &str) -> Option<String> {
    let source = volume.spec.assignment.as_ref()?.source.as_ref();
    let is = source.is_some_and(|source| source.uid == uid) && is_being_made(volume);
    is.then(|| format!("Volume {}", volume.name_any()))
}

/// The other Snapshots whose assignment names one of these snapshots of the driver, or a group that has one, by LISTs of etcd.
pub(crate) async fn holders_now(
    ctx: &Context,
    own: &Snapshot,
    driver: &str,
    ids: &[String],
) -> Result<Vec<Holder>, ApiError> {
    let of_ids = ids.iter().map(|id| equals("spec.assignment.snapshotHandle", id));
    let found: Vec<Snapshot> = selected(ctx, of_ids.chain([groups()])).await?;
    let mut all: BTreeMap<Option<String>, Snapshot> =
        found.into_iter().map(|other| (other.metadata.uid.clone(), other)).collect();
    all.retain(|uid, other| {
        let is_of = other.spec.assignment.as_ref().is_some_and(|assignment| assignment.driver_name == driver);
        is_of && *uid != own.metadata.uid && other.handles().any(|handle| ids.iter().any(|id| id == handle))
    });
    let holder = |other: &Snapshot| {
        // What others have in theirs is nothing for the users of this namespace.
        let is_near = other.metadata.namespace == own.metadata.namespace;
        let name = other.name_any();
        Holder {
            words: if is_near {
                format!("Snapshot {name}")
            } else {
                "a Snapshot of another namespace".to_owned()
            },
            ends: other.metadata.deletion_timestamp.is_some() && other.spec.deletes_storage(),
            // In moor's namespace only moor says for which content one was made.
            has_it: [own, other].iter().all(|s| is_of_content(ctx, s)) && other.is_group() && !own.is_group(),
            registered: other.spec.snapshot_handle.is_some(),
            ordered: other.spec.assignment.as_ref().is_some_and(|a| a.operation == SnapshotOperation::Delete),
        }
    };
    Ok(all.values().map(holder).collect())
}

/// Whether moor has made it for a VolumeSnapshotContent, or a VolumeGroupSnapshotContent.
fn is_of_content(ctx: &Context, snapshot: &Snapshot) -> bool {
    snapshot.metadata.namespace.as_ref() == Some(&ctx.namespace)
        && snapshot.spec.volume_snapshot_content.is_some()
}
