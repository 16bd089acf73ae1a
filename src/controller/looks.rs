//! The live reads that the leader's plan asks for. What they find is put into the caches that hold such objects.

use futures::future::try_join_all;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;

use super::context::Context;
use super::instances::Instances;
use super::made_from::{copied_by_now, holders_now};
use super::nodes::node_facts;
use super::observe::Observed;
use super::persistent_volumes::Except;
use super::{forgotten, pods, reclaim};
use crate::api::caller::ControllerRef;
use crate::api::names::agent_lease_name;
use crate::api::{Attachment, AttachmentUid, PluginInstance, Volume, VolumeClaim, VolumeHandle, names};
use crate::attachment::loss::NodeFacts;
use crate::attachment::{AttachmentSeen, HandleSeen};
use crate::claim::ClaimSeen;
use crate::k8s::cache::Cached;
use crate::k8s::read::{equals, get_live, list_live};
use crate::k8s::{ApiError, Cache};
use crate::leader::{Look, Looked};
use crate::snapshot::Holder;
use crate::volume::CallerNow;
use crate::volume::persistent_volume::{CsiSource, Naming};

/// Takes an object that was read live into the cache, and says whether that is news to the cache.
fn take_in<K: Cached>(cache: &Cache<K>, live: K) -> bool {
    let uid = live.meta().uid.clone().unwrap_or_default();
    let version = || cache.by_uid(&uid).and_then(|known| known.meta().resource_version.clone());
    let before = version();
    cache.apply(live);
    version() != before
}

/// Reads what these looks ask for, all at once, and keeps the answers in `looked`. Says whether it found what the caches did not
/// have: then the plan was made without knowing it.
pub(crate) async fn answer(
    ctx: &Context,
    seen: &Observed,
    looks: &[Look],
    looked: &mut Looked,
) -> Result<bool, ApiError> {
    let answers = Mutex::new(std::mem::take(looked));
    let news = try_join_all(looks.iter().map(|look| read(ctx, seen, look, &answers))).await?;
    *looked = answers.into_inner();
    Ok(news.contains(&true))
}

