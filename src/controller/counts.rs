//! What `/metrics` shows of the leader's caches.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::context::Context;
use crate::api::conditions::{self, Condition, DRIFTED, STORAGE_FOUND, find_as};
use crate::api::storage::StorageKind;
use crate::api::{AttachmentState, ClaimState, SnapshotState, VolumeClaim, VolumeState};
use crate::metrics::{InstanceLabels, KindLabels, OrphanLabels, QueueLabels, StateLabels};
use crate::plugin::is_kept_from_pods;

/// The states that are shown.
const CLAIMS: [ClaimState; 5] =
    [ClaimState::Pending, ClaimState::Taken, ClaimState::Ready, ClaimState::NodeDetached, ClaimState::Lost];
const VOLUMES: [VolumeState; 4] =
    [VolumeState::Pending, VolumeState::Created, VolumeState::Ready, VolumeState::Deleted];
const SNAPSHOTS: [SnapshotState; 4] =
    [SnapshotState::Pending, SnapshotState::Created, SnapshotState::Ready, SnapshotState::Deleted];
const ATTACHMENTS: [AttachmentState; 4] = [
    AttachmentState::Taken,
    AttachmentState::Attached,
    AttachmentState::NodeDetached,
    AttachmentState::ControllerDetached,
];

/// What is counted of the instances of a Plugin.
const COUNTED: [(&str, &str); 4] =
    [("controller", "expected"), ("controller", "healthy"), ("node", "expected"), ("node", "healthy")];

/// What was counted last, and of what. There may be very many objects, and most of the time nothing changes.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// The Plugins of which instances were counted.
    plugins: BTreeSet<String>,
    /// The changes of the caches of claims, and of what else is counted by its state.
    claims: Option<u64>,
    volumes: Option<[u64; 3]>,
    /// When the claim was made that has waited for the longest, and when the one was deleted that has been leaving for the longest.
    oldest_waiting: Option<Timestamp>,
    oldest_leaving: Option<Timestamp>,
}

/// Counts what has changed. `silent` are the agents that are not heard.
pub(crate) fn count(ctx: &Context, silent: &BTreeSet<String>, counted: &mut Counted) {
    let metrics = &ctx.metrics;
    metrics.queue_depth.get_or_create(&QueueLabels { queue: "volumes" }).set(number(ctx.queue.len()));
    let kept_from_pods = ctx.plugins.all().iter().filter(|plugin| is_kept_from_pods(plugin)).count();
    metrics.plugins_kept_from_pods.set(number(kept_from_pods));
    instances(ctx, &mut counted.plugins);
    // Before the looks: what changes meanwhile is looked at again.
    let of_claims = Some(ctx.claims.changes());
    if std::mem::replace(&mut counted.claims, of_claims) != of_claims {
        claims(ctx, counted);
    }
    let now = Timestamp::now();
    metrics.oldest_waiting_claim_seconds.set(age(now, counted.oldest_waiting));
    metrics.oldest_leaving_claim_seconds.set(age(now, counted.oldest_leaving));
    let of_volumes = Some([ctx.volumes.changes(), ctx.snapshots.changes(), ctx.attachments.changes()]);
    if std::mem::replace(&mut counted.volumes, of_volumes) != of_volumes {
        volumes(ctx);
    }
    metrics.silent_nodes.set(number(silent.len()));
    let forgotten = ctx.instances.all().into_iter().filter_map(|instance| {
        instance.status.as_ref().map(|status| status.forgotten.len() + status.forgotten_handles.len())
    });
    metrics.forgotten_mounts.set(number(forgotten.sum()));
}

/// Of a Plugin that is gone nothing is counted any more.
fn instances(ctx: &Context, told: &mut BTreeSet<String>) {
    let family = &ctx.metrics.plugin_instances;
    let labels = |plugin: &str, part, state| InstanceLabels { plugin: plugin.to_owned(), part, state };
    let plugins = ctx.plugins.all();
    let now: BTreeSet<_> = plugins.iter().map(|plugin| plugin.name_any()).collect();
    for gone in told.difference(&now) {
        for (part, state) in COUNTED {
            family.remove(&labels(gone, part, state));
        }
        for kind in StorageKind::ALL {
            ctx.metrics.orphans.remove(&OrphanLabels { plugin: gone.clone(), kind: kind.as_str() });
        }
    }
    for plugin in plugins {
        let counts = plugin.status.as_ref().map_or([0; 4], |status| {
            [
                status.controllers_expected,
                status.controllers_healthy,
                status.nodes_expected,
                status.nodes_healthy,
            ]
        });
        let orphans = plugin.status.as_ref().map_or([0; 2], |s| [s.orphaned_volumes, s.orphaned_snapshots]);
        for (kind, count) in StorageKind::ALL.into_iter().zip(orphans) {
            let labels = OrphanLabels { plugin: plugin.name_any(), kind: kind.as_str() };
            ctx.metrics.orphans.get_or_create(&labels).set(count);
        }
        for ((part, state), count) in COUNTED.into_iter().zip(counts) {
            family.get_or_create(&labels(&plugin.name_any(), part, state)).set(count);
        }
    }
    *told = now;
}

