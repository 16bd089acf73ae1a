//! Keeps a Plugin until nothing needs its driver any more: without it nobody is believed who takes a dead instance's calls over,
//! and with it the Pods end that moor runs for the driver.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use kube::{Api, ResourceExt as _};

use super::caches::BY_PLUGIN;
use super::context::Context;
use crate::api::conditions::first_few;
use crate::api::{Attachment, FINALIZER, Plugin, PluginInstance, Snapshot, Volume, has_finalizer};
use crate::k8s::ApiError;
use crate::k8s::read::{Readable, look_through};

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

/// As [`needed_by`], also as the API server has it: what an earlier leader has made may not be in any cache yet.
pub(crate) async fn needed_by_now(ctx: &Context, plugin: &str) -> Result<Option<String>, ApiError> {
    let mut found = needed_by(ctx, plugin);
    if found.is_none() {
        found = first(ctx, |volume| by_volume(volume, plugin)).await?;
    }
    if found.is_none() {
        found = first(ctx, |snapshot| by_snapshot(snapshot, plugin)).await?;
    }
    if found.is_none() {
        found = first(ctx, |attachment| by_attachment(attachment, plugin)).await?;
    }
    if found.is_none() {
        found = first(ctx, |instance| by_instance(instance, plugin)).await?;
    }
    Ok(found)
}

/// What is said of the first object of a kind of which something is said, of all that the API server has.
async fn first<K: Readable>(
    ctx: &Context,
    said: impl Fn(&K) -> Option<String>,
) -> Result<Option<String>, ApiError> {
    let mut found = None;
    let look = |object: K| {
        found = said(&object);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    look_through(&Api::all(ctx.client.clone()), look).await?;
    Ok(found)
}

/// A Volume for which the driver may have been asked for something. What a deleted Plugin has not begun it never begins.
fn by_volume(volume: &Volume, plugin: &str) -> Option<String> {
    let is_begun = volume.spec.plugin_name == plugin && volume.spec.assignment.is_some();
    is_begun.then(|| format!("Volume {}/{}", volume.namespace().unwrap_or_default(), volume.name_any()))
}

/// A Snapshot that the driver may have been asked for.
fn by_snapshot(snapshot: &Snapshot, plugin: &str) -> Option<String> {
    let assignment = snapshot.spec.assignment.as_ref().filter(|assignment| assignment.plugin_name == plugin);
    assignment
        .map(|_| format!("Snapshot {}/{}", snapshot.namespace().unwrap_or_default(), snapshot.name_any()))
}

/// The Volume of an Attachment, which may have been removed by force.
fn by_attachment(attachment: &Attachment, plugin: &str) -> Option<String> {
    let volume = &attachment.spec.volume;
    (attachment.spec.fixed.plugin_name == plugin)
        .then(|| format!("Volume {}/{}", volume.namespace, volume.name))
}

/// An instance that reports mounts that no object accounts for, or waits to undo something.
fn by_instance(instance: &PluginInstance, plugin: &str) -> Option<String> {
    let reports = instance.status.as_ref().is_some_and(|status| !status.is_clean());
    (instance.spec.plugin_name == plugin && reports)
        .then(|| format!("what PluginInstance {} reports as mounted", instance.name_any()))
}

/// What has to be unmounted, detached or deleted by the driver of a Plugin, in words.
pub(crate) fn needed_by(ctx: &Context, plugin: &str) -> Option<String> {
    let mut all = BTreeSet::new();
    all.extend(ctx.volumes.by_index(BY_PLUGIN, plugin).iter().filter_map(|one| by_volume(one, plugin)));
    all.extend(ctx.snapshots.by_index(BY_PLUGIN, plugin).iter().filter_map(|one| by_snapshot(one, plugin)));
    all.extend(
        ctx.attachments.by_index(BY_PLUGIN, plugin).iter().filter_map(|one| by_attachment(one, plugin)),
    );
    all.extend(ctx.instances.by_index(BY_PLUGIN, plugin).iter().filter_map(|one| by_instance(one, plugin)));
    let words = first_few(all.iter().map(String::as_str), MOST);
    (!words.is_empty()).then_some(words)
}