async fn read(ctx: &Context, seen: &Observed, look: &Look, looked: &Mutex<Looked>) -> Result<bool, ApiError> {
    match look {
        Look::Node { attachment } => {
            let Some(object) = seen.attachment(attachment) else { return Ok(true) };
            let facts = live_facts(ctx, object).await?;
            looked.lock().nodes.insert(attachment.clone(), facts);
            Ok(false)
        }
        Look::Users { attachment } => {
            let live = live_users(&ctx.writer.api(&seen.key.namespace), &seen.key.name, attachment).await?;
            looked.lock().users.insert(attachment.clone(), live.iter().map(ClaimSeen::of).collect());
            Ok(live.into_iter().fold(false, |news, claim| news | take_in(&ctx.claims, claim)))
        }
        Look::Attachment { name } => {
            let live = get_live(&ctx.writer.api::<Attachment>(""), name).await?;
            let uid = live.as_ref().map(|a| AttachmentUid::of(&a.metadata));
            looked.lock().attachments.insert(name.clone(), uid);
            Ok(live.is_some_and(|live| take_in(&ctx.attachments, live)))
        }
        Look::Locks => {
            let own = seen.handle.as_ref().and_then(|handle| handle.metadata.name.as_ref());
            let Some(name) = own.or(seen.handle_name.as_ref()) else { return Ok(true) };
            let (locks, news) = attachments_now(ctx, &equals("spec.fixed.handleName", name)).await?;
            looked.lock().locks = Some(locks);
            Ok(news)
        }
        Look::Claim { key, uid } => {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            let live = get_live(&ctx.writer.api::<VolumeClaim>(namespace), name).await?;
            let live = live.filter(|claim| claim.metadata.uid.as_deref() == Some(uid));
            looked.lock().claims.insert(uid.clone(), live.as_ref().map(ClaimSeen::of));
            if let Some(live) = live {
                return Ok(take_in(&ctx.claims, live));
            }
            let known = ctx.claims.by_uid(uid).is_some();
            ctx.claims.remove_confirmed(uid);
            Ok(known)
        }
        Look::Caller(controller) => {
            let said = caller_now(ctx, &seen.instances, controller).await?;
            looked.lock().callers.insert(controller.clone(), said);
            Ok(false)
        }
        Look::Owner => {
            let Some(handle) = &seen.handle else { return Ok(true) };
            let owner = &handle.spec.volume;
            let live = get_live(&ctx.writer.api::<Volume>(&owner.namespace), &owner.name).await?;
            let exists = live.is_some_and(|volume| volume.uid().as_ref() == Some(&owner.uid));
            looked.lock().owner_exists = Some(exists);
            Ok(false)
        }
        Look::Assigned => assigned(ctx, seen, looked).await,
        Look::Copies { of } => {
            let is_it = |volume: &&Volume| {
                volume.metadata.uid.as_ref() == Some(of) && volume.metadata.deletion_timestamp.is_some()
            };
            // A restored etcd may have what the cache has seen the end of.
            let deleted = seen.volume.as_deref().filter(|_| !seen.cautious).filter(is_it);
            let deleted = deleted.map(|volume| (&seen.key, volume));
            let copied_by = copied_by_now(ctx, of, deleted).await?;
            looked.lock().copied_by = Some(copied_by);
            Ok(false)
        }
        Look::Holders { of, id } => {
            let Some(snapshot) = ctx.snapshots.by_uid(of) else { return Ok(true) };
            let is_registered = snapshot.spec.snapshot_handle.is_some();
            let all = holders_now(ctx, &snapshot, &seen.driver, std::slice::from_ref(id)).await?;
            // Several may have been registered, by whoever has the right to.
            let counts = |holder: &&Holder| !(holder.has_it || is_registered && holder.registered);
            looked.lock().shared_with = Some(all.iter().find(counts).map(|holder| holder.words.clone()));
            Ok(false)
        }
        Look::PersistentVolumes(volume) => {
            let named_by = naming(ctx, seen, volume).await?;
            looked.lock().named_by = Some(named_by);
            Ok(false)
        }
        Look::EndedReports => {
            let have_ended = forgotten::have_ended(ctx, &seen.ended).await?;
            looked.lock().reports_have_ended = Some(have_ended);
            Ok(false)
        }
        Look::Pod { claim } => {
            let Some((of, object)) = seen.each_claim().find(|(of, _)| of.uid == *claim) else {
                return Ok(true);
            };
            let entitled = pods::look(ctx, seen, (of, object)).await?;
            ctx.pods.found(of, &seen.asked, &entitled);
            looked.lock().pods.insert(claim.clone(), entitled);
            Ok(false)
        }
        Look::Handle { name } => {
            let live = get_live(&ctx.writer.api::<VolumeHandle>(""), name).await?;
            looked.lock().handles.insert(name.clone(), live.as_ref().map(HandleSeen::of));
            Ok(live.is_some_and(|live| take_in(&ctx.handles, live)))
        }
    }
}

/// What the Volume is assigned; of one that is gone there is nothing to say.
async fn assigned(ctx: &Context, seen: &Observed, looked: &Mutex<Looked>) -> Result<bool, ApiError> {
    let Some(volume) = &seen.volume else { return Ok(true) };
    let live = get_live(&ctx.writer.api::<Volume>(&seen.key.namespace), &seen.key.name).await?;
    let Some(live) = live.filter(|live| live.uid() == volume.uid()) else {
        ctx.volumes.remove_confirmed(volume.metadata.uid.as_deref().unwrap_or_default());
        return Ok(true);
    };
    looked.lock().assigned = Some(live.spec.assignment.clone());
    Ok(take_in(&ctx.volumes, live))
}

/// The PersistentVolume that stands for a volume and is not the Volume's own: by the name of the driver, and by the name that
/// kubelets know it by, where that is another one.
async fn naming(ctx: &Context, seen: &Observed, of: &CsiSource) -> Result<Option<Naming>, ApiError> {
    let own = own(ctx, seen).await?;
    let own = own.as_ref();
    let found = ctx.persistent_volumes.naming(of, own).await?;
    // Those of that name are why moor keeps such a Volume, until it is deleted.
    let is_for_them = seen.kept_as.is_some()
        && seen.volume.as_ref().is_some_and(|volume| volume.metadata.deletion_timestamp.is_none());
    let alias = seen.plugin.as_ref().and_then(|plugin| plugin.kubelet_name());
    match alias.filter(|alias| found.is_none() && !is_for_them && *alias != of.driver) {
        Some(alias) => ctx.persistent_volumes.naming(&of.as_driver(alias), own).await,
        None => Ok(found),
    }
}

