//! A pass over one Plugin: its status is what its instances add up to.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::caches::BY_PLUGIN;
use super::context::Context;
use super::csi_drivers;
use super::nodes::is_in_service;
use super::observe::is_selected;
use crate::api::PluginInstance;
use crate::api::conditions;
use crate::k8s::{ApiError, Next};
use crate::plugin::{Around, aggregate, in_order, older, pods_served, withdrawal};

/// Brings a Plugin's status up to date; writes only what differs.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    let plugin = ctx.plugins.get(name);
    if let Some(plugin) = &plugin
        && let Some(restored) = withdrawal::restored(plugin, ctx.started)
    {
        tracing::info!(
            plugin = name,
            "an earlier installation has withdrawn its service for Pods; it is served again"
        );
        return match ctx.writer.update(&ctx.plugins, plugin, &restored).await {
            Ok(_) | Err(ApiError::Conflict(_)) => Next::Again,
            Err(error) => {
                tracing::warn!(plugin = name, %error, "cannot serve it to Pods again");
                Next::Retry
            }
        };
    }
    let is_served = plugin.as_ref().is_some_and(|plugin| plugin.kubelet_name().is_some());
    let users = if is_served { BTreeSet::new() } else { csi_drivers::users(ctx, name) };
    // What becomes of the object keeps nothing else of the Plugin from being told.
    let (conflict, settled) = match csi_drivers::settle(ctx, name, plugin.as_deref(), &users).await {
        Ok(conflict) => (Some(conflict), Next::Done),
        Err(ApiError::Conflict(_)) => return Next::Again,
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot settle its CSIDriver");
            (error.refusal().map(Some), Next::Retry)
        }
    };
    let Some(plugin) = plugin else { return settled };
    let instances = ctx.instances.by_index(BY_PLUGIN, name);
    let all = ctx.plugins.all();
    let older = older(&plugin, &all);
    let selected = |i: &PluginInstance| is_selected(ctx, &plugin, i);
    let silent = |i: &PluginInstance| ctx.silent_for(i).is_some();
    let (mut status, ready) = aggregate(&plugin, &instances, older.as_deref(), selected, silent);
    let in_order = in_order(&plugin, &instances, selected, |i| is_in_service(ctx, i));
    let by_another = ctx.provisioning.by_another(name);
    let room_untold = ctx.provisioning.why_room_is_untold(name);
    let pods = conflict.map(|conflict| {
        let by_another = by_another.as_ref().map(|(volume, _)| volume.as_str());
        pods_served(&plugin, &all, &instances, Around { conflict, by_another, room_untold, users })
    });
    for desired in [ready, in_order].into_iter().chain(pods) {
        conditions::set(&mut status.conditions, &desired, plugin.metadata.generation, Timestamp::now());
    }
    match ctx.writer.update_status(&ctx.plugins, &plugin, &status).await {
        // The newer object brings another pass.
        Ok(_) | Err(ApiError::Conflict(_)) => by_another.map_or(settled, |(_, told)| Next::After(told)),
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot write status");
            Next::Retry
        }
    }
}
