//! Writes the CSIDriver object of a Plugin, and takes it away with the Plugin.

use kube::ResourceExt as _;

use super::context::Context;
use crate::api::Plugin;
use crate::k8s::ApiError;
use crate::plugin::csi_driver::{self, CsiDriverStep};
use crate::plugin::served_as;

/// Brings the objects of a Plugin's name up to date. Returns what keeps its own from being as it should, if something does.
pub(crate) async fn settle(
    ctx: &Context,
    name: &str,
    plugin: Option<&Plugin>,
) -> Result<Option<String>, ApiError> {
    let wanted = plugin.and_then(Plugin::kubelet_name);
    let of_plugin = ctx.csi_drivers.all().into_iter().filter(|d| csi_driver::plugin_of(d) == Some(name));
    let others: Vec<_> =
        of_plugin.map(|d| d.name_any()).filter(|other| Some(other.as_str()) != wanted).collect();
    for other in others {
        // Another Plugin may have the name by now, and then it takes the object over.
        settle_one(ctx, &other).await?;
    }
    match wanted {
        Some(wanted) => settle_one(ctx, wanted).await,
        None => Ok(None),
    }
}

async fn settle_one(ctx: &Context, name: &str) -> Result<Option<String>, ApiError> {
    let all = ctx.plugins.all();
    let plugin = served_as(name, &all).map(|plugin| &**plugin);
    let found = ctx.csi_drivers.get(name);
    match csi_driver::plan(name, plugin, found.as_deref()) {
        CsiDriverStep::Nothing => {}
        CsiDriverStep::Conflict(words) => return Ok(Some(words)),
        CsiDriverStep::Create(made) => {
            if ctx.writer.create_in(&ctx.csi_drivers, &*made).await? {
                tracing::info!(name, "CSIDriver made");
            }
        }
        CsiDriverStep::Correct(corrected) => {
            if let Some(found) = &found
                && ctx.writer.update(&ctx.csi_drivers, found, &*corrected).await?
            {
                tracing::info!(name, "CSIDriver corrected");
            }
        }
        CsiDriverStep::Delete => {
            if let Some(found) = &found {
                ctx.writer.delete_in(&ctx.csi_drivers, found).await?;
                tracing::info!(name, "CSIDriver deleted");
            }
        }
    }
    Ok(None)
}
