//! Runs the drivers of Plugins that declare Pods: writes the Deployment and the DaemonSet, and takes them away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde_json::Value;

use super::caches::BY_PLUGIN;
use super::context::Context;
use super::key::Key;
use super::known::Known;
use super::plugin_deletion::needed_by;
use super::workload_caches::plugin_of;
use crate::api::Plugin;
use crate::api::workload::{NODE, SERVICE};
use crate::heartbeat::AgentOnNode;
use crate::k8s::cache::Cached;
use crate::k8s::pod::LeanPod;
use crate::k8s::update::Written;
use crate::k8s::{ApiError, Cache, Named, read};
use crate::plugin::workload::{
    Owner, TemplateError, daemon_set, daemon_set_name, deployment, deployment_name, owner_of,
};
use crate::plugin::{Runs, RunsOf};

/// Time after which workloads are looked at again that were refused, are needed though nobody declares them, or are on nodes whose
/// agents are not heard.
pub(super) const AGAIN: Duration = Duration::from_secs(10);

/// Has the Plugin looked at again whose workload has changed.
pub(crate) fn changed<K: Cached>(known: &Known, before: Option<&Arc<K>>, after: Option<&Arc<K>>) {
    if let (Some(gone), None) = (before.and_then(|gone| gone.uid()), after) {
        known.workloads.written.lock().remove(&gone);
    }
    if let Some(plugin) = after.or(before).and_then(|object| plugin_of(&**object)) {
        known.queue.sweep(Key::Plugin(plugin.to_owned()));
    }
}

/// What is to become of a Plugin's workloads.
#[derive(Clone, Copy)]
pub(crate) enum Wants {
    /// They are to be as it declares, and what it declares no more is to go.
    Declared,
    /// They are left as they are: an older Plugin has the driver.
    Left,
    /// They are to be as it declares, and none of them goes: the driver is needed.
    Kept,
    /// They are to go.
    Nothing,
}

/// Brings the workloads of a Plugin up to date. Returns what there is of them.
pub(crate) async fn settle(ctx: &Context, plugin: &Plugin, wants: Wants) -> Result<Runs, ApiError> {
    let all = &ctx.workloads;
    let name = plugin.name_any();
    let wanted = deployment(plugin, &all.site);
    let put = |into: &mut Deployment, from: &Deployment| into.spec.clone_from(&from.spec);
    let name_of = deployment_name(&name);
    let kind = Kind { cache: &all.deployments, name: name_of, wants, put, count: of_deployment };
    let controller = one(ctx, plugin, kind, wanted).await?;
    let wanted = daemon_set(plugin, &all.site);
    let put = |into: &mut DaemonSet, from: &DaemonSet| into.spec.clone_from(&from.spec);
    let name_of = daemon_set_name(&name);
    let kind = Kind { cache: &all.daemon_sets, name: name_of, wants, put, count: of_daemon_set };
    let node = one(ctx, plugin, kind, wanted).await?;
    Ok(Runs { controller, node, unheard: unheard(ctx, &name) })
}

/// Whether there is a workload that the Plugin declares no more.
pub(crate) fn has_undeclared(ctx: &Context, plugin: &Plugin) -> bool {
    let (all, name) = (&ctx.workloads, plugin.name_any());
    let namespace = &all.site.namespace;
    let deployment = all.deployments.get_in(Named { namespace, name: &deployment_name(&name) });
    let daemon_set = all.daemon_sets.get_in(Named { namespace, name: &daemon_set_name(&name) });
    let is_of_controller = deployment.is_some_and(|it| owner_of(&*it, Some(plugin)) != Owner::Foreign);
    let is_of_node = daemon_set.is_some_and(|it| owner_of(&*it, Some(plugin)) != Owner::Foreign);
    plugin.spec.controller.is_none() && is_of_controller || plugin.spec.node.is_none() && is_of_node
}

/// What runs of a Deployment.
fn of_deployment(found: &Deployment) -> RunsOf {
    let status = found.status.clone().unwrap_or_default();
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let is_new = status.observed_generation >= found.metadata.generation;
    let is_rolled_out = is_new && status.updated_replicas.unwrap_or(0) >= wanted;
    RunsOf::Pods { wanted, available: status.available_replicas.unwrap_or(0), is_rolled_out }
}

/// What runs of a DaemonSet.
fn of_daemon_set(found: &DaemonSet) -> RunsOf {
    let status = found.status.clone().unwrap_or_default();
    if status.observed_generation.is_none() {
        return RunsOf::Waits("Kubernetes has not counted its nodes yet".to_owned());
    }
    let wanted = status.desired_number_scheduled;
    let is_new = status.observed_generation >= found.metadata.generation;
    let is_rolled_out = is_new && status.updated_number_scheduled.unwrap_or(0) >= wanted;
    RunsOf::Pods { wanted, available: status.number_available.unwrap_or(0), is_rolled_out }
}

