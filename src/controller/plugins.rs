//! A pass over one Plugin: its status is what its instances add up to.

use jiff::Timestamp;

use super::caches::BY_PLUGIN;
use super::context::Context;
use super::nodes::is_in_service;
use super::observe::is_selected;
use crate::api::PluginInstance;
use crate::api::conditions;
use crate::k8s::{ApiError, Next};
use crate::plugin::{aggregate, in_order, older};

/// Brings a Plugin's status up to date; writes only what differs.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    let Some(plugin) = ctx.plugins.get(name) else { return Next::Done };
    let instances = ctx.instances.by_index(BY_PLUGIN, name);
    let older = older(&plugin, &ctx.plugins.all());
    let selected = |i: &PluginInstance| is_selected(ctx, &plugin, i);
    let (mut status, ready) = aggregate(&plugin, &instances, older.as_deref(), selected);
    let in_order = in_order(&plugin, &instances, selected, |i| is_in_service(ctx, i));
    for desired in [ready, in_order] {
        conditions::set(&mut status.conditions, &desired, plugin.metadata.generation, Timestamp::now());
    }
    match ctx.writer.update_status(&ctx.plugins, &plugin, &status).await {
        // The newer object brings another pass.
        Ok(_) | Err(ApiError::Conflict(_)) => Next::Done,
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot write status");
            Next::Retry
        }
    }
}
