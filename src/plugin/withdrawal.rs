//! The end of what Pods are served before moor is uninstalled: kubelets would go on calling sockets at which nobody answers,
//! and no other installation of the driver could have its name.

use jiff::Timestamp;

use crate::api::plugin::WITHDRAWN;
use crate::api::{FINALIZER, Plugin, has_finalizer};

/// The Plugin as it is served again, if its service was withdrawn by the end of an earlier installation: before this process
/// was `started`. What is no time was not written by any.
#[must_use]
pub fn restored(plugin: &Plugin, started: Timestamp) -> Option<Plugin> {
    let since = plugin.withdrawn()?;
    if since.parse::<Timestamp>().is_ok_and(|since| since >= started) {
        return None;
    }
    let mut restored = plugin.clone();
    restored.metadata.annotations.get_or_insert_default().remove(WITHDRAWN);
    Some(restored)
}

/// The Plugin without service for Pods, and without what keeps it from being deleted; None if it has neither.
#[must_use]
pub fn withdrawn(plugin: &Plugin, now: Timestamp) -> Option<Plugin> {
    let is_kept = has_finalizer(&plugin.metadata, FINALIZER);
    if plugin.withdrawn().is_some() || plugin.kubelet_name().is_none() && !is_kept {
        return None;
    }
    let mut withdrawn = plugin.clone();
    withdrawn.metadata.annotations.get_or_insert_default().insert(WITHDRAWN.to_owned(), now.to_string());
    Some(withdrawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::plugin::PluginSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_next_installation_serves_again_and_this_one_does_not() {
        let plugin = Plugin::new("p", PluginSpec::default());
        assert!(plugin.kubelet_name().is_some() && restored(&plugin, at(0)).is_none());
        let gone = withdrawn(&plugin, at(100)).unwrap();
        assert_eq!(gone.kubelet_name(), None);
        assert_eq!(withdrawn(&gone, at(200)), None, "it has none already");
        assert_eq!(restored(&gone, at(99)), None);
        let back = restored(&gone, at(101)).unwrap();
        assert_eq!((back.kubelet_name(), back.withdrawn()), (plugin.kubelet_name(), None));
    }

    /// Whatever it serves: without moor nobody would let it go.
    #[test]
    fn one_that_is_kept_while_it_is_in_use_is_withdrawn_too() {
        let mut plugin = Plugin::new("p", PluginSpec::default());
        plugin.spec.kubernetes.enabled = false;
        assert_eq!(withdrawn(&plugin, at(0)), None);
        plugin.metadata.finalizers = Some(vec![FINALIZER.into()]);
        let gone = withdrawn(&plugin, at(100)).unwrap();
        assert_eq!(withdrawn(&gone, at(200)), None);
    }

    #[test]
    fn what_is_no_time_does_not_last() {
        let mut plugin = Plugin::new("p", PluginSpec::default());
        plugin.metadata.annotations = Some([(WITHDRAWN.to_owned(), "soon".to_owned())].into());
        assert!(restored(&plugin, at(0)).is_some());
    }
}
