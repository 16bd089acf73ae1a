//! The audit: what a driver lists as attached, compared with the Attachments (rule R11, trap B15). With the same listing
//! `agent::orphans` compares what volumes there are.
//!
//! What is attached is compared only for the VolumeHandles whose calls are this agent's, and only where the driver says that it lists published
//! nodes. A listing makes suspects; one that is a suspect in two listings in a row is looked at again with live reads,
//! while no call of its handle is in flight, and then written into the VolumeHandle's status. Nothing is written while
//! nothing changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::audits::{Found, Look};
use crate::agent::caches::BY_HANDLE;
use crate::agent::calls::attempt::NotDone;
use crate::agent::calls::failure::Failure;
use crate::agent::context::Agent;
use crate::agent::orphans::look::Round;
use crate::api::conditions::whole_second;
use crate::api::names::{DriverOn, instance_name};
use crate::api::storage::StorageKind;
use crate::api::{Attachment, VolumeHandle};
use crate::attachment::AttachmentSeen;
use crate::attachment::drift;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{Listing, Rpc};
use crate::k8s::{ApiError, Next, read};

/// The capabilities that a driver must have for what it has attached to be audited.
const NEEDS: [&str; 3] = ["PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES", "LIST_VOLUMES_PUBLISHED_NODES"];
/// Volumes per page of a listing.
const PAGE: u32 = 500;
/// VolumeHandles that are looked at again after one listing. A driver that goes wrong as a whole is not reported
/// volume by volume.
const LOOKS: usize = 100;
/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_secs(5);

/// A VolumeHandle whose calls are ours, from before the listing: what is attached or detached while the listing is made
/// is no difference.
struct Own {
    name: String,
    /// Whether a difference is reported on the VolumeHandle.
    reported: bool,
    before: Vec<AttachmentSeen>,
}

/// Audits one driver, and says when to do it again.
pub(crate) async fn work(agent: Arc<Agent>, driver: String) -> Next {
    if agent.serving(Rpc::ListVolumes, &driver).is_err() {
        // A driver that comes, or comes back, wakes this again.
        return Next::Done;
    }
    if !agent.may_call() {
        return Next::After(PAUSE);
    }
    let started = Instant::now();
    if let Err(trouble) = list(&agent, &driver).await {
        tracing::warn!(driver, "no whole audit of what it lists: {trouble}");
        agent.audits.failed(&driver);
    }
    Next::After(agent.audits.pause(&driver, started.elapsed()))
}

async fn list(agent: &Arc<Agent>, driver: &str) -> Result<(), NotDone> {
    let volumes = Round::begin(agent, driver, StorageKind::Volume);
    let snapshots = Round::begin(agent, driver, StorageKind::Snapshot);
    let serving = agent.serving(Rpc::ListVolumes, driver)?;
    let capabilities = &serving.fingerprint.capabilities;
    let attaches = NEEDS.iter().all(|needed| capabilities.controller_has(needed));
    let handles = if attaches { own_handles(agent, driver).await? } else { HashMap::new() };
    let mut is_news = false;
    if attaches || volumes.is_some() {
        // What was made for moor, if it is compared, or whose attachments are.
        let pick = |volume: &wire::Volume| {
            let id = &volume.volume_id;
            let others = volume.volume_context.values().map(String::as_str);
            let made_for = volumes.as_ref().and_then(|round| round.recognise(id, others));
            (made_for.is_some() || handles.contains_key(id)).then_some(made_for)
        };
        let listed = agent.call(driver, Rpc::ListVolumes, serving.plugin.list_volumes(PAGE, pick)).await;
        let listed = listed.map_err(|error| Failure::of_call(&error))?;
        compare_attached(agent, driver, handles, &listed);
        if let Some(round) = volumes {
            is_news |= round.volumes(agent, driver, listed).await?;
        }
    } else {
        // Another agent asks, or nobody can.
        second_looks(agent, driver, &Found::new(), Vec::new());
    }
    if let Some(round) = snapshots {
        is_news |= round.snapshots(agent, driver).await?;
    }
    agent.audits.compared(driver, is_news, agent.orphans.differs(driver));
    Ok(())
}

/// Compares what a driver lists as attached with the Attachments.
fn compare_attached<M>(agent: &Agent, driver: &str, handles: HashMap<String, Own>, listed: &Listing<M>) {
    let (mut found, mut looks) = (HashMap::new(), Vec::new());
    for (id, Own { name, reported, before }) in handles {
        // Not listed says nothing: it may have come or moved while the list was made (CSI ListVolumes).
        let Some(listed) = listed.get(&id) else { continue };
        let published: Vec<String> = listed.nodes.iter().cloned().collect();
        let differs = drift::compare(&published, &before, &cached_locks(agent, &name));
        if reported || !differs.is_empty() {
            let look = Look { published, before, earlier: BTreeSet::new() };
            looks.push((name.clone(), reported, look));
        }
        if !differs.is_empty() {
            found.insert(name, differs);
        }
    }
    second_looks(agent, driver, &found, looks);
}

