//! The calls of a Volume itself, and what their answers say: CreateVolume, DeleteVolume, and by way of `validate`, `expand` and
//! `modify` ValidateVolumeCapabilities, ControllerExpandVolume and ControllerModifyVolume.

use super::expand::{self, Expanded};
use super::modify::{self, Modified};
use super::validate;
use crate::agent::calls::arguments::{self, ArgumentError, Offers};
use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::not_found::{self, Earlier};
use crate::agent::context::Agent;
use crate::api::conditions::{Desired, Reason};
use crate::api::names::handle_of_import;
use crate::api::quantity;
use crate::api::secrets::{SecretFor, SecretName};
use crate::api::volume::{CreatedWith, EditAnswer, GrantedUse, Rejected, Segments, VolumeStatus};
use crate::api::{Plugin, Volume, VolumeState};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{CallError, Origin, Rpc};
use crate::volume::calls::VolumeCall;

/// A failed call, and the driver's own answer if there was one.
pub(crate) type Failed = (Failure, Option<CallError>);

/// Most characters about what is wrong with a volume, as the schema has it.
const REASON: usize = 1024;

/// CSI's name of a call.
pub(crate) fn rpc_of(call: VolumeCall) -> Rpc {
    match call {
        VolumeCall::Create => Rpc::CreateVolume,
        VolumeCall::Validate | VolumeCall::Revalidate => Rpc::ValidateVolumeCapabilities,
        VolumeCall::Expand => Rpc::ControllerExpandVolume,
        VolumeCall::Modify => Rpc::ControllerModifyVolume,
        VolumeCall::Delete | VolumeCall::DeleteRejected => Rpc::DeleteVolume,
    }
}

/// What a call needs beside the Volume. Gathered before the live reads, because it may take its time.
pub(crate) struct Prepared {
    means: Means,
    /// The Plugin before the call, so that an answer is never ascribed to one that came after it.
    plugin_uid: Option<String>,
}

/// Gathers it.
pub(crate) async fn prepare(due: &Due<'_>, volume: &Volume) -> Result<Prepared, Failure> {
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let means = due.means(namespace, secret_of(due.rpc, volume)).await?;
    let plugin_uid = if due.rpc.is_inverse() { None } else { plugin_uid(due.agent, volume).await };
    Ok(Prepared { means, plugin_uid })
}

/// The Secret that a Volume's own call takes along.
fn secret_of(rpc: Rpc, volume: &Volume) -> Option<SecretName<'_>> {
    let is_import = volume.metadata.name.as_deref().and_then(handle_of_import).is_some();
    let own = |call| volume.spec.secrets.as_ref()?.own(call);
    let (call, of_provision) = match (rpc, &volume.spec.persistent_volume) {
        (Rpc::ControllerExpandVolume, made_for) => {
            (SecretFor::ControllerExpand, made_for.as_ref().map(|p| p.controller_expand_secret.as_deref()))
        }
        (Rpc::ControllerModifyVolume, made_for) => {
            (SecretFor::ControllerModify, made_for.as_ref().map(|p| p.controller_modify_secret.as_deref()))
        }
        (_, _) => (SecretFor::Controller, None),
    };
    match of_provision {
        Some(named) => named.map(SecretName::OfUser),
        // Of a PersistentVolume, as for the stock stack, the Secret that its storage is deleted with is for nothing else.
        None if is_import => own(call).map(SecretName::OfUser),
        None => volume.secret(call),
    }
}

/// The result of a call that did not fail.
#[derive(Clone)]
pub(crate) enum Answer {
    /// A volume, and the UID of the Plugin with which it was made.
    Created(Box<wire::Volume>, Option<String>),
    /// A volume that nobody can use, and the UID of the Plugin.
    Unusable(Rejected, Option<String>),
    /// The volume is larger.
    Expanded(Expanded),
    /// The volume is otherwise.
    Modified(Modified),
    /// It may be registered; with whether the driver confirms, and the UID of the Plugin.
    Validated(Desired, Option<String>),
    /// It may be used as it was edited to be; with the number of that edit, and whether the driver confirms.
    Revalidated(i64, Desired),
    /// The storage is gone; with a word about how.
    Deleted(Option<String>),
    /// What nobody could use is gone.
    DeletedAgain,
    /// The Volume is deleted, and the driver says clearly that it has made nothing.
    NotMade,
}

impl Answer {
    /// CreateVolume went well, and the API server does not take its answer.
    pub(crate) fn unstorable(id: String, plugin_uid: Option<String>, why: &str) -> Self {
        let what = format!("the API server refuses to store the driver's answer: {why}");
        Self::Unusable(rejected(id, &what), plugin_uid)
    }

    /// What else than Ready is to be said of it.
    pub(crate) fn aside(&self) -> Option<&Desired> {
        if let Self::Validated(confirmed, _) = self { Some(confirmed) } else { None }
    }

