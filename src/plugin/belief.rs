//! Which PluginInstances count, and for what (rule R13).
//!
//! A PluginInstance is written by the agent beside it, so it is believed only as far as it can be checked: that it is of
//! the node that its agent is on is the admission policy's word, its name is computed, its driver has to be the one that
//! is asked about, and whether its controller calls are wanted is up to the Plugin.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::api::names::{DriverOn, instance_name};
use crate::api::plugin::ControllerNodes;
use crate::api::{Plugin, PluginInstance};

/// The name of an older Plugin that names the same driver, and so has it.
#[must_use]
pub fn older(plugin: &Plugin, all: &[Arc<Plugin>]) -> Option<String> {
    let same = all.iter().filter(|p| p.driver_name() == plugin.driver_name());
    let oldest = same.min_by_key(|p| p.age())?;
    oldest.metadata.name.clone().filter(|_| oldest.age() < plugin.age())
}

/// Whether a PluginInstance counts: it has the name that the agent of its node gives to the instance of this driver.
/// Any other counts nowhere: one node has one, and what is known of it cannot be split or doubled.
#[must_use]
pub fn counts(instance: &PluginInstance, driver: &str) -> bool {
    let spec = &instance.spec;
    spec.driver_name == driver
        && spec.agent == spec.node_name
        && instance.metadata.name.as_deref()
            == Some(instance_name(DriverOn { driver, node: &spec.node_name }).as_str())
}

/// Whether the driver on the node with this name and these labels may be asked to make controller calls. Where the
/// Plugin selects no nodes, every one may.
#[must_use]
pub fn may_control(plugin: &Plugin, node: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
    let Some(ControllerNodes { names, match_labels }) = &plugin.spec.controller_nodes else { return true };
    let has = |(key, value): (&String, &String)| labels.is_some_and(|all| all.get(key) == Some(value));
    names.iter().any(|name| name == node) || (!match_labels.is_empty() && match_labels.iter().all(has))
}

/// The twins of nodes, by the node's name: another node that the driver knows by the same node id. A driver could not
/// tell which of them is meant.
#[must_use]
pub fn twins<'a>(instances: impl IntoIterator<Item = &'a PluginInstance>) -> HashMap<&'a str, &'a str> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let mut twins = HashMap::new();
    for instance in instances {
        let Some(status) = instance.status.as_ref().filter(|s| s.node && !s.node_id.is_empty()) else {
            continue;
        };
        let node = instance.spec.node_name.as_str();
        let other = *first.entry(&status.node_id).or_insert(node);
        if other != node {
            twins.insert(node, other);
            twins.entry(other).or_insert(node);
        }
    }
    twins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::{PluginInstanceSpec, PluginInstanceStatus};
    use crate::api::plugin::PluginSpec;

    fn instance(node: &str, driver: &str) -> PluginInstance {
        let spec = PluginInstanceSpec {
            plugin_name: "p".into(),
            driver_name: driver.into(),
            node_name: node.into(),
            agent: node.into(),
            ..PluginInstanceSpec::default()
        };
        PluginInstance::new(&instance_name(DriverOn { driver, node }), spec)
    }

    #[test]
    fn an_instance_counts_under_its_own_name_for_its_own_driver() {
        let honest = instance("worker", "d");
        assert!(counts(&honest, "d"));
        assert!(!counts(&honest, "other"), "of another driver");
        let mut posing = honest.clone();
        posing.spec.driver_name = "other".into();
        assert!(!counts(&posing, "d"), "under the name of this driver's");
        let named = |name: &str| {
            let mut instance = honest.clone();
            instance.metadata.name = Some(name.into());
            instance
        };
        let neighbours = instance_name(DriverOn { driver: "d", node: "worker-2" });
        for name in ["worker-evil", "worker-000000000000", "worker.evil", &neighbours] {
            assert!(!counts(&named(name), "d"), "{name}");
        }
        let mut vouched = honest.clone();
        vouched.spec.agent = "another".into();
        assert!(!counts(&vouched, "d"), "vouched for by another agent");
    }

    #[test]
    fn the_plugin_says_where_controller_calls_are_made() {
        let plugin =
            |nodes| Plugin::new("p", PluginSpec { controller_nodes: nodes, ..PluginSpec::default() });
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert!(may_control(&plugin(None), "any", None));
        let named = plugin(Some(ControllerNodes { names: vec!["a".into()], ..ControllerNodes::default() }));
        assert!(may_control(&named, "a", None) && !may_control(&named, "ab", None));
        let both = labels(&[("role", "storage"), ("zone", "1")]);
        let labelled =
            plugin(Some(ControllerNodes { match_labels: both.clone(), ..ControllerNodes::default() }));
        assert!(may_control(&labelled, "any", Some(&both)));
        assert!(!may_control(&labelled, "any", Some(&labels(&[("role", "storage")]))), "all of them");
        assert!(!may_control(&labelled, "any", None), "a node that nobody has seen");
        let nobody = plugin(Some(ControllerNodes::default()));
        assert!(!may_control(&nobody, "any", Some(&both)), "a word that selects nothing");
    }

    #[test]
    fn nodes_with_one_id_are_named_to_each_other() {
        let known = |node: &str, id: &str, serves: bool| {
            let mut known = instance(node, "d");
            known.status = Some(PluginInstanceStatus {
                node: serves,
                node_id: id.into(),
                ..PluginInstanceStatus::default()
            });
            known
        };
        let all =
            [known("a", "1", true), known("b", "2", true), known("c", "1", true), known("d", "1", true)];
        assert_eq!(twins(&all), HashMap::from([("a", "c"), ("c", "a"), ("d", "a")]));
        assert_eq!(twins(&[known("a", "", true), known("b", "", true)]), HashMap::new(), "not known yet");
        assert_eq!(twins(&[known("a", "1", true), known("b", "1", false)]), HashMap::new());
        assert_eq!(twins(&[known("a", "A", true), known("b", "a", true)]), HashMap::new(), "ids are text");
    }
}
