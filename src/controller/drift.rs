//! Tells what the audits found, on the Volume (rule R11).

use super::context::Context;
use super::observe::Observed;
use super::volumes;
use crate::api::conditions::{self, DRIFTED, Desired, Reason};
use crate::attachment::drift::{self, NodeIdSeen, Scene};
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;

/// Keeps the Volume's condition Drifted as the audits have found it, and publishes one Event when it becomes True.
pub(crate) async fn report(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    let known = volume.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let was = conditions::is_true(known, DRIFTED);
    let condition = match drifted(seen) {
        Some(condition) => condition,
        None if was => {
            Desired::new(Reason::InStep, "the driver lists the volume as attached where moor has attached it")
        }
        None => return Ok(()),
    };
    volumes::record(ctx, volume, &condition, |_| {}).await?;
    if condition.reason.group().status && !was {
        ctx.recorder.tell(volume, EventReason::Drifted, "Audit", condition.message);
    }
    Ok(())
}

/// The condition about the drift that is reported on the VolumeHandle, if it is this Volume's.
fn drifted(seen: &Observed) -> Option<Desired> {
    let (volume, handle) = (seen.volume.as_ref()?, seen.handle.as_ref()?);
    let own = volume.metadata.uid.as_ref() == Some(&handle.spec.volume.uid);
    let reported = handle.status.as_ref()?.drift.as_ref().filter(|_| own)?;
    let statuses = seen.instances.iter().filter_map(|i| Some((i, i.status.as_ref().filter(|s| s.node)?)));
    let nodes: Vec<_> = statuses
        .map(|(i, status)| NodeIdSeen { node: i.spec.node_name.clone(), node_id: status.node_id.clone() })
        .collect();
    let scene = Scene {
        made_here: volume.spec.volume_handle.is_none(),
        locks: &seen.locks_seen,
        claims: &seen.claims_seen,
        nodes: &nodes,
    };
    Some(Desired::new(drift::reason(reported), drift::message(reported, &scene)))
}
