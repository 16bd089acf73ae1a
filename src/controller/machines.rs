//! Which machines are remembered under the name of a node by the observer of Leases: those that some object still
//! speaks of.
//!
//! A node writes the UID of its Node into its Lease and into its PluginInstances by itself, and may write another one
//! each time.

use std::collections::HashSet;

use super::caches::{BY_AGENT, BY_NODE};
use super::known::Known;
use crate::api::names::agent_lease_name;

/// Has the observer of Leases forget the machines under the name of this node of which no object speaks any more.
pub(crate) fn keep(known: &Known, node: &str) {
    let now = known.nodes.get(node).map(|node| node.uid().to_owned());
    let attached = known.attachments.by_index(BY_NODE, node);
    let served = known.instances.by_index(BY_AGENT, node);
    let named: HashSet<String> = attached
        .iter()
        .map(|a| a.spec.fixed.node_uid.clone())
        .chain(served.iter().map(|i| i.spec.node_uid.clone()))
        .chain(now)
        .collect();
    known.leases.keep(&agent_lease_name(node), |uid| named.contains(uid));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

    use super::super::events;
    use super::super::objects_tests::attachment;
    use super::*;
    use crate::api::PluginInstance;
    use crate::api::instance::PluginInstanceSpec;
    use crate::controller::known::site;
    use crate::heartbeat::AgentOnNode;
    use crate::heartbeat::lease::NODE_UID;
    use crate::k8s::node::LeanNode;

    const NODE: &str = "worker";

    fn lease(node_uid: &str, version: usize) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some(agent_lease_name(NODE));
        lease.metadata.uid = Some("lease".into());
        lease.metadata.resource_version = Some(version.to_string());
        lease.metadata.annotations = Some([(NODE_UID.to_owned(), node_uid.to_owned())].into());
        let transitions = i32::try_from(version).ok();
        lease.spec = Some(LeaseSpec { lease_transitions: transitions, ..LeaseSpec::default() });
        lease
    }

    #[tokio::test]
    async fn what_a_node_calls_itself_is_remembered_as_long_as_something_speaks_of_it() {
        let known = Arc::new(Known::new(site(), Duration::ZERO, Duration::ZERO));
        events::connect(&known);
        let mut node: LeanNode = serde_json::from_str(r#"{"metadata": {}}"#).unwrap();
        node.metadata.name = Some(NODE.into());
        node.metadata.uid = Some("now".into());
        node.metadata.resource_version = Some("1".into());
        known.nodes.apply(node);
        let mut attachment = attachment("a", "driver", NODE);
        attachment.spec.fixed.node_uid = "attached".into();
        known.attachments.apply(attachment);
        let spec = PluginInstanceSpec {
            node_name: NODE.into(),
            agent: NODE.into(),
            node_uid: "served".into(),
            ..PluginInstanceSpec::default()
        };
        let mut instance = PluginInstance::new("i", spec);
        instance.metadata.uid = Some("i".into());
        instance.metadata.resource_version = Some("1".into());
        known.instances.apply(instance);

        let mut version = 0;
        let mut renew = |uid: &str| {
            for _ in 0..2 {
                version += 1;
                known.lease_cache.apply(lease(uid, version));
            }
        };
        let heard = |uid: &str| {
            let agent = AgentOnNode { lease: agent_lease_name(NODE), node_uid: uid.into() };
            known.leases.is_heard(&agent)
        };
        let made_up: Vec<String> = (0..6).map(|n| format!("made-up-{n}")).collect();
        for uid in ["attached", "served", "now"].into_iter().chain(made_up.iter().map(String::as_str)) {
            renew(uid);
        }
        assert_eq!(["attached", "served", "now"].map(heard), [true, true, true]);
        assert_eq!(made_up.iter().filter(|uid| heard(uid)).count(), 4, "the last few");
        known.instances.remove_confirmed("i");
        assert_eq!(["attached", "served", "now"].map(heard), [true, false, true]);
    }
}
