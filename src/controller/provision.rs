//! One pass over a PersistentVolumeClaim that moor provisions, or over the Volume that was made for one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;
use kube::api::Preconditions;

use super::allow::namespace_seen;
use super::context::Context;
use super::key::Key;
use super::restores::Restore;
use super::served::{self, Driver};
use super::steps;
use crate::api::conditions::{self, Desired, Reason};
use crate::api::provision::{ProvisionedFor, provisioned_name};
use crate::api::volume::DeletionPolicy;
use crate::api::{Volume, VolumeState};
use crate::k8s::events::EventReason;
use crate::k8s::read::get_live;
use crate::k8s::write::Deleted;
use crate::k8s::{ApiError, Created, Named, Next};
use crate::plugin::allow;
use crate::provision::{
    Asked, CLONING_PROTECTION, ClaimNow, PersistentVolumeNow, Request, SELECTED_NODE, Source, SourceNow,
    Step, Waiting, WatchedClaim, plan, provisioner, request, selected_node, source,
};

/// Time between looks at a claim that waits for what no watch tells, or whose words somebody has to change.
const RECHECK: Duration = Duration::from_secs(30);

/// The same for a claim whose volume is to be made of a VolumeSnapshot: those are not watched.
const RECHECK_SNAPSHOT: Duration = Duration::from_secs(5);

/// Settles one claim.
pub(crate) async fn run(ctx: &Context, claim: &ProvisionedFor) -> Next {
    steps::run(ctx, "provisioning", claim, || step(ctx, claim)).await
}

/// One step; None: something has changed, and it is looked at again.
async fn step(ctx: &Context, claim: &ProvisionedFor) -> Result<Option<Next>, ApiError> {
    let name = provisioned_name(&claim.uid);
    match ctx.volumes.get_in(Named { namespace: &ctx.namespace, name: &name }) {
        Some(volume) => Box::pin(go_on(ctx, claim, &volume)).await,
        None => begin(ctx, claim).await,
    }
}

fn claims(ctx: &Context, claim: &ProvisionedFor) -> Api<PersistentVolumeClaim> {
    Api::namespaced(ctx.client.clone(), &claim.namespace)
}

/// The claim as it is now, if it is this one.
async fn live(ctx: &Context, claim: &ProvisionedFor) -> Result<Option<PersistentVolumeClaim>, ApiError> {
    let found = get_live(&claims(ctx, claim), &claim.name).await?;
    Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(&claim.uid)))
}

async fn node_exists(ctx: &Context, node: Option<&str>) -> Result<bool, ApiError> {
    match node {
        Some(node) if ctx.nodes.get(node).is_none() => Ok(get_live(&ctx.node_api(), node).await?.is_some()),
        Some(_) | None => Ok(true),
    }
}

