//! Claims that wait for a node: what ends their wait, and that those of one moment do not overfill it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::mapping::Key;
use crate::claim::admission::Verdict;
use crate::claim::reason::Waiting;

/// The node that a claim names; None where any would do.
type Wanted = BTreeSet<Option<String>>;

/// Driver and node.
type Place = (String, String);

/// Who waits for room, and who takes it. In memory: a new leader looks at every Volume anyway.
#[derive(Debug, Default)]
pub(crate) struct Room {
    waiting: Mutex<HashMap<Key, Wanted>>,
    doors: Mutex<HashMap<Place, Arc<tokio::sync::Mutex<()>>>>,
}

impl Room {
    /// Remembers for which nodes the claims of a Volume wait. True if that is news: what ended the wait may have come
    /// before it was remembered, so the Volume has to be looked at once more.
    pub(crate) fn wait(&self, key: &Key, verdicts: &[(String, Verdict)]) -> bool {
        let wanted: Wanted = verdicts.iter().filter_map(|(_, verdict)| node_of(verdict)).collect();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.is_empty() {
            waiting.remove(key);
            return false;
        }
        let before = waiting.insert(key.clone(), wanted.clone());
        before.as_ref() != Some(&wanted)
    }

    /// The Volumes with claims that wait for this node or for any.
    pub(crate) fn waiting_for(&self, node: &str) -> Vec<Key> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = |wanted: &Option<String>| wanted.as_deref().is_none_or(|name| name == node);
        waiting.iter().filter(|(_, wanted)| wanted.iter().any(meant)).map(|(key, _)| key.clone()).collect()
    }

    /// One at a time for each driver and node: who counts its volumes there and adds one must not be overtaken (L9).
    pub(crate) async fn enter(&self, driver: &str, node: &str) -> Entry {
        let door = {
            let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
            doors.entry((driver.to_owned(), node.to_owned())).or_default().clone()
        };
        match door.clone().try_lock_owned() {
            Ok(door) => Entry { waited: false, _door: door },
            Err(_) => Entry { waited: true, _door: door.lock_owned().await },
        }
    }
}

/// Nobody else is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Somebody was there: what was seen before may be long ago.
    pub(crate) waited: bool,
    _door: OwnedMutexGuard<()>,
}

#[allow(clippy::option_option, reason = "no node is waited for, or any, or one")]
fn node_of(verdict: &Verdict) -> Option<Option<String>> {
    match verdict {
        Verdict::Wait(Waiting::NodeNotUsable { node, .. }) => Some(Some(node.clone())),
        Verdict::Wait(Waiting::NoNode) => Some(None),
        Verdict::Wait(_) | Verdict::Grant(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::key_of;
    use super::*;

    fn wait(why: Waiting) -> (String, Verdict) {
        ("claim".into(), Verdict::Wait(why))
    }

    fn full(node: &str) -> (String, Verdict) {
        wait(Waiting::NodeNotUsable { node: node.into(), why: "full".into() })
    }

    #[test]
    fn a_node_wakes_who_waits_for_it_or_for_any() {
        let room = Room::default();
        let (named, any, other) = (key_of("ns", "named"), key_of("ns", "any"), key_of("ns", "other"));
        assert!(room.wait(&named, &[full("node-1"), full("node-2")]));
        assert!(room.wait(&any, &[wait(Waiting::NoNode)]));
        assert!(!room.wait(&other, &[wait(Waiting::ModeChanging)]), "it waits for no node");
        let woken = |node| room.waiting_for(node).into_iter().collect::<std::collections::HashSet<_>>();
        assert_eq!(woken("node-1"), [named.clone(), any.clone()].into());
        assert_eq!(woken("node-3"), [any.clone()].into());
        assert!(!room.wait(&any, &[]));
        assert!(woken("node-3").is_empty());
    }

    #[test]
    fn only_news_asks_for_another_look() {
        let (room, key) = (Room::default(), key_of("ns", "volume"));
        assert!(room.wait(&key, &[full("node-1")]));
        assert!(!room.wait(&key, &[full("node-1")]));
        assert!(room.wait(&key, &[full("node-2")]));
        assert!(!room.wait(&key, &[]));
        assert!(room.wait(&key, &[full("node-2")]));
    }

    #[tokio::test]
    async fn a_place_is_entered_by_one_at_a_time() {
        let room = Room::default();
        let inside = room.enter("driver", "node-1").await;
        assert!(!inside.waited);
        assert!(!room.enter("driver", "node-2").await.waited);
        assert!(!room.enter("other", "node-1").await.waited);
        let mut next = Box::pin(room.enter("driver", "node-1"));
        assert!(futures::poll!(&mut next).is_pending());
        drop(inside);
        assert!(next.await.waited);
        assert!(!room.enter("driver", "node-1").await.waited);
    }
}
