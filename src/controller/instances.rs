//! The PluginInstances that count for a Plugin's driver, of which each node has one, indexed once for all passes over
//! the Plugin's Volumes.
//!
//! Whether an instance counts is decided here, once, by nothing but the instance and the driver's name. What depends
//! on other objects too, as where the Plugin wants controller calls to be made, is asked anew in each pass.

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use super::caches::BY_PLUGIN;
use crate::api::PluginInstance;
use crate::k8s::Cache;
use crate::plugin::counts;

/// All instances of a Plugin that count for a driver at one moment. It can be read as a list of them.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    all: Vec<Arc<PluginInstance>>,
    by_name: HashMap<String, usize>,
    by_node: HashMap<String, Vec<usize>>,
    by_node_id: HashMap<String, Vec<usize>>,
    /// Positions of the instances that serve the Controller service.
    serving: Vec<usize>,
    /// Positions of the instances that report forgotten mounts.
    forgetful: Vec<usize>,
}

impl Deref for Instances {
    type Target = [Arc<PluginInstance>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Instances {
    pub(super) fn of(all: Vec<Arc<PluginInstance>>) -> Self {
        let mut found = Self { all, ..Self::default() };
        for (place, instance) in found.all.iter().enumerate() {
            found.by_name.insert(instance.metadata.name.clone().unwrap_or_default(), place);
            found.by_node.entry(instance.spec.node_name.clone()).or_default().push(place);
            let Some(status) = &instance.status else { continue };
            // Before its driver is asked it says none, which is not an id.
            if !status.node_id.is_empty() {
                found.by_node_id.entry(status.node_id.clone()).or_default().push(place);
            }
            if status.controller {
                found.serving.push(place);
            }
            if !status.forgotten.is_empty() {
                found.forgetful.push(place);
            }
        }
        found
    }

    /// The instance of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<PluginInstance>> {
        self.all.get(*self.by_name.get(name)?)
    }

    /// The instances on a node.
    pub(crate) fn on(&self, node: &str) -> impl Iterator<Item = &Arc<PluginInstance>> {
        self.at(self.by_node.get(node).into_iter().flatten())
    }

    /// The instances on these nodes, or all instances.
    pub(crate) fn on_those<'a>(
        &'a self,
        nodes: Option<&'a BTreeSet<String>>,
    ) -> Box<dyn Iterator<Item = &'a Arc<PluginInstance>> + 'a> {
        match nodes {
            Some(nodes) => Box::new(nodes.iter().flat_map(|node| self.on(node))),
            None => Box::new(self.all.iter()),
        }
    }

    /// The instances on these nodes and on every other node that a driver knows by the node id of one of them, each
    /// once; or all instances.
    pub(crate) fn with_ids_of<'a>(
        &'a self,
        nodes: Option<&'a BTreeSet<String>>,
    ) -> Box<dyn Iterator<Item = &'a Arc<PluginInstance>> + 'a> {
        if nodes.is_none() {
            return Box::new(self.all.iter());
        }
        let ids: BTreeSet<&str> =
            self.on_those(nodes).filter_map(|i| Some(&*i.status.as_ref()?.node_id)).collect();
        let places = ids.into_iter().filter_map(|id| self.by_node_id.get(id)).flatten();
        Box::new(self.at(places))
    }

    /// The instances that serve the Controller service, also where the Plugin does not want it.
    pub(crate) fn serving(&self) -> impl Iterator<Item = &Arc<PluginInstance>> {
        self.at(self.serving.iter())
    }

    /// The instances that report mounts which the API server does not account for.
    pub(crate) fn forgetful(&self) -> impl Iterator<Item = &Arc<PluginInstance>> {
        self.at(self.forgetful.iter())
    }

    fn at<'a>(
        &'a self,
        places: impl Iterator<Item = &'a usize>,
    ) -> impl Iterator<Item = &'a Arc<PluginInstance>> {
        places.filter_map(|place| self.all.get(*place))
    }
}

/// The instances of each Plugin that count for a driver, collected when they are first looked at after a change.
#[derive(Debug, Default)]
pub(crate) struct InstancesByPlugin(Mutex<Collected>);

#[derive(Debug, Default)]
struct Collected {
    changes: u64,
    /// The instances by Plugin, and then by driver: a Volume that was made for another driver than its Plugin has now
    /// keeps it.
    of: HashMap<String, HashMap<String, Arc<Instances>>>,
}

impl InstancesByPlugin {
    /// The instances of a Plugin that count for this driver.
    pub(crate) fn of(&self, cache: &Cache<PluginInstance>, plugin: &str, driver: &str) -> Arc<Instances> {
        let changes = {
            let collected = self.0.lock();
            if let Some(known) = collected.of.get(plugin).and_then(|of| of.get(driver)) {
                return Arc::clone(known);
            }
            collected.changes
        };
        let mut all = cache.by_index(BY_PLUGIN, plugin);
        all.retain(|i| counts(i, driver));
        let found = Arc::new(Instances::of(all));
        let mut collected = self.0.lock();
        // One that has changed while they were collected may be missing.
        if collected.changes == changes {
            let of_plugin = collected.of.entry(plugin.to_owned()).or_default();
            of_plugin.insert(driver.to_owned(), Arc::clone(&found));
        }
        found
    }

    /// Drops what was collected for a Plugin, because an instance of it has changed.
    pub(crate) fn changed(&self, plugin: &str) {
        let mut collected = self.0.lock();
        collected.changes += 1;
        collected.of.remove(plugin);
    }
}

