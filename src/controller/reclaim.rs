//! One pass over a PersistentVolume that nobody claims any more, that is being deleted, or that is gone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::Preconditions;
use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::imports::{say, says_gone};
use super::key::Key;
use super::persistent_volumes::Except;
use super::steps;
use super::{imports, provision, served};
use crate::api::conditions::{Desired, Reason};
use crate::api::lock::{self, DriverVolume};
use crate::api::provision::ReclaimPolicy;
use crate::api::volume::DeletionPolicy;
use crate::api::{Volume, VolumeHandle};
use crate::k8s::events::EventReason;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Named, Next};
use crate::provision::{Ends, FINALIZER, Reclaim, VolumeNow, is_to_be_held, reclaim};
use crate::volume::handle_of;
use crate::volume::persistent_volume::CsiSource;

/// Time between looks at what no watch tells.
const RECHECK: Duration = Duration::from_secs(30);

/// Settles one PersistentVolume.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    steps::run(ctx, "reclaiming", name, || step(ctx, name)).await
}

fn api<K>(ctx: &Context) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
{
    Api::all(ctx.client.clone())
}

async fn step(ctx: &Context, name: &str) -> Result<Option<Next>, ApiError> {
    let key = Key::PersistentVolume(name.to_owned());
    // One that is nothing to moor costs no request.
    let known = ctx.pvs.get(name);
    let concerns = known.is_some_and(|known| served::plugin_of(ctx, known.driver()).is_some());
    if !concerns && made_into(ctx, name).is_none() {
        ctx.provisioning.left(&key);
        return Ok(Some(Next::Done));
    }
    let Some(live) = get_live(&api::<PersistentVolume>(ctx), name).await? else {
        ctx.provisioning.left(&key);
        return missing(ctx, name).await;
    };
    let served = |driver: &str| served::plugin_of(ctx, driver).is_some();
    let Some(ends) = Ends::of(&live, served) else {
        // It may end otherwise the next time.
        ctx.provisioning.left(&key);
        if is_to_be_held(&live, served) {
            return hold(ctx, &live).await;
        }
        return back(ctx, name).await;
    };
    let (Some(source), Some(uid)) = (source(&live), live.metadata.uid.as_deref()) else {
        return Ok(Some(Next::Done));
    };
    let found = found(ctx, name, &source).await?;
    let now = found.seen(ctx.provisioning.has_ordered(&key, uid));
    let step = reclaim(name, ends, now, false);
    let ending = Ending { live: &live, uid, found: &found };
    if !matches!(step, Reclaim::DeleteVolume(_)) {
        return act(ctx, ending, step).await;
    }
    // As etcd has it now, and before anything is ordered.
    let has_other = || async {
        let other = ctx.persistent_volumes.naming(&source, Some(&Except::named(name))).await?;
        Ok::<_, ApiError>(other.is_some_and(|other| other.certain))
    };
    if !has_other().await? {
        return act(ctx, ending, step).await;
    }
    // Of several that end at once each would leave the storage to the others.
    let _last = ctx.provisioning.last.lock().await;
    let step = reclaim(name, ends, now, has_other().await?);
    act(ctx, ending, step).await
}

/// Whether this PersistentVolume ends, by a live read, and its storage with it.
pub(crate) async fn is_to_go(ctx: &Context, name: &str) -> Result<bool, ApiError> {
    let live = get_live(&api::<PersistentVolume>(ctx), name).await?;
    let ends = live.and_then(|live| Ends::of(&live, |driver| served::plugin_of(ctx, driver).is_some()));
    Ok(ends.is_some_and(|ends| ends.policy == ReclaimPolicy::Delete))
}

/// A PersistentVolume that ends, with what has its storage.
#[derive(Clone, Copy)]
struct Ending<'a> {
    live: &'a PersistentVolume,
    uid: &'a str,
    found: &'a Found,
}

