//! Acts on what the audits found (rule R11): undoes an attachment that nobody claims, and tells about it.
//!
//! The order is what makes it safe (`attachment/undo_only.rs`): the entry in the VolumeHandle's spec.undoing, then the
//! Attachment with its token, then its deletion; at the end the entry is done, then the Attachment is freed. An entry
//! that exists is carried through by whoever leads: it is never taken back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::claims::{self, Lock};
use super::context::Context;
use super::handles::{self, live_attachments};
use super::observe::{Observed, is_heard};
use super::pass::Did;
use super::volumes;
use crate::api::attachment::{AttachmentSpec, Fixed};
use crate::api::conditions::{self, DRIFTED, Desired};
use crate::api::handle::{DriftKind, Undoing, VolumeRef};
use crate::api::instance::Service;
use crate::api::{Attachment, Plugin, PluginInstance, Volume, VolumeHandle, VolumeState, lock};
use crate::attachment::AttachmentSeen;
use crate::attachment::drift::{self, MOST_NODES, NodeIdSeen, Response, Scene};
use crate::k8s::ApiError;
use crate::k8s::events::Reason;
use crate::k8s::read::get_live;

/// Time between looks at what other volumes keep from being undone.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// Carries on what was begun, else begins with what may be undone.
pub(crate) async fn act(ctx: &Context, seen: &Observed) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    let own = seen.volume_seen.as_ref().is_some_and(|v| v.uid == handle.spec.volume.uid);
    if !own {
        return Ok(Did::Nothing);
    }
    let open = handle.spec.undoing.iter().filter(|entry| !entry.done);
    for entry in open {
        let made = seen.locks_seen.iter().any(|a| a.undo_only.as_ref() == Some(&entry.token));
        if !made && matches!(make(ctx, seen, handle, entry).await?, Did::Step) {
            return Ok(Did::Step);
        }
    }
    let begin = answers(ctx, seen, |answers| {
        answers.iter().find_map(|(finding, response)| match response {
            Response::Undo(node) => Some((finding.since.clone(), node.clone())),
            _ => None,
        })
    });
    match begin.flatten() {
        Some((found, node)) => begin_undo(ctx, seen, handle, &found, &node).await,
        None => Ok(Did::Nothing),
    }
}

/// Asks [`drift::decide`], if there is anything to decide.
fn answers<T>(
    ctx: &Context,
    seen: &Observed,
    look: impl FnOnce(&[(&crate::api::handle::DriftedNode, Response)]) -> T,
) -> Option<T> {
    let (handle, handle_seen) = (seen.handle.as_ref()?, seen.handle_seen.as_ref()?);
    let reported = handle.status.as_ref()?.drift.as_ref()?;
    let volume = seen.volume.as_ref()?;
    let stays = volume.metadata.deletion_timestamp.is_none()
        && volume.status.as_ref().is_some_and(|s| s.state == VolumeState::Ready);
    let nodes: Vec<_> = seen.instances.iter().filter_map(|i| node_of(ctx, i)).collect();
    let scene = Scene {
        drift: reported,
        made_here: volume.spec.volume_handle.is_none(),
        volume_uid: volume.metadata.uid.as_deref().filter(|_| stays),
        handle: handle_seen,
        undoing: &handle.spec.undoing,
        locks: &seen.locks_seen,
        claims: &seen.claims_seen,
        nodes: &nodes,
        of_driver: unexpected(ctx, &handle.spec.driver_name),
    };
    Some(look(&drift::decide(&scene)))
}

/// Unexpected attachments that are reported for a driver and not dealt with.
fn unexpected(ctx: &Context, driver: &str) -> usize {
    let handles = ctx.handles.all();
    let of_driver = handles.iter().filter(|h| h.spec.driver_name == driver);
    let reported = of_driver.filter_map(|h| h.status.as_ref()?.drift.as_ref()).flat_map(|d| &d.nodes);
    reported.filter(|n| n.kind == DriftKind::Unexpected).count()
}

