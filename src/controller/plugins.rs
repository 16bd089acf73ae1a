//! A pass over one Plugin: its status is what its instances add up to.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt as _};

use super::active;
use super::caches::BY_PLUGIN;
use super::context::Context;
use super::csi_drivers;
use super::key::Key;
use super::known::Known;
use super::nodes::is_in_service;
use super::observe::is_selected;
use super::orphans;
use super::plugin_deletion::{self, Kept, needed_by_now};
use super::workloads::{self, AGAIN, Wants};
use crate::api::conditions::{self, DEPLOYED, Desired, READY, REMOVABLE, Reason};
use crate::api::names::agent_of_lease;
use crate::api::{Plugin, PluginInstance};
use crate::heartbeat::{AgentOnNode, Sockets};
use crate::k8s::read::list_live;
use crate::k8s::unreadable::Sent;
use crate::k8s::{ApiError, Next};
use crate::plugin::{Around, Runs, aggregate, in_order, older, pods_served, withdrawal};

/// Time in which all that agents have found becomes one write.
const PAUSE: Duration = Duration::from_secs(5);

/// Brings a Plugin's status up to date; writes only what differs.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    let plugin = ctx.plugins.get(name);
    if let Some(plugin) = &plugin
        && let Some(restored) = withdrawal::restored(plugin, ctx.started)
    {
        return serve_again(ctx, plugin, &restored).await;
    }
    let is_served = plugin.as_ref().is_some_and(|plugin| plugin.kubelet_name().is_some());
    let users = if is_served { BTreeSet::new() } else { csi_drivers::users(ctx, name) };
    // What becomes of the object keeps nothing else of the Plugin from being told.
    let (conflict, settled) = match csi_drivers::settle(ctx, name, plugin.as_deref(), &users).await {
        Ok(conflict) => (Some(conflict), Next::Done),
        Err(ApiError::Conflict(_)) => return Next::Again,
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot settle its CSIDriver");
            (error.refusal().map(Some), error.next())
        }
    };
    let Some(plugin) = plugin else {
        return match workloads::remove_left(ctx, name).await {
            Ok(()) => settled,
            Err(error) => {
                tracing::warn!(plugin = name, %error, "cannot remove its workloads");
                error.next()
            }
        };
    };
    let instances = ctx.instances.by_index(BY_PLUGIN, name);
    let all = ctx.plugins.all();
    let older = older(&plugin, &all);
    let Driver { runs, left, removable } = match run_driver(ctx, &plugin, older.is_some()).await {
        Ok(Some(driver)) => driver,
        Ok(None) | Err(ApiError::Conflict(_)) => return Next::Again,
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot settle its workloads");
            return error.next();
        }
    };
    let selected = |i: &PluginInstance| is_selected(ctx, &plugin, i);
    let silent = |i: &PluginInstance| ctx.silent_for(i).is_some();
    let (mut status, ready) =
        aggregate(&plugin, &instances, older.as_deref(), &runs, selected, silent, || sockets(ctx));
    let calls = match active::settle(ctx, &plugin).await {
        Ok(settled) => settled,
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot look who makes its controller calls");
            return error.next();
        }
    };
    let active::Settled { balancing, found, active } = calls;
    if active.as_ref().is_some_and(|active| ctx.instances.get(&active.instance).is_none()) {
        // An instance that is gone with its Node is looked at again when its silence may have lasted.
        ctx.queue.add_after(Key::Plugin(name.to_owned()), AGAIN);
    }
    (status.balancing, status.found_balancing, status.active) = (Some(balancing), found, active);
    let orphaned = match orphans::found(ctx, &plugin, &instances).await {
        Ok(found) => orphans::say(&mut status, found),
        Err(error) => {
            error.log(name, "cannot look who has what no object stands for");
            return error.next();
        }
    };
    if runs.are_unwritten() {
        // Whatever is in the way may be taken away where nobody here sees it.
        ctx.queue.add_after(Key::Plugin(name.to_owned()), AGAIN);
    }
    let deployed = left.or_else(|| runs.deployed(&plugin, &ctx.namespace));
    for (told, type_) in [(&deployed, DEPLOYED), (&removable, REMOVABLE)] {
        if told.is_none() {
            status.conditions.retain(|condition| condition.type_ != type_);
        }
    }
    let in_order = in_order(&plugin, &instances, selected, |i| is_in_service(ctx, i));
    let by_another = ctx.provisioning.by_another(name);
    let room_untold = ctx.provisioning.why_room_is_untold(name);
    let pods = conflict.map(|conflict| {
        let by_another = by_another.as_ref().map(|(volume, _)| volume.as_str());
        pods_served(&plugin, &all, &instances, Around { conflict, by_another, room_untold, users })
    });
    for desired in [ready, in_order].into_iter().chain(pods).chain(deployed).chain(removable).chain(orphaned)
    {
        conditions::set(&mut status.conditions, &desired, plugin.metadata.generation, Timestamp::now());
    }
    let written = ctx.writer.update_status(&ctx.plugins, &plugin, &status).await;
    if matches!(written, Ok(true)) {
        let before = plugin.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        ctx.recorder.publish_turn(&*plugin, before, &status.conditions).await;
        orphans::tell(ctx, &plugin, &status);
    }
    match written {
        // The newer object brings another pass.
        Ok(_) | Err(ApiError::Conflict(_)) => by_another.map_or(settled, |(_, told)| Next::After(told)),
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot write status");
            error.next()
        }
    }
}