async fn act(ctx: &Context, ending: Ending<'_>, step: Reclaim) -> Result<Option<Next>, ApiError> {
    let Ending { live, uid, found } = ending;
    let name = live.metadata.name.as_deref().unwrap_or_default();
    match step {
        Reclaim::Hold => hold(ctx, live).await,
        Reclaim::Import => import(ctx, live).await,
        Reclaim::DeleteVolume(policy) => {
            if let Found::There(volume, _) = found {
                let is_for = Some(name).filter(|_| policy == DeletionPolicy::Delete);
                let is_there = provision::delete(ctx, volume, policy, is_for).await?;
                if is_there && is_for.is_some() {
                    ctx.provisioning.ordered(&Key::PersistentVolume(name.to_owned()), uid);
                }
            }
            Ok(None)
        }
        Reclaim::DeletePersistentVolume => {
            let preconditions = Preconditions { uid: live.uid(), resource_version: live.resource_version() };
            ctx.writer.delete(&api::<PersistentVolume>(ctx), name, preconditions).await?;
            Ok(None)
        }
        Reclaim::Free => {
            ctx.writer.remove_finalizer(&api(ctx), live, FINALIZER).await?;
            tracing::info!(persistent_volume = name, "reclaimed");
            Ok(Some(Next::Done))
        }
        Reclaim::Wait(words) => {
            if let Found::There(volume, _) = found {
                wait_for(ctx, volume, name);
                if volume.spec.reclaimed_for.as_deref() == Some(name) {
                    ctx.provisioning.ordered(&Key::PersistentVolume(name.to_owned()), uid);
                }
                if has_changed(ctx, volume) {
                    return Ok(None);
                }
            }
            if let Some(words) = words {
                tell(ctx, live, &words).await;
            }
            Ok(Some(Next::After(RECHECK)))
        }
        Reclaim::Refuse(words) => {
            if let Found::There(volume, _) = found {
                wait_for(ctx, volume, name);
            }
            tell(ctx, live, &words).await;
            Ok(Some(Next::After(RECHECK)))
        }
    }
}

/// Has the pass run again when the Volume changes.
fn wait_for(ctx: &Context, volume: &Volume, name: &str) {
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    ctx.provisioning.wait(uid, Key::PersistentVolume(name.to_owned()));
}

/// Whether the cache has the Volume otherwise, so that nobody wakes who began to wait for it only now.
fn has_changed(ctx: &Context, volume: &Volume) -> bool {
    let reference = volume.reference();
    let now = ctx.volumes.get_in(Named { namespace: &reference.namespace, name: &reference.name });
    now.and_then(|now| now.resource_version()) != volume.resource_version()
}

/// Keeps a PersistentVolume until its storage is gone.
async fn hold(ctx: &Context, live: &PersistentVolume) -> Result<Option<Next>, ApiError> {
    let mut held = live.clone();
    held.finalizers_mut().push(FINALIZER.to_owned());
    ctx.writer.merge(&api(ctx), live, &held).await?;
    Ok(None)
}

/// Makes the Volume by which the storage of a PersistentVolume is deleted.
async fn import(ctx: &Context, live: &PersistentVolume) -> Result<Option<Next>, ApiError> {
    let Some(volume) = imports::volume_for(ctx, live) else {
        if let Some(why) = imports::not_served(ctx, live) {
            tell(ctx, live, &format!("its storage is not deleted yet: {why}")).await;
        }
        return Ok(Some(Next::Done));
    };
    match ctx.writer.create_in(&ctx.volumes, &volume).await {
        Ok(_) => match imports::in_the_way(ctx, &volume) {
            None => Ok(None),
            Some(there) => {
                let (name, plugin) = (there.name_any(), &there.spec.plugin_name);
                let words = format!(
                    "Volume {}/{name} has the name of the one by which its storage is to be deleted, and is of Plugin {plugin}: \
                     delete that Volume",
                    ctx.namespace
                );
                tell(ctx, live, &words).await;
                Ok(Some(Next::After(RECHECK)))
            }
        },
        Err(error) => match error.refusal() {
            Some(refusal) => {
                tell(ctx, live, &format!("its Volume: {refusal}")).await;
                Ok(Some(Next::After(RECHECK)))
            }
            None => Err(error),
        },
    }
}

pub(super) fn source(live: &PersistentVolume) -> Option<CsiSource> {
    let csi = live.spec.as_ref()?.csi.as_ref()?;
    Some(CsiSource { driver: csi.driver.clone(), volume_handle: csi.volume_handle.clone() })
}

/// Who has the storage.
pub(super) enum Found {
    Gone,
    /// None, and the VolumeHandle is there that one had.
    Removed,
    There(Arc<Volume>, Whose),
}

/// Whose Volume has the storage.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// One that moor keeps for PersistentVolumes; whether an instance makes its controller calls.
    Kept(bool),
    /// One that is provisioned, for a PersistentVolume that is still to be made.
    BeingMade,
    Users,
}

impl Found {
    /// As the decision sees it. `was_ordered` says that a Volume was told to delete the storage.
    fn seen(&self, was_ordered: bool) -> VolumeNow<'_> {
        match self {
            Self::Gone if was_ordered => VolumeNow::Gone,
            Self::Gone | Self::Removed => VolumeNow::Absent,
            Self::There(volume, Whose::Kept(callable)) => VolumeNow::Kept { volume, callable: *callable },
            Self::There(_, Whose::BeingMade) => VolumeNow::BeingMade,
            Self::There(volume, Whose::Users) => VolumeNow::OfUsers(volume),
        }
    }
}