/// The nodes on which Pods of a Plugin are and no agent is heard, who could reach them.
fn unheard(ctx: &Context, plugin: &str) -> BTreeSet<String> {
    let pods = ctx.workloads.pods.by_index(BY_PLUGIN, plugin);
    let run = pods.iter().filter(|pod| !pod.is_ending() && !pod.is_over());
    let nodes: BTreeSet<&str> = run.filter_map(|pod| pod.node_name()).collect();
    let agents = nodes.into_iter().filter_map(|name| {
        let node = ctx.nodes.get(name)?;
        Some((name, AgentOnNode::on(name, node.uid().to_owned())))
    });
    let unheard = agents.filter(|(_, agent)| !ctx.leases.is_heard(agent)).collect::<Vec<_>>();
    if !unheard.is_empty() {
        ctx.queue.add_after(Key::Plugin(plugin.to_owned()), AGAIN);
    }
    let silent = unheard.into_iter().filter(|(_, agent)| ctx.leases.silent_for(agent).is_some());
    silent.map(|(name, _)| name.to_owned()).collect()
}

/// One of the two workloads.
struct Kind<'a, K> {
    cache: &'a Cache<K>,
    name: String,
    wants: Wants,
    /// Writes the spec of one into another.
    put: fn(&mut K, &K),
    /// What runs of one that is there.
    count: fn(&K) -> RunsOf,
}

async fn one<K: Written + PartialEq + Resource<Scope = NamespaceResourceScope>>(
    ctx: &Context,
    plugin: &Plugin,
    kind: Kind<'_, K>,
    wanted: Result<Option<Box<K>>, TemplateError>,
) -> Result<RunsOf, ApiError> {
    let Kind { cache, name, wants, count, .. } = &kind;
    let (cache, wants) = (*cache, *wants);
    let namespace = &ctx.workloads.site.namespace;
    let found = cache.get_in(Named { namespace, name });
    match found.as_ref().map(|found| owner_of(&**found, Some(plugin))) {
        Some(Owner::Foreign) if matches!(wants, Wants::Nothing) => return Ok(RunsOf::Nothing),
        Some(Owner::Foreign) => return Ok(RunsOf::Refused(taken::<K>(namespace, name))),
        // That of a Plugin before it is rolled, and not taken away at once: its Pods may be needed.
        Some(Owner::This | Owner::Before) | None => {}
    }
    let there = |found: Option<Arc<K>>| found.map_or(RunsOf::Nothing, |found| count(&found));
    let wanted = match (wants, wanted) {
        (Wants::Nothing, _) => None,
        (Wants::Left, _) => {
            let is_before = |found: &Arc<K>| owner_of(&**found, Some(plugin)) == Owner::Before;
            if found.as_ref().is_some_and(is_before) && needed_by(ctx, &plugin.name_any()).is_none() {
                return remove(ctx, cache, found.as_ref()).await.map(|()| RunsOf::Nothing);
            }
            return Ok(there(found));
        }
        (Wants::Kept, Ok(None)) => return Ok(there(found)),
        (Wants::Declared | Wants::Kept, Ok(wanted)) => wanted,
        (Wants::Declared | Wants::Kept, Err(error)) => return Ok(RunsOf::Refused(error.to_string())),
    };
    let answer = match (wanted, &found) {
        (None, None) => return Ok(RunsOf::Nothing),
        // It may be needed since somebody has looked.
        (None, Some(_))
            if matches!(wants, Wants::Declared) && needed_by(ctx, &plugin.name_any()).is_some() =>
        {
            return Ok(there(found));
        }
        (None, Some(_)) => return remove(ctx, cache, found.as_ref()).await.map(|()| RunsOf::Nothing),
        (Some(wanted), None) => {
            if let Some(words) = ending(ctx, &plugin.name_any(), wanted.labels()) {
                let live: Api<K> = Api::namespaced(ctx.client.clone(), namespace);
                // Without our label it is in no cache.
                return Ok(match read::get_live(&live, name).await? {
                    Some(found)
                        if owner_of(&found, None) == Owner::Foreign || plugin_of(&found).is_none() =>
                    {
                        RunsOf::Refused(taken::<K>(namespace, name))
                    }
                    _ => RunsOf::Waits(words),
                });
            }
            tracing::info!(name, "{} is made", K::kind(&()));
            match ctx.writer.create_in(cache, &*wanted).await {
                // Without our label it is in no cache.
                Ok(false) if cache.get_in(Named { namespace, name }).is_none() => {
                    return Ok(RunsOf::Refused(taken::<K>(namespace, name)));
                }
                answer => answer.map(drop),
            }
        }
        (Some(wanted), Some(found)) => correct(ctx, plugin, &kind, found, &wanted).await,
    };
    let words = answer.as_ref().err().and_then(ApiError::refusal);
    match words {
        Some(words) => Ok(RunsOf::Refused(words)),
        None => answer.map(|()| there(cache.get_in(Named { namespace, name }))),
    }
}

