//! Keeps this node's PluginInstance objects as the registry sees the processes.
//!
//! Compared is always the observed object, never what was written last (trap B27): what an agent that is just
//! ending writes late is put right.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use super::place;
use super::services::{self, Processes};
use crate::agent::context::Agent;
use crate::agent::kubelet;
use crate::agent::records::state_disk;
use crate::agent::restore::forgotten::{self, OfDriver};
use crate::api::conditions::{self, Desired, READY, Reason, UNDONE, find};
use crate::api::instance::{PluginInstance, PluginInstanceSpec, PluginInstanceStatus};
use crate::api::names::{DriverOn, instance_name};
use crate::api::plugin::Plugin;
use crate::k8s::node::LeanNode;
use crate::k8s::{ApiError, Next};

/// Time between looks at whether the sockets have been asked.
const SETTLE: Duration = Duration::from_millis(250);
/// Time between looks at whether the calls have ended of which an instance is relieved.
const RELIEF: Duration = Duration::from_millis(250);
/// Time between looks at whether our Node is there again.
const UNREGISTERED: Duration = Duration::from_secs(15);
/// Longest lastError, in bytes: the schema's bound.
const MAX_ERROR: usize = 2048;

/// Brings the PluginInstance of one driver up to date.
pub async fn work(agent: Arc<Agent>, driver: String) -> Next {
    match step(&agent, &driver).await {
        Ok(next) => next,
        Err(ApiError::Conflict(_)) => Next::Again,
        Err(error) => {
            tracing::warn!(driver, "PluginInstance: {error}");
            error.next()
        }
    }
}

async fn step(agent: &Agent, driver: &str) -> Result<Next, ApiError> {
    let name = instance_name(DriverOn { driver, node: &agent.node_name });
    let observed = agent.caches.instances.get(&name);
    let of_driver = || OfDriver::seen(&agent.records, &agent.retries, driver);
    let Some(plugin) = agent.caches.plugin_of(driver) else {
        if let Some(observed) = &observed {
            dismiss_on_order(agent, observed).await?;
        }
        let left = of_driver();
        return match observed {
            // What is reported on it has to stay known: without it its volumes could be granted elsewhere, and what waits
            // to be undone could neither be told nor be ordered.
            Some(observed) if left.needs_instance() => {
                let mut after = observed.status.clone().unwrap_or_default();
                let plugin = &observed.spec.plugin_name;
                let why = format!(
                    "Plugin {plugin} does not exist; this object stays for what it reports as mounted here"
                );
                not_healthy(&observed, &mut after, Reason::NoPlugin, &why);
                say_what_is_left(&left, &observed, &mut after, Timestamp::now());
                write(agent, &observed, &after).await
            }
            Some(observed) => {
                agent.writer.delete_in(&agent.caches.instances, &*observed).await?;
                Ok(Next::Done)
            }
            None => match left.plugin_name {
                Some(plugin) => create(agent, spec(agent, &plugin, driver, String::new())).await,
                None => Ok(Next::Done),
            },
        };
    };
    let plugin_name = plugin.metadata.name.as_deref().unwrap_or_default();
    let found = |service| agent.registry.best(driver, service, &agent.sockets_of(&plugin, service));
    let unread = |path: &Path| agent.registry.unread(driver, path);
    let in_pods = agent.caches.controller_pods(plugin.metadata.name.as_deref());
    let roles = place::roles_here(&plugin, &in_pods);
    let processes = services::choose(found, unread, roles, observed.as_deref());
    if processes.are_unseen() && !agent.registry.is_settled() {
        // Right after a start nothing has been seen yet: that would be reported as gone, and taken back at once.
        return Ok(Next::After(SETTLE));
    }
    let Some(observed) = observed else {
        // Nothing is reported about a driver that was never seen here, or has left. Of one that has left something behind it
        // is, though nobody knows at which socket it was.
        let left = || of_driver().needs_instance().then(String::new);
        let here = processes.socket(None).filter(|_| !processes.are_gone());
        let Some(socket) = here.or_else(left) else { return Ok(Next::Done) };
        return create(agent, spec(agent, plugin_name, driver, socket)).await;
    };
    agent.tenures.begin(driver, observed.spec.tenure);
    let before = &observed.spec.socket_path;
    // A controller that was here first comes and goes, and the driver of the node stays. All else has to be as it is.
    let is_in_pods = place::is_in_pods(&agent.directories.kubelet, Path::new(before));
    let socket = if is_in_pods { Some(before.clone()) } else { processes.socket(Some(before)) };
    if let Some(socket) = socket
        && !is_same_process(&observed.spec, spec(agent, plugin_name, driver, socket))
    {
        // spec says which process this is and cannot change: another Node UID, another socket.
        agent.writer.delete_in(&agent.caches.instances, &*observed).await?;
        return Ok(Next::Again);
    }
    dismiss_on_order(agent, &observed).await?;
    let after = status(agent, &plugin, &observed, &processes, Timestamp::now());
    write(agent, &observed, &after).await
}

