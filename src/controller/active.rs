//! How a Plugin's controller calls are spread, and who makes them where it is one instance.

use std::sync::Arc;

use kube::ResourceExt as _;

use super::context::Context;
use super::controller_instances::controllers;
use super::looks::caller_now;
use super::observe::is_selected;
use crate::api::caller::ControllerRef;
use crate::api::plugin::Balancing;
use crate::api::{Plugin, PluginInstance};
use crate::k8s::ApiError;
use crate::volume::{CallerNow, Spread, balancing, elect};

/// Who makes a Plugin's controller calls, as its status is to say it.
pub(crate) struct Settled {
    /// How they are spread.
    pub balancing: Balancing,
    /// How they are spread where the Plugin does not say it. What somebody has asked for meanwhile is not what was found.
    pub found: Option<Balancing>,
    /// Who makes them, where it is one instance.
    pub active: Option<ControllerRef>,
}

/// What a Plugin's status is to say of it. What is new of that counts only when it is written: until then all is given to
/// the instance before.
pub(crate) async fn settle(ctx: &Context, plugin: &Plugin) -> Result<Settled, ApiError> {
    let instances = ctx.by_plugin.of(&ctx.instances, &plugin.name_any(), plugin.driver_name());
    let controlling: Vec<_> = instances.serving().filter(|i| is_selected(ctx, plugin, i)).cloned().collect();
    let before = plugin.active();
    let spread = match plugin.spec.balancing {
        Some(said) => Spread::Known(said),
        None => by_itself(plugin, &instances, &controlling),
    };
    let found = plugin.status.as_ref().and_then(|status| status.found_balancing);
    let found = match (plugin.spec.balancing, spread) {
        (None, Spread::Known(known)) => Some(known),
        (None, Spread::Unknown) | (Some(_), _) => found,
    };
    let balancing = match spread {
        Spread::Known(Balancing::SingleActive) => Balancing::SingleActive,
        Spread::Known(other) => return Ok(Settled { balancing: other, found, active: None }),
        // Nobody is named before it is known whether the storage is local: who is named stays so.
        Spread::Unknown => {
            return Ok(Settled { balancing: Balancing::SingleActive, found, active: before.cloned() });
        }
    };
    let seen = controllers(ctx, &instances, &controlling, before.as_slice(), false);
    let next = elect(before, &seen);
    // What the caches say is good enough to wait. That another one begins needs a live look, as for a single volume.
    let active = match before.filter(|before| next.as_ref() != Some(*before)) {
        Some(before) if caller_now(ctx, &instances, before).await? == CallerNow::MayCall => {
            Some(before.clone())
        }
        _ => next,
    };
    Ok(Settled { balancing, found, active })
}

/// As the instances show it, of a Plugin that does not say so.
fn by_itself(
    plugin: &Plugin,
    instances: &[Arc<PluginInstance>],
    controlling: &[Arc<PluginInstance>],
) -> Spread {
    // Whoever runs controllers apart, or on some nodes only, has them reach all storage.
    if plugin.spec.controller.is_some() || plugin.spec.controller_nodes.is_some() {
        return Spread::Known(Balancing::SingleActive);
    }
    let controls = |uid: Option<&String>| controlling.iter().any(|i| i.metadata.uid.as_ref() == uid);
    let said = instances.iter().filter_map(|i| Some((i.status.as_ref()?, controls(i.metadata.uid.as_ref()))));
    let told = plugin.status.as_ref().and_then(|status| status.found_balancing);
    balancing(told, plugin.active().is_some(), said)
}