/// Makes the Volume of a claim that has none.
async fn begin(ctx: &Context, claim: &ProvisionedFor) -> Result<Option<Next>, ApiError> {
    // A claim that nobody is to provision, or somebody else, costs no request.
    let provisioner_of = |claim: &WatchedClaim| claim.provisioner().map(str::to_owned);
    let named = ctx.pvcs.by_uid(&claim.uid).and_then(|known| provisioner_of(&known));
    if named.and_then(|name| served::plugin_of(ctx, &name)).is_none() {
        ctx.provisioning.forget(&Key::Provision(claim.clone()));
        return Ok(Some(Next::Done));
    }
    let Some(live) = live(ctx, claim).await? else { return Ok(Some(Next::Done)) };
    let annotations = live.metadata.annotations.as_ref();
    let driver = provisioner(annotations).and_then(|name| served::driver(ctx, name));
    let known = ctx.pvcs.by_uid(&claim.uid);
    let class = known.and_then(|known| ctx.classes.get(known.class_name()));
    let attributes = attributes(ctx, &live).await?;
    let source = source_now(ctx, &live).await?;
    let asked = Asked {
        source: source.seen(),
        claim: &live,
        class: class.as_deref(),
        attributes: attributes.as_ref(),
        driver: driver.as_ref().map(Driver::seen),
        node_exists: node_exists(ctx, selected_node(annotations)).await?,
        namespace: &ctx.namespace,
    };
    match request(&asked) {
        Request::NotOurs => Ok(Some(Next::Done)),
        Request::Unselect => {
            tell_failed(ctx, claim, &live, "the node that the scheduler chose does not exist any more").await;
            unselect(ctx, claim, &live).await?;
            Ok(Some(Next::Done))
        }
        Request::Protect => {
            if let Some(source) = &source.claim {
                protect(ctx, claim, source).await?;
            }
            Ok(None)
        }
        Request::Wait(waiting) => {
            let next = said(ctx, claim, &live, &waiting.to_string()).await;
            let of_snapshot = matches!(waiting, Waiting::Restore(_));
            Ok(Some(if of_snapshot { Next::After(RECHECK_SNAPSHOT) } else { next }))
        }
        Request::Refuse(refusal) => Ok(Some(said(ctx, claim, &live, &refusal.to_string()).await)),
        Request::Make(volume) => {
            let namespace = namespace_seen(ctx, &claim.namespace);
            let plugin = ctx.plugins.get(&volume.spec.plugin_name);
            if let Some(not_allowed) = plugin.and_then(|plugin| allow::provision(&plugin, &namespace)) {
                return Ok(Some(said(ctx, claim, &live, &not_allowed.message()).await));
            }
            match ctx.writer.create_in(&ctx.volumes, &*volume).await {
                Ok(_) => {
                    tracing::info!(%claim, volume = volume.metadata.name, "provisioning");
                    Ok(None)
                }
                Err(error) => match error.refusal() {
                    Some(refusal) => {
                        Ok(Some(said(ctx, claim, &live, &format!("its Volume: {refusal}")).await))
                    }
                    None => Err(error),
                },
            }
        }
    }
}

/// What a volume is to be made of, as it is now.
#[derive(Default)]
struct CopySource {
    claim: Option<PersistentVolumeClaim>,
    volume: Option<PersistentVolume>,
    restore: Restore,
}

impl CopySource {
    fn seen(&self) -> SourceNow<'_> {
        let restore = self.restore.seen();
        SourceNow { claim: self.claim.as_ref(), volume: self.volume.as_ref(), restore }
    }
}

async fn source_now(ctx: &Context, wanted: &PersistentVolumeClaim) -> Result<CopySource, ApiError> {
    let namespace = wanted.metadata.namespace.as_deref().unwrap_or_default();
    let name = match source(wanted) {
        Source::Claim(name) => name,
        Source::Snapshot(name) => {
            let restore = Restore::read(ctx, namespace, name).await?;
            return Ok(CopySource { restore, ..CopySource::default() });
        }
        Source::None | Source::Elsewhere(_) | Source::SnapshotElsewhere(_) | Source::Others => {
            return Ok(CopySource::default());
        }
    };
    let api: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), namespace);
    let claim = get_live(&api, name).await?;
    let bound = claim.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
    let volume = match bound.filter(|name| !name.is_empty()) {
        Some(name) => get_live(&Api::all(ctx.client.clone()), &name).await?,
        None => None,
    };
    Ok(CopySource { claim, volume, ..CopySource::default() })
}

/// Keeps a claim from going while its volume is copied.
async fn protect(
    ctx: &Context,
    claim: &ProvisionedFor,
    source: &PersistentVolumeClaim,
) -> Result<(), ApiError> {
    let mut after = source.clone();
    after.metadata.finalizers.get_or_insert_default().push(CLONING_PROTECTION.to_owned());
    ctx.writer.merge(&claims(ctx, claim), source, &after).await.map(drop)
}

async fn attributes(
    ctx: &Context,
    claim: &PersistentVolumeClaim,
) -> Result<Option<VolumeAttributesClass>, ApiError> {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    match named.filter(|name| !name.is_empty()) {
        Some(name) => get_live(&Api::all(ctx.client.clone()), name).await,
        None => Ok(None),
    }
}

