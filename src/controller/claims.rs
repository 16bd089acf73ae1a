//! Acts on claims and their Attachments: grant, close, free, release. Each does one side effect.

use std::sync::Arc;

use kube::api::ObjectMeta;
use serde_json::json;

use super::context::Context;
use super::drift;
use super::observe::{
    Observed, PUBLISH_READONLY, PUBLISH_UNPUBLISH, SINGLE_NODE_MULTI_WRITER, capabilities_of, observe,
};
use super::pass::{Did, verdicts};
use crate::api::attachment::{AttachmentSpec, Fixed};
use crate::api::handle::VolumeRef;
use crate::api::{Attachment, FINALIZER, VolumeClaim};
use crate::claim::ClaimSeen;
use crate::claim::admission::{Grant, Verdict, attaches_read_only, is_exclusive, shares_node};
use crate::claim::observed::has_room;
use crate::claim::release::ReleaseStep;
use crate::k8s::read::{get_live, list_live};
use crate::k8s::{ApiError, Created, Deleted, Target};

/// Creates the Attachment: the compare-and-swap that grants.
pub(crate) async fn create_attachment(
    ctx: &Context,
    seen: &Observed,
    claim: &VolumeClaim,
    name: &str,
    node: &str,
) -> Result<Did, ApiError> {
    let Some(spec) = attachment_spec(seen, claim, node) else { return Ok(Did::Nothing) };
    let limit = seen.node_instance(node).and_then(|i| i.status.as_ref()).map_or(0, |s| s.max_volumes);
    let driver = &spec.fixed.driver_name;
    // Volumes are worked on side by side, and each counts.
    let entry = if limit > 0 { Some(ctx.room.enter(driver, node).await) } else { None };
    if entry.as_ref().is_some_and(|entry| entry.waited) && !is_granted_still(ctx, seen, claim, name, node) {
        return Ok(Did::Step);
    }
    if !has_room(limit, ctx.load(driver, node)) {
        return Ok(Did::Step);
    }
    // The lock may be held: by the other leader's grant or by an Attachment our cache has not seen.
    if let Lock::Taken = lock(ctx, name, spec).await? {
        tracing::info!(attachment = name, node, claim = claim.metadata.name, "granted");
    }
    Ok(Did::Step)
}

/// The wait may have been long: whether this process still leads and would still decide the same.
fn is_granted_still(ctx: &Context, seen: &Observed, claim: &VolumeClaim, name: &str, node: &str) -> bool {
    let same = Verdict::Grant(Grant::Create { attachment: name.to_owned(), node: node.to_owned() });
    let verdicts = verdicts(&observe(ctx, &seen.namespace, &seen.name));
    let still =
        |(uid, verdict): &(String, Verdict)| Some(uid) == claim.metadata.uid.as_ref() && *verdict == same;
    ctx.leadership.is_leading() && verdicts.iter().any(still)
}

/// What came of creating an Attachment.
pub(crate) enum Lock {
    /// It was created.
    Taken,
    /// There is one of that name.
    Held(Box<Attachment>),
    /// There was one, and it is gone again.
    Free,
}

