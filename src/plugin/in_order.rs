//! What is out of order with a Plugin's instances, in words for its InstancesInOrder condition.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::belief::{counts, twins};
use crate::api::conditions::{Desired, Reason, first_few};
use crate::api::instance::ForgottenMount;
use crate::api::{Plugin, PluginInstance};

/// Most objects that are named of one kind; there may be as many as nodes.
const MOST: usize = 4;

/// Says which instances do not count, or not for all that they say, and which keep volumes from other nodes. `may_control`
/// is what [`super::may_control`] says of their nodes, `stands` whether the Node of an instance is there and in service.
#[must_use]
pub fn in_order(
    plugin: &Plugin,
    instances: &[Arc<PluginInstance>],
    may_control: impl Fn(&PluginInstance) -> bool,
    stands: impl Fn(&PluginInstance) -> bool,
) -> Desired {
    let driver = plugin.driver_name();
    let (counted, others): (Vec<_>, Vec<_>) = instances.iter().partition(|i| counts(i, driver));
    let found = [
        not_counted(driver, &others),
        not_selected(&counted, may_control),
        same_node_id(&counted, stands),
        forgotten(&counted),
    ];
    let found: Vec<(Reason, String)> = found.into_iter().flatten().collect();
    let message: Vec<_> = found.iter().map(|(_, message)| message.as_str()).collect();
    match found.first() {
        Some((reason, _)) => Desired::new(*reason, message.join(". ")),
        None => Desired::new(Reason::InOrder, "every PluginInstance counts for what it says"),
    }
}

type Finding = Option<(Reason, String)>;

fn not_counted(driver: &str, others: &[&Arc<PluginInstance>]) -> Finding {
    let names = list(others.iter().filter_map(|i| i.metadata.name.as_deref()))?;
    let message = format!(
        "PluginInstance {names} counts nowhere: it is of another driver than {driver}, or not named as the agent of its \
         node names it; delete it unless it is of a Plugin that was here before"
    );
    Some((Reason::NotCounted, message))
}

fn not_selected(counted: &[&Arc<PluginInstance>], may_control: impl Fn(&PluginInstance) -> bool) -> Finding {
    let serves = |i: &PluginInstance| i.status.as_ref().is_some_and(|s| s.controller);
    let left_out = counted.iter().filter(|i| serves(i) && !may_control(i));
    let nodes = list(left_out.map(|i| i.spec.node_name.as_str()))?;
    let message = format!(
        "node {nodes} serves the Controller service and is not selected by spec.controllerNodes: it is given no new \
         volumes, and what it was given before is taken over by one that is, when one is healthy and none of its calls runs"
    );
    Some((Reason::NotSelected, message))
}

fn same_node_id(counted: &[&Arc<PluginInstance>], stands: impl Fn(&PluginInstance) -> bool) -> Finding {
    let all = counted.iter().filter(|i| stands(i)).map(|i| &***i);
    let nodes = list(twins(all).into_keys())?;
    let message = format!(
        "nodes {nodes} have a node id at the driver that another of them has too, and get no new claims; start the driver \
         on each with an id of its own, or delete the Node of a machine that is gone"
    );
    Some((Reason::SharedNodeID, message))
}

fn forgotten(counted: &[&Arc<PluginInstance>]) -> Finding {
    let mounts = |i: &PluginInstance| -> Vec<ForgottenMount> {
        i.status.as_ref().map(|s| s.forgotten.clone()).unwrap_or_default()
    };
    // What is only named comes after what is described.
    let report = counted.iter().filter(|i| !mounts(i).is_empty());
    let names = list(report.filter_map(|i| i.metadata.name.as_deref()))?;
    let unknown = counted.iter().flat_map(|i| mounts(i)).filter(|m| m.handle_name.is_empty()).count();
    let unknown = match unknown {
        0 => String::new(),
        n => format!(
            "; of {n} of them the record does not say which volume it is: if the Attachment with that attachmentUID is gone, \
             nothing keeps that one from another node"
        ),
    };
    let message = format!(
        "PluginInstance {names} reports mounts that the API server does not account for: their volumes are granted on no \
         other node before they are undone, the node is rebooted, or it is off and marked out-of-service or its Node \
         deleted (see status.forgotten){unknown}"
    );
    Some((Reason::ForgottenMounts, message))
}

