//! Decisions about Plugins: what its instances add up to, and what it allows a namespace.
//!
//! Pure: data in, data out.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod allow;
mod belief;
mod capabilities;
pub mod change;
pub mod csi_driver;
pub mod deregistration;
mod in_order;
mod not_found;
pub mod orphans;
mod pod_template;
pub mod pods;
mod ready;
pub mod relief;
pub mod restart;
mod runs;
pub mod secrets;
mod seen;
pub mod withdrawal;
pub mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use belief::{counts, may_control, older, twins};
pub use in_order::in_order;
pub use not_found::not_found;
pub use pods::{Around, has_conflict, is_kept_from_pods, pods_served, served_as, takes_second_writer};
pub use runs::{Runs, RunsOf};

use crate::api::conditions::Desired;
use crate::api::instance::Service;
use crate::api::{Plugin, PluginInstance, PluginStatus};
use crate::heartbeat::Sockets;
use ready::ready;
use seen::Seen;

/// What a Plugin's status should say, without conditions, and its Ready condition. `older` is the Plugin that has its
/// driver, `runs` what moor runs of it, `selected` what [`may_control`] says of the nodes of its instances, `silent` whether the agent beside an instance is
/// not heard any more: then the last that it said of its driver counts for nothing. `sockets` is what agents that are heard
/// have found, by their nodes.
#[must_use]
pub fn aggregate(
    plugin: &Plugin,
    instances: &[Arc<PluginInstance>],
    older: Option<&str>,
    runs: &Runs,
    selected: impl Fn(&PluginInstance) -> bool,
    silent: impl Fn(&PluginInstance) -> bool,
    sockets: impl FnOnce() -> Vec<(String, Sockets)>,
) -> (PluginStatus, Desired) {
    let counted = instances.iter().filter(|i| counts(i, plugin.driver_name()));
    let said = counted.filter_map(|i| Some((i, i.status.as_ref()?)));
    let seen: Vec<Seen<'_>> =
        said.map(|(instance, status)| Seen { instance, status, silent: silent(instance) }).collect();
    let healthy: Vec<&Seen<'_>> =
        seen.iter().filter(|s| !s.silent && s.status.is_healthy_for_any()).collect();
    let count = |service, of: &dyn Fn(&Seen<'_>) -> bool| {
        let known = seen.iter().filter(|seen| of(seen)).count();
        let well = healthy.iter().filter(|seen| of(seen) && seen.status.is_healthy_for(service)).count();
        (i64::try_from(well).unwrap_or(i64::MAX), i64::try_from(known).unwrap_or(i64::MAX))
    };
    let controls = |seen: &Seen<'_>| seen.status.controller && selected(seen.instance);
    let (controllers_healthy, controllers_known) = count(Service::Controller, &controls);
    let (nodes_healthy, nodes_known) = count(Service::Node, &|seen| seen.status.node);
    let controllers_expected = runs.controller.wanted().unwrap_or(controllers_known);
    let nodes_expected = runs.node.wanted().unwrap_or(nodes_known);
    let versions: BTreeSet<&str> = healthy.iter().map(|s| s.status.version.as_str()).collect();
    let version = versions.into_iter().filter(|v| !v.is_empty()).collect::<Vec<_>>().join(",");
    let before = plugin.status.clone().unwrap_or_default();
    let is_unknown = |service| {
        let (well, known) = match service {
            Service::Controller => (controllers_healthy, controllers_expected),
            Service::Node => (nodes_healthy, nodes_expected),
        };
        let is_declared = service == Service::Controller && plugin.spec.controller.is_some();
        well == 0 && (known > 0 || is_declared || healthy.is_empty())
    };
    let status = PluginStatus {
        driver_name: (!seen.is_empty()).then(|| plugin.driver_name().to_owned()).or(before.driver_name),
        version: if version.is_empty() { before.version } else { Some(version) },
        capabilities: capabilities::known(&healthy, controls, is_unknown, before.capabilities),
        controllers: Some(format!("{controllers_healthy}/{controllers_expected}")),
        nodes: Some(format!("{nodes_healthy}/{nodes_expected}")),
        balancing: before.balancing,
        found_balancing: before.found_balancing,
        active: before.active,
        orphans: before.orphans,
        orphaned_volumes: before.orphaned_volumes,
        orphaned_snapshots: before.orphaned_snapshots,
        controllers_healthy,
        controllers_expected,
        nodes_healthy,
        nodes_expected,
        observed_generation: plugin.metadata.generation,
        conditions: before.conditions,
    };
    let known = (controllers_known, nodes_known);
    let ready = ready(plugin, &status, older, (known, &seen, runs), sockets);
    (status, ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::Reason;
    use crate::api::instance::{Capabilities, PluginInstanceSpec, PluginInstanceStatus, ServiceStatus};
    use crate::api::names::{DriverOn, instance_name};
    use crate::api::plugin::PluginSpec;
    use crate::api::plugin::Roles;

    fn instance(node: &str, healthy: bool, controller: &[&str]) -> Arc<PluginInstance> {
        let names = |all: &[&str]| all.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let spec = PluginInstanceSpec {
            driver_name: "p".into(),
            node_name: node.into(),
            agent: node.into(),
            ..PluginInstanceSpec::default()
        };
        let mut instance = PluginInstance::new(&instance_name(DriverOn { driver: "p", node }), spec);
        instance.status = Some(PluginInstanceStatus {
            healthy,
            controller: !controller.is_empty(),
            node: true,
            capabilities: Capabilities {
                controller: names(controller),
                node: names(&["STAGE_UNSTAGE_VOLUME"]),
                ..Capabilities::default()
            },
            ..PluginInstanceStatus::default()
        });
        Arc::new(instance)
    }

    /// Of a Plugin of which nothing is known yet, on nodes that are all heard.
    fn added_up(instances: &[Arc<PluginInstance>]) -> (PluginStatus, Desired) {
        let plugin = Plugin::new("p", PluginSpec::default());
        aggregate(&plugin, instances, None, &Runs::default(), |_| true, |_| false, Vec::new)
    }

    fn counts(instances: &[Arc<PluginInstance>]) -> (Option<String>, Option<String>, bool) {
        let (status, ready) = added_up(instances);
        (status.controllers, status.nodes, ready.reason.group().status)
    }

    fn said(controllers: &str, nodes: &str, ready: bool) -> (Option<String>, Option<String>, bool) {
        (Some(controllers.into()), Some(nodes.into()), ready)
    }

    fn plugin(name: &str, driver: Option<&str>, second: i64) -> Arc<Plugin> {
        let driver_name = driver.map(str::to_owned);
        let mut plugin = Plugin::new(name, PluginSpec { driver_name, ..PluginSpec::default() });
        let created = jiff::Timestamp::from_second(second).unwrap();
        plugin.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
        Arc::new(plugin)
    }

    #[test]
    fn of_two_plugins_with_one_driver_the_younger_names_the_older() {
        let (first, twin) = (plugin("driver", None, 1), plugin("a", Some("driver"), 1));
        let (last, other) = (plugin("b", Some("driver"), 2), plugin("other", None, 0));
        let all = [last.clone(), other.clone(), first.clone(), twin.clone()];
        assert_eq!(older(&twin, &all), None, "of two of one second the name decides");
        assert_eq!(older(&other, &all), None);
        assert_eq!(older(&first, &all).as_deref(), Some("a"));
        assert_eq!(older(&last, &all).as_deref(), Some("a"));
        assert_eq!(older(&last, &all[..3]).as_deref(), Some("driver"));
        assert_eq!(older(&last, &all[..2]), None);

        let (_, said) = aggregate(
            &last,
            &[instance("1", true, &[])],
            Some("a"),
            &Runs::default(),
            |_| true,
            |_| false,
            Vec::new,
        );
        assert_eq!(said.reason, Reason::DuplicateDriver);
        assert!(said.message.contains("Plugin a is older") && said.message.contains("delete one of the two"));
    }

    /// One process, one object: neither role outlives the other (trap T5).
    #[test]
    fn both_roles_of_a_process_end_together() {
        let attach = ["PUBLISH_UNPUBLISH_VOLUME"];
        assert_eq!(counts(&[instance("1", true, &attach)]), said("1/1", "1/1", true));
        assert_eq!(counts(&[instance("1", false, &attach)]), said("0/1", "0/1", false));
        assert_eq!(counts(&[]), said("0/0", "0/0", false));
    }

    /// What it is for is in the driver's own words.
    #[test]
    fn a_driver_that_fails_when_it_is_asked_is_quoted() {
        let said = |instances: &[Arc<PluginInstance>]| {
            let (_, ready) = added_up(instances);
            (ready.reason, ready.message)
        };
        let failing = |node: &str, known: bool, gone: bool| {
            let mut instance = Arc::unwrap_or_clone(instance(node, false, &[]));
            let status = instance.status.as_mut().unwrap();
            (status.node, status.gone) = (known, gone);
            status.last_error = Some(format!("NodeGetInfo: Internal: no metadata on {node}"));
            Arc::new(instance)
        };
        let quoted = "on node a: NodeGetInfo: Internal: no metadata on a";
        let unknown = said(&[failing("b", false, false), failing("a", false, false)]);
        assert_eq!(unknown, (Reason::Unhealthy, format!("the driver has not said what it can do: {quoted}")));
        let known = said(&[failing("b", true, false), failing("a", true, false)]);
        assert_eq!(known, (Reason::Unhealthy, format!("controllers 0/0, nodes 0/2 healthy; {quoted}")));
        assert_eq!(said(&[failing("a", false, true)]).0, Reason::NoInstance, "it ended");
        assert_eq!(said(&[instance("1", true, &[]), failing("a", true, false)]).0, Reason::Healthy);
    }

    /// What is left of it is well, and serves no claim.
    #[test]
    fn a_plugin_is_not_ready_without_one_of_its_parts() {
        let part = |controller: &[&str], node: bool, says: bool| {
            let mut instance = Arc::unwrap_or_clone(instance("1", true, controller));
            let status = instance.status.as_mut().unwrap();
            status.node = node;
            status.capabilities.plugin = says.then(|| "CONTROLLER_SERVICE".to_owned()).into_iter().collect();
            Arc::new(instance)
        };
        let said = |roles, declares: bool, instance: &Arc<PluginInstance>| {
            let plugin = Plugin::new("p", PluginSpec { roles, ..PluginSpec::default() });
            let nowhere = RunsOf::Pods { wanted: 0, available: 0, is_rolled_out: true };
            let node = if declares { nowhere } else { RunsOf::Nothing };
            let runs = Runs { node, ..Runs::default() };
            aggregate(&plugin, std::slice::from_ref(instance), None, &runs, |_| true, |_| false, Vec::new).1
        };
        let controller = part(&["CREATE_DELETE_VOLUME"], false, true);
        let alone = said(Roles::All, false, &controller);
        assert_eq!(alone.reason, Reason::NoInstance);
        assert!(alone.message.contains("nodes 0/0 healthy; no node plugin"), "{}", alone.message);
        assert!(said(Roles::All, true, &controller).message.contains("nodeSelector"));
        assert_eq!(said(Roles::Controller, false, &controller).reason, Reason::Healthy);
        let mut ill = Arc::unwrap_or_clone(part(&[], false, false));
        let status = ill.status.as_mut().unwrap();
        (status.healthy, status.last_error) = (false, Some("NodeGetInfo: Internal: no metadata".into()));
        let fails = added_up(&[controller.clone(), Arc::new(ill)]).1;
        assert_eq!(fails.reason, Reason::Unhealthy);
        assert!(
            fails.message.ends_with("on node 1: NodeGetInfo: Internal: no metadata"),
            "{}",
            fails.message
        );
        let mut ended = Arc::unwrap_or_clone(part(&[], true, false));
        let status = ended.status.as_mut().unwrap();
        (status.healthy, status.gone) = (false, true);
        let nowhere = RunsOf::Pods { wanted: 0, available: 0, is_rolled_out: true };
        let runs = Runs { node: nowhere, ..Runs::default() };
        let both = [controller.clone(), Arc::new(ended)];
        let plugin = Plugin::new("p", PluginSpec::default());
        let ends = aggregate(&plugin, &both, None, &runs, |_| true, |_| false, Vec::new).1;
        assert_eq!(ends.reason, Reason::NoInstance, "its Pods have ended, and none is to come");
        let node = part(&[], true, true);
        let alone = said(Roles::All, false, &node);
        assert_eq!(alone.reason, Reason::NoController);
        assert!(alone.message.contains("controllers 0/0") && alone.message.contains("spec.roles Node"));
        assert_eq!(said(Roles::Node, false, &node).reason, Reason::Healthy);
        assert_eq!(said(Roles::All, false, &part(&[], true, false)).reason, Reason::Healthy);
    }

    /// Two processes, one object: each service counts as its process does.
    #[test]
    fn the_services_of_two_processes_count_one_by_one() {
        let mut apart = Arc::unwrap_or_clone(instance("1", false, &["PUBLISH_UNPUBLISH_VOLUME"]));
        let row =
            |service, healthy| ServiceStatus { service, socket_path: String::new(), healthy, gone: false };
        let all = [(false, true, "0/1", "1/1"), (true, false, "1/1", "0/1"), (true, true, "1/1", "1/1")];
        for (controller, node, controllers, nodes) in all {
            let status = apart.status.as_mut().unwrap();
            status.healthy = controller && node;
            status.services = vec![row(Service::Controller, controller), row(Service::Node, node)];
            let apart = [Arc::new(apart.clone())];
            assert_eq!(counts(&apart), said(controllers, nodes, controller && node));
            let common = added_up(&apart).0.capabilities;
            assert_eq!((!common.controller.is_empty(), !common.node.is_empty()), (controller, node));
        }
    }

    /// Counted anew from what is there, never added up (trap T10).
    #[test]
    fn what_is_expected_is_what_is_known() {
        let attach = ["PUBLISH_UNPUBLISH_VOLUME"];
        let all = [instance("1", true, &attach), instance("2", false, &[]), instance("3", true, &[])];
        assert_eq!(counts(&all), said("1/1", "2/3", true));
        assert_eq!(counts(&all[..2]), said("1/1", "1/2", true));
        assert_eq!(counts(&all), counts(&all));
    }

    #[test]
    fn what_is_not_well_keeps_its_version_and_what_it_can_do() {
        let of_version = |healthy, controller: &[&str], version: &str| {
            let mut instance = Arc::unwrap_or_clone(instance("1", healthy, controller));
            instance.status.as_mut().unwrap().version = version.to_owned();
            Arc::new(instance)
        };
        let mut plugin = Plugin::new("p", PluginSpec::default());
        let mut after = |instances: &[Arc<PluginInstance>]| {
            let status =
                aggregate(&plugin, instances, None, &Runs::default(), |_| true, |_| false, Vec::new).0;
            plugin.status = Some(status.clone());
            let Capabilities { controller, node, .. } = status.capabilities;
            (status.driver_name, status.version, controller, node)
        };
        let attach = ["PUBLISH_UNPUBLISH_VOLUME"];
        assert_eq!(after(&[]), (None, None, vec![], vec![]));
        let well = after(&[of_version(true, &attach, "v1")]);
        assert_eq!((well.1.as_deref(), well.2.as_slice()), (Some("v1"), &attach.map(str::to_owned)[..]));
        assert_eq!(after(&[of_version(false, &attach, "v2")]), well, "it is ill");
        assert_eq!(after(&[]), well, "it has left");
        let mut apart = Arc::unwrap_or_clone(of_version(false, &attach, "v1"));
        let row =
            |service, healthy| ServiceStatus { service, socket_path: String::new(), healthy, gone: false };
        let services = vec![row(Service::Controller, false), row(Service::Node, true)];
        apart.status.as_mut().unwrap().services = services;
        assert_eq!(after(&[Arc::new(apart)]), well, "its controller is ill");
        let node_alone = after(&[of_version(true, &[], "v2")]);
        assert_eq!(
            node_alone,
            (well.0, Some("v2".into()), vec![], well.3),
            "it has given the Controller service up"
        );
    }

    /// The driver on a node that is cut off, or whose agent was killed, is as its agent said last, for ever.
    #[test]
    fn what_a_silent_agent_said_counts_for_nothing() {
        let attach = ["PUBLISH_UNPUBLISH_VOLUME"];
        let all = [instance("1", true, &attach), instance("2", true, &attach), instance("3", true, &[])];
        let said = |silent: &[&str]| {
            let is_silent = |i: &PluginInstance| silent.contains(&i.spec.node_name.as_str());
            aggregate(
                &Plugin::new("p", PluginSpec::default()),
                &all,
                None,
                &Runs::default(),
                |_| true,
                is_silent,
                Vec::new,
            )
        };
        let (status, ready) = said(&["2", "3"]);
        assert_eq!((status.controllers_healthy, status.nodes_healthy), (1, 1));
        let words = "controllers 1/2, nodes 1/3 healthy; nothing is heard of moor's agent on 2, 3";
        assert_eq!((ready.reason, ready.message.as_str()), (Reason::Healthy, words));
        let (status, ready) = said(&["1", "2"]);
        assert_eq!(status.capabilities.controller, Vec::<String>::new());
        assert_eq!(ready.reason, Reason::Unhealthy);
        assert!(
            ready.message.starts_with("controllers 0/2, nodes 1/3 healthy; nothing"),
            "{}",
            ready.message
        );
    }

    /// Only what all healthy instances have: during an upgrade, and in whatever order they come (trap L15, B20).
    #[test]
    fn a_capability_counts_only_if_every_healthy_instance_has_it() {
        let (old, new) = (["CREATE_DELETE_VOLUME"], ["CREATE_DELETE_VOLUME", "CLONE_VOLUME"]);
        let common = |instances: &[Arc<PluginInstance>]| added_up(instances).0.capabilities.controller;
        assert_eq!(common(&[instance("1", true, &old), instance("2", true, &new)]), old);
        assert_eq!(common(&[instance("1", true, &new), instance("2", true, &old)]), old);
        assert_eq!(common(&[instance("1", false, &old), instance("2", true, &new)]), new);
        let apart = [instance("1", true, &old), instance("2", true, &["LIST_VOLUMES"])];
        assert!(common(&apart).is_empty(), "they have nothing in common");
        let third = [apart[0].clone(), apart[1].clone(), instance("3", true, &old)];
        assert!(common(&third).is_empty(), "and one more does not change that");
        assert_eq!(
            common(&[instance("1", true, &new), instance("2", true, &[])]),
            new,
            "a node-only instance"
        );
    }
}