/// The PersistentVolume that does not keep a Volume off its storage: the one by which the Volume is exported; of a Volume that
/// moor has made the one that is made of it, as long as the Volume is not handed over to it, and the one that is reclaimed with
/// it, as long as its policy still says so.
async fn own(ctx: &Context, seen: &Observed) -> Result<Option<Except>, ApiError> {
    let Some(volume) = seen.volume.as_deref() else { return Ok(None) };
    if seen.key.namespace != ctx.namespace {
        let uid = seen.exported_as().map(str::to_owned);
        return Ok(uid
            .zip(volume.uid())
            .map(|(uid, of)| Except { name: names::export(&of), uid: Some(uid) }));
    }
    let is_deleted = volume.metadata.deletion_timestamp.is_some();
    if let Some(name) = volume.spec.reclaimed_for.as_ref().filter(|_| is_deleted) {
        return Ok(reclaim::is_to_go(ctx, name).await?.then(|| Except::named(name)));
    }
    let is_recorded = volume.status.as_ref().is_some_and(|status| status.persistent_volume.is_some());
    let made = volume.spec.persistent_volume.as_ref().filter(|_| !is_deleted || !is_recorded);
    Ok(made.map(|made| Except::named(&made.name)))
}

/// What is known of an Attachment's node by live reads. The Lease last, because the agent may come back at any moment.
async fn live_facts(ctx: &Context, attachment: &Attachment) -> Result<NodeFacts, ApiError> {
    let name = &attachment.spec.node_name;
    let node = get_live(&ctx.node_api(), name).await?;
    ctx.leases.refresh(&ctx.lease_api, &agent_lease_name(name)).await?;
    Ok(node_facts(ctx, attachment, node.as_ref()))
}

/// The Attachments of which a field is so, by a quorum LIST, and whether that is news to the cache.
pub(super) async fn attachments_now(
    ctx: &Context,
    field: &str,
) -> Result<(Vec<AttachmentSeen>, bool), ApiError> {
    let live: Vec<Attachment> = list_live(&ctx.writer.api(""), Some(field)).await?;
    let seen = live.iter().map(AttachmentSeen::of).collect();
    Ok((seen, live.into_iter().fold(false, |news, one| news | take_in(&ctx.attachments, one))))
}

/// The claims that use an Attachment, by a quorum LIST of the claims on its Volume.
async fn live_users(
    api: &Api<VolumeClaim>,
    volume: &str,
    attachment: &AttachmentUid,
) -> Result<Vec<VolumeClaim>, ApiError> {
    let mut claims = list_live(api, Some(&equals("spec.volumeName", volume))).await?;
    claims.retain(|claim| !claim.is_let_go() && ClaimSeen::of(claim).uses() == Some(attachment));
    Ok(claims)
}

/// Whether an instance can be making a call, by live reads: a stalled watch looks like an expired Lease (rule R2).
pub(super) async fn caller_now(
    ctx: &Context,
    instances: &Instances,
    controller: &ControllerRef,
) -> Result<CallerNow, ApiError> {
    let instance = instances.named(&controller.instance);
    let lease = agent_lease_name(&controller.agent);
    ctx.leases.refresh(&ctx.lease_api, &lease).await?;
    let silent = match instance {
        Some(instance) => ctx.silent_for(instance),
        None => ctx.leases.expired_for(&lease),
    };
    if let Some(silent) = silent {
        if silent > ctx.longest_call {
            return Ok(CallerNow::CutOff);
        }
        let node = get_live(&ctx.node_api(), &controller.agent).await?;
        if node.is_some_and(|n| n.is_out_of_service() && instance.is_none_or(|i| i.spec.node_uid == n.uid()))
        {
            return Ok(CallerNow::CutOff);
        }
    }
    let Some(live) = get_live(&ctx.writer.api::<PluginInstance>(""), &controller.instance).await? else {
        return Ok(CallerNow::MayCall);
    };
    Ok(if controller.tenure < live.relieved() { CallerNow::Relieved } else { CallerNow::MayCall })
}

#[cfg(test)]
#[path = "looks_tests.rs"]
mod tests;
