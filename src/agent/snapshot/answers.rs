//! The calls of a Snapshot, and what their answers say.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::{Failure, Pace};
use crate::agent::calls::not_found::{self, Earlier};
use crate::agent::context::Agent;
use crate::api::conditions::{Desired, Reason};
use crate::api::names::create_name;
use crate::api::secrets::SecretName;
use crate::api::snapshot::SnapshotStatus;
use crate::api::{Plugin, Snapshot, SnapshotState, quantity};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{CallError, Meaning, Rpc};
use crate::snapshot::calls::SnapshotCall;

/// A failed call, and the driver's own answer if there was one.
pub(super) type Failed = (Failure, Option<CallError>);

/// CSI's name of a call.
pub(super) fn rpc_of(call: SnapshotCall) -> Rpc {
    match call {
        SnapshotCall::Create => Rpc::CreateSnapshot,
        SnapshotCall::List => Rpc::ListSnapshots,
        SnapshotCall::Delete => Rpc::DeleteSnapshot,
    }
}

/// What a call needs beside the Snapshot. Gathered before the live reads, because it may take its time.
pub(super) struct Prepared {
    means: Means,
    /// The Plugin before the call, so that an answer is never ascribed to one that came after it.
    plugin_uid: Option<String>,
}

/// Gathers it.
pub(super) async fn prepare(due: &Due<'_>, snapshot: &Snapshot) -> Result<Prepared, Failure> {
    let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
    let secret = match &snapshot.spec.volume_snapshot_content {
        Some(of) if due.rpc == Rpc::ListSnapshots => of.list_secret.as_deref().map(SecretName::OfUser),
        Some(_) | None => snapshot.secret(),
    };
    let means = due.means(namespace, secret).await?;
    let plugin_uid = if due.rpc.is_inverse() { None } else { plugin_uid(due.agent, snapshot).await };
    Ok(Prepared { means, plugin_uid })
}

/// The result of a call that did not fail.
#[derive(Clone)]
pub(super) enum Answer {
    /// The driver has it; with the UID of the Plugin.
    There(wire::Snapshot, Option<String>),
    /// The driver does not list snapshots, so nobody knows whether the one that is registered is there.
    Unasked(Option<String>),
    /// It is gone; with a word about how.
    Deleted(Option<String>),
    /// The Snapshot is deleted, and the driver says clearly that it has made nothing.
    NotMade,
}

impl Answer {
    /// Puts the result into the status, and returns the condition for it.
    pub(super) fn take_in(self, snapshot: &Snapshot, status: &mut SnapshotStatus) -> Desired {
        status.may_exist = false;
        match self {
            Self::There(there, plugin_uid) => {
                status.plugin_uid = plugin_uid;
                take_in(status, there)
            }
            Self::Unasked(plugin_uid) => {
                status.plugin_uid = plugin_uid;
                status.state = SnapshotState::Ready;
                status.snapshot_handle.clone_from(&snapshot.spec.snapshot_handle);
                let message = "the driver does not list snapshots (no LIST_SNAPSHOTS), so it was not asked whether it has this one";
                Desired::new(Reason::Ready, message)
            }
            Self::Deleted(note) => {
                let message = note.map_or("the driver has deleted it".into(), |n| format!("deleted; {n}"));
                deleted(status, message)
            }
            Self::NotMade => deleted(status, "it was deleted before the driver took it".into()),
        }
    }
}

/// The snapshot is no more, as far as this object is concerned.
pub(super) fn deleted(status: &mut SnapshotStatus, message: String) -> Desired {
    status.state = SnapshotState::Deleted;
    Desired { reason: Reason::Deleted, message }
}

fn take_in(status: &mut SnapshotStatus, there: wire::Snapshot) -> Desired {
    let of = Some(there.source_volume_id).filter(|id| !id.is_empty());
    status.source_volume_handle = of.or_else(|| status.source_volume_handle.take());
    let taken = there.creation_time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
    status.creation_time = taken.and_then(|taken| Timestamp::from_second(taken.as_second()).ok()).map(Time);
    let size = Some(there.size_bytes).filter(|bytes| *bytes > 0);
    status.restore_size_bytes = size;
    status.restore_size = size.map(quantity::human);
    status.state = if there.ready_to_use { SnapshotState::Ready } else { SnapshotState::Created };
    let id = status.snapshot_handle.insert(there.snapshot_id);
    if there.ready_to_use {
        return Desired::new(Reason::Ready, format!("volumes can be made of it; the driver calls it {id}"));
    }
    let message = format!(
        "the driver has it as {id} and still works on it; it is asked again until it is ready to use, and the Volume is kept until \
         then: deleting this Snapshot gives it up"
    );
    Desired::new(Reason::NotReadyToUse, message)
}

