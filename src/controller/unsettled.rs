//! Volumes whose next step may come from any instance of their Plugin, as a pass has found. All others are concerned by
//! few: those that make their calls, and those where they are attached or claims are to be placed.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::key::Key;

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
        let mut state = self.0.lock();
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
        let state = self.0.lock();
        state.of_plugin.get(plugin).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::objects_tests::key_of;
    use super::*;

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