    /// Puts the result into the status, and returns the condition for it.
    pub(crate) fn take_in(self, volume: &Volume, status: &mut VolumeStatus) -> Desired {
        status.may_exist = None;
        status.rejected = None;
        match self {
            Self::Expanded(expanded) => expanded.take_in(volume, status),
            Self::Modified(modified) => modified.take_in(volume, status),
            Self::Created(created, plugin_uid) => {
                status.plugin_uid = plugin_uid;
                let with = CreatedWith::of(volume).unwrap_or_default();
                take_in(status, *created, with.capacity_bytes.unwrap_or_default());
                // What was asked for since, of a Volume whose status was lost, is asked for again.
                status.mutable_parameters = with.mutable_parameters;
                Desired::new(Reason::Created, "the driver has made it; its VolumeHandle comes next")
            }
            Self::Unusable(rejected, plugin_uid) => {
                status.plugin_uid = plugin_uid;
                let message = format!("{}; what was made is deleted again", rejected.reason);
                status.rejected = Some(rejected.into());
                Desired::new(Reason::Unusable, message)
            }
            Self::Validated(_, plugin_uid) => {
                status.plugin_uid = plugin_uid;
                status.state = VolumeState::Created;
                status.volume_handle.clone_from(&volume.spec.volume_handle);
                status.volume_context.clone_from(&volume.spec.volume_context);
                Desired::new(Reason::Validated, "the driver was asked about it; its VolumeHandle comes next")
            }
            Self::Revalidated(number, confirmed) => {
                status.edit = Some(EditAnswer { number, error: None }.into());
                confirmed
            }
            Self::Deleted(note) => {
                let message = note.map_or("the driver has deleted it".into(), |n| format!("deleted; {n}"));
                deleted(status, &message)
            }
            Self::DeletedAgain => {
                deleted(status, "what the driver made could not be used, and it has deleted it again")
            }
            Self::NotMade => deleted(status, "it was deleted before the driver made it"),
        }
    }
}

fn deleted(status: &mut VolumeStatus, message: &str) -> Desired {
    status.state = VolumeState::Deleted;
    Desired::new(Reason::Deleted, message)
}

/// Makes the call.
pub(crate) async fn call(
    due: &Due<'_>,
    volume: &Volume,
    call: VolumeCall,
    with: Prepared,
) -> Result<Answer, Failed> {
    match call {
        VolumeCall::Create => create(due, volume, with).await,
        VolumeCall::Validate => {
            let confirmed = validate::call(due, volume, &GrantedUse::of(volume), with.means).await?;
            Ok(Answer::Validated(confirmed, with.plugin_uid))
        }
        VolumeCall::Revalidate => {
            let edit = volume.edit().cloned().unwrap_or_default();
            let confirmed = validate::call(due, volume, &edit.asked, with.means).await?;
            Ok(Answer::Revalidated(edit.number, confirmed))
        }
        VolumeCall::Expand => expand::call(due, volume, with.means).await.map(Answer::Expanded),
        VolumeCall::Modify => modify::call(due, volume, with.means).await.map(Answer::Modified),
        VolumeCall::Delete => delete(due, volume, call, with).await.map(Answer::Deleted),
        VolumeCall::DeleteRejected => delete(due, volume, call, with).await.map(|_| Answer::DeletedAgain),
    }
}

async fn create(due: &Due<'_>, volume: &Volume, with: Prepared) -> Result<Answer, Failed> {
    let fingerprint = &with.means.serving.fingerprint;
    let driver = Offers {
        modes: fingerprint.controller_modes,
        topology: fingerprint.topology,
        modifies: fingerprint.capabilities.controller_has("MODIFY_VOLUME"),
    };
    let args = arguments::create_volume(volume, with.means.secrets, driver)
        .map_err(|error| (Failure::arguments(due.rpc, &error), never_sent(&error)))?;
    let asked = args.capacity_range;
    let plugin = &with.means.serving.plugin;
    let called = due.call_controller(plugin, plugin.create_volume(args)).await;
    let created = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    let from = arguments::content_source(volume);
    let wrong = wrong_size(asked.as_ref(), created.capacity_bytes)
        .or_else(|| wrong_source(from.as_ref(), created.content_source.as_ref()));
    match wrong {
        None => Ok(Answer::Created(Box::new(created), with.plugin_uid)),
        Some(what) => Ok(Answer::Unusable(rejected(created.volume_id, &what), with.plugin_uid)),
    }
}

/// A size that cannot be read never could, so no call was ever made with it. What the driver offers may have changed.
fn never_sent(error: &ArgumentError) -> Option<CallError> {
    matches!(error, ArgumentError::Size(_)).then(|| CallError {
        rpc: Rpc::CreateVolume,
        code: tonic::Code::InvalidArgument,
        message: error.to_string(),
        origin: Origin::Argument,
    })
}