/// Takes in the Plugins as they are, for a process that begins to lead. What an earlier leader has written for one that no watch
/// has told of yet would be taken away, or written as it was.
pub(crate) async fn take_in_all(ctx: &Context) -> Result<(), ApiError> {
    let known = ctx.plugins.all();
    let live = list_live::<Sent<Plugin>>(&Api::all(ctx.client.clone()), None).await?;
    let is_there = |uid: &str| live.iter().any(|one| one.meta().uid.as_deref() == Some(uid));
    for gone in known.iter().filter_map(|plugin| plugin.uid()).filter(|uid| !is_there(uid)) {
        ctx.plugins.remove_confirmed(&gone);
    }
    for plugin in live.into_iter().filter_map(|Sent(one)| one.ok()) {
        ctx.plugins.apply(plugin);
    }
    Ok(())
}

/// Takes off what an earlier installation has left, by which Pods are not served.
async fn serve_again(ctx: &Context, plugin: &Plugin, restored: &Plugin) -> Next {
    let name = plugin.name_any();
    tracing::info!(
        plugin = name,
        "an earlier installation has withdrawn its service for Pods; it is served again"
    );
    match ctx.writer.update(&ctx.plugins, plugin, restored).await {
        Ok(_) => Next::Again,
        Err(error) => {
            error.log(name, "cannot serve it to Pods again");
            error.next()
        }
    }
}

/// What there is of the Pods of a driver that moor runs, and what is said of them and of the Plugin's deletion.
struct Driver {
    runs: Runs,
    /// What the Deployed condition says if that is not about Pods.
    left: Option<Desired>,
    /// What a deleted Plugin waits for.
    removable: Option<Desired>,
}

/// Has the driver run as its Plugin declares, and keeps the Plugin while that is needed. Returns None if the Plugin was written.
async fn run_driver(ctx: &Context, plugin: &Plugin, is_older: bool) -> Result<Option<Driver>, ApiError> {
    let name = plugin.name_any();
    let mut left = None;
    let (wants, removable) = match plugin_deletion::keep(ctx, plugin, false).await? {
        Kept::Written => return Ok(None),
        Kept::AsItIs if is_older => (Wants::Left, None),
        Kept::AsItIs => {
            if workloads::has_undeclared(ctx, plugin) {
                left = in_use(ctx, &name).await;
            }
            (if left.is_some() { Wants::Kept } else { Wants::Declared }, None)
        }
        Kept::Ends if needed_by_now(ctx, &name).await?.is_some() => {
            ctx.queue.add_after(Key::Plugin(name.clone()), AGAIN);
            (Wants::Kept, None)
        }
        Kept::Ends => (Wants::Nothing, None),
        Kept::Waits(who) => {
            let words = format!("the Plugin is deleted, and stays until it is not needed for {who}");
            (Wants::Kept, Some(Desired::new(Reason::DeletionWaits, words)))
        }
    };
    let runs = workloads::settle(ctx, plugin, wants).await?;
    // Once more: a Volume may have been begun since.
    let ends = matches!(wants, Wants::Nothing) && runs.is_nothing();
    let ends = ends && needed_by_now(ctx, &name).await?.is_none();
    if ends && matches!(plugin_deletion::keep(ctx, plugin, true).await?, Kept::Written) {
        return Ok(None);
    }
    Ok(Some(Driver { runs, left, removable }))
}

/// That what the Plugin declares no more runs on, if anybody may need it. Whoever it is may not ask for another pass in the end.
async fn in_use(ctx: &Context, name: &str) -> Option<Desired> {
    let until = match needed_by_now(ctx, name).await {
        Ok(needed) => format!("it is not needed for {}", needed?),
        Err(error) => format!("it can be found out who needs it: {error}"),
    };
    ctx.queue.add_after(Key::Plugin(name.to_owned()), AGAIN);
    let words = format!("what the Plugin declares no more runs on until {until}");
    Some(Desired::new(Reason::PluginInUse, words))
}

/// What the agents that are heard have found, by their nodes.
fn sockets(ctx: &Context) -> Vec<(String, Sockets)> {
    let all = ctx.lease_cache.all();
    let heard = all.iter().filter(|lease| ctx.leases.silent_for(&AgentOnNode::of_lease(lease)).is_none());
    let mut found: Vec<(String, Sockets)> = heard
        .filter_map(|lease| {
            let agent = agent_of_lease(lease.metadata.name.as_deref()?)?;
            Some((agent.to_owned(), Sockets::said_in(lease)?))
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

/// The agents that are not heard, by their nodes: of those that have not said that they end.
pub(crate) fn silent_agents(ctx: &Context) -> BTreeSet<String> {
    let all = ctx.lease_cache.all();
    let running = all.iter().filter(|lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty())
    });
    let silent = running.filter(|lease| ctx.leases.silent_for(&AgentOnNode::of_lease(lease)).is_some());
    silent.filter_map(|lease| Some(agent_of_lease(lease.metadata.name.as_deref()?)?.to_owned())).collect()
}

/// Has the Plugins told anew that no agent has found, because one has found something else than before, or is heard
/// that was not, or the other way round. A little later: one that fails again and again says something else each time.
pub(crate) fn sockets_changed(known: &Known) {
    let is_missing = |plugin: &Plugin| {
        let status = plugin.status.as_ref();
        status.is_some_and(|s| {
            s.conditions.iter().any(|c| c.type_ == READY && c.reason == Reason::NoInstance.as_str())
        })
    };
    for plugin in known.plugins.all().iter().filter(|plugin| is_missing(plugin)) {
        known.queue.add_after(Key::Plugin(plugin.metadata.name.clone().unwrap_or_default()), PAUSE);
    }
}