/// Creates an Attachment, or takes the one that has its name into the cache.
pub(crate) async fn lock(ctx: &Context, name: &str, spec: AttachmentSpec) -> Result<Lock, ApiError> {
    let attachment = Attachment {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    let api = ctx.attachment_api();
    match ctx.writer.create(&api, &attachment).await? {
        Created::New(made) => {
            ctx.attachments.apply(made);
            Ok(Lock::Taken)
        }
        Created::Exists => match get_live(&api, name).await? {
            Some(live) => {
                ctx.attachments.apply(live.clone());
                Ok(Lock::Held(Box::new(live)))
            }
            None => Ok(Lock::Free),
        },
    }
}

/// Everything the Attachment's life needs, copied from where it is now. `None` while an instance it
/// depends on has not said what it can do (interleaving B20).
fn attachment_spec(seen: &Observed, claim: &VolumeClaim, node: &str) -> Option<AttachmentSpec> {
    let (volume, handle, plugin) = (seen.volume.as_ref()?, seen.handle.as_ref()?, seen.plugin.as_ref()?);
    let on_node = seen.node_instance(node).filter(|i| i.spec.driver_name == handle.spec.driver_name)?;
    let node_status = on_node.status.as_ref()?;
    let controller = handle.spec.controller.clone();
    let controller_capabilities = match &controller {
        None => None,
        Some(c) => Some(capabilities_of(seen.instances.named(&c.instance)?)?),
    };
    let controller_has = |name| controller_capabilities.is_some_and(|c| c.controller_has(name));
    let attach = controller_has(PUBLISH_UNPUBLISH);
    let on_node_multi_writer = node_status.capabilities.node_has(SINGLE_NODE_MULTI_WRITER);
    let single_node_multi_writer =
        on_node_multi_writer && (!attach || controller_has(SINGLE_NODE_MULTI_WRITER));
    let mode = claim.spec.access_mode;
    let shares_node = shares_node(mode, single_node_multi_writer, plugin.spec.tolerates_second_target);
    let status = volume.status.as_ref()?;
    let metadata = &volume.metadata;
    Some(AttachmentSpec {
        volume: VolumeRef {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
        },
        volume_handle: handle.spec.volume_handle.clone(),
        node_name: node.to_owned(),
        access_mode: mode,
        controller: if attach { controller } else { None },
        fixed: Fixed {
            handle_name: handle.metadata.name.clone()?,
            driver_name: handle.spec.driver_name.clone(),
            plugin_name: plugin.metadata.name.clone()?,
            plugin_uid: plugin.metadata.uid.clone()?,
            epoch: handle.spec.epoch,
            node_uid: on_node.spec.node_uid.clone(),
            node_id: node_status.node_id.clone(),
            boot_id: node_status.boot_id.clone(),
            attachment_mode: claim.spec.attachment_mode,
            read_only: attaches_read_only(&ClaimSeen::of(claim)) && controller_has(PUBLISH_READONLY),
            mount_options: volume.spec.mount_options.clone().unwrap_or_default(),
            volume_context: status.volume_context.clone(),
            secrets: volume.spec.secrets.clone().unwrap_or_default(),
            attach,
            stage: node_status.capabilities.node_has("STAGE_UNSTAGE_VOLUME"),
            exclusive: is_exclusive(mode, shares_node),
            single_node_multi_writer,
            undo_only: None,
        },
        lost: None,
    })
}

/// Writes finalizer and assignment in one patch.
pub(crate) async fn assign(
    ctx: &Context,
    claim: &VolumeClaim,
    attachment: &str,
    uid: &str,
) -> Result<Did, ApiError> {
    let Some(granted) = ctx.attachments.by_uid(uid) else { return Ok(Did::Step) };
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let fields = json!({
        "metadata": { "finalizers": with_finalizer(claim.metadata.finalizers.as_ref()) },
        "spec": { "assignment": {
            "attachment": attachment,
            "attachmentUID": uid,
            "nodeName": granted.spec.node_name,
            "nodeUID": granted.spec.fixed.node_uid,
        } },
    });
    let written = ctx.writer.patch_main(&ctx.claim_api(namespace), &Target::of(claim), fields).await;
    match written {
        Ok(claim) => ctx.claims.apply(claim),
        // Deleted before it was granted: nothing of it is left to undo.
        Err(ApiError::Gone(_)) => forget_claim(ctx, claim),
        Err(error) => return Err(error),
    }
    Ok(Did::Step)
}

/// A finalizer list with ours in it, whole as observed.
pub(crate) fn with_finalizer(observed: Option<&Vec<String>>) -> Vec<String> {
    let mut all = observed.cloned().unwrap_or_default();
    if !all.iter().any(|f| f == FINALIZER) {
        all.push(FINALIZER.to_owned());
    }
    all
}

/// Deletes an Attachment that nobody uses. Its finalizer keeps it until all is undone.
pub(crate) async fn close(ctx: &Context, attachment: &Attachment) -> Result<Did, ApiError> {
    let target = Target::of(attachment);
    match ctx.writer.delete(&ctx.attachment_api(), &target.name, &target.uid, None).await? {
        Deleted::Gone => ctx.attachments.remove_confirmed(&target.uid),
        Deleted::Marked(marked) => ctx.attachments.apply(*marked),
    }
    tracing::info!(attachment = target.name, node = attachment.spec.node_name, "closing");
    Ok(Did::Step)
}

/// The same, unless a claim uses it, by a quorum LIST made now (rule R1).
pub(crate) async fn close_if_unused(ctx: &Context, attachment: &Attachment) -> Result<Did, ApiError> {
    let volume = &attachment.spec.volume;
    let of_volume = format!("spec.volumeName={}", volume.name);
    let listed = list_live(&ctx.claim_api(&volume.namespace), Some(&of_volume)).await?;
    let uses = |claim: &VolumeClaim| ClaimSeen::of(claim).uses() == attachment.metadata.uid.as_deref();
    match listed.items.into_iter().find(uses) {
        Some(claim) => {
            ctx.claims.apply(claim);
            Ok(Did::Step)
        }
        None => close(ctx, attachment).await,
    }
}

/// Takes the last finalizer off an Attachment of which everything is undone: the lock is free.
pub(crate) async fn free_attachment(ctx: &Context, attachment: &Attachment) -> Result<Did, ApiError> {
    if attachment.spec.fixed.undo_only.is_some() && !drift::is_over(ctx, attachment).await? {
        return Ok(Did::Step);
    }
    let uid = attachment.metadata.uid.as_deref().unwrap_or_default();
    match ctx.writer.remove_finalizer(&ctx.attachment_api(), attachment, FINALIZER).await? {
        None => ctx.attachments.remove_confirmed(uid),
        Some(left) => ctx.attachments.apply(left),
    }
    tracing::info!(attachment = attachment.metadata.name, "freed");
    Ok(Did::Step)
}

/// Takes our finalizer off a deleted claim, after a live look where absence decides.
pub(crate) async fn release(
    ctx: &Context,
    claim: &Arc<VolumeClaim>,
    step: ReleaseStep,
) -> Result<Did, ApiError> {
    if step == ReleaseStep::FreeIfAttachmentGone
        && let Some(assignment) = &claim.spec.assignment
        && let Some(live) = get_live(&ctx.attachment_api(), &assignment.attachment).await?
        && live.metadata.uid.as_deref() == Some(assignment.attachment_uid.as_str())
    {
        ctx.attachments.apply(live);
        return Ok(Did::Nothing);
    }
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    match ctx.writer.remove_finalizer(&ctx.claim_api(namespace), claim.as_ref(), FINALIZER).await? {
        None => forget_claim(ctx, claim),
        Some(left) => ctx.claims.apply(left),
    }
    Ok(Did::Step)
}

/// Writes fields of a claim's status, guarded by the version that was seen. One that is gone needs none.
pub(crate) async fn patch_status(
    ctx: &Context,
    claim: &VolumeClaim,
    fields: serde_json::Value,
) -> Result<(), ApiError> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    match ctx.writer.patch_status(&ctx.claim_api(namespace), &Target::of(claim), fields).await {
        Ok(written) => ctx.claims.apply(written),
        Err(ApiError::Gone(_)) => forget_claim(ctx, claim),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn forget_claim(ctx: &Context, claim: &VolumeClaim) {
    ctx.claims.remove_confirmed(claim.metadata.uid.as_deref().unwrap_or_default());
}

/// Names the handle's controller instance on an Attachment that still names a dead one (rule R2).
pub(crate) async fn move_controller(
    ctx: &Context,
    seen: &Observed,
    attachment: &Attachment,
) -> Result<Did, ApiError> {
    let Some(to) = seen.handle.as_ref().and_then(|h| h.spec.controller.as_ref()) else {
        return Ok(Did::Nothing);
    };
    let fields = json!({ "spec": { "controller": to } });
    let moved = ctx.writer.patch_main(&ctx.attachment_api(), &Target::of(attachment), fields).await?;
    tracing::info!(attachment = attachment.metadata.name, to = to.instance, "controller calls moved");
    ctx.attachments.apply(moved);
    Ok(Did::Step)
}
