//! The drivers: Plugins, their instances and sockets, and what kubelets are told of them.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::CSIDriver;
use kube::ResourceExt as _;

use super::facts::Facts;
use super::finding::Finding;
use super::install::{agent_set, named};
use crate::api::conditions::{READY, find};
use crate::api::names::INLINE;
use crate::api::{Plugin, PluginInstance};
use crate::heartbeat::{Answer, Sockets};
use crate::plugin::csi_driver::{CsiDriverStep, plan, serves_inline};
use crate::plugin::pods::served_as;

/// All checks of this file.
pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut found = drivers(facts);
    found.extend([sockets(facts), csi_drivers(facts), inline(facts)]);
    found
}

/// One finding for each Plugin.
fn drivers(facts: &Facts) -> Vec<Finding> {
    const WHAT: &str = "drivers";
    let (plugins, instances) = match (&facts.plugins, &facts.instances) {
        (Err(why), _) | (_, Err(why)) => return vec![Finding::not_checked(WHAT, why)],
        (Ok(plugins), Ok(instances)) => (plugins, instances),
    };
    if plugins.is_empty() {
        let remedy = "make a Plugin for each driver that moor is to use";
        return vec![Finding::warning(WHAT, "there is no Plugin", remedy)];
    }
    plugins.iter().map(|plugin| driver(WHAT, plugin, instances)).collect()
}

fn driver(what: &'static str, plugin: &Plugin, instances: &[PluginInstance]) -> Finding {
    let name = plugin.name_any();
    let own: Vec<_> = instances.iter().filter(|instance| instance.spec.plugin_name == name).collect();
    let waits = |instance: &&&PluginInstance| {
        let kubelet = instance.status.as_ref().and_then(|status| status.kubelet.as_ref());
        kubelet.is_some_and(|kubelet| !kubelet.registered && kubelet.message.is_none())
    };
    let pending: Vec<_> = own.iter().filter(waits).map(|instance| instance.spec.node_name.clone()).collect();
    let ill: Vec<_> = own.iter().filter_map(|instance| wrong_with(instance)).collect();
    let conditions = plugin.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let remedy = format!("see kubectl moor status plugin {name}");
    if own.is_empty() {
        let why = find(conditions, READY).map(|ready| format!(": {}", ready.message)).unwrap_or_default();
        return Finding::fault(what, format!("{name} has no instance on any node{why}"), remedy);
    }
    match find(conditions, READY) {
        _ if !ill.is_empty() => {
            let said =
                format!("{name}: {} of {} instances are not well: {}", ill.len(), own.len(), named(&ill));
            Finding::fault(what, said, remedy)
        }
        Some(ready) if ready.status != "True" => {
            Finding::fault(what, format!("{name}: {}: {}", ready.reason, ready.message), remedy)
        }
        None => {
            Finding::fault(what, format!("{name}: nothing is said of it yet"), "see the controller's logs")
        }
        Some(_) if !pending.is_empty() => {
            let said =
                format!("{name}: kubelet has not said yet whether it comes to moor on {}", named(&pending));
            Finding::warning(what, said, "if that stays so, see kubelet's log there for its plugin watcher")
        }
        Some(_) => Finding::ok(what, format!("{name}: {} instances, all well", own.len())),
    }
}

/// What is wrong with an instance, or with how kubelet is served there.
fn wrong_with(instance: &PluginInstance) -> Option<String> {
    let node = &instance.spec.node_name;
    let Some(status) = &instance.status else { return Some(format!("{node}: nothing is said of it yet")) };
    if !status.healthy {
        return Some(format!("{node}: {}", status.last_error.as_deref().unwrap_or("it is not healthy")));
    }
    let kubelet = status.kubelet.as_ref().filter(|kubelet| !kubelet.registered)?;
    let why = kubelet.message.as_deref()?;
    Some(format!("{node}: kubelet does not come to moor for {}: {why}", kubelet.driver_name))
}