/// The next step for a Volume that was made for a claim.
async fn go_on(
    ctx: &Context,
    claim: &ProvisionedFor,
    volume: &Arc<Volume>,
) -> Result<Option<Next>, ApiError> {
    let Some(provision) = volume.spec.persistent_volume.as_ref().filter(|p| p.claim == *claim) else {
        let owner = volume.reference();
        let Some(live) = live(ctx, claim).await? else { return Ok(Some(Next::Done)) };
        let words = format!(
            "Volume {}/{} exists, and was not made for this claim; delete it",
            owner.namespace, owner.name
        );
        return Ok(Some(said(ctx, claim, &live, &words).await));
    };
    // Provisioned, or on its way out: nothing that a live read could say changes that.
    if plan(volume, ClaimNow::Gone, PersistentVolumeNow::Unasked) == Step::Idle {
        ctx.provisioning.forget(&Key::Provision(claim.clone()));
        return Ok(Some(Next::Done));
    }
    let live = live(ctx, claim).await?;
    let standing = live.as_ref().filter(|live| live.metadata.deletion_timestamp.is_none());
    let selected = standing.and_then(|live| selected_node(live.metadata.annotations.as_ref()));
    let now = match standing {
        None => ClaimNow::Gone,
        Some(live) => ClaimNow::There {
            selected_node: selected,
            node_exists: node_exists(ctx, selected).await?,
            volume_name: live.spec.as_ref().and_then(|s| s.volume_name.as_deref()).filter(|n| !n.is_empty()),
        },
    };
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let mut step = plan(volume, now, PersistentVolumeNow::Unasked);
    if step == Step::Look {
        let found = get_live(&volumes, &provision.name).await?;
        let found = found.as_ref().map_or(PersistentVolumeNow::Absent, PersistentVolumeNow::There);
        step = plan(volume, now, found);
    }
    match step {
        Step::Idle | Step::Look => Ok(Some(Next::Done)),
        Step::DeleteVolume => {
            abandon(ctx, volume).await?;
            Ok(Some(Next::Done))
        }
        Step::Make(wanted) => match ctx.writer.create(&volumes, &*wanted).await {
            Ok(Created::New(_) | Created::Exists) => Ok(None),
            Err(error) => {
                if let (Some(refusal), Some(live)) = (error.refusal(), &live) {
                    let words = format!("PersistentVolume {}: {refusal}", provision.name);
                    return Ok(Some(said(ctx, claim, live, &words).await));
                }
                Err(error)
            }
        },
        Step::Record { by_another } => {
            record(ctx, volume, &provision.name).await?;
            if by_another {
                ctx.provisioning.made_by_another(&volume.spec.plugin_name, &provision.name);
                ctx.queue.sweep(Key::Plugin(volume.spec.plugin_name.clone()));
            }
            Ok(None)
        }
        Step::Reschedule(words) => {
            if let Some(live) = &live {
                let words = format!("{words}; the scheduler is asked for another node");
                tell_failed(ctx, claim, live, &words).await;
                unselect(ctx, claim, live).await?;
            }
            abandon(ctx, volume).await?;
            Ok(Some(Next::Done))
        }
        Step::Tell(words) => match &live {
            Some(live) => Ok(Some(said(ctx, claim, live, &words).await)),
            None => Ok(Some(Next::After(RECHECK))),
        },
    }
}