/// The Pod of a DaemonSet that is gone which still runs, in words: the driver in it takes its socket away when it ends, also where
/// that is another one's by then. On a node without kubelet nobody is waited for.
fn ending(ctx: &Context, plugin: &str, labels: &BTreeMap<String, String>) -> Option<String> {
    if labels.get(SERVICE).is_none_or(|service| service != NODE) {
        return None;
    }
    let is_left = |pod: &&Arc<LeanPod>| {
        let is_of_node = pod.label(SERVICE) == Some(NODE);
        let is_there =
            || pod.node_name().and_then(|node| ctx.nodes.get(node)).is_some_and(|n| n.has_kubelet());
        is_of_node && !pod.is_over() && (pod.is_ending() || pod.is_controlled()) && is_there()
    };
    let pods = ctx.workloads.pods.by_index(BY_PLUGIN, plugin);
    let pod = pods.iter().find(is_left)?;
    let (name, node) = (pod.name_any(), pod.node_name().unwrap_or_default());
    Some(format!("Pod {name} on node {node}, of the DaemonSet before, has not ended"))
}

/// That the name of a workload is another one's, in words.
fn taken<K: Written>(namespace: &str, name: &str) -> String {
    let kind = K::kind(&());
    format!(
        "{kind} {namespace}/{name} was not made by moor and is not touched; delete it, or this Plugin cannot have one"
    )
}

async fn remove<K: Written>(ctx: &Context, cache: &Cache<K>, found: Option<&Arc<K>>) -> Result<(), ApiError> {
    let Some(found) = found else { return Ok(()) };
    tracing::info!(name = found.name_any(), "{} is not wanted any more", K::kind(&()));
    ctx.writer.delete_in(cache, &**found).await.map(drop)
}

/// Takes away what is left of a Plugin that is gone, as when its finalizer was taken off by hand.
pub(crate) async fn remove_left(ctx: &Context, plugin: &str) -> Result<(), ApiError> {
    let all = &ctx.workloads;
    let namespace = &all.site.namespace;
    let left = all.deployments.get_in(Named { namespace, name: &deployment_name(plugin) });
    let left = left.filter(|left| owner_of(&**left, None) == Owner::Before);
    remove(ctx, &all.deployments, left.as_ref()).await?;
    let left = all.daemon_sets.get_in(Named { namespace, name: &daemon_set_name(plugin) });
    let left = left.filter(|left| owner_of(&**left, None) == Owner::Before);
    remove(ctx, &all.daemon_sets, left.as_ref()).await
}

/// Makes a workload say what is wanted. The API server fills in what that leaves out, so it is written until a write has changed
/// nothing: from then on its generation says whether somebody has changed it. One that somebody changes back each time is put
/// right less and less often.
async fn correct<K: Written>(
    ctx: &Context,
    plugin: &Plugin,
    kind: &Kind<'_, K>,
    found: &K,
    wanted: &K,
) -> Result<(), ApiError> {
    let all = &ctx.workloads;
    let text = serde_json::to_value(wanted).unwrap_or_default();
    let uid = found.uid().unwrap_or_default();
    let is_written = |written: &(Option<i64>, Value)| *written == (found.meta().generation, text.clone());
    if all.written.lock().get(&uid).is_some_and(is_written) {
        return Ok(());
    }
    let (name, said) = (format!("{} {}", K::kind(&()), kind.name), text.to_string());
    if let Some(wait) = ctx.corrections.wait(&name, &said) {
        ctx.queue.add_after(Key::Plugin(plugin.name_any()), wait);
        return Ok(());
    }
    let mut after = Box::new(found.clone());
    after.labels_mut().extend(wanted.labels().clone());
    (kind.put)(&mut after, wanted);
    ctx.writer.update(kind.cache, found, &*after).await?;
    let now = kind.cache.get_in(Named { namespace: &all.site.namespace, name: &kind.name });
    if now.is_some_and(|now| now.resource_version() == found.resource_version()) {
        all.written.lock().insert(uid, (found.meta().generation, text));
    } else {
        tracing::info!("{name} is written");
        ctx.corrections.made(&name, said);
    }
    Ok(())
}
