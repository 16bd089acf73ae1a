//! One pass over a PersistentVolume that nobody claims any more, that is being deleted, or that is gone.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::Preconditions;
use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::key::Key;
use super::{provision, served};
use crate::api::conditions::{self, Desired, PERSISTENT_VOLUME, Reason};
use crate::api::lock::{self, DriverVolume};
use crate::api::{Volume, VolumeHandle};
use crate::k8s::events::EventReason;
use crate::k8s::read::{get_live, look_through};
use crate::k8s::{ApiError, Named, Next};
use crate::provision::{Ends, FINALIZER, Reclaim, VolumeNow, reclaim};
use crate::volume::handle_of;
use crate::volume::persistent_volume::{CsiSource, LeanPersistentVolume};

/// Time between looks at what no watch tells.
const RECHECK: Duration = Duration::from_secs(30);
/// More steps than a PersistentVolume can need at a time.
const STEPS: usize = 16;
/// Time between attempts to read all PersistentVolumes.
const RETRY: Duration = Duration::from_secs(5);

/// Settles one PersistentVolume.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    for _ in 0..STEPS {
        if !ctx.leadership.is_leading() {
            return Next::Done;
        }
        match step(ctx, name).await {
            Ok(None) => {}
            Ok(Some(next)) => return next,
            Err(ApiError::Conflict(request)) => {
                tracing::info!(%request, "changed meanwhile; looking again");
            }
            Err(error) => {
                tracing::warn!(persistent_volume = name, %error, "reclaiming pass failed");
                return Next::Retry;
            }
        }
    }
    Next::Again
}

fn api<K>(ctx: &Context) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
{
    Api::all(ctx.client.clone())
}

async fn step(ctx: &Context, name: &str) -> Result<Option<Next>, ApiError> {
    // One that is nothing to moor costs no request.
    let known = ctx.pvs.get(name);
    let concerns = known.is_some_and(|known| served::plugin_of(ctx, known.driver()).is_some());
    if !concerns && made_into(ctx, name).is_none() {
        return Ok(Some(Next::Done));
    }
    let Some(live) = get_live(&api::<PersistentVolume>(ctx), name).await? else {
        ctx.provisioning.forget(&Key::PersistentVolume(name.to_owned()));
        return missing(ctx, name).await;
    };
    let served = |driver: &str| served::plugin_of(ctx, driver).is_some();
    let Some(ends) = Ends::of(&live, served) else { return back(ctx, name).await };
    let Some(source) = source(&live) else { return Ok(Some(Next::Done)) };
    let found = found(ctx, &source).await?;
    let now = match &found {
        Found::Gone => VolumeNow::Gone,
        Found::Removed => VolumeNow::Removed,
        Found::There(volume) if volume.metadata.namespace.as_deref() == Some(&ctx.namespace) => {
            VolumeNow::There(volume)
        }
        Found::There(volume) => VolumeNow::OfUsers(volume),
    };
    let mut step = reclaim(ends, now, false);
    if matches!(step, Reclaim::DeleteVolume(_)) {
        // As etcd has it now, and before anything is ordered.
        let other = ctx.persistent_volumes.naming(&source, Some(name)).await?;
        step = reclaim(ends, now, other.is_some_and(|other| other.certain));
    }
    match step {
        Reclaim::Nothing => Ok(Some(Next::Done)),
        Reclaim::DeleteVolume(policy) => {
            if let Found::There(volume) = &found {
                provision::delete(ctx, volume, policy).await?;
            }
            Ok(None)
        }
        Reclaim::DeletePersistentVolume => {
            let preconditions = Preconditions { uid: live.uid(), resource_version: live.resource_version() };
            ctx.writer.delete(&api::<PersistentVolume>(ctx), name, preconditions).await?;
            Ok(None)
        }
        Reclaim::Free => {
            ctx.writer.remove_finalizer(&api(ctx), &live, FINALIZER).await?;
            tracing::info!(persistent_volume = name, "reclaimed");
            Ok(Some(Next::Done))
        }
        Reclaim::Wait(words) => {
            if let Found::There(volume) = &found {
                ctx.provisioning.wait(volume.metadata.uid.as_deref().unwrap_or_default(), name);
            }
            if let Some(words) = words {
                tell(ctx, &live, &words).await;
            }
            Ok(Some(Next::After(RECHECK)))
        }
        Reclaim::Refuse(words) => {
            tell(ctx, &live, &words).await;
            Ok(Some(Next::After(RECHECK)))
        }
    }
}

fn source(live: &PersistentVolume) -> Option<CsiSource> {
    let csi = live.spec.as_ref()?.csi.as_ref()?;
    Some(CsiSource { driver: csi.driver.clone(), volume_handle: csi.volume_handle.clone() })
}

/// Who has the storage.
enum Found {
    Gone,
    Removed,
    There(Arc<Volume>),
}

