//! Ends Pods that moor runs for drivers which are not well, so that others take their places.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::caches::BY_PLUGIN;
use super::context::Context;
use crate::api::conditions::{Condition, READY, Reason, find};
use crate::api::instance::Service;
use crate::api::names::{DriverOn, instance_name};
use crate::api::plugin::Roles;
use crate::api::workload::{CONTROLLER, SERVICE};
use crate::api::{Plugin, PluginInstance};
use crate::heartbeat::AgentOnNode;
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;
use crate::k8s::pod::LeanPod;
use crate::plugin::restart::patience;

/// Most Pods of a Plugin that are ended at a time, each until its driver is well or is to be ended once more: what makes the
/// drivers of all nodes ill is not in their Pods.
const MOST: usize = 2;

/// A driver's service on a node: the name of the Plugin, the node, and which service.
type Served = (String, String, Service);
/// A Pod by its UID, and when its driver was started.
type Run = (String, Time);

/// What was seen of drivers that are ill, in memory: the next leader begins anew.
#[derive(Default)]
pub(crate) struct Illnesses(HashMap<Served, Illness>);

struct Illness {
    /// Since when it was seen ill without a break, in this run of a Pod.
    since: Instant,
    run: Option<Run>,
    /// How many Pods were ended for it.
    ended: u32,
    /// When the last one was, and until when another one of it is given a chance.
    helped: Option<Instant>,
}

/// How a driver's service on a node does.
enum Health {
    Well,
    /// It runs, and is ill for this reason.
    Ill(Run, String),
    /// Its containers are being started, or nothing is heard of it.
    Unknown,
}

impl Illnesses {
    /// Takes in how a service does now. Returns whether its Pod has been ill for so long that it is to be ended.
    fn is_due(&mut self, served: &Served, health: &Health, timeout: Duration) -> bool {
        let run = match health {
            Health::Well => {
                self.0.remove(served);
                return false;
            }
            Health::Unknown => {
                if let Some(illness) = self.0.get_mut(served) {
                    illness.run = None;
                }
                return false;
            }
            Health::Ill(run, _) => run,
        };
        let fresh = || Illness { since: Instant::now(), run: None, ended: 0, helped: None };
        let illness = self.0.entry(served.clone()).or_insert_with(fresh);
        if illness.run.as_ref() != Some(run) {
            (illness.since, illness.run) = (Instant::now(), Some(run.clone()));
        }
        illness.since.elapsed() >= patience(timeout, illness.ended)
    }

    /// A Pod was ended. The next one has twice as long.
    fn ended(&mut self, served: &Served, timeout: Duration) {
        if let Some(illness) = self.0.get_mut(served) {
            (illness.run, illness.ended) = (None, illness.ended.saturating_add(1));
            illness.helped = Some(Instant::now() + patience(timeout, illness.ended));
        }
    }

    /// A Pod could not be ended.
    fn stays(&mut self, served: &Served) {
        if let Some(illness) = self.0.get_mut(served) {
            (illness.ended, illness.helped) = (illness.ended.saturating_sub(1), None);
        }
    }

    /// On how many nodes a service of a Plugin has a Pod that has taken the place of another, and is given its time.
    fn are_helped(&self, (plugin, _, service): &Served) -> usize {
        let of = self.0.iter().filter(|((of, _, which), _)| of == plugin && which == service);
        of.filter(|(_, illness)| illness.helped.is_some_and(|until| Instant::now() < until)).count()
    }

    /// Of those that are due, who is ended now: those for whom the least was done, and no more of a Plugin than may be at a time.
    /// `of` says which service and health timeout is meant.
    fn first<T>(&mut self, mut due: Vec<T>, of: impl Fn(&T) -> (Served, Duration)) -> Vec<T> {
        due.sort_by_key(|one| self.0.get(&of(one).0).map_or(0, |illness| illness.ended));
        due.retain(|one| {
            let (served, timeout) = of(one);
            let has_room = self.are_helped(&served) < MOST;
            if has_room {
                self.ended(&served, timeout);
            }
            has_room
        });
        due
    }
}

