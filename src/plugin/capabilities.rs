//! What may be relied on that a driver can do, by what its instances list.

use super::seen::Seen;
use crate::api::instance::{Capabilities, Service};

/// What is known of the driver. One that is not well now has not become another one: what it last said stands, which is
/// `before`. One that is well and has given up a service says so.
pub(super) fn known(
    healthy: &[&Seen<'_>],
    controls: impl Fn(&Seen<'_>) -> bool,
    is_unknown: impl Fn(Service) -> bool,
    before: Capabilities,
) -> Capabilities {
    let now = common_capabilities(healthy, controls);
    Capabilities {
        plugin: if healthy.is_empty() { before.plugin } else { now.plugin },
        controller: if is_unknown(Service::Controller) { before.controller } else { now.controller },
        group_controller: if is_unknown(Service::Controller) {
            before.group_controller
        } else {
            now.group_controller
        },
        node: if is_unknown(Service::Node) { before.node } else { now.node },
    }
}

/// What every healthy instance lists: during an upgrade only the common part may be relied on. Of two processes on a node
/// one may not be healthy, and of the Controller service only those count that `controls` selects.
fn common_capabilities(healthy: &[&Seen<'_>], controls: impl Fn(&Seen<'_>) -> bool) -> Capabilities {
    let (mut controllers, mut nodes, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for seen in healthy {
        let (status, said) = (seen.status, &seen.status.capabilities);
        if status.node && status.is_healthy_for(Service::Node) {
            nodes.push(&said.node);
        }
        if controls(seen) && status.is_healthy_for(Service::Controller) {
            controllers.push(said);
        }
        // One that does not serve the Controller service mostly says nothing about it.
        if !status.controller && !said.plugin.is_empty() {
            others.push(&said.plugin);
        }
    }
    Capabilities {
        plugin: common(controllers.iter().map(|said| &said.plugin).chain(others)),
        controller: common(controllers.iter().map(|said| &said.controller)),
        group_controller: common(controllers.iter().map(|said| &said.group_controller)),
        node: common(nodes.into_iter()),
    }
}

/// The entries that every one of these lists has.
fn common<'a>(mut lists: impl Iterator<Item = &'a Vec<String>>) -> Vec<String> {
    let first = lists.next().cloned().unwrap_or_default();
    lists.fold(first, |mut common, next| {
        common.retain(|capability| next.contains(capability));
        common
    })
}
