//! Writes the CSIDriver object of a Plugin, and takes it away with the Plugin.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::caches::{BY_PLUGIN, BY_VOLUME};
use super::context::Context;
use super::key::{Key, VolumeKey};
use super::known::Known;
use crate::api::Plugin;
use crate::api::claim::Assignment;
use crate::k8s::ApiError;
use crate::plugin::csi_driver::{self, CsiDriverStep};
use crate::plugin::served_as;

/// Brings the objects of a Plugin's name up to date. Returns what keeps its own from being as it should, if something does.
/// While Pods have volumes of a Plugin that is not served any more its object stays: without one kubelets take its volumes for
/// such as are attached by VolumeAttachments.
pub(crate) async fn settle(
    ctx: &Context,
    name: &str,
    plugin: Option<&Plugin>,
    users: &BTreeSet<String>,
) -> Result<Option<String>, ApiError> {
    let wanted = plugin.and_then(Plugin::kubelet_name);
    let of_plugin = ctx.csi_drivers.all().into_iter().filter(|d| csi_driver::plugin_of(d) == Some(name));
    let others: Vec<_> =
        of_plugin.map(|d| d.name_any()).filter(|other| Some(other.as_str()) != wanted).collect();
    let is_kept = wanted.is_none() && !users.is_empty();
    for other in others {
        // Another Plugin may have the name by now, and then it takes the object over.
        settle_one(ctx, &other, is_kept).await?;
    }
    match wanted {
        Some(wanted) => settle_one(ctx, wanted, false).await,
        None => Ok(None),
    }
}

/// The Pods that have volumes of a Plugin, or wait for them where they were granted, with their nodes.
pub(crate) fn users(known: &Known, plugin: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for attachment in known.attachments.by_index(BY_PLUGIN, plugin) {
        let key = VolumeKey::of_owner(&attachment.spec.volume).to_string();
        for claim in known.claims.by_index(BY_VOLUME, &key) {
            let is_on =
                |assignment: &Assignment| Some(&assignment.attachment) == attachment.metadata.name.as_ref();
            if let Some(pod) = &claim.spec.pod
                && !claim.is_let_go()
                && claim.spec.assignment.as_ref().is_some_and(is_on)
            {
                found.insert(format!(
                    "Pod {}/{} on node {}",
                    pod.namespace, pod.name, attachment.spec.node_name
                ));
            }
        }
    }
    found
}

async fn settle_one(ctx: &Context, name: &str, is_kept: bool) -> Result<Option<String>, ApiError> {
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
            // What the scheduler is told of room is somebody else's to write.
            let mut wanted = (corrected.metadata.labels.clone(), corrected.spec.clone());
            wanted.1.storage_capacity = None;
            let wanted = format!("{wanted:?}");
            if let Some(wait) = ctx.corrections.wait(name, &wanted) {
                if let Some(plugin) = plugin {
                    ctx.queue.add_after(Key::Plugin(plugin.name_any()), wait);
                }
            } else if let Some(found) = &found
                && ctx.writer.update(&ctx.csi_drivers, found, &*corrected).await?
            {
                ctx.corrections.made(name, wanted);
                tracing::info!(name, "CSIDriver corrected");
            }
        }
        CsiDriverStep::Delete if is_kept && plugin.is_none() => {}
        CsiDriverStep::Delete => {
            if let Some(found) = &found {
                ctx.writer.delete_in(&ctx.csi_drivers, found).await?;
                tracing::info!(name, "CSIDriver deleted");
            }
        }
    }
    Ok(None)
}