/// Ends those that have been ill for too long. Between two Pods nothing is known, and how many were ended stays known.
pub(crate) async fn restart(ctx: &Context, illnesses: &mut Illnesses) {
    let mut due = Vec::new();
    illnesses
        .0
        .retain(|(plugin, node, _), _| ctx.plugins.get(plugin).is_some() && ctx.nodes.get(node).is_some());
    let pods_of = |plugin: Arc<Plugin>| {
        let pods = ctx.workloads.pods.by_index(BY_PLUGIN, &plugin.name_any());
        pods.into_iter().map(move |pod| (plugin.clone(), pod))
    };
    for (plugin, pod) in ctx.plugins.all().into_iter().flat_map(pods_of) {
        let Some((node, service)) = place_of(&pod, &plugin) else { continue };
        let served = (plugin.name_any(), node.to_owned(), service);
        let health = health(ctx, &plugin, &pod, node, service);
        let timeout = Duration::from_secs(plugin.spec.health_timeout_seconds.unsigned_abs());
        if illnesses.is_due(&served, &health, timeout)
            && let Health::Ill(_, why) = health
        {
            due.push((served, timeout, plugin, pod, why));
        }
    }
    let first = illnesses.first(due, |(served, timeout, ..)| (served.clone(), *timeout));
    for (served, _, plugin, pod, why) in first {
        if !end(ctx, &plugin, &pod, &why).await {
            illnesses.stays(&served);
        }
    }
}

/// Returns whether it ends.
async fn end(ctx: &Context, plugin: &Plugin, pod: &LeanPod, why: &str) -> bool {
    let node = pod.node_name().unwrap_or_default();
    let name = pod.name_any();
    let words = format!("Pod {name} on node {node} is ended, and another one takes its place: {why}");
    match ctx.writer.delete_in(&ctx.workloads.pods, pod).await {
        Ok(_) => {
            tracing::warn!(plugin = plugin.name_any(), "{words}");
            ctx.recorder.publish(plugin, EventReason::Restarted, "Restart", &words).await;
            true
        }
        Err(ApiError::Conflict(_)) => false,
        Err(error) => {
            tracing::warn!(pod = name, "cannot be ended: {error}");
            false
        }
    }
}

/// The node that a Pod is on, and the service that its driver is there for. Of one that ends, or whose service the Plugin leaves
/// out, nothing is expected.
fn place_of<'a>(pod: &'a LeanPod, plugin: &Plugin) -> Option<(&'a str, Service)> {
    let node = pod.node_name().filter(|_| !pod.is_ending() && !pod.is_over())?;
    let service = match (pod.label(SERVICE)? == CONTROLLER, plugin.spec.roles) {
        (true, Roles::Node) => return None,
        (true, Roles::All | Roles::Controller) | (false, Roles::Controller) => Service::Controller,
        (false, Roles::All | Roles::Node) => Service::Node,
    };
    Some((node, service))
}

/// How the driver in a Pod does. Nothing is known of it unless the agent beside it is heard.
fn health(ctx: &Context, plugin: &Plugin, pod: &LeanPod, node: &str, service: Service) -> Health {
    let heard = |node_uid: &str| ctx.leases.is_heard(&AgentOnNode::on(node, node_uid.to_owned()));
    let is_heard = ctx.nodes.get(node).is_some_and(|node| heard(node.uid()));
    let Some(since) = pod.runs_since().filter(|_| is_heard) else { return Health::Unknown };
    let run = (pod.uid().unwrap_or_default(), since);
    let driver = plugin.driver_name();
    let own = ctx.workloads.site.directories.node_socket(&plugin.name_any());
    match ctx.instances.get(&instance_name(DriverOn { driver, node })) {
        None => Health::Ill(run, format!("moor's agent there finds no driver {driver}")),
        // The driver is its process alone, whichever services that has.
        Some(instance) if is_well_at(&instance, &own) => Health::Well,
        Some(instance) => of_instance(&instance, service, run),
    }
}

/// Whether all there is of a driver on a node is a process at this socket, which is well.
fn is_well_at(instance: &PluginInstance, socket: &Path) -> bool {
    let is_alone = Path::new(&instance.spec.socket_path) == socket;
    is_alone && instance.status.as_ref().is_some_and(|status| status.services.is_empty() && status.healthy)
}