/// Makes a PluginInstance; its status is written next.
async fn create(agent: &Agent, spec: PluginInstanceSpec) -> Result<Next, ApiError> {
    if !is_registered(agent).await? {
        return Ok(Next::After(UNREGISTERED));
    }
    let (object, instances) = (object(agent, spec), &agent.caches.instances);
    if agent.writer.create_in(instances, &object).await? {
        return Ok(Next::Again);
    }
    if let Some(found) = agent.get_live::<PluginInstance>(&object.name_any()).await? {
        // The next look compares the socket.
        let socket_path = found.spec.socket_path.clone();
        if !is_same_process(&found.spec, PluginInstanceSpec { socket_path, ..object.spec }) {
            // Also one that no watch of ours selects: it says another agent, so it has to go.
            agent.writer.delete_in(instances, &found).await?;
        }
    }
    Ok(Next::Again)
}

/// Writes a status, if it is news. One that is gone leaves the cache, and that wakes this pass.
async fn write(
    agent: &Agent,
    observed: &PluginInstance,
    after: &PluginInstanceStatus,
) -> Result<Next, ApiError> {
    if agent.writer.update_status(&agent.caches.instances, observed, after).await? {
        tell_health(agent, observed, after).await;
    }
    let is_relieved = after.tenure >= observed.spec.tenure;
    Ok(if is_relieved { Next::Done } else { Next::After(RELIEF) })
}

/// An Event for each turn of a driver's health, of which a status shows only the last.
async fn tell_health(agent: &Agent, observed: &PluginInstance, after: &PluginInstanceStatus) {
    let before = observed.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    agent.recorder.publish_turn(observed, before, &after.conditions).await;
}

/// Files that cannot be read are put away as somebody ordered. What waited beside them goes on. Not while the Attachment is
/// there: by that what the file speaks of is undone, and without the file nobody would know that it has to be.
async fn dismiss_on_order(agent: &Agent, observed: &PluginInstance) -> Result<(), ApiError> {
    let unreadable = agent.records.unreadable();
    let mut ordered = forgotten::dismissals(observed);
    ordered.retain(|uid| unreadable.iter().any(|file| *file.attachment_uid == **uid));
    if ordered.is_empty() {
        return Ok(());
    }
    let here = agent.attachments_here().await?;
    for uid in ordered {
        if here.contains(&uid) {
            tracing::warn!(attachment = uid, "its record is not dismissed: it is undone with its Attachment");
            continue;
        }
        match agent.records.dismiss(&uid.as_str().into()).await {
            Ok(Some(file)) => {
                tracing::warn!(attachment = uid, "a record that cannot be read is dismissed on order");
                agent.lost.tell();
                let all = agent.caches.attachments.all();
                let waits = |handle: &String| file.handle_name.is_empty() || *handle == file.handle_name;
                let handles = all.into_iter().map(|attachment| attachment.spec.fixed.handle_name.clone());
                handles.filter(waits).for_each(|handle| agent.queues.nodes.add(handle));
            }
            Ok(None) => {}
            Err(error) => tracing::error!("{error}"),
        }
    }
    Ok(())
}

/// Whether our Node is there, under the UID by which we name it. Without it what is made for it would be collected as
/// garbage, again and again.
async fn is_registered(agent: &Agent) -> Result<bool, ApiError> {
    match agent.get_live::<LeanNode>(&agent.node_name).await? {
        Some(node) if node.uid() == agent.node_uid => Ok(true),
        Some(_) => {
            agent.registered_anew.notify_one();
            Ok(false)
        }
        None => {
            tracing::warn!(
                node = agent.node_name,
                "the Node was deleted; waiting until it is registered anew"
            );
            Ok(false)
        }
    }
}

/// Reports the node's instances as unhealthy at shutdown: the leader learns at once that nobody speaks to these
/// plugins for a while.
pub async fn report_shutdown(agent: &Agent) {
    let mut told = Vec::new();
    for observed in agent.caches.instances.all() {
        let mut after = observed.status.clone().unwrap_or_default();
        if !after.is_healthy_for_any() {
            continue;
        }
        not_healthy(&observed, &mut after, Reason::AgentShutdown, "the agent beside it is shutting down");
        match agent.writer.update_status(&agent.caches.instances, &*observed, &after).await {
            Ok(_) => told.push((observed, after)),
            Err(error) => tracing::warn!("last fingerprint: {error}"),
        }
    }
    // All at once, since the time of a process that ends is short, and nobody decides by an Event.
    join_all(told.iter().map(|(observed, after)| tell_health(agent, observed, after))).await;
}