/// The Volume that has the storage, by its VolumeHandle, and by live reads where there is none.
pub(super) async fn found(ctx: &Context, name: &str, source: &CsiSource) -> Result<Found, ApiError> {
    let plugin = served::plugin_of(ctx, &source.driver);
    let driver = plugin.as_ref().map_or(source.driver.as_str(), |plugin| plugin.driver_name());
    let handle_name = lock::handle_name(DriverVolume { driver, handle: &source.volume_handle });
    let handle = ctx.handles.get(&handle_name);
    let there = |volume: Arc<Volume>, handle: Option<&VolumeHandle>| {
        let whose = whose(ctx, name, &volume, handle);
        Found::There(volume, whose)
    };
    let known = handle.as_deref().and_then(|handle| {
        let owner = &handle.spec.volume;
        let volume = ctx.volumes.get_in(Named { namespace: &owner.namespace, name: &owner.name })?;
        (volume.metadata.uid.as_ref() == Some(&owner.uid)).then_some(volume)
    });
    if let Some(volume) = known {
        return Ok(there(volume, handle.as_deref()));
    }
    let of_status = ctx.volumes.by_index(super::caches::BY_VOLUME_HANDLE, &source.volume_handle);
    let plugin = plugin.as_ref().and_then(|plugin| plugin.metadata.name.as_ref());
    let of_status = of_status.into_iter().filter(|volume| plugin == Some(&volume.spec.plugin_name));
    let mut kept = of_status.filter(|volume| !matches!(whose(ctx, name, volume, None), Whose::Users));
    if let Some(volume) = kept.next() {
        return Ok(there(volume, None));
    }
    let Some(handle) = get_live(&ctx.writer.api::<VolumeHandle>(""), &handle_name).await? else {
        return Ok(Found::Gone);
    };
    let owner = &handle.spec.volume;
    let live = get_live(&ctx.writer.api::<Volume>(&owner.namespace), &owner.name).await?;
    match live.filter(|live| live.metadata.uid.as_ref() == Some(&owner.uid)) {
        Some(live) => {
            ctx.volumes.apply(live.clone());
            Ok(there(Arc::new(live), Some(&handle)))
        }
        None => Ok(Found::Removed),
    }
}

/// Whose a Volume is, for the PersistentVolume `name`. Only what moor has made itself, in its own namespace, is its to
/// delete; a PersistentVolume can be written with anybody's handle.
fn whose(ctx: &Context, name: &str, volume: &Volume, handle: Option<&VolumeHandle>) -> Whose {
    let is_own = volume.metadata.namespace.as_deref() == Some(&ctx.namespace);
    let made = volume.spec.persistent_volume.as_ref().filter(|_| is_own);
    let is_recorded = volume.status.as_ref().is_some_and(|status| status.persistent_volume.is_some());
    if made.is_some_and(|made| made.name != name && !is_recorded) {
        return Whose::BeingMade;
    }
    if made.is_none() && imports::source_of(ctx, volume).is_none() {
        return Whose::Users;
    }
    let of_handle = handle.is_some_and(|handle| handle.spec.controller.is_some());
    Whose::Kept(volume.caller().is_some() || of_handle)
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
    if says_gone(&volume) {
        // Only that it comes back is news, and not worth a look through all of them each time.
        return Ok(Some(Next::After(RECHECK)));
    }
    let plugin = ctx.plugins.get(&volume.spec.plugin_name);
    if let (Some(id), Some(plugin)) = (handle_of(&volume), plugin) {
        let driver = plugin.kubelet_name().unwrap_or_else(|| plugin.driver_name()).to_owned();
        let source = CsiSource { driver, volume_handle: id.to_owned() };
        let other = ctx.persistent_volumes.naming(&source, Some(&Except::named(name))).await?;
        if other.is_some_and(|other| other.certain) {
            // It goes on under another name.
            return Ok(Some(Next::After(RECHECK)));
        }
    }
    let words = format!(
        "PersistentVolume {name} was removed by force; the storage stays, and so does what uses it. Create that \
         PersistentVolume again, or delete this Volume, with spec.deletionPolicy Delete if the storage is to go"
    );
    say(ctx, &volume, &Desired::new(Reason::PersistentVolumeGone, words)).await?;
    Ok(Some(Next::After(RECHECK)))
}

/// A PersistentVolume that is there, and in use or somebody else's.
async fn back(ctx: &Context, name: &str) -> Result<Option<Next>, ApiError> {
    if let Some(volume) = made_into(ctx, name) {
        let made = Desired::new(Reason::PersistentVolumeMade, format!("it is PersistentVolume {name}"));
        say(ctx, &volume, &made).await?;
    }
    Ok(Some(Next::Done))
}
