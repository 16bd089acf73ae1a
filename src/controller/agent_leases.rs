//! Leases of agents whose nodes are gone: nobody else removes them.
//!
//! A Lease is the only sign that an agent is silent, so it stays as long as anything could be decided by it: until its Node
//! is gone, it has been expired for longer than any call takes, and no object names its agent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::Preconditions;
use kube::core::ObjectMeta;

use super::context::Context;
use crate::api::caller::ControllerRef;
use crate::api::names::{agent_lease_name, agent_of_lease};
use crate::k8s::ApiError;
use crate::k8s::lease::Leases as _;
use crate::k8s::read::get_live;

/// Most Leases that are removed at a time; the others have to wait for the next look.
const MOST: usize = 16;

/// Time between looks at what is left.
const PAUSE: Duration = Duration::from_secs(5);

/// Removes the Leases that are left of nodes, for as long as it is not ended. It waits for nobody but the API server, and
/// nobody waits for it: each Lease takes three requests, and while they are slow the leader goes on.
pub(crate) async fn remove(ctx: Arc<Context>) {
    loop {
        remove_left(&ctx).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn remove_left(ctx: &Context) {
    let candidates = left(ctx);
    if candidates.is_empty() {
        return;
    }
    let named = named(ctx);
    for (lease, node) in candidates.into_iter().filter(|(lease, _)| !named.contains(lease)).take(MOST) {
        if !ctx.leadership.is_leading() {
            return;
        }
        match remove_one(ctx, &lease, &node).await {
            Ok(true) => tracing::info!(lease, "its Node is gone: removed"),
            Ok(false) => {}
            Err(error) => tracing::warn!(lease, "a Lease of a node that is gone is left: {error}"),
        }
    }
}

/// Leases without a Node that have been expired for long, with the node's name. The longest names of nodes cannot be read
/// from a Lease's, and theirs stay.
fn left(ctx: &Context) -> Vec<(String, String)> {
    let all = ctx.lease_cache.all();
    let names = all.iter().filter_map(|lease| lease.metadata.name.as_deref());
    let of_agents = names.filter_map(|name| Some((name, agent_of_lease(name)?)));
    let gone = of_agents.filter(|(_, node)| ctx.nodes.get(node).is_none());
    let long = gone.filter(|(name, _)| ctx.leases.expired_for(name).is_some_and(|t| t > ctx.longest_call));
    long.map(|(name, node)| (name.to_owned(), node.to_owned())).collect()
}

/// Names of the Leases by which something may yet be decided.
fn named(ctx: &Context) -> HashSet<String> {
    let mut agents: HashSet<String> = HashSet::new();
    let mut add = |controller: Option<&ControllerRef>| agents.extend(controller.map(|c| c.agent.clone()));
    ctx.handles.all().iter().for_each(|h| add(h.spec.controller.as_ref()));
    ctx.volumes.all().iter().for_each(|v| add(v.caller()));
    ctx.snapshots.all().iter().for_each(|s| add(s.caller()));
    ctx.attachments.all().iter().for_each(|a| add(a.spec.controller.as_ref()));
    agents.extend(ctx.attachments.all().iter().map(|a| a.spec.node_name.clone()));
    agents.extend(ctx.instances.all().iter().map(|i| i.spec.agent.clone()));
    let claims = ctx.claims.all();
    agents.extend(claims.iter().filter_map(|c| Some(c.spec.assignment.as_ref()?.node_name.clone())));
    agents.iter().map(|agent| agent_lease_name(agent)).collect()
}

/// Looks at a Lease again, live, and removes it at the version that was looked at: an agent that comes meanwhile
/// keeps it.
async fn remove_one(ctx: &Context, name: &str, node: &str) -> Result<bool, ApiError> {
    if get_live(&ctx.node_api(), node).await?.is_some() {
        return Ok(false);
    }
    let Some(live) = ctx.lease_api.get(name).await? else { return Ok(false) };
    ctx.leases.observe(&live);
    if ctx.leases.expired_for(name).is_none_or(|silent| silent <= ctx.longest_call) {
        return Ok(false);
    }
    let api: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let ObjectMeta { uid, resource_version, .. } = live.metadata;
    ctx.writer.delete(&api, name, Preconditions { uid, resource_version }).await?;
    ctx.leases.forget(name);
    ctx.room.forget(node);
    Ok(true)
}