/// Makes the call.
pub(super) async fn call(
    due: &Due<'_>,
    snapshot: &Snapshot,
    call: SnapshotCall,
    with: Prepared,
) -> Result<Answer, Failed> {
    match call {
        SnapshotCall::Create => create(due, snapshot, with).await,
        SnapshotCall::List => list(due, snapshot, with).await,
        SnapshotCall::Delete => delete(due, snapshot, with).await.map(Answer::Deleted),
    }
}

async fn create(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Answer, Failed> {
    let Some(of) = snapshot.spec.assignment.as_ref().and_then(|assignment| assignment.volume.as_ref()) else {
        return Err((Failure::arguments(due.rpc, &"spec.assignment names no volume"), None));
    };
    let request = wire::CreateSnapshotRequest {
        source_volume_id: of.volume_handle.clone(),
        name: create_name(snapshot.spec.create_name.as_deref(), snapshot.metadata.uid.as_deref()),
        secrets: with.means.secrets,
        parameters: snapshot.spec.parameters.clone(),
    };
    let plugin = &with.means.serving.plugin;
    let called = due.call_controller(plugin, plugin.create_snapshot(request)).await;
    let there = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    let known = snapshot.handle().or(snapshot.said_handle());
    if let Some(known) = known.filter(|known| *known != there.snapshot_id) {
        let what = format!(
            "the driver has answered the same CreateSnapshot with {known} before and with {} now; look at the driver",
            there.snapshot_id
        );
        let failure = Failure::local(Reason::AnswerRefused, due.rpc, what);
        return Err((Failure { pace: Pace::Slow, ..failure }, None));
    }
    Ok(Answer::There(there, with.plugin_uid))
}

async fn list(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Answer, Failed> {
    let id = snapshot.spec.snapshot_handle.clone().unwrap_or_default();
    let serving = &with.means.serving;
    if !serving.fingerprint.capabilities.controller_has("LIST_SNAPSHOTS") {
        return Ok(Answer::Unasked(with.plugin_uid));
    }
    let request = wire::ListSnapshotsRequest {
        snapshot_id: id.clone(),
        secrets: with.means.secrets,
        ..wire::ListSnapshotsRequest::default()
    };
    let plugin = &serving.plugin;
    let called = due.call_controller(plugin, plugin.find_snapshot(request)).await;
    let found = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    found.map(|there| Answer::There(there, with.plugin_uid)).ok_or_else(|| {
        let what = format!(
            "the driver lists no snapshot {id}; delete this Snapshot and create one with the right handle"
        );
        let failure = Failure::local(Reason::SnapshotNotFound, due.rpc, what);
        (Failure { pace: Pace::Slow, ..failure }, None)
    })
}

/// DeleteSnapshot. Returns what it went without, in words.
async fn delete(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Option<String>, Failed> {
    let Means { serving, secrets, note } = with.means;
    let Some(snapshot_id) = snapshot.handle().map(str::to_owned) else {
        return Err((Failure::arguments(due.rpc, &"the Snapshot has no handle"), None));
    };
    let request = wire::DeleteSnapshotRequest { snapshot_id, secrets };
    let Err(error) = due.call_controller(&serving.plugin, serving.plugin.delete_snapshot(request)).await
    else {
        return Ok(note);
    };
    let uid = snapshot.status.as_ref().and_then(|s| s.plugin_uid.as_deref());
    let plugin = snapshot.plugin_name().unwrap_or_default();
    let earlier = Earlier { plugin, uid, done: "taken", undone: "deleted" };
    let Err(mut failure) = not_found::is_gone(due.agent, &error, earlier).await else { return Ok(note) };
    if error.meaning() == Meaning::AlreadyGone {
        failure.message.push_str("; spec.deletionPolicy Retain gives it up");
    }
    if let Some(note) = note {
        failure.message = format!("{} ({note})", failure.message);
    }
    Err((failure, Some(error)))
}

/// UID of the Plugin that has the Snapshot's name for it now.
async fn plugin_uid(agent: &Agent, snapshot: &Snapshot) -> Option<String> {
    let name = snapshot.plugin_name()?;
    if let Some(plugin) = agent.caches.plugins.get(name) {
        return plugin.metadata.uid.clone();
    }
    agent.get_live::<Plugin>(name).await.ok().flatten()?.metadata.uid
}
