//! Volumes that are made of PersistentVolumes: how one is made, and how it goes when no PersistentVolume stands for its
//! storage any more.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;

use super::caches::BY_VOLUME;
use super::context::Context;
use super::key::VolumeKey;
use super::known::Known;
use super::{provision, served};
use crate::api::conditions::{self, Desired, PERSISTENT_VOLUME, Reason};
use crate::api::lock::{self, DriverVolume};
use crate::api::volume::DeletionPolicy;
use crate::api::{Volume, VolumeClaim, names};
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Named, Next};
use crate::provision::{deletion_secret, modify_secret};
use crate::volume::import::{Place, is_given_otherwise, volume_of};
use crate::volume::persistent_volume::CsiSource;

/// Time between looks while somebody uses what no PersistentVolume stands for.
const RECHECK: Duration = Duration::from_secs(30);

/// The Volume that a PersistentVolume of this name is the export of.
pub(crate) fn exporter(known: &Known, persistent: &str) -> Option<Arc<Volume>> {
    known.volumes.by_uid(names::exported_by(persistent)?)
}

/// The Volume that is to be made of a PersistentVolume; None where no Plugin serves its driver, or that Plugin goes, and of one that
/// was itself made of a Volume.
pub(crate) fn volume_for(known: &Known, persistent: &PersistentVolume) -> Option<Volume> {
    if exporter(known, persistent.metadata.name.as_deref()?).is_some() {
        return None;
    }
    let csi = persistent.spec.as_ref()?.csi.as_ref()?;
    let plugin = served::plugin_of(known, &csi.driver).filter(|plugin| !plugin.ends())?;
    let of = DriverVolume { driver: plugin.driver_name(), handle: &csi.volume_handle };
    let annotations = persistent.metadata.annotations.as_ref();
    let (deletion, modify) = (deletion_secret(annotations), modify_secret(annotations));
    let place = Place {
        namespace: &known.namespace,
        plugin: plugin.metadata.name.as_deref().unwrap_or_default(),
        handle_name: &lock::handle_name(of),
        deletion_secret: deletion.as_deref(),
        modify_secret: modify.as_deref(),
    };
    volume_of(persistent, place)
}

/// Why no Volume is made of a PersistentVolume of a CSI driver at present, though one may be later.
pub(crate) fn not_served(known: &Known, persistent: &PersistentVolume) -> Option<String> {
    let csi = persistent.spec.as_ref()?.csi.as_ref()?;
    match served::plugin_of(known, &csi.driver) {
        None => Some(format!(
            "no Plugin serves its driver {} to Pods, see the condition PodsServed of the Plugin that has it",
            csi.driver
        )),
        Some(plugin) if plugin.ends() => {
            let name = plugin.metadata.name.as_deref().unwrap_or_default();
            let words =
                "which has its driver, is being deleted; it is taken up when another Plugin has the driver";
            Some(format!("Plugin {name}, {words}"))
        }
        Some(_) => None,
    }
}

/// Whether a Volume was made of a PersistentVolume for a Plugin that goes, or is gone, before anything was begun with it. Nothing
/// will be, and another Plugin with the driver needs its name, which is that of the storage.
pub(crate) fn is_left(known: &Known, volume: &Volume) -> bool {
    let meta = &volume.metadata;
    let is_begun = volume.spec.assignment.is_some() || meta.deletion_timestamp.is_some();
    let is_import = || {
        let is_own = meta.namespace.as_deref() == Some(&known.namespace);
        is_own && meta.name.as_deref().is_some_and(|name| names::handle_of_import(name).is_some())
    };
    let plugin = || known.plugins.get(&volume.spec.plugin_name);
    !is_begun && is_import() && plugin().is_none_or(|plugin| plugin.ends())
}

/// Makes the Volume of a PersistentVolume of which none was made yet. Returns whether there is one for its Plugin, by now or before.
pub(crate) async fn take_up(ctx: &Context, persistent: &PersistentVolume) -> Result<bool, ApiError> {
    let Some(volume) = volume_for(ctx, persistent) else { return Ok(false) };
    ctx.writer.create_in(&ctx.volumes, &volume).await?;
    Ok(in_the_way(ctx, &volume).is_none())
}

/// The Volume that has the name of one that is to be made of a PersistentVolume, and was made for another Plugin with the driver.
pub(crate) fn in_the_way(known: &Known, wanted: &Volume) -> Option<Arc<Volume>> {
    let name = wanted.metadata.name.as_deref()?;
    let there = known.volumes.get_in(Named { namespace: &known.namespace, name })?;
    (there.spec.plugin_name != wanted.spec.plugin_name).then_some(there)
}

/// The name of the Volume that is or would be made of a PersistentVolume with this source.
pub(crate) fn name_for(known: &Known, driver: &str, volume_handle: &str) -> Option<String> {
    let plugin = served::plugin_of(known, driver)?;
    let of = DriverVolume { driver: plugin.driver_name(), handle: volume_handle };
    Some(names::imported_volume(&lock::handle_name(of)))
}