/// Deletes a Volume that nobody wants any more, with its storage. One of which it is known that nothing was made is deleted as it
/// is: its agent would write before another call that there may be a volume, so at this version none is running, and CreateVolume
/// is not repeated to find out.
async fn abandon(ctx: &Context, volume: &Volume) -> Result<(), ApiError> {
    if !is_untouched(volume) {
        return delete(ctx, volume, DeletionPolicy::Delete, None).await.map(drop);
    }
    let api: Api<Volume> = ctx.writer.api(&ctx.namespace);
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let seen = Preconditions {
        uid: volume.metadata.uid.clone(),
        resource_version: volume.metadata.resource_version.clone(),
    };
    match ctx.writer.delete(&api, name, seen).await {
        Ok(Deleted::Gone) => {
            ctx.volumes.remove_confirmed(volume.metadata.uid.as_deref().unwrap_or_default());
            Ok(())
        }
        Ok(Deleted::Marked(marked)) => {
            ctx.volumes.apply(*marked);
            Ok(())
        }
        Err(ApiError::Conflict(request)) => {
            if let Some(newer) = get_live(&api, name).await? {
                ctx.volumes.apply(newer);
            }
            Err(ApiError::Conflict(request))
        }
        Err(other) => Err(other),
    }
}

fn is_untouched(volume: &Volume) -> bool {
    volume.state() == VolumeState::Pending && !volume.may_exist() && volume.rejected().is_none()
}

/// Writes what is to become of a Volume's storage and for which PersistentVolume's end, and deletes the Volume. Returns whether it
/// is there to do so: one that an earlier leader has seen the end of is not.
pub(crate) async fn delete(
    ctx: &Context,
    volume: &Volume,
    policy: DeletionPolicy,
    reclaimed_for: Option<&str>,
) -> Result<bool, ApiError> {
    let mut after = volume.clone();
    after.spec.deletion_policy = Some(policy);
    if let Some(name) = reclaimed_for {
        after.spec.reclaimed_for = Some(name.to_owned());
    }
    let is_written = ctx.writer.update(&ctx.volumes, volume, &after).await?;
    // What is gone when it is written leaves the cache.
    let is_there = ctx.volumes.by_uid(volume.metadata.uid.as_deref().unwrap_or_default()).is_some();
    if volume.metadata.deletion_timestamp.is_some() || !is_there {
        return Ok(is_there);
    }
    tracing::info!(volume = volume.metadata.name, ?policy, "deleted");
    // What was written was as it was seen.
    if is_written {
        ctx.writer.delete_in(&ctx.volumes, volume).await
    } else {
        ctx.writer.delete_as_seen(&ctx.volumes, volume).await
    }
}

/// Writes on the Volume that its PersistentVolume is there: from now on that one's end is the Volume's.
async fn record(ctx: &Context, volume: &Volume, name: &str) -> Result<bool, ApiError> {
    let mut status = volume.status.clone().unwrap_or_default();
    status.persistent_volume = Some(name.to_owned());
    let made = Desired::new(Reason::PersistentVolumeMade, format!("it is PersistentVolume {name}"));
    conditions::set(&mut status.conditions, &made, volume.metadata.generation, Timestamp::now());
    ctx.writer.update_status(&ctx.volumes, volume, &status).await
}

/// Takes the chosen node off a claim, so that the scheduler chooses again.
async fn unselect(
    ctx: &Context,
    claim: &ProvisionedFor,
    live: &PersistentVolumeClaim,
) -> Result<(), ApiError> {
    let mut after = live.clone();
    after.metadata.annotations.get_or_insert_default().remove(SELECTED_NODE);
    ctx.writer.merge(&claims(ctx, claim), live, &after).await.map(drop)
}

/// Says what goes wrong, and when it is looked at again.
async fn said(ctx: &Context, claim: &ProvisionedFor, live: &PersistentVolumeClaim, words: &str) -> Next {
    tell_failed(ctx, claim, live, words).await;
    Next::After(RECHECK)
}

async fn tell_failed(ctx: &Context, claim: &ProvisionedFor, live: &PersistentVolumeClaim, words: &str) {
    if ctx.provisioning.is_news(&Key::Provision(claim.clone()), words) {
        tracing::info!(%claim, "cannot be provisioned now: {words}");
        ctx.recorder.publish(live, EventReason::ProvisioningFailed, "Provision", words).await;
    }
}