/// The Volume that has the storage, by its VolumeHandle, and by live reads where there is none.
async fn found(ctx: &Context, source: &CsiSource) -> Result<Found, ApiError> {
    let plugin = served::plugin_of(ctx, &source.driver);
    let driver = plugin.as_ref().map_or(source.driver.as_str(), |plugin| plugin.driver_name());
    let handle_name = lock::handle_name(DriverVolume { driver, handle: &source.volume_handle });
    let known = ctx.handles.get(&handle_name).and_then(|handle| {
        let owner = &handle.spec.volume;
        let volume = ctx.volumes.get_in(Named { namespace: &owner.namespace, name: &owner.name })?;
        (volume.metadata.uid.as_ref() == Some(&owner.uid)).then_some(volume)
    });
    if let Some(volume) = known {
        return Ok(Found::There(volume));
    }
    let of_status = ctx.volumes.by_index(super::caches::BY_VOLUME_HANDLE, &source.volume_handle);
    let is_its = |volume: &&Arc<Volume>| {
        let plugin = plugin.as_ref().and_then(|plugin| plugin.metadata.name.as_ref());
        plugin == Some(&volume.spec.plugin_name)
            && volume.metadata.namespace.as_deref() == Some(&ctx.namespace)
    };
    if let Some(volume) = of_status.iter().find(is_its) {
        return Ok(Found::There(Arc::clone(volume)));
    }
    let Some(handle) = get_live(&ctx.writer.api::<VolumeHandle>(""), &handle_name).await? else {
        return Ok(Found::Gone);
    };
    let owner = handle.spec.volume;
    let live = get_live(&ctx.writer.api::<Volume>(&owner.namespace), &owner.name).await?;
    match live.filter(|live| live.metadata.uid.as_ref() == Some(&owner.uid)) {
        Some(live) => Ok(Found::There(Arc::new(live))),
        None => Ok(Found::Removed),
    }
}

async fn tell(ctx: &Context, live: &PersistentVolume, words: &str) {
    let key = Key::PersistentVolume(live.name_any());
    if ctx.provisioning.is_news(&key, words) {
        ctx.recorder.publish(live, EventReason::VolumeFailedDelete, "Reclaim", words).await;
    }
}

/// The Volume of which the PersistentVolume of this name was made, unless that is on its way.
fn made_into(ctx: &Context, name: &str) -> Option<Arc<Volume>> {
    let volume = ctx.volumes.get_in(Named { namespace: &ctx.namespace, name })?;
    let stands = volume.metadata.deletion_timestamp.is_none();
    let made = volume.status.as_ref().and_then(|status| status.persistent_volume.as_deref()) == Some(name);
    (stands && made).then_some(volume)
}

/// A PersistentVolume that is gone was removed by force if its Volume is there: storage and lock stay, and that is said.
async fn missing(ctx: &Context, name: &str) -> Result<Option<Next>, ApiError> {
    let Some(volume) = made_into(ctx, name) else { return Ok(Some(Next::Done)) };
    let plugin = ctx.plugins.get(&volume.spec.plugin_name);
    if let (Some(id), Some(plugin)) = (handle_of(&volume), plugin) {
        let driver = plugin.kubelet_name().unwrap_or_else(|| plugin.driver_name()).to_owned();
        let source = CsiSource { driver, volume_handle: id.to_owned() };
        if ctx.persistent_volumes.naming(&source, Some(name)).await?.is_some_and(|other| other.certain) {
            // It goes on under another name.
            return Ok(Some(Next::After(RECHECK)));
        }
    }
    let words = format!(
        "PersistentVolume {name} was removed by force; the storage stays, and so does what uses it. Create that \
         PersistentVolume again, or delete this Volume, with spec.deletionPolicy Delete if the storage is to go"
    );
    write(ctx, &volume, &Desired::new(Reason::PersistentVolumeGone, words)).await?;
    Ok(Some(Next::After(RECHECK)))
}

/// A PersistentVolume that is there, and in use or somebody else's.
async fn back(ctx: &Context, name: &str) -> Result<Option<Next>, ApiError> {
    if let Some(volume) = made_into(ctx, name) {
        let made = Desired::new(Reason::PersistentVolumeMade, format!("it is PersistentVolume {name}"));
        write(ctx, &volume, &made).await?;
    }
    Ok(Some(Next::Done))
}

async fn write(ctx: &Context, volume: &Volume, desired: &Desired) -> Result<bool, ApiError> {
    let mut status = volume.status.clone().unwrap_or_default();
    conditions::set(&mut status.conditions, desired, volume.metadata.generation, Timestamp::now());
    ctx.writer.update_status(&ctx.volumes, volume, &status).await
}

/// Looks once for PersistentVolumes that were removed by force while nobody watched, and for those of which that was said
/// and that may be there again.
pub(crate) async fn look_for_missing(ctx: Arc<Context>) {
    for volume in ctx.volumes.all() {
        let Some(status) = &volume.status else { continue };
        let said_gone = status.conditions.iter().any(|c| c.type_ == PERSISTENT_VOLUME && c.status == "False");
        if let Some(name) = status.persistent_volume.as_ref().filter(|_| said_gone) {
            ctx.queue.sweep(Key::PersistentVolume(name.clone()));
        }
    }
    loop {
        let mut missing: HashSet<String> = made(&ctx).collect();
        if missing.is_empty() {
            return;
        }
        let all = api::<LeanPersistentVolume>(&ctx);
        let read = look_through(&all, |page| {
            for name in page.iter().filter_map(|one| one.metadata.name.as_ref()) {
                missing.remove(name);
            }
            ControlFlow::Continue(())
        });
        match read.await {
            Ok(()) => {
                for name in missing {
                    ctx.queue.sweep(Key::PersistentVolume(name));
                }
                return;
            }
            Err(error) => tracing::warn!(%error, "PersistentVolumes cannot be read"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Names of all PersistentVolumes that were made here.
fn made(ctx: &Context) -> impl Iterator<Item = String> {
    ctx.volumes.all().into_iter().filter_map(|volume| volume.status.as_ref()?.persistent_volume.clone())
}