fn of_instance(instance: &PluginInstance, service: Service, run: Run) -> Health {
    let Some(status) = &instance.status else { return Health::Unknown };
    let serves = match service {
        Service::Controller => status.controller,
        Service::Node => status.node,
    };
    if serves && status.is_healthy_for(service) {
        return Health::Well;
    }
    if !serves && status.healthy {
        return Health::Ill(
            run,
            format!("moor's agent there finds nothing that serves the {service:?} service"),
        );
    }
    // The disk of its node, or its agent, is not made well by another Pod.
    let of_driver = [Reason::Unhealthy, Reason::Gone, Reason::Starting];
    let ready = find(&status.conditions, READY);
    let is_drivers = |ready: &&Condition| of_driver.iter().any(|reason| ready.reason == reason.as_str());
    match ready.filter(is_drivers) {
        Some(ready) => Health::Ill(run, status.last_error.clone().unwrap_or_else(|| ready.message.clone())),
        None => Health::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn served() -> Served {
        ("p".into(), "node-1".into(), Service::Node)
    }

    fn ill(pod: &str) -> Health {
        Health::Ill((pod.into(), Time(jiff::Timestamp::UNIX_EPOCH)), "it does not answer".into())
    }

    /// Seconds until the Pod is to be ended.
    async fn until_due(seen: &mut Illnesses, pod: &str) -> u64 {
        for second in 0.. {
            if seen.is_due(&served(), &ill(pod), TIMEOUT) {
                return second;
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        unreachable!()
    }

    #[tokio::test(start_paused = true)]
    async fn each_pod_that_does_not_help_has_twice_as_long_as_the_one_before() {
        let mut seen = Illnesses::default();
        for (pod, long) in [("a", 120), ("b", 240), ("c", 480)] {
            assert_eq!(until_due(&mut seen, pod).await, long);
            seen.ended(&served(), TIMEOUT);
            assert_eq!(seen.are_helped(&served()), 1);
            // While it ends, and the next one starts.
            assert!(!seen.is_due(&served(), &Health::Unknown, TIMEOUT));
            tokio::time::advance(Duration::from_secs(1000)).await;
        }
        assert!(!seen.is_due(&served(), &Health::Well, TIMEOUT));
        assert_eq!(seen.are_helped(&served()), 0);
        assert_eq!(until_due(&mut seen, "d").await, 120, "it was well in between");
    }

    /// The storage of all nodes is away, and no Pod is to blame.
    #[tokio::test(start_paused = true)]
    async fn where_all_are_ill_a_few_are_ended_at_a_time() {
        let mut seen = Illnesses::default();
        let nodes: Vec<Served> = (0..20).map(|n| ("p".into(), n.to_string(), Service::Node)).collect();
        let mut ended = Vec::new();
        for second in 0..600 {
            ended.extend(seen.due(&nodes).into_iter().map(|served| (second, served.1)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let when: Vec<_> = ended.iter().map(|(second, _)| *second).collect();
        assert_eq!(when, [120, 120, 360, 360], "two, and two others when those have had their time");
        let who: std::collections::BTreeSet<_> = ended.iter().map(|(_, node)| node).collect();
        assert_eq!(who.len(), 4);
    }

    impl Illnesses {
        /// Those that are ended now, if all of these are ill.
        fn due(&mut self, all: &[Served]) -> Vec<Served> {
            let due = all.iter().filter(|served| self.is_due(served, &ill(&served.1), TIMEOUT));
            let due: Vec<_> = due.cloned().collect();
            self.first(due, |served| (served.clone(), TIMEOUT))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_seen_without_a_break_does_not_count() {
        let mut seen = Illnesses::default();
        for health in [
            Health::Unknown,
            Health::Well,
            Health::Ill(("a".into(), Time(jiff::Timestamp::MAX)), String::new()),
        ] {
            assert!(!seen.is_due(&served(), &ill("a"), TIMEOUT));
            tokio::time::advance(Duration::from_secs(119)).await;
            assert!(!seen.is_due(&served(), &health, TIMEOUT));
            tokio::time::advance(Duration::from_secs(10)).await;
            assert!(!seen.is_due(&served(), &ill("a"), TIMEOUT), "it began anew");
            seen.0.clear();
        }
    }
}