/// Writes into a status that the instance is not healthy, so that nothing new is given to it, whatever its driver
/// answers.
fn not_healthy(observed: &PluginInstance, status: &mut PluginInstanceStatus, reason: Reason, why: &str) {
    status.healthy = false;
    status.services.iter_mut().for_each(|service| service.healthy = false);
    status.last_error = Some(why.to_owned());
    let desired = Desired::new(reason, why);
    conditions::set(&mut status.conditions, &desired, observed.metadata.generation, Timestamp::now());
}

fn spec(agent: &Agent, plugin: &str, driver: &str, socket_path: String) -> PluginInstanceSpec {
    PluginInstanceSpec {
        plugin_name: plugin.to_owned(),
        driver_name: driver.to_owned(),
        node_name: agent.node_name.clone(),
        node_uid: agent.node_uid.clone(),
        agent: agent.node_name.clone(),
        socket_path,
        // One that is made anew stays relieved of what the one before was.
        tenure: agent.tenures.of(driver),
        ..PluginInstanceSpec::default()
    }
}

/// Whether a spec says that it is this process. What the leader asks of it is no part of that.
fn is_same_process(found: &PluginInstanceSpec, process: PluginInstanceSpec) -> bool {
    let (capacity_requests, tenure) = (found.capacity_requests.clone(), found.tenure);
    *found == PluginInstanceSpec { capacity_requests, tenure, ..process }
}

fn object(agent: &Agent, spec: PluginInstanceSpec) -> PluginInstance {
    // Goes with its Node, by garbage collection.
    let node = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: agent.node_name.clone(),
        uid: agent.node_uid.clone(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(instance_name(DriverOn { driver: &spec.driver_name, node: &agent.node_name })),
        owner_references: Some(vec![node]),
        ..ObjectMeta::default()
    };
    PluginInstance { metadata, spec, status: None }
}

fn status(
    agent: &Agent,
    plugin: &Plugin,
    observed: &PluginInstance,
    processes: &Processes,
    now: Timestamp,
) -> PluginInstanceStatus {
    let mut status = observed.status.clone().unwrap_or_default();
    let spec = &observed.spec;
    let roles =
        processes.only().map_or(plugin.spec.roles, |process| place::roles(plugin, process.is_in_pod()));
    processes.report(&mut status, roles, &spec.socket_path, &spec.driver_name);
    if plugin.spec.controller.is_some() && !status.controller {
        // Other Pods serve that.
        status.capabilities.controller.clear();
    }
    let unwritable = agent.records.disk.problem().filter(|_| status.node);
    if let Some(problem) = &unwritable {
        state_disk::report(&mut status, &spec.socket_path, problem);
    }
    status.last_error = status.last_error.map(|e| e.chars().take(MAX_ERROR / 4).collect());
    status.capacities = agent.capacities.of(&spec.driver_name, observed);
    status.storage = agent.orphans.report(&spec.driver_name, status.storage.as_ref());
    status.kubelet = kubelet::serve::status(agent, &spec.driver_name);
    if status.tenure < spec.tenure && agent.tenures.are_over(&spec.driver_name) {
        status.tenure = spec.tenure;
    }
    status.boot_id.clone_from(&agent.boot_id);
    status.writer_uid = agent.pod_uid.clone().unwrap_or_default();
    status.observed_generation = observed.metadata.generation;
    let begins =
        find(&status.conditions, READY).is_none_or(|ready| ready.reason == Reason::Starting.as_str());
    let desired = condition(&status, unwritable.is_some(), begins);
    conditions::set(&mut status.conditions, &desired, observed.metadata.generation, now);
    let left = OfDriver::seen(&agent.records, &agent.retries, &spec.driver_name);
    say_what_is_left(&left, observed, &mut status, now);
    status
}

/// Writes into a status what is mounted here and no other object can tell of. It is told although the Plugin is gone.
fn say_what_is_left(
    left: &OfDriver,
    observed: &PluginInstance,
    status: &mut PluginInstanceStatus,
    now: Timestamp,
) {
    forgotten::say(left.reported.clone(), status);
    if !left.untold.is_empty() || status.conditions.iter().any(|condition| condition.type_ == UNDONE) {
        let desired = forgotten::undone(&left.untold);
        conditions::set(&mut status.conditions, &desired, observed.metadata.generation, now);
    }
}

/// The Ready condition. Only one that `begins` starts: one that is back and not ready yet is not well again.
fn condition(status: &PluginInstanceStatus, unwritable: bool, begins: bool) -> Desired {
    const NOT_YET: &str = "it does not say yet that it is ready";
    match (&status.last_error, status.healthy, status.gone) {
        (_, true, _) => Desired::new(Reason::Healthy, "it answers Probe"),
        (Some(error), false, false) if unwritable => Desired::new(Reason::StateNotWritable, error),
        (Some(error), false, true) => Desired::new(Reason::Gone, error),
        (Some(error), false, false) => Desired::new(Reason::Unhealthy, error),
        (None, false, _) if begins => Desired::new(Reason::Starting, NOT_YET),
        (None, false, _) => Desired::new(Reason::Unhealthy, NOT_YET),
    }
}
