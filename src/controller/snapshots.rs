//! One pass over one Snapshot: observe, plan, look or write, until nothing is left to do.

use std::sync::Arc;

use jiff::Timestamp;

use super::allow::namespace_seen;
use super::answered;
use super::caches::BY_OWNER;
use super::claims::held;
use super::context::Context;
use super::controller_instances::controllers;
use super::instances::Instances;
use super::key::VolumeKey;
use super::known::Known;
use super::looks::caller_now;
use super::made_from::{holders_now, offers, restored_by, restored_by_now};
use super::observe::{is_selected, plugin_seen};
use super::orphans;
use crate::api::conditions::{self, Desired};
use crate::api::snapshot::{SnapshotAssignment, SnapshotVolume};
use crate::api::storage::StorageKind;
use crate::api::{
    FINALIZER, Plugin, PluginInstance, Snapshot, SnapshotState, Volume, VolumeHandle, has_finalizer,
};
use crate::k8s::{ApiError, Named, Next};
use crate::plugin::{allow, older};
use crate::snapshot::{Look, Looked, Seen, SnapshotStep, SnapshotWaiting, VolumeSeen, plan};
use crate::volume::InstanceSeen;

/// More steps than one Snapshot can need at a time; the pass goes on behind the keys that wait.
const STEPS: usize = 16;

/// Settles one Snapshot.
pub(crate) async fn run(ctx: &Context, key: &VolumeKey) -> Next {
    for _ in 0..STEPS {
        if !ctx.leadership.is_leading() {
            return Next::Done;
        }
        let Some(seen) = observe(ctx, key) else { return Next::Done };
        match step(ctx, key, &seen).await {
            Ok(true) => {}
            Ok(false) => {
                report_storage(ctx, key, &seen).await;
                return Next::Done;
            }
            Err(ApiError::Conflict(request)) => {
                tracing::info!(%request, "changed meanwhile; looking again");
            }
            Err(error) => {
                tracing::warn!(snapshot = %key, %error, "pass failed");
                return error.next();
            }
        }
    }
    Next::Again
}

/// One Snapshot with all that its calls need.
struct Observed {
    snapshot: Arc<Snapshot>,
    /// The Volumes that it is taken of.
    volumes: Vec<TakenOf>,
    plugin_name: String,
    plugin: Option<Arc<Plugin>>,
    older: Option<String>,
    driver: String,
    instances: Arc<Instances>,
    controlling: Vec<Arc<PluginInstance>>,
    controllers: Vec<InstanceSeen>,
    not_allowed: Option<allow::NotAllowed>,
    made_from: Option<String>,
}

/// A Volume that a Snapshot is taken of, with its VolumeHandle.
struct TakenOf {
    name: String,
    volume: Option<Arc<Volume>>,
    lock: Option<Arc<VolumeHandle>>,
}

impl TakenOf {
    fn seen(&self) -> VolumeSeen<'_> {
        VolumeSeen { name: &self.name, volume: self.volume.as_deref(), lock: self.lock.as_deref() }
    }
}

fn observe(known: &Known, key: &VolumeKey) -> Option<Observed> {
    let snapshot = known.snapshots.get_in(key.named())?;
    let assignment = snapshot.spec.assignment.as_ref();
    // Of the Volumes that it was begun of: by now others may have the names.
    let seen = |(name, begun): (&str, Option<&SnapshotVolume>)| {
        let volume = known.volumes.get_in(Named { namespace: &key.namespace, name });
        let of = begun.map(|of| of.uid.clone());
        let of = of.or_else(|| volume.as_ref()?.metadata.uid.clone());
        let lock = of.and_then(|uid| known.handles.by_index(BY_OWNER, &uid).into_iter().next());
        TakenOf { name: name.to_owned(), volume, lock }
    };
    let volumes: Vec<_> = snapshot.taken_of().into_iter().map(seen).collect();
    let first = volumes.first();
    let plugin_name = snapshot.plugin_name().or_else(|| Some(&first?.volume.as_ref()?.spec.plugin_name));
    let plugin_name = plugin_name.unwrap_or_default().to_owned();
    let plugin = known.plugins.get(&plugin_name);
    // What was begun goes on with the driver that it was begun with.
    let driver = assignment.map(|assignment| assignment.driver_name.clone());
    let driver = driver.or_else(|| Some(first?.lock.as_ref()?.spec.driver_name.clone()));
    let driver = driver.or_else(|| plugin.as_ref().map(|plugin| plugin.driver_name().to_owned()));
    let driver = driver.unwrap_or_default();
    let instances = known.by_plugin.of(&known.instances, &plugin_name, &driver);
    let controls =
        |i: &&Arc<PluginInstance>| plugin.as_ref().is_none_or(|plugin| is_selected(known, plugin, i));
    let controlling: Vec<_> = instances.serving().filter(controls).cloned().collect();
    let of_locks = volumes.iter().filter_map(|of| of.lock.as_ref()?.spec.controller.as_ref());
    let of_volumes = volumes.iter().filter_map(|of| of.volume.as_ref()?.caller());
    let named: Vec<_> = snapshot.caller().into_iter().chain(of_locks).chain(of_volumes).collect();
    let is_served = snapshot.caller().is_some() && !snapshot.is_looked_for();
    let controllers = controllers(known, &instances, &controlling, &named, is_served);
    let namespace = namespace_seen(known, &key.namespace);
    // One that moor has made was judged then, by the namespace of the VolumeSnapshot.
    let is_made = key.namespace == known.namespace && snapshot.spec.volume_snapshot_content.is_some();
    let not_allowed = allow::snapshot(plugin.as_deref(), &plugin_name, &namespace, &snapshot);
    Some(Observed {
        made_from: restored_by(known, key, &snapshot),
        not_allowed: not_allowed.filter(|_| !is_made),
        older: plugin.as_ref().and_then(|plugin| older(plugin, &known.plugins.all())),
        snapshot,
        volumes,
        plugin_name,
        plugin,
        driver,
        instances,
        controlling,
        controllers,
    })
}