/// What agents have found where they look for drivers.
fn sockets(facts: &Facts) -> Finding {
    const WHAT: &str = "sockets";
    let leases = match &facts.leases {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(leases) => leases,
    };
    let said: Vec<_> =
        leases.iter().filter_map(|lease| Some((lease.name_any(), Sockets::said_in(lease)?))).collect();
    if said.is_empty() {
        return Finding::not_checked(WHAT, "no agent has said what it has found");
    }
    let mut wrong = Vec::new();
    let mut answering = 0;
    for (lease, sockets) in &said {
        let node = lease.strip_prefix(crate::api::names::AGENTS).unwrap_or(lease);
        for socket in &sockets.found {
            let why = match &socket.answer {
                Answer::Driver(_) => {
                    answering += 1;
                    continue;
                }
                // moor makes none of them, and whoever does not run leaves them.
                Answer::NobodyListens => "nobody listens".to_owned(),
                Answer::Hangs => "the folder does not answer".to_owned(),
                Answer::NoSocket(what) => format!("it is {what}"),
                Answer::Nameless(why) => format!("it has not said a driver's name: {why}"),
            };
            wrong.push(format!("{node} {}: {why}", socket.path));
        }
    }
    let said = format!("{answering} of drivers answer on {} nodes", said.len());
    if wrong.is_empty() {
        return Finding::ok(WHAT, said);
    }
    let said = format!("{said}; not so {}: {}", wrong.len(), named(&wrong));
    Finding::warning(
        WHAT,
        said,
        "start those drivers, or remove what they have left; other programs' sockets do no harm",
    )
}

/// What kubelets are told of drivers whose volumes moor gives to Pods.
fn csi_drivers(facts: &Facts) -> Finding {
    const WHAT: &str = "CSIDrivers";
    let (plugins, found) = match (&facts.plugins, &facts.csi_drivers) {
        (Err(why), _) | (_, Err(why)) => return Finding::not_checked(WHAT, why),
        (Ok(plugins), Ok(found)) => (plugins, found),
    };
    let all: Vec<_> = plugins.iter().cloned().map(Arc::new).collect();
    let mut names: Vec<_> = all.iter().filter_map(|plugin| plugin.kubelet_name()).collect();
    names.sort_unstable();
    names.dedup();
    let mut wrong = Vec::new();
    for name in &names {
        let plugin = served_as(name, &all);
        let there = found.iter().find(|driver| driver.name_any() == **name);
        wrong.extend(match plan(name, plugin.map(AsRef::as_ref), there) {
            CsiDriverStep::Nothing => there.and_then(|there| is_leaving(there, name)),
            CsiDriverStep::Create(_) => Some(format!("{name} is not there")),
            CsiDriverStep::Correct(_) => Some(format!("{name} says otherwise than its Plugin")),
            CsiDriverStep::Delete => Some(format!("{name} has to be made anew")),
            CsiDriverStep::Conflict(words) => Some(words),
        });
    }
    match (names.len(), wrong.is_empty()) {
        (0, _) => Finding::ok(WHAT, "no Plugin is served to Pods"),
        (count, true) => Finding::ok(WHAT, format!("{count} served to Pods, each as its Plugin says")),
        (_, false) => Finding::fault(
            WHAT,
            wrong.join("; "),
            "the controller puts its own right in a moment; where that does not happen see its logs",
        ),
    }
}

fn is_leaving(there: &CSIDriver, name: &str) -> Option<String> {
    there.metadata.deletion_timestamp.is_some().then(|| format!("{name} is being deleted"))
}

/// The driver by which Pods name volumes themselves.
fn inline(facts: &Facts) -> Finding {
    const WHAT: &str = "inline volumes";
    let found = match (&facts.daemon_sets, &facts.csi_drivers) {
        (Err(why), _) | (_, Err(why)) => return Finding::not_checked(WHAT, why),
        (Ok(_), Ok(found)) => found,
    };
    let Some(set) = agent_set(facts) else {
        return Finding::not_checked(WHAT, "the agents' DaemonSet is not there");
    };
    let containers =
        set.spec.iter().filter_map(|spec| spec.template.spec.as_ref()).flat_map(|spec| &spec.containers);
    let is_on =
        containers.flat_map(|container| container.args.iter().flatten()).any(|arg| arg == "--inline-volumes");
    let there = found.iter().find(|driver| driver.name_any() == INLINE);
    match (is_on, there.map(serves_inline)) {
        (true, Some(true)) => Finding::ok(WHAT, format!("CSIDriver {INLINE} is there")),
        (false, None) => Finding::ok(WHAT, "are switched off"),
        (true, _) => Finding::fault(
            WHAT,
            format!("agents serve them, and there is no CSIDriver {INLINE} as the chart has it"),
            "upgrade the chart: without it kubelets refuse Pods that name volumes themselves",
        ),
        (false, Some(_)) => Finding::warning(
            WHAT,
            format!("CSIDriver {INLINE} is there, and agents do not serve them"),
            format!("set inlineVolumes of the chart, or delete it: kubectl delete csidriver {INLINE}"),
        ),
    }
}
