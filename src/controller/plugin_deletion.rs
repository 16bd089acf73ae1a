//! Keeps a Plugin until nothing needs its driver any more: without it nobody is believed who takes a dead instance's calls over,
//! and with it the Pods end that moor runs for the driver.

use std::collections::BTreeSet;

use kube::{Api, ResourceExt as _};

use super::caches::BY_PLUGIN;
use super::context::Context;
use crate::api::conditions::first_few;
use crate::api::{Attachment, FINALIZER, Plugin, PluginInstance, Snapshot, Volume, has_finalizer};
use crate::k8s::{ApiError, read};

/// Most objects that are named.
const MOST: usize = 4;

/// What became of a look.
pub(crate) enum Kept {
    /// Nothing is to be done.
    AsItIs,
    /// The Plugin was written; the newer object brings another pass.
    Written,
    /// It is deleted and waits for this.
    Waits(String),
    /// It is deleted and not needed any more. Its workloads go, and then it does.
    Ends,
}

/// Puts the finalizer on, and takes it off when a deleted Plugin is not needed any more and `has_none` of the workloads is left,
/// or when moor is being uninstalled.
pub(crate) async fn keep(ctx: &Context, plugin: &Plugin, has_none: bool) -> Result<Kept, ApiError> {
    let is_kept = has_finalizer(&plugin.metadata, FINALIZER);
    let is_left = plugin.withdrawn().is_some();
    if plugin.ends() {
        if let Some(who) = needed_by(ctx, &plugin.name_any()).filter(|_| !is_left) {
            return Ok(Kept::Waits(who));
        }
        // Without our finalizer it is there for others, who may take long.
        if !is_kept || !has_none && !is_left {
            return Ok(Kept::Ends);
        }
        return ctx.writer.free(&ctx.plugins, plugin, FINALIZER).await.map(|_| Kept::Written);
    }
    if is_kept != is_left {
        return Ok(Kept::AsItIs);
    }
    let mut after = plugin.clone();
    if is_left {
        after.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
    } else {
        after.finalizers_mut().push(FINALIZER.into());
    }
    ctx.writer.update(&ctx.plugins, plugin, &after).await.map(|_| Kept::Written)
}

/// As [`needed_by`], as the API server has it: what an earlier leader has made may not be in any cache yet.
pub(crate) async fn is_needed(ctx: &Context, plugin: &str) -> Result<bool, ApiError> {
    let client = || ctx.client.clone();
    let volumes = read::list_live::<Volume>(&Api::all(client()), None).await?;
    let snapshots = read::list_live::<Snapshot>(&Api::all(client()), None).await?;
    let attachments = read::list_live::<Attachment>(&Api::all(client()), None).await?;
    let instances = read::list_live::<PluginInstance>(&Api::all(client()), None).await?;
    let is_of = |instance: &&PluginInstance| instance.spec.plugin_name == plugin;
    Ok(volumes.iter().any(|volume| volume.spec.plugin_name == plugin && is_begun(volume))
        || snapshots.iter().any(|snapshot| is_assigned_to(snapshot, plugin))
        || attachments.iter().any(|attachment| attachment.spec.fixed.plugin_name == plugin)
        || instances.iter().filter(is_of).any(reports))
}

/// Whether its driver may have been asked for anything. What a deleted Plugin has not begun it never begins.
fn is_begun(volume: &Volume) -> bool {
    volume.spec.assignment.is_some()
}

/// Whether its driver may have been asked for a snapshot.
fn is_assigned_to(snapshot: &Snapshot, plugin: &str) -> bool {
    snapshot.spec.assignment.as_ref().is_some_and(|assignment| assignment.plugin_name == plugin)
}

/// Whether an instance reports mounts that no object accounts for, or waits to undo something.
fn reports(instance: &PluginInstance) -> bool {
    instance.status.as_ref().is_some_and(|status| !status.is_clean())
}

/// What has to be unmounted, detached or deleted by the driver of a Plugin, in words.
pub(crate) fn needed_by(ctx: &Context, plugin: &str) -> Option<String> {
    let mut all = BTreeSet::new();
    for volume in ctx.volumes.by_index(BY_PLUGIN, plugin).iter().filter(|volume| is_begun(volume)) {
        all.insert(format!("Volume {}/{}", volume.namespace().unwrap_or_default(), volume.name_any()));
    }
    for snapshot in ctx.snapshots.by_index(BY_PLUGIN, plugin) {
        if is_assigned_to(&snapshot, plugin) {
            let namespace = snapshot.namespace().unwrap_or_default();
            all.insert(format!("Snapshot {namespace}/{}", snapshot.name_any()));
        }
    }
    // The Volume of one may have been removed by force.
    for attachment in ctx.attachments.by_index(BY_PLUGIN, plugin) {
        let volume = &attachment.spec.volume;
        all.insert(format!("Volume {}/{}", volume.namespace, volume.name));
    }
    for instance in ctx.instances.by_index(BY_PLUGIN, plugin) {
        if reports(&instance) {
            all.insert(format!("what PluginInstance {} reports as mounted", instance.name_any()));
        }
    }
    let words = first_few(all.iter().map(String::as_str), MOST);
    (!words.is_empty()).then_some(words)
}