impl Observed {
    fn seen(&self) -> Seen<'_> {
        let snapshot = &*self.snapshot;
        Seen {
            snapshot,
            held: has_finalizer(&snapshot.metadata, FINALIZER),
            plugin_name: &self.plugin_name,
            plugin: plugin_seen(
                self.plugin.as_deref(),
                self.older.as_deref(),
                &self.instances,
                &self.controlling,
                &self.controllers,
                true,
            ),
            driver: &self.driver,
            takes: if snapshot.is_group() {
                let groups = "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT";
                offers(self.controlling.iter(), |can| can.group_controller_has(groups))
            } else {
                offers(self.controlling.iter(), |can| can.controller_has("CREATE_DELETE_SNAPSHOT"))
            },
            finds: snapshot.is_group()
                || offers(self.controlling.iter(), |can| can.controller_has("LIST_SNAPSHOTS")) == Some(true),
            not_allowed: self.not_allowed.clone(),
            volumes: self.volumes.iter().map(TakenOf::seen).collect(),
            made_from: self.made_from.clone(),
        }
    }
}

/// Plans, looks live for as long as the plan asks for it, and writes what is due. Returns whether anything has changed: then it is
/// observed again.
async fn step(ctx: &Context, key: &VolumeKey, seen: &Observed) -> Result<bool, ApiError> {
    let mut looked = Looked::default();
    loop {
        match plan(&seen.seen(), &looked) {
            SnapshotStep::Look(look) => answer(ctx, seen, look, &mut looked).await?,
            SnapshotStep::Idle => {
                answered::snapshot(ctx, &seen.snapshot).await?;
                return Ok(false);
            }
            SnapshotStep::Wait(why) => {
                wait(ctx, &seen.snapshot, &why).await?;
                return Ok(false);
            }
            SnapshotStep::Assign(to) => {
                assign(ctx, &seen.snapshot, &to).await?;
                return Ok(true);
            }
            SnapshotStep::Restore(state) => {
                restore(ctx, &seen.snapshot, state).await?;
                return Ok(true);
            }
            SnapshotStep::Free => {
                ctx.writer.free(&ctx.snapshots, &*seen.snapshot, FINALIZER).await?;
                tracing::info!(snapshot = %key, "released");
                return Ok(true);
            }
        }
    }
}

async fn answer(ctx: &Context, seen: &Observed, look: Look, looked: &mut Looked) -> Result<(), ApiError> {
    match look {
        Look::Caller(controller) => {
            let said = caller_now(ctx, &seen.instances, &controller).await?;
            looked.callers.push((controller, said));
        }
        Look::MadeFrom => looked.made_from = Some(restored_by_now(ctx, &seen.snapshot, &seen.driver).await?),
        Look::Holders(ids) => {
            looked.holders = Some(holders_now(ctx, &seen.snapshot, &seen.driver, &ids).await?);
        }
    }
    Ok(())
}

async fn assign(ctx: &Context, snapshot: &Snapshot, to: &SnapshotAssignment) -> Result<bool, ApiError> {
    let mut assigned = held(snapshot);
    assigned.spec.assignment = Some(to.clone());
    ctx.writer.update(&ctx.snapshots, snapshot, &assigned).await
}

/// Writes into the status what the assignment says: the agent goes by it.
async fn restore(ctx: &Context, snapshot: &Snapshot, state: SnapshotState) -> Result<bool, ApiError> {
    tracing::error!(snapshot = snapshot.metadata.name, "its status was edited or lost; written again");
    let mut status = snapshot.status.clone().unwrap_or_default();
    (status.state, status.source_gone) = (state, false);
    status.snapshot_handle = snapshot.handle().map(str::to_owned);
    ctx.writer.update_status(&ctx.snapshots, snapshot, &status).await
}

/// Keeps the condition StorageFound as the agents have found it, and publishes an Event at each turn.
async fn report_storage(ctx: &Context, key: &VolumeKey, seen: &Observed) {
    let snapshot = &seen.snapshot;
    let said = snapshot.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let id = snapshot.handle().or(snapshot.said_handle()).unwrap_or_default();
    let of = (StorageKind::Snapshot, id, snapshot.metadata.uid.as_deref().unwrap_or_default());
    let instances = seen.controlling.iter().map(Arc::as_ref);
    let Some((desired, event)) = orphans::turn(seen.plugin.as_deref(), instances, of, said) else { return };
    match record(ctx, snapshot, &desired).await {
        Ok(_) => event.into_iter().for_each(|event| {
            ctx.recorder.tell(snapshot, event, "Audit", desired.message.clone());
        }),
        Err(error) => tracing::warn!(snapshot = %key, %error, "cannot report whether its storage is there"),
    }
}

/// Writes what the Snapshot waits for, if it does not say so already.
async fn wait(ctx: &Context, snapshot: &Snapshot, why: &SnapshotWaiting) -> Result<bool, ApiError> {
    record(ctx, snapshot, &Desired { reason: why.reason(), message: why.message() }).await
}

/// Writes a condition, if the Snapshot does not have it already.
async fn record(ctx: &Context, snapshot: &Snapshot, desired: &Desired) -> Result<bool, ApiError> {
    let generation = snapshot.metadata.generation;
    let mut status = snapshot.status.clone().unwrap_or_default();
    conditions::set(&mut status.conditions, desired, generation, Timestamp::now());
    status.observed_generation = generation;
    ctx.writer.update_status(&ctx.snapshots, snapshot, &status).await
}
