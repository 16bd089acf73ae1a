//! Volumes whose next step may come from any instance of their Plugin. All others are concerned by few: those that make
//! their calls, and those where they are attached or claims are to be placed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::key::Key;
use super::observe::Observed;
use crate::api::VolumeState;
use crate::api::attachment::ControllerRef;
use crate::claim::admission::Verdict;
use crate::volume::InstanceSeen;

/// The Volumes by Plugin. In memory: a new leader looks at every Volume anyway.
#[derive(Debug, Default)]
pub(crate) struct Unsettled(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    plugin_of: HashMap<Key, String>,
    of_plugin: HashMap<String, HashSet<Key>>,
}

impl Unsettled {
    /// Remembers that a Volume waits for instances of this Plugin, or for none. True if it begins to wait: what ends that
    /// may have come before it was remembered, so the Volume has to be looked at once more.
    pub(crate) fn mark(&self, key: &Key, plugin: Option<&str>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.plugin_of.get(key).map(String::as_str) == plugin {
            return false;
        }
        if let Some(before) = state.plugin_of.remove(key)
            && let Some(all) = state.of_plugin.get_mut(&before)
        {
            all.remove(key);
            if all.is_empty() {
                state.of_plugin.remove(&before);
            }
        }
        let Some(plugin) = plugin else { return false };
        state.plugin_of.insert(key.clone(), plugin.to_owned());
        state.of_plugin.entry(plugin.to_owned()).or_default().insert(key.clone());
        true
    }

    /// The Volumes that wait for instances of a Plugin.
    pub(crate) fn of(&self, plugin: &str) -> Vec<Key> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.of_plugin.get(plugin).into_iter().flatten().cloned().collect()
    }
}

/// The Plugin for whose instances a Volume waits, if it does, after a look at which nothing could be done. A Volume that is
/// Ready, with a healthy instance for its calls and nothing that comes or goes, does not.
pub(crate) fn waits_for(seen: &Observed, verdicts: &[(String, Verdict)]) -> Option<String> {
    let Some(volume) = &seen.volume else {
        // Removed by hand, with something left to undo.
        return seen.attachments.first().map(|left| left.spec.fixed.plugin_name.clone());
    };
    let is_ready = volume.metadata.deletion_timestamp.is_none()
        && volume.status.as_ref().is_some_and(|s| s.state == VolumeState::Ready);
    let opened = seen.handle_seen.as_ref().is_some_and(|h| !h.closing);
    // What is told of them names the nodes whose instances have the node ids.
    let drifts =
        seen.handle.as_ref().and_then(|h| h.status.as_ref()).is_some_and(|status| status.drift.is_some());
    let of_handle = seen.handle.as_ref().and_then(|h| h.spec.controller.as_ref());
    let of_locks = seen.attachments.iter().filter_map(|a| a.spec.controller.as_ref());
    let served = are_served(of_handle.into_iter().chain(of_locks), &seen.controllers);
    let leaves = seen.claims_seen.iter().any(|c| c.deleted) || seen.attachments_seen.iter().any(|a| a.lost);
    let waits = |(_, verdict): &(String, Verdict)| {
        let Verdict::Wait(why) = verdict else { return true };
        why.is_for_instances()
    };
    let settled = is_ready
        && opened
        && served
        && !drifts
        && !leaves
        && seen.forgotten.is_empty()
        && !verdicts.iter().any(waits);
    (!settled).then(|| volume.spec.plugin_name.clone())
}

/// Whether each of these instances makes the calls that it was given. One that is not to be given new ones does too:
/// a Volume does not wait for another.
fn are_served<'a>(named: impl IntoIterator<Item = &'a ControllerRef>, all: &[InstanceSeen]) -> bool {
    let serves = |named: &ControllerRef| all.iter().any(|c| c.name == named.instance && c.serving && !c.dead);
    named.into_iter().all(serves)
}

#[cfg(test)]
mod tests {
    use super::super::key::key_of;
    use super::*;

    #[test]
    fn a_volume_does_not_wait_whose_instance_may_only_not_be_given_more() {
        let named = ControllerRef { instance: "i".into(), agent: "node".into() };
        let seen = |healthy, serving, dead| InstanceSeen {
            name: "i".into(),
            agent: "node".into(),
            healthy,
            serving,
            dead,
            topology: std::collections::BTreeMap::new(),
        };
        let served = |seen| are_served([&named], &[seen]);
        assert!(served(seen(true, true, false)));
        assert!(served(seen(false, true, false)), "it is not selected any more");
        assert!(!served(seen(false, false, false)) && !served(seen(false, true, true)));
        assert!(!are_served([&named], &[]) && are_served([], &[]));
    }

    #[test]
    fn only_one_that_begins_to_wait_is_looked_at_once_more() {
        let (all, key) = (Unsettled::default(), key_of("ns", "v"));
        assert!(!all.mark(&key, None));
        assert!(all.mark(&key, Some("p")) && !all.mark(&key, Some("p")));
        assert_eq!(all.of("p"), std::slice::from_ref(&key));
        assert!(all.mark(&key, Some("q")));
        assert_eq!((all.of("p").len(), all.of("q").len()), (0, 1));
        assert!(!all.mark(&key, None) && all.of("q").is_empty());
        assert!(all.mark(&key, Some("p")));
    }
}