/// What a PersistentVolume says that stands for the storage of this Volume; None of a Volume that was made of none, or while
/// its driver is not served.
pub(crate) fn source_of(known: &Known, volume: &Volume) -> Option<CsiSource> {
    let meta = &volume.metadata;
    if meta.namespace.as_deref() != Some(&known.namespace) {
        return None;
    }
    let handle = volume.spec.volume_handle.clone()?;
    let plugin = known.plugins.get(&volume.spec.plugin_name)?;
    let source = CsiSource { driver: plugin.kubelet_name()?.to_owned(), volume_handle: handle };
    let name = name_for(known, &source.driver, &source.volume_handle);
    (name.is_some() && name == meta.name).then_some(source)
}

/// Looks whether a PersistentVolume stands for the storage of this Volume. If none does, or one that has the driver given
/// something else, or its Plugin goes before anything was begun, the Volume goes, and leaves the storage; while somebody uses it, it says that none stands for it.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    if !ctx.leadership.is_leading() {
        return Next::Done;
    }
    match look(ctx, name).await {
        Ok(next) => next,
        Err(error) => {
            error.log(name, "cannot look for its PersistentVolume");
            error.next()
        }
    }
}

async fn look(ctx: &Context, name: &str) -> Result<Next, ApiError> {
    let found = ctx.volumes.get_in(Named { namespace: &ctx.namespace, name });
    let Some(volume) = found.filter(|volume| volume.metadata.deletion_timestamp.is_none()) else {
        return Ok(Next::Done);
    };
    if is_left(ctx, &volume) {
        provision::delete(ctx, &volume, DeletionPolicy::Retain, None).await?;
        return Ok(Next::Done);
    }
    let Some(source) = source_of(ctx, &volume) else { return Ok(Next::Done) };
    if let Some(stands) = ctx.persistent_volumes.naming(&source, None).await? {
        if is_anothers(ctx, &volume, &stands.name).await? && !is_used(ctx, name) {
            tracing::info!(volume = name, persistent_volume = stands.name, "is to be made anew");
            provision::delete(ctx, &volume, DeletionPolicy::Retain, None).await?;
            return Ok(Next::Done);
        }
        if says_gone(&volume) {
            let words = format!("PersistentVolume {} stands for it", stands.name);
            say(ctx, &volume, &Desired::new(Reason::PersistentVolumeMade, words)).await?;
        }
        return Ok(Next::Done);
    }
    if !is_used(ctx, name) {
        provision::delete(ctx, &volume, DeletionPolicy::Retain, None).await?;
        return Ok(Next::Done);
    }
    let words = "the PersistentVolume was removed while its volume is in use; the storage stays, and so does what uses it. \
                 Create the PersistentVolume again, or end what uses the volume";
    say(ctx, &volume, &Desired::new(Reason::PersistentVolumeGone, words)).await?;
    Ok(Next::After(RECHECK))
}

/// Whether this PersistentVolume has its driver given something else than the one of which the Volume was made.
async fn is_anothers(ctx: &Context, volume: &Volume, persistent: &str) -> Result<bool, ApiError> {
    let live = get_live(&Api::<PersistentVolume>::all(ctx.client.clone()), persistent).await?;
    let wanted = live.and_then(|live| volume_for(ctx, &live)).filter(|wanted| {
        // It may be there no more, and another one have its name.
        wanted.metadata.name == volume.metadata.name
    });
    Ok(wanted.is_some_and(|wanted| is_given_otherwise(&volume.spec, &wanted.spec)))
}

/// Whether somebody has the volume or is about to. What is missed by that waits as a Volume that is deleted.
fn is_used(known: &Known, name: &str) -> bool {
    let key = VolumeKey { namespace: known.namespace.clone(), name: name.to_owned() }.to_string();
    let has = |claim: &Arc<VolumeClaim>| claim.spec.assignment.is_some() && !claim.is_let_go();
    let granted = known.claims.by_index(BY_VOLUME, &key).iter().any(has);
    granted || !known.attachments.by_index(BY_VOLUME, &key).is_empty()
}

/// Whether the Volume says that its PersistentVolume is gone.
pub(crate) fn says_gone(volume: &Volume) -> bool {
    let said = volume.status.iter().flat_map(|status| &status.conditions);
    conditions::find_as(said, PERSISTENT_VOLUME, "False").is_some()
}

/// Writes on a Volume what has become of its PersistentVolume.
pub(crate) async fn say(ctx: &Context, volume: &Volume, desired: &Desired) -> Result<bool, ApiError> {
    let mut status = volume.status.clone().unwrap_or_default();
    conditions::set(&mut status.conditions, desired, volume.metadata.generation, Timestamp::now());
    ctx.writer.update_status(&ctx.volumes, volume, &status).await
}
