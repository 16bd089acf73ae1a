//! Observe: how a Plugin's controller calls are spread, and who makes them where it is one instance.

use kube::ResourceExt as _;

use super::controller_instances::controllers;
use super::known::Known;
use super::observe::is_selected;
use crate::api::Plugin;
use crate::api::attachment::ControllerRef;
use crate::api::plugin::Balancing;
use crate::volume::{balancing, elect};

/// What a Plugin's status is to say of it. What is new of that counts only when it is written: until then all is given to
/// the instance before.
pub(crate) fn of(known: &Known, plugin: &Plugin) -> (Balancing, Option<ControllerRef>) {
    let instances = known.by_plugin.of(&known.instances, &plugin.name_any(), plugin.driver_name());
    let controlling: Vec<_> =
        instances.serving().filter(|i| is_selected(known, plugin, i)).cloned().collect();
    let controls = |uid: Option<&String>| controlling.iter().any(|i| i.metadata.uid.as_ref() == uid);
    let by_itself = || {
        let said = instances.iter().filter_map(|i| Some((i.status.as_ref()?, i.metadata.uid.as_ref())));
        let serving = said.filter(|(status, _)| status.controller || status.node);
        balancing(serving.map(|(status, uid)| (status, controls(uid))))
    };
    let balancing = plugin.spec.balancing.unwrap_or_else(by_itself);
    if balancing != Balancing::SingleActive {
        return (balancing, None);
    }
    let before = plugin.active();
    let seen = controllers(known, &instances, &controlling, before.as_slice(), false);
    (balancing, elect(before, &seen))
}