fn node_of(ctx: &Context, instance: &PluginInstance) -> Option<NodeIdSeen> {
    let status = instance.status.as_ref().filter(|s| s.node)?;
    Some(NodeIdSeen {
        node: instance.spec.node_name.clone(),
        node_uid: instance.spec.node_uid.clone(),
        node_id: status.node_id.clone(),
        // As a claim for the node is judged: what may be undone there could also be granted.
        healthy: status.is_healthy_for(Service::Node) && is_heard(ctx, instance),
    })
}

/// Writes the entry, after live reads of all that the decision stands on (rule R11).
async fn begin_undo(
    ctx: &Context,
    seen: &Observed,
    handle: &Arc<VolumeHandle>,
    found: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
    node: &NodeIdSeen,
) -> Result<Did, ApiError> {
    let name = handle.metadata.name.as_deref().unwrap_or_default();
    let live = live_attachments(ctx, name).await?;
    let locks: Vec<_> = live.iter().map(AttachmentSeen::of).collect();
    if drift::holds(&locks, node) || !volume_stays(ctx, seen, &handle.spec.volume).await? {
        return Ok(Did::Nothing);
    }
    let on_node = seen.node_instance(&node.node).and_then(|i| i.metadata.name.clone());
    let instance = match on_node {
        Some(instance) => get_live(&ctx.instance_api(), &instance).await?,
        None => None,
    };
    if instance.and_then(|i| node_of(ctx, &i)).as_ref() != Some(node) {
        return Ok(Did::Nothing);
    }
    let drift = handle.status.as_ref().and_then(|s| s.drift.as_ref());
    let reported = |u: &Undoing| {
        drift.is_some_and(|d| d.nodes.iter().any(|n| n.node_id == u.node_id && n.since == u.found))
    };
    let mut undoing = handle.spec.undoing.clone();
    undoing.retain(|u| !u.done || (u.node_id != node.node_id && reported(u)));
    if undoing.len() >= MOST_NODES {
        return Ok(Did::Nothing);
    }
    undoing.push(Undoing {
        node_name: node.node.clone(),
        node_uid: node.node_uid.clone(),
        node_id: node.node_id.clone(),
        token: format!("{:016x}", rand::random::<u64>()),
        found: found.clone(),
        done: false,
    });
    tracing::warn!(handle = name, node = node.node, "attached there and claimed by nobody; undoing");
    handles::write(ctx, handle, json!({ "spec": { "undoing": undoing } })).await
}

async fn volume_stays(ctx: &Context, seen: &Observed, owner: &VolumeRef) -> Result<bool, ApiError> {
    let live = get_live(&ctx.volume_api(&seen.namespace), &seen.name).await?;
    Ok(live.is_some_and(|v: Volume| {
        v.metadata.uid.as_deref() == Some(owner.uid.as_str())
            && v.metadata.deletion_timestamp.is_none()
            && v.spec.volume_handle.is_none()
    }))
}

/// Creates the Attachment of an entry. It is closed as soon as it is seen.
async fn make(
    ctx: &Context,
    seen: &Observed,
    handle: &VolumeHandle,
    entry: &Undoing,
) -> Result<Did, ApiError> {
    let (Some(volume), Some(plugin)) = (&seen.volume, &seen.plugin) else { return Ok(Did::Nothing) };
    let on_node = seen.node_instance(&entry.node_name).and_then(|i| i.status.as_ref());
    let boot_id = on_node.filter(|s| s.node_id == entry.node_id).map(|s| s.boot_id.clone());
    let Some(spec) = undo_spec(volume, plugin, handle, entry, boot_id.unwrap_or_default()) else {
        return Ok(Did::Nothing);
    };
    let name = lock::undo_name(&handle.spec.driver_name, &handle.spec.volume_handle, &entry.node_name);
    match claims::lock(ctx, &name, spec).await? {
        // An earlier one that is still going: it finds its entry done and goes.
        Lock::Held(live) if live.spec.fixed.undo_only.as_ref() != Some(&entry.token) => Ok(Did::Nothing),
        Lock::Taken | Lock::Held(_) | Lock::Free => Ok(Did::Step),
    }
}

