//! Acts on what the audits found (rule R11): undoes an attachment that nobody claims, and tells about it.
//!
//! The order is what makes it safe (`attachment/undo_only.rs`): the entry in the VolumeHandle's spec.undoing, then the
//! Attachment with its token, then its deletion; at the end the entry is done, then the Attachment is freed. An entry
//! that exists is carried through by whoever leads: it is never taken back.

use std::time::Duration;

use serde_json::json;

use super::context::Context;
use super::observe::{Observed, is_heard};
use super::volumes;
use crate::api::conditions::{self, DRIFTED, Desired};
use crate::api::handle::DriftKind;
use crate::api::instance::Service;
use crate::api::{PluginInstance, VolumeState};
use crate::attachment::drift::{self, NodeIdSeen, Response, Scene};
use crate::k8s::ApiError;
use crate::k8s::events::Reason;

/// Time between looks at what other volumes keep from being undone.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

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
