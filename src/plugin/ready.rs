//! What a Plugin's Ready condition says. Pure.

use std::collections::BTreeSet;

use super::not_found::not_found;
use super::runs::{Runs, RunsOf};
use super::seen::{Seen, failing};
use crate::api::conditions::{Desired, Reason, first_few};
use crate::api::plugin::Roles;
use crate::api::{Plugin, PluginStatus};
use crate::heartbeat::Sockets;

/// Most nodes that are named.
const MOST: usize = 4;

/// The Ready condition, of what its instances add up to. `controllers_known` and `nodes_known` are those that have said what they serve.
pub(super) fn ready(
    plugin: &Plugin,
    status: &PluginStatus,
    older: Option<&str>,
    ((controllers_known, nodes_known), seen, runs): ((i64, i64), &[Seen<'_>], &Runs),
    sockets: impl FnOnce() -> Vec<(String, Sockets)>,
) -> Desired {
    let driver = plugin.driver_name();
    if let Some(older) = older {
        let message = format!(
            "Plugin {older} is older and has the driver that calls itself {driver}; delete one of the two, or change \
             spec.driverName of one"
        );
        return Desired::new(Reason::DuplicateDriver, message);
    }
    let nothing_known = controllers_known + nodes_known == 0;
    if nothing_known && let Some(error) = failing(seen.iter().filter(|s| !s.status.gone)) {
        return Desired::new(Reason::Unhealthy, format!("the driver has not said what it can do: {error}"));
    }
    if nothing_known {
        return Desired::new(Reason::NoInstance, not_found(plugin, &sockets()));
    }
    if plugin.spec.controller_nodes.is_some() && controllers_known == 0 {
        let message = "no driver on a node that spec.controllerNodes selects serves the Controller service; nothing is \
                       created, registered or attached before one does";
        return Desired::new(Reason::NoController, message);
    }
    let silent = seen.iter().filter(|s| s.silent).map(|s| s.instance.spec.node_name.as_str());
    let silent = silent.chain(runs.unheard.iter().map(String::as_str));
    let silent = match first_few(silent.collect::<BTreeSet<_>>(), MOST) {
        nodes if nodes.is_empty() => nodes,
        nodes => format!("; nothing is heard of moor's agent on {nodes}"),
    };
    let counts = format!(
        "controllers {}/{}, nodes {}/{} healthy{silent}",
        status.controllers_healthy, status.controllers_expected, status.nodes_healthy, status.nodes_expected
    );
    let says = |seen: &Seen<'_>| seen.status.capabilities.plugin.iter().any(|c| c == "CONTROLLER_SERVICE");
    let roles = plugin.spec.roles;
    let has_none = |healthy: i64, expected: i64| healthy == 0 && expected == 0;
    let lacks_controller = roles != Roles::Node
        && has_none(status.controllers_healthy, status.controllers_expected)
        && seen.iter().any(says);
    let lacks_node = roles != Roles::Controller && has_none(status.nodes_healthy, status.nodes_expected);
    if lacks_controller || lacks_node {
        // One that has not said what it serves may be what is missing.
        let unread = seen.iter().filter(|s| !(s.status.gone || s.status.controller || s.status.node));
        if let Some(error) = failing(unread) {
            return Desired::new(Reason::Unhealthy, format!("{counts}; {error}"));
        }
        if lacks_controller {
            let message = format!(
                "{counts}; the driver says that it has a Controller service, and nobody who serves it was found: start it where an \
                 agent runs, or set spec.roles Node if it is to make, attach and delete nothing"
            );
            return Desired::new(Reason::NoController, message);
        }
        let why = match runs.node {
            RunsOf::Pods { .. } => {
                "the Pods of spec.node are to run on no node: look at its nodeSelector and affinity"
            }
            RunsOf::Refused(_) | RunsOf::Waits(_) => {
                "the Pods of spec.node are not there: see its condition Deployed"
            }
            RunsOf::Nothing => {
                "no node plugin of the driver was found on any node: start it where claims are to be"
            }
        };
        return Desired::new(Reason::NoInstance, format!("{counts}; {why}"));
    }
    let lacks = |healthy: i64, known: i64| known > 0 && healthy == 0;
    if lacks(status.controllers_healthy, status.controllers_expected)
        || lacks(status.nodes_healthy, status.nodes_expected)
    {
        let error = failing(seen.iter()).map(|error| format!("; {error}")).unwrap_or_default();
        return Desired::new(Reason::Unhealthy, format!("{counts}{error}"));
    }
    Desired::new(Reason::Healthy, counts)
}