fn undo_spec(
    volume: &Volume,
    plugin: &Plugin,
    handle: &VolumeHandle,
    entry: &Undoing,
    boot_id: String,
) -> Option<AttachmentSpec> {
    Some(AttachmentSpec {
        volume: handle.spec.volume.clone(),
        volume_handle: handle.spec.volume_handle.clone(),
        node_name: entry.node_name.clone(),
        access_mode: handle.spec.mode,
        controller: Some(handle.spec.controller.clone()?),
        fixed: Fixed {
            handle_name: handle.metadata.name.clone()?,
            driver_name: handle.spec.driver_name.clone(),
            plugin_name: plugin.metadata.name.clone()?,
            plugin_uid: plugin.metadata.uid.clone()?,
            epoch: handle.spec.epoch,
            node_uid: entry.node_uid.clone(),
            node_id: entry.node_id.clone(),
            boot_id,
            volume_context: volume.status.as_ref().map(|s| s.volume_context.clone()).unwrap_or_default(),
            secrets: volume.spec.secrets.clone().unwrap_or_default(),
            attach: true,
            exclusive: true,
            undo_only: Some(entry.token.clone()),
            ..Fixed::default()
        },
        lost: None,
    })
}

/// Whether the entry of an undone Attachment is over; if not, says so on the VolumeHandle first. Only then may the
/// Attachment be freed: whoever finds it gone must not find the entry open.
pub(crate) async fn is_over(ctx: &Context, attachment: &Attachment) -> Result<bool, ApiError> {
    let Some(handle) = get_live(&ctx.handle_api(), &attachment.spec.fixed.handle_name).await? else {
        return Ok(true);
    };
    let token = attachment.spec.fixed.undo_only.as_ref();
    let mut undoing = handle.spec.undoing.clone();
    let open = undoing.iter_mut().find(|u| Some(&u.token) == token && !u.done);
    let Some(entry) = open else {
        ctx.handles.apply(handle);
        return Ok(true);
    };
    entry.done = true;
    handles::write(ctx, &handle, json!({ "spec": { "undoing": undoing } })).await?;
    Ok(false)
}

/// What is left alone because of other volumes is looked at again, about as often as drivers are listed.
pub(crate) fn again(ctx: &Context, seen: &Observed) -> Option<Duration> {
    answers(ctx, seen, drift::goes_by_others)?.then_some(LOOK_AGAIN)
}

/// Keeps the Volume's condition as the audits have it, and tells once when it begins.
pub(crate) async fn report(ctx: &Context, seen: &Observed) {
    if let Err(error) = record(ctx, seen).await {
        tracing::warn!(namespace = seen.namespace, volume = seen.name, %error, "cannot report the drift");
    }
}

async fn record(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    let known = volume.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let was = conditions::is_true(known, DRIFTED);
    let own = seen.handle_seen.as_ref().is_some_and(|h| Some(&h.volume_uid) == volume.metadata.uid.as_ref());
    let wanted = answers(ctx, seen, |answers| Desired {
        type_: DRIFTED,
        status: true,
        reason: drift::reason(answers),
        message: drift::message(answers, &seen.locks_seen, &seen.claims_seen),
    })
    .filter(|_| own);
    let condition = match wanted {
        Some(condition) => condition,
        None if was => Desired {
            type_: DRIFTED,
            status: false,
            reason: "InStep",
            message: "the driver lists the volume as attached where moor has attached it".into(),
        },
        None => return Ok(()),
    };
    volumes::record(ctx, volume, &condition, json!({})).await?;
    if condition.status && !was {
        ctx.tell(volume, Reason::Drifted, "Audit", condition.message);
    }
    Ok(())
}
