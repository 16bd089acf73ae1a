//! Writes Attachments: grant, close, free. Each is one side effect.

use kube::api::ObjectMeta;

use super::capabilities::{PUBLISH_READONLY, capabilities_of};
use super::context::Context;
use super::key::Place;
use super::looks::attachments_now;
use super::observe::Observed;
use super::room::Locked;
use crate::api::attachment::{AttachmentSpec, Fixed};
use crate::api::caller::ControllerRef;
use crate::api::capability::MountOptions;
use crate::api::instance::Capabilities;
use crate::api::{Attachment, FINALIZER, Volume, VolumeClaim};
use crate::claim::ClaimSeen;
use crate::claim::admission::{attaches_read_only, is_exclusive, shares_node};
use crate::k8s::ApiError;
use crate::k8s::read::equals;
use crate::plugin::takes_second_writer;
use crate::volume::on_nodes;

/// Creates an Attachment: the compare-and-swap that grants. On a node with a limit of volumes that is done under the mutex
/// of driver and node: Volumes are worked on side by side, and each counts. So the plan is made once more when the mutex is
/// held, and `locked` stays with the pass. Whoever holds it first has read what there is.
pub(crate) async fn create(
    ctx: &Context,
    seen: &Observed,
    claim: &VolumeClaim,
    (name, node): (&str, &str),
    locked: &mut Option<Locked>,
) -> Result<bool, ApiError> {
    let Some(spec) = attachment_spec(seen, claim, node, ctx.linger.is_on()) else { return Ok(false) };
    let limit = seen.node_instance(node).and_then(|i| i.status.as_ref()).map_or(0, |s| s.max_volumes);
    let place = Place { driver: spec.fixed.driver_name.clone(), node: node.to_owned() };
    if limit > 0 && locked.as_ref().is_none_or(|locked| locked.place != place) {
        // The one before is let go of first: nobody waits for a mutex while holding another.
        *locked = None;
        let mut held = ctx.room.lock(place).await;
        if !held.is_read() {
            attachments_now(ctx, &equals("spec.nodeName", node)).await?;
            held.has_read();
        }
        *locked = Some(held);
        return Ok(true);
    }
    let attachment = Attachment {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    let grant = ctx.writer.create_in(&ctx.attachments, &attachment);
    // It counts when that is done, so the next one may come in.
    let granted = match locked.take() {
        Some(mut held) => held.grant(grant).await?,
        None => grant.await?,
    };
    // If not, it is the other leader's grant, or one that our cache has not seen.
    if granted {
        tracing::info!(attachment = name, node, claim = claim.metadata.name, "granted");
    }
    Ok(true)
}

/// Everything the Attachment's life needs, copied from where it is now. `None` while an instance it
/// depends on has not said what it can do (trap B20).
fn attachment_spec(
    seen: &Observed,
    claim: &VolumeClaim,
    node: &str,
    lingers: bool,
) -> Option<AttachmentSpec> {
    let (volume, handle, plugin) = (seen.volume.as_ref()?, seen.handle.as_ref()?, seen.plugin.as_ref()?);
    let on_node = seen.node_instance(node).filter(|i| i.spec.driver_name == handle.spec.driver_name)?;
    let node_status = on_node.status.as_ref()?;
    let controller = handle.spec.controller.clone();
    let controller_capabilities = match &controller {
        None => None,
        Some(c) => Some(capabilities_of(seen.instances.named(&c.instance)?)?),
    };
    let controller_has = |name| controller_capabilities.is_some_and(|c| c.controller_has(name));
    let attach = controller_capabilities.is_some_and(Capabilities::attaches);
    let single_node_multi_writer = takes_second_writer(&node_status.capabilities, controller_capabilities);
    let mode = claim.spec.access_mode;
    let tolerates = plugin.spec.tolerates_second_target.unwrap_or(claim.spec.pod.is_some());
    let shares_node = shares_node(mode, single_node_multi_writer, tolerates);
    let status = volume.status.as_ref()?;
    Some(AttachmentSpec {
        volume: volume.reference(),
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
            read_only: (volume.spec.read_only || attaches_read_only(&ClaimSeen::of(claim)))
                && controller_has(PUBLISH_READONLY),
            mount_options: staged_with(volume, claim).into(),
            volume_mount_group: claim.spec.pod.as_ref().and_then(|pod| pod.volume_mount_group.clone()),
            volume_context: status.volume_context.clone(),
            secrets: volume.spec.secrets.as_deref().cloned().unwrap_or_default().into(),
            plugin_secrets: volume.spec.assignment.as_ref().map(|a| a.secrets.clone()).unwrap_or_default(),
            attach,
            stage: node_status.capabilities.node_has("STAGE_UNSTAGE_VOLUME"),
            exclusive: is_exclusive(mode, shares_node),
            single_node_multi_writer,
            // Without ControllerPublishVolume there is nothing that a claim which comes back would be spared.
            lingers: attach && lingers,
        },
        lost: None,
        node_capacity_bytes: on_nodes::owed(volume).filter(|_| !ClaimSeen::of(claim).grown_by_kubelet),
    })
}

/// How the volume is staged. What kubelet asks for a Pod with is more than what the PersistentVolume says: it adds the
/// context of SELinux.
fn staged_with(volume: &Volume, claim: &VolumeClaim) -> MountOptions {
    let fs_type = volume.spec.mount_options.as_ref().and_then(|options| options.fs_type.clone());
    let of_volume = MountOptions { fs_type, mount_flags: volume.mount_flags().to_vec() };
    if claim.spec.pod.is_none() {
        return of_volume;
    }
    let of_claim = claim.spec.mount_options.clone().unwrap_or_default();
    MountOptions { mount_flags: of_claim.mount_flags, ..of_volume }
}

/// Deletes an Attachment that nobody uses. Its finalizer keeps it until all is undone.
pub(crate) async fn close(ctx: &Context, attachment: &Attachment) -> Result<bool, ApiError> {
    ctx.writer.delete_in(&ctx.attachments, attachment).await?;
    let (name, node) = (&attachment.metadata.name, &attachment.spec.node_name);
    tracing::info!(attachment = name, node, "closing");
    Ok(true)
}

/// Takes the last finalizer off an Attachment of which everything is undone: the lock is free.
pub(crate) async fn free(ctx: &Context, attachment: &Attachment) -> Result<bool, ApiError> {
    let freed = ctx.writer.free(&ctx.attachments, attachment, FINALIZER).await?;
    tracing::info!(attachment = attachment.metadata.name, "freed");
    Ok(freed)
}

/// Names the VolumeHandle's controller instance on an Attachment that still names a dead one (rule R2).
pub(crate) async fn move_to(
    ctx: &Context,
    attachment: &Attachment,
    to: &ControllerRef,
) -> Result<bool, ApiError> {
    let mut moved = attachment.clone();
    moved.spec.controller = Some(to.clone());
    let written = ctx.writer.update(&ctx.attachments, attachment, &moved).await?;
    tracing::info!(attachment = attachment.metadata.name, to = to.instance, "controller calls moved");
    Ok(written)
}

/// Writes how large the volume is to be on the Attachment's node.
pub(crate) async fn ask_node(ctx: &Context, attachment: &Attachment, bytes: i64) -> Result<bool, ApiError> {
    let mut asked = attachment.clone();
    asked.spec.node_capacity_bytes = Some(bytes);
    let written = ctx.writer.update(&ctx.attachments, attachment, &asked).await?;
    tracing::info!(
        attachment = attachment.metadata.name,
        bytes,
        "its node is to follow a volume that has grown"
    );
    Ok(written)
}