/// The first few in their order, and how many more there are; None of none.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let all: BTreeSet<&str> = names.collect();
    (!all.is_empty()).then(|| first_few(all, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::{PluginInstanceSpec, PluginInstanceStatus};
    use crate::api::names::{DriverOn, instance_name};
    use crate::api::plugin::PluginSpec;

    fn instance(node: &str, id: &str, forgotten: &[&str]) -> Arc<PluginInstance> {
        let spec = PluginInstanceSpec {
            driver_name: "d".into(),
            node_name: node.into(),
            agent: node.into(),
            ..PluginInstanceSpec::default()
        };
        let mut instance = PluginInstance::new(&instance_name(DriverOn { driver: "d", node }), spec);
        let mount = |name: &&str| ForgottenMount { handle_name: (*name).into(), ..ForgottenMount::default() };
        instance.status = Some(PluginInstanceStatus {
            controller: true,
            node: true,
            node_id: id.into(),
            forgotten: forgotten.iter().map(mount).collect(),
            ..PluginInstanceStatus::default()
        });
        Arc::new(instance)
    }

    fn said(all: &[Arc<PluginInstance>], control: &[&str], off: &[&str]) -> (bool, Reason, String) {
        let plugin = Plugin::new("d", PluginSpec::default());
        let controls = |i: &PluginInstance| control.contains(&i.spec.node_name.as_str());
        let stands = |i: &PluginInstance| !off.contains(&i.spec.node_name.as_str());
        let said = in_order(&plugin, all, controls, stands);
        (said.reason.group().status, said.reason, said.message)
    }

    #[test]
    fn what_does_not_count_is_named() {
        let all = [instance("a", "1", &[]), instance("b", "2", &[])];
        assert_eq!(said(&all, &["a", "b"], &[]).1, Reason::InOrder);
        let (status, reason, message) = said(&all, &["a"], &[]);
        assert!(!status && reason == Reason::NotSelected && message.contains("node b "), "{message}");

        let mut foreign = Arc::unwrap_or_clone(instance("c", "3", &[]));
        foreign.metadata.name = Some("c-evil".into());
        let (_, reason, message) = said(&[all[0].clone(), Arc::new(foreign)], &["a"], &[]);
        assert!(reason == Reason::NotCounted && message.contains("c-evil"), "{message}");
        assert!(!message.contains("controllerNodes"), "what does not count serves nothing: {message}");
    }

    #[test]
    fn who_holds_up_others_is_named_while_it_does() {
        let twins = [instance("a", "1", &[]), instance("b", "1", &[])];
        let (_, reason, message) = said(&twins, &["a", "b"], &[]);
        assert!(reason == Reason::SharedNodeID && message.contains("a, b"), "{message}");
        assert_eq!(said(&twins, &["a", "b"], &["b"]).1, Reason::InOrder, "its machine is off");

        let (_, reason, message) = said(&[instance("a", "1", &["h"])], &["a"], &[]);
        assert!(
            reason == Reason::ForgottenMounts && !message.contains("does not say which volume"),
            "{message}"
        );
        let (.., message) = said(&[instance("a", "1", &["h", "", ""])], &["a"], &[]);
        assert!(message.contains("of 2 of them the record does not say which volume"), "{message}");
    }

    #[test]
    fn of_many_a_few_are_named_and_all_reasons_are() {
        let all: Vec<_> = (0..9).map(|n| instance(&format!("n{n}"), "same", &["h"])).collect();
        let (.., message) = said(&all, &[], &[]);
        for words in ["n0, n1, n2, n3 and 5 more", "spec.controllerNodes", "node id", "does not account for"]
        {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert!(message.len() < crate::api::conditions::MAX_MESSAGE, "{}", message.len());
    }
}