/// What is wrong with the size of a volume that was made. A driver that says 0 does not know, and is believed.
fn wrong_size(asked: Option<&wire::CapacityRange>, made: i64) -> Option<String> {
    if made < 0 {
        return Some(format!("the driver made {made} bytes"));
    }
    let asked = asked.filter(|_| made > 0)?;
    let limit = Some(asked.limit_bytes).filter(|limit| *limit > 0);
    if made < asked.required_bytes {
        return Some(format!("the driver made {made} bytes, and spec.capacity is {}", asked.required_bytes));
    }
    let limit = limit.filter(|limit| made > *limit)?;
    Some(format!("the driver made {made} bytes, and spec.capacityLimit is {limit}"))
}

/// What is wrong with where the content of a volume comes from, which the driver has to say of a copy.
fn wrong_source(
    asked: Option<&wire::VolumeContentSource>,
    made: Option<&wire::VolumeContentSource>,
) -> Option<String> {
    let what = "the driver does not say that what it made is the copy that was asked for (content_source)";
    (asked.is_some() && asked != made).then(|| what.to_owned())
}

/// A volume that is not what was asked for, as a driver that can do no better should have refused to make.
fn rejected(volume_handle: String, what: &str) -> Rejected {
    Rejected { volume_handle, reason: what.chars().take(REASON).collect(), may_delete: false }
}

/// The failure of a CreateVolume whose volume was deleted again.
pub(crate) fn unusable(reason: &str) -> CallError {
    CallError {
        rpc: Rpc::CreateVolume,
        code: tonic::Code::OutOfRange,
        message: format!("{reason}; it was deleted again"),
        origin: Origin::Driver,
    }
}

/// DeleteVolume. Returns what it went without, in words.
async fn delete(
    due: &Due<'_>,
    volume: &Volume,
    call: VolumeCall,
    with: Prepared,
) -> Result<Option<String>, Failed> {
    let Means { serving, secrets, note } = with.means;
    let args = arguments::delete_volume(call, volume, secrets)
        .map_err(|error| (Failure::arguments(due.rpc, &error), None))?;
    let Err(error) = due.call_controller(&serving.plugin, serving.plugin.delete_volume(args)).await else {
        return Ok(note);
    };
    let uid = volume.status.as_ref().and_then(|s| s.plugin_uid.as_deref());
    let earlier = Earlier { plugin: &volume.spec.plugin_name, uid, done: "made", undone: "deleted" };
    not_found::unless_gone(due.agent, error, earlier, note.as_deref()).await.map(|()| note)
}

fn take_in(status: &mut VolumeStatus, created: wire::Volume, asked: i64) {
    status.state = VolumeState::Created;
    status.volume_handle = Some(created.volume_id);
    let capacity = if created.capacity_bytes == 0 { asked } else { created.capacity_bytes };
    status.capacity = Some(capacity).filter(|bytes| *bytes != 0).map(quantity::human);
    status.capacity_bytes = Some(capacity);
    status.volume_context = created.volume_context;
    // A place without segments is every place.
    let places =
        Some(created.accessible_topology).filter(|all| all.iter().all(|place| !place.segments.is_empty()));
    let places = places.unwrap_or_default().into_iter();
    status.accessible_topology = places.map(|place| Segments { segments: place.segments }).collect();
}

/// UID of the Plugin that has the Volume's name for it now.
async fn plugin_uid(agent: &Agent, volume: &Volume) -> Option<String> {
    let name = &volume.spec.plugin_name;
    if let Some(plugin) = agent.caches.plugins.get(name) {
        return plugin.metadata.uid.clone();
    }
    agent.get_live::<Plugin>(name).await.ok().flatten()?.metadata.uid
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_volume_is_as_large_as_was_asked() {
        let asked = |required_bytes, limit_bytes| wire::CapacityRange { required_bytes, limit_bytes };
        for (required, limit, made, is_right) in [
            (10, 0, 10, true),
            (10, 0, 1_000, true),
            (10, 20, 20, true),
            (10, 20, 0, true),
            (10, 0, 9, false),
            (10, 20, 21, false),
            (0, 20, 21, false),
            (0, 0, -1, false),
        ] {
            let wrong = wrong_size(Some(&asked(required, limit)), made);
            assert_eq!(wrong.is_none(), is_right, "{required} {limit} {made:?} {wrong:?}");
        }
        assert_eq!(wrong_size(None, 1), None);
        assert!(wrong_size(None, -1).is_some());
    }

    #[test]
    fn a_place_without_segments_is_every_place() {
        let zone = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        for (topology, places) in [
            (vec![], 0),
            (vec![zone.clone()], 1),
            (vec![zone, BTreeMap::new()], 0),
            (vec![BTreeMap::new()], 0),
        ] {
            let mut status = VolumeStatus::default();
            let accessible_topology =
                topology.into_iter().map(|segments| wire::Topology { segments }).collect();
            let created =
                wire::Volume { volume_id: "id".into(), accessible_topology, ..wire::Volume::default() };
            take_in(&mut status, created, 7);
            assert_eq!((status.capacity_bytes, status.capacity.as_deref()), (Some(7), Some("7")));
            assert_eq!(status.accessible_topology.len(), places);
        }
    }
}
