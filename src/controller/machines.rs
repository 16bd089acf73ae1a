//! Which machines are remembered under the name of a node by the observer of Leases: those that some object still
//! speaks of.
//!
//! A node writes the UID of its Node into its Lease and into its PluginInstances by itself, and may write another one
//! each time.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use k8s_openapi::api::coordination::v1::Lease;

use super::caches::{BY_AGENT, BY_NODE, node_of_lease};
use super::context::Context;
use crate::api::names::agent_lease_name;
use crate::api::{Attachment, PluginInstance};
use crate::heartbeat::LeaseObserver;
use crate::heartbeat::lease::NODE_UID;
use crate::k8s::Cache;
use crate::k8s::node::LeanNode;

/// The caches whose objects speak of machines.
struct Machines {
    nodes: Arc<Cache<LeanNode>>,
    attachments: Arc<Cache<Attachment>>,
    instances: Weak<Cache<PluginInstance>>,
    leases: Arc<LeaseObserver>,
}

/// Has the observer of Leases forget machines of which no object speaks any more.
pub(crate) fn connect(ctx: &Context) {
    connect_to(&ctx.lease_cache, &ctx.nodes, &ctx.attachments, &ctx.instances, &ctx.leases);
}

fn connect_to(
    lease_cache: &Cache<Lease>,
    nodes: &Arc<Cache<LeanNode>>,
    attachments: &Arc<Cache<Attachment>>,
    instances: &Arc<Cache<PluginInstance>>,
    leases: &Arc<LeaseObserver>,
) {
    let machines = Arc::new(Machines {
        nodes: Arc::clone(nodes),
        attachments: Arc::clone(attachments),
        instances: Arc::downgrade(instances),
        leases: Arc::clone(leases),
    });
    let of_lease = Arc::clone(&machines);
    lease_cache.on_change(move |before, after| {
        if let Some(lease) = after.filter(|after| before.map(|b| said(b)) != Some(said(after)))
            && let Some(node) = node_of_lease(&of_lease.nodes, lease)
        {
            of_lease.keep(&node);
        }
    });
    instances.on_change(move |before, after| {
        if let (Some(gone), None) = (before, after) {
            machines.keep(&gone.spec.agent);
        }
    });
}

fn said(lease: &Lease) -> Option<&String> {
    lease.metadata.annotations.as_ref()?.get(NODE_UID)
}

impl Machines {
    fn keep(&self, node: &str) {
        let now = self.nodes.get(node).map(|node| node.uid().to_owned());
        let attached = self.attachments.by_index(BY_NODE, node);
        let served = self.instances.upgrade().map(|all| all.by_index(BY_AGENT, node)).unwrap_or_default();
        let known: HashSet<String> = attached
            .iter()
            .map(|a| a.spec.fixed.node_uid.clone())
            .chain(served.iter().map(|i| i.spec.node_uid.clone()))
            .chain(now)
            .collect();
        self.leases.keep(&agent_lease_name(node), |uid| known.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    use super::super::caches::{attachment_cache, instance_cache};
    use super::*;
    use crate::api::attachment::{AttachmentSpec, Fixed};
    use crate::api::instance::PluginInstanceSpec;

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
        let (lease_cache, nodes) = (Cache::new(&["leases"]), Arc::new(Cache::new(&["nodes"])));
        let (attachments, instances) = (Arc::new(attachment_cache()), Arc::new(instance_cache()));
        let leases: Arc<LeaseObserver> = Arc::default();
        let observer = Arc::clone(&leases);
        lease_cache.on_change(move |before, after| observer.changed(before, after));
        connect_to(&lease_cache, &nodes, &attachments, &instances, &leases);
        let mut node: LeanNode = serde_json::from_str(r#"{"metadata": {}}"#).unwrap();
        node.metadata.name = Some(NODE.into());
        node.metadata.uid = Some("now".into());
        node.metadata.resource_version = Some("1".into());
        nodes.apply(node);
        let fixed = Fixed { node_uid: "attached".into(), ..Fixed::default() };
        let spec = AttachmentSpec { node_name: NODE.into(), fixed, ..AttachmentSpec::default() };
        let mut attachment = Attachment::new("a", spec);
        attachment.metadata.uid = Some("a".into());
        attachment.metadata.resource_version = Some("1".into());
        attachments.apply(attachment);
        let spec = PluginInstanceSpec {
            node_name: NODE.into(),
            agent: NODE.into(),
            node_uid: "served".into(),
            ..PluginInstanceSpec::default()
        };
        let mut instance = PluginInstance::new("i", spec);
        instance.metadata.uid = Some("i".into());
        instance.metadata.resource_version = Some("1".into());
        instances.apply(instance);

        let mut version = 0;
        let mut renew = |uid: &str| {
            for _ in 0..2 {
                version += 1;
                lease_cache.apply(lease(uid, version));
            }
        };
        let heard = |uid: &str| leases.is_heard(&agent_lease_name(NODE), uid);
        for uid in ["attached", "served", "now", "made-up", "made-up-too", "last"] {
            renew(uid);
        }
        let all = ["attached", "served", "now", "made-up", "made-up-too", "last"].map(heard);
        assert_eq!(all, [true, true, true, false, false, true]);
        instances.remove_confirmed("i");
        assert_eq!(["attached", "served", "now", "last"].map(heard), [true, false, true, true]);
    }
}