fn claims(ctx: &Context, counted: &mut Counted) {
    let claims = ctx.claims.all();
    let state = |claim: &VolumeClaim| claim.status.as_ref().map(|s| s.state).unwrap_or_default();
    by_state(&ctx.metrics.claims, claims.iter().map(|claim| state(claim)), CLAIMS);
    let waits = |claim: &VolumeClaim| {
        let is_wanted = claim.metadata.deletion_timestamp.is_none() && !state(claim).is_final();
        is_wanted && claim.spec.assignment.is_none()
    };
    let waiting = claims.iter().filter(|claim| waits(claim));
    counted.oldest_waiting = earliest(waiting.filter_map(|claim| claim.metadata.creation_timestamp.as_ref()));
    let leaving = claims.iter().filter_map(|claim| claim.metadata.deletion_timestamp.as_ref());
    counted.oldest_leaving = earliest(leaving);
}

fn volumes(ctx: &Context) {
    let (metrics, volumes) = (&ctx.metrics, ctx.volumes.all());
    let states = volumes.iter().map(|volume| volume.status.as_ref().map(|s| s.state).unwrap_or_default());
    by_state(&metrics.volumes, states, VOLUMES);
    let drifted = volumes.iter().filter_map(|volume| volume.status.as_ref());
    let drifted = drifted.filter(|status| conditions::is_true(&status.conditions, DRIFTED));
    metrics.drifted_volumes.set(number(drifted.count()));
    let unhealthy = volumes.iter().filter_map(|volume| volume.status.as_ref());
    metrics.unhealthy_volumes.set(number(unhealthy.filter(|status| !status.health.is_empty()).count()));
    let of_volumes = volumes.iter().filter_map(|volume| Some(&*volume.status.as_ref()?.conditions));
    let snapshots = ctx.snapshots.all();
    let of_snapshots = snapshots.iter().filter_map(|snapshot| Some(&*snapshot.status.as_ref()?.conditions));
    let without = [without_storage(of_volumes), without_storage(of_snapshots)];
    for (kind, count) in StorageKind::ALL.into_iter().zip(without) {
        let labels = KindLabels { kind: kind.as_str().to_owned() };
        metrics.objects_without_storage.get_or_create(&labels).set(count);
    }
    by_state(&metrics.snapshots, ctx.snapshots.all().iter().map(|snapshot| snapshot.state()), SNAPSHOTS);
    let attachments = ctx.attachments.all();
    let states = attachments.iter().map(|a| a.status.as_ref().map(|s| s.state).unwrap_or_default());
    by_state(&metrics.attachments, states, ATTACHMENTS);
}

fn without_storage<'a>(all: impl Iterator<Item = &'a [Condition]>) -> i64 {
    number(all.filter(|conditions| find_as(*conditions, STORAGE_FOUND, "False").is_some()).count())
}

/// A state of which there is none is 0, so that an alert on it has something to go by.
fn by_state<S: Copy + Eq + Hash + Debug>(
    family: &Family<StateLabels, Gauge>,
    states: impl Iterator<Item = S>,
    all: impl IntoIterator<Item = S>,
) {
    let mut found = HashMap::new();
    for state in states {
        *found.entry(state).or_insert(0) += 1;
    }
    for state in all {
        let labels = StateLabels { state: format!("{state:?}") };
        family.get_or_create(&labels).set(found.get(&state).copied().unwrap_or(0));
    }
}

fn earliest<'a>(times: impl Iterator<Item = &'a Time>) -> Option<Timestamp> {
    times.map(|time| time.0).min()
}

/// How long ago this was, in seconds; 0 if there is none.
fn age(now: Timestamp, time: Option<Timestamp>) -> i64 {
    time.map_or(0, |time| (now.as_second() - time.as_second()).max(0))
}

fn number(counted: usize) -> i64 {
    i64::try_from(counted).unwrap_or(i64::MAX)
}