/// Asks for a second look at every VolumeHandle that two listings in a row show as different, or that is reported.
fn second_looks(agent: &Agent, driver: &str, found: &Found, mut looks: Vec<(String, bool, Look)>) {
    let again = |name: &String, earlier: &Found| {
        found.get(name).zip(earlier.get(name)).is_some_and(|(now, then)| !now.is_disjoint(then))
    };
    let earlier = agent.audits.listed(driver, found.clone());
    looks.retain(|(name, reported, _)| *reported || again(name, &earlier));
    if looks.len() > LOOKS {
        tracing::warn!(
            driver,
            volumes = looks.len(),
            "the listing differs for so many that not all are reported"
        );
        looks.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        looks.truncate(LOOKS);
    }
    for (name, _, mut look) in looks {
        look.earlier = earlier.get(&name).cloned().unwrap_or_default();
        agent.audits.looks.lock().insert(name.clone(), look);
        agent.queues.handles.add(name);
    }
}

/// The VolumeHandles of a driver whose calls are its instance's here, by volume id.
async fn own_handles(agent: &Agent, driver: &str) -> Result<HashMap<String, Own>, ApiError> {
    let fields = format!("spec.controller.agent={}", agent.node_name);
    let listed = read::list_live(&agent.api::<VolumeHandle>(), Some(&fields)).await?;
    let mine = listed.into_iter().filter(|handle| handle.spec.driver_name == driver && is_own(agent, handle));
    let entry = |handle: VolumeHandle| {
        let name = handle.metadata.name?;
        let (reported, before) =
            (handle.status.is_some_and(|s| s.drift.is_some()), cached_locks(agent, &name));
        Some((handle.spec.volume_handle, Own { name, reported, before }))
    };
    Ok(mine.filter_map(entry).collect())
}

/// Whether the calls of a VolumeHandle are made by its driver's instance on this node.
pub(crate) fn is_own(agent: &Agent, handle: &VolumeHandle) -> bool {
    let instance = instance_name(DriverOn { driver: &handle.spec.driver_name, node: &agent.node_name });
    handle.metadata.deletion_timestamp.is_none()
        && handle.spec.controller.as_ref().is_some_and(|c| c.instance == instance)
}

fn cached_locks(agent: &Agent, handle: &str) -> Vec<AttachmentSeen> {
    agent.caches.attachments.by_index(BY_HANDLE, handle).iter().map(|a| AttachmentSeen::of(a)).collect()
}

/// The handle's Attachments, by a quorum LIST made now (rule R1).
pub(crate) async fn live_locks(agent: &Agent, handle: &str) -> Result<Vec<AttachmentSeen>, ApiError> {
    let fields = format!("spec.fixed.handleName={handle}");
    let listed = read::list_live(&agent.api::<Attachment>(), Some(&fields)).await?;
    Ok(listed.iter().map(AttachmentSeen::of).collect())
}

/// Looks again at a VolumeHandle that a listing made suspect, and reports. Only while its key is held, so that no call
/// is in flight. A look that fails is made again after the next listing.
pub(crate) async fn second_look(agent: &Agent, handle: &str) {
    let Some(look) = agent.audits.looks.lock().remove(handle) else { return };
    if let Err(error) = report(agent, handle, &look).await {
        error.log(handle, "what the driver lists as attached was not compared");
    }
}

async fn report(agent: &Agent, name: &str, look: &Look) -> Result<(), ApiError> {
    let Some(handle) = agent.get_live::<VolumeHandle>(name).await? else { return Ok(()) };
    if !is_own(agent, &handle) {
        return Ok(());
    }
    let found = drift::compare(&look.published, &look.before, &live_locks(agent, name).await?);
    let mut after = handle.status.clone().unwrap_or_default();
    let now = whole_second(Timestamp::now());
    after.drift = drift::report(&found, &look.earlier, after.drift.as_ref(), &now);
    // No cache of the agent has VolumeHandles.
    if agent.writer.merge_status(&agent.api(), &handle, &after).await?.is_some() {
        tracing::info!(handle = name, volume = handle.spec.volume_handle, found = ?after.drift, "what the driver lists as attached");
    }
    Ok(())
}
