//! Mounts that agents report and the API server does not account for (design R7): whom they keep a volume from, and when
//! that ends.

use std::sync::Arc;

use super::context::Context;
use super::instances::Instances;
use super::observe::is_in_service;
use crate::api::PluginInstance;
use crate::claim::{ForgottenSeen, Mount};
use crate::k8s::ApiError;
use crate::k8s::lease::agent_lease_name;
use crate::k8s::read::get_live;

/// What the agents report about one VolumeHandle.
#[derive(Default)]
pub(crate) struct Reports {
    /// Where it is mounted, or may be.
    pub(crate) mounts: Vec<ForgottenSeen>,
    /// Instances that report it and whose node is gone or off, as far as the caches know: see [`have_ended`].
    pub(crate) ended: Vec<Arc<PluginInstance>>,
}

/// Collects what is reported. An agent stages no more than it can report, so what is not reported is not there.
pub(crate) fn reports(ctx: &Context, instances: &Instances, handle_name: &str) -> Reports {
    let mut reports = Reports::default();
    // Without caution only who reports something can have anything to say.
    let speaking: Box<dyn Iterator<Item = _>> =
        if ctx.caution.is_on() { Box::new(instances.iter()) } else { Box::new(instances.forgetful()) };
    for instance in speaking {
        let Some(mount) = mount(ctx, instance, handle_name) else { continue };
        // A report ends with its node: nothing is mounted on a machine that is off, and nobody else could say so.
        if ctx.silent_for(instance).is_some() && !is_in_service(ctx, instance) {
            reports.ended.push(instance.clone());
            continue;
        }
        reports.mounts.push(ForgottenSeen {
            node: instance.spec.node_name.clone(),
            instance: instance.metadata.name.clone().unwrap_or_default(),
            mount,
        });
    }
    reports
}

fn mount(ctx: &Context, instance: &PluginInstance, handle_name: &str) -> Option<Mount> {
    let status = instance.status.as_ref();
    let found = status.and_then(|s| s.forgotten.iter().find(|m| m.handle_name == handle_name));
    let reported = found.map(|m| Mount::Reported(m.attachment_uid.clone()));
    let named = || status.is_some_and(|s| s.forgotten_handles.iter().any(|name| name == handle_name));
    reported
        .or_else(|| named().then_some(Mount::Named))
        .or_else(|| ctx.awaits(instance).then_some(Mount::NotSaid))
}

/// Whether the nodes of reports that are not heeded any more are really out of the game, by live reads: before anything
/// is granted or deleted that such a report spoke of (design R1, R4).
pub(crate) async fn have_ended(ctx: &Context, ended: &[Arc<PluginInstance>]) -> Result<bool, ApiError> {
    for instance in ended {
        let spec = &instance.spec;
        let node = get_live(&ctx.node_api(), &spec.node_name).await?;
        if node.is_some_and(|node| node.uid() == spec.node_uid && !node.is_out_of_service()) {
            return Ok(false);
        }
        // Last, because the agent may come back at any moment.
        let lease = agent_lease_name(&spec.agent);
        if ctx.leases.confirm_expired(&ctx.lease_api, &lease, Some(&spec.node_uid)).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