#[cfg(test)]
mod tests {
    use super::super::caches::instance_cache;
    use super::*;
    use crate::api::instance::{ForgottenMount, PluginInstanceSpec, PluginInstanceStatus};
    use crate::api::names::{DriverOn, instance_name};

    fn instance(node: &str, plugin: &str, version: &str) -> PluginInstance {
        let spec = PluginInstanceSpec {
            plugin_name: plugin.into(),
            driver_name: "d".into(),
            node_name: node.into(),
            agent: node.into(),
            ..PluginInstanceSpec::default()
        };
        let mut instance = PluginInstance::new(&instance_name(DriverOn { driver: "d", node }), spec);
        instance.metadata.uid = Some(format!("{plugin}/{node}"));
        instance.metadata.resource_version = Some(version.into());
        instance.status = Some(PluginInstanceStatus { version: version.into(), ..Default::default() });
        instance
    }

    #[test]
    fn they_are_collected_once_for_all_looks_until_one_changes() {
        let (cache, all) = (instance_cache(), InstancesByPlugin::default());
        for n in 0..1000 {
            cache.apply(instance(&n.to_string(), "p", "1"));
        }
        cache.apply(instance("x", "other", "1"));
        let first = all.of(&cache, "p", "d");
        assert_eq!(first.len(), 1000);
        assert!(Arc::ptr_eq(&first, &all.of(&cache, "p", "d")), "collected again");
        all.of(&cache, "other", "d");
        all.changed("other");
        assert!(Arc::ptr_eq(&first, &all.of(&cache, "p", "d")), "collected again for another's change");
        cache.apply(instance("7", "p", "2"));
        all.changed("p");
        let again = all.of(&cache, "p", "d");
        assert_eq!(
            again
                .named(&instance_name(DriverOn { driver: "d", node: "7" }))
                .unwrap()
                .status
                .as_ref()
                .unwrap()
                .version,
            "2"
        );
    }

    /// A node in wrong hands may make any number of them, for any driver.
    #[test]
    fn one_that_does_not_count_is_found_nowhere() {
        let (cache, all) = (instance_cache(), InstancesByPlugin::default());
        let mut misnamed = instance("a", "p", "1");
        misnamed.metadata.name = Some("a-000000000000".into());
        misnamed.metadata.uid = Some("0".into());
        let status = misnamed.status.as_mut().unwrap();
        (status.controller, status.node, status.node_id) = (true, true, "id".into());
        status.forgotten.push(ForgottenMount::default());
        cache.apply(misnamed);
        cache.apply(instance("b", "p", "1"));
        let names = |all: &Instances| all.iter().map(|i| i.spec.node_name.clone()).collect::<Vec<_>>();
        let counted = all.of(&cache, "p", "d");
        assert_eq!(names(&counted), ["b"]);
        assert!(counted.named("a-000000000000").is_none() && counted.on("a").next().is_none());
        assert!(counted.serving().next().is_none() && counted.forgetful().next().is_none());
        assert!(all.of(&cache, "p", "other").is_empty(), "collected for another driver");
        assert_eq!(names(&all.of(&cache, "p", "d")), ["b"]);
        cache.apply(instance("c", "p", "1"));
        all.changed("p");
        assert_eq!(all.of(&cache, "p", "d").len(), 2, "of each driver anew");
    }

    #[test]
    fn one_is_found_by_its_name_its_node_and_what_it_says() {
        let mut says = instance("a", "p", "1");
        let status = says.status.as_mut().unwrap();
        (status.controller, status.node_id) = (true, "id".into());
        status.forgotten.push(ForgottenMount::default());
        let all = Instances::of([says, instance("b", "p", "1")].map(Arc::new).into());
        let node = |i: &Arc<PluginInstance>| i.spec.node_name.clone();
        assert_eq!(
            all.named(&instance_name(DriverOn { driver: "d", node: "b" })).map(node).as_deref(),
            Some("b")
        );
        assert_eq!(all.on("b").map(node).collect::<Vec<_>>(), ["b"]);
        assert_eq!(all.forgetful().map(node).collect::<Vec<_>>(), ["a"]);
        assert_eq!(all.serving().map(node).collect::<Vec<_>>(), ["a"]);
        assert!(all.named("c").is_none() && all.on("c").next().is_none());
    }

    /// A claim names its node, and the node that its driver cannot tell from it is another one.
    #[test]
    fn a_node_is_compared_with_all_that_have_its_id() {
        let with = |node: &str, id: &str| {
            let mut instance = instance(node, "p", "1");
            instance.status.as_mut().unwrap().node_id = id.into();
            instance
        };
        let all = [with("a", "1"), with("b", "2"), with("c", "1"), with("d", ""), with("e", "")];
        let all = Instances::of(all.map(Arc::new).into());
        let nodes = |wanted: &[&str]| {
            let wanted = wanted.iter().map(|&node| node.to_owned()).collect();
            all.with_ids_of(Some(&wanted)).map(|i| i.spec.node_name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&["c"]), ["a", "c"]);
        assert_eq!(nodes(&["a", "c"]), ["a", "c"]);
        assert_eq!(nodes(&["b", "x"]), ["b"]);
        assert!(nodes(&["d"]).is_empty(), "not known yet");
        assert_eq!(all.with_ids_of(None).count(), 5);
    }
}
