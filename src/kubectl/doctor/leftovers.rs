//! What an earlier installation, a node or a deletion has left.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::{Resource, ResourceExt as _};

use super::super::words::{age, full_name};
use super::facts::{Facts, Seen};
use super::finding::Finding;
use super::install::{AGENT, named};
use crate::api::names::agent_of_lease;
use crate::plugin::csi_driver::plugin_of;

/// How long a deletion may take before it is told of, in seconds.
const LONG: i64 = 600;

/// All checks of this file.
pub fn check(facts: &Facts) -> Vec<Finding> {
    vec![others(facts), of_nodes(facts), of_plugins(facts), leaving(facts)]
}

/// Two installations would fight for every object.
fn others(facts: &Facts) -> Finding {
    const WHAT: &str = "other installations";
    let sets = match &facts.daemon_sets {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(sets) => sets,
    };
    let elsewhere = |set: &&k8s_openapi::api::apps::v1::DaemonSet| {
        set.name_any() == AGENT && set.namespace().as_deref() != Some(facts.namespace.as_str())
    };
    let found: Vec<_> = sets.iter().filter(elsewhere).map(|set| full_name(&set.metadata)).collect();
    if !found.is_empty() {
        let said = format!("DaemonSet {} beside that of namespace {}", named(&found), facts.namespace);
        return Finding::fault(WHAT, said, "one moor serves a cluster: uninstall the others");
    }
    if facts.sees_everywhere {
        Finding::ok(WHAT, "none")
    } else {
        Finding::not_checked(WHAT, format!("only DaemonSets of namespace {} are seen", facts.namespace))
    }
}

/// What stands for nodes that are not there.
fn of_nodes(facts: &Facts) -> Finding {
    const WHAT: &str = "left of nodes";
    let (nodes, leases, instances) = match (&facts.nodes, &facts.leases, &facts.instances) {
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Finding::not_checked(WHAT, why),
        (Ok(nodes), Ok(leases), Ok(instances)) => (nodes, leases, instances),
    };
    let there: BTreeSet<_> =
        nodes.iter().map(|node| (node.name_any(), node.uid().unwrap_or_default())).collect();
    let has = |name: &str| there.iter().any(|(node, _)| node == name);
    let of_leases = leases.iter().filter_map(|lease| {
        let name = lease.name_any();
        let node = agent_of_lease(&name)?;
        (!has(node)).then(|| format!("Lease {name}"))
    });
    let of_instances = instances.iter().filter(|instance| {
        !there.contains(&(instance.spec.node_name.clone(), instance.spec.node_uid.clone()))
    });
    let left: Vec<_> = of_leases
        .chain(of_instances.map(|instance| format!("PluginInstance {}", instance.name_any())))
        .collect();
    if left.is_empty() {
        return Finding::ok(WHAT, "nothing");
    }
    let said = format!("no such Node is there any more: {}", named(&left));
    Finding::warning(
        WHAT,
        said,
        "the controller removes them when nothing of that node can be running; see docs/node-loss.md where volumes wait for it",
    )
}

/// What stands for Plugins that are not there.
fn of_plugins(facts: &Facts) -> Finding {
    const WHAT: &str = "left of Plugins";
    let (plugins, drivers, instances) = match (&facts.plugins, &facts.csi_drivers, &facts.instances) {
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Finding::not_checked(WHAT, why),
        (Ok(plugins), Ok(drivers), Ok(instances)) => (plugins, drivers, instances),
    };
    let has = |name: &str| plugins.iter().any(|plugin| plugin.name_any() == name);
    let of_drivers = drivers.iter().filter(|driver| plugin_of(driver).is_some_and(|plugin| !has(plugin)));
    let of_instances = instances.iter().filter(|instance| !has(&instance.spec.plugin_name));
    let left: Vec<_> = of_drivers
        .map(|driver| format!("CSIDriver {}", driver.name_any()))
        .chain(of_instances.map(|instance| format!("PluginInstance {}", instance.name_any())))
        .collect();
    if left.is_empty() {
        return Finding::ok(WHAT, "nothing");
    }
    let said = format!("their Plugins are not there: {}", named(&left));
    Finding::warning(
        WHAT,
        said,
        "controller and agents remove them when they run; without them delete them by hand",
    )
}

/// What has been on its way out for long: a finalizer holds it, and somebody has to take it off.
fn leaving(facts: &Facts) -> Finding {
    const WHAT: &str = "deletions";
    let now = facts.now();
    let found = [
        old(now, &facts.plugins),
        old(now, &facts.volumes),
        old(now, &facts.snapshots),
        old(now, &facts.claims),
        old(now, &facts.attachments),
    ];
    let mut all = Vec::new();
    for found in found {
        match found {
            Err(why) => return Finding::not_checked(WHAT, why),
            Ok(found) => all.extend(found),
        }
    }
    if all.is_empty() {
        return Finding::ok(WHAT, format!("none takes longer than {} minutes", LONG / 60));
    }
    let said = format!("{} take long: {}", all.len(), named(&all));
    Finding::warning(WHAT, said, "each says in its conditions what it waits for: kubectl moor status")
}

fn old<K: Resource<DynamicType = ()>>(now: Timestamp, all: &Seen<Vec<K>>) -> Seen<Vec<String>> {
    let all = all.as_ref().map_err(Clone::clone)?;
    let since = |object: &K| {
        let at = object.meta().deletion_timestamp.as_ref()?.0;
        let is_long = now.duration_since(at).as_secs() > LONG;
        let name = full_name(object.meta());
        is_long.then(|| format!("{} {name} for {}", K::kind(&()), age(now, at)))
    };
    Ok(all.iter().filter_map(since).collect())
}
