//! Room on nodes for volumes: which Volumes have claims that wait for a node, and a mutex so that claims which are
//! granted at one moment do not overfill it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::key::{Key, Place};
use crate::api::ClaimUid;
use crate::claim::ClaimSeen;
use crate::claim::admission::Verdict;
use crate::claim::reason::Waiting;

/// The node that a claim names; None where any would do.
type Wanted = BTreeSet<Option<String>>;

/// Who waits for room, and who takes it. In memory: a new leader looks at every Volume anyway.
#[derive(Debug, Default)]
pub(crate) struct Room {
    waiting: Mutex<HashMap<Key, Wanted>>,
    /// Of those who wait, for which nodes because of the nodes alone.
    seeking: Mutex<HashMap<Key, Wanted>>,
    mutexes: Mutex<HashMap<Place, Arc<tokio::sync::Mutex<IsRead>>>>,
}

/// Whether the cache has every volume at a place: this leader has read live which are there, and knows what became of each that
/// it has granted itself since. What the leader before has granted may not have come to the cache when this one begins.
type IsRead = bool;

impl Room {
    /// Remembers for which nodes the claims of a Volume wait. True if that is news: what ended the wait may have come
    /// before it was remembered, so the Volume has to be looked at once more.
    pub(crate) fn wait(&self, key: &Key, claims: &[ClaimSeen], verdicts: &[(ClaimUid, Verdict)]) -> bool {
        let nodes: HashMap<&ClaimUid, Option<&String>> =
            claims.iter().map(|c| (&c.uid, c.node.as_ref())).collect();
        let named = |uid: &ClaimUid| nodes.get(uid).copied().flatten().cloned();
        let of = |waits: fn(&Verdict) -> bool| -> Wanted {
            let those = verdicts.iter().filter(|(_, verdict)| waits(verdict));
            those.map(|(uid, _)| named(uid)).collect()
        };
        let (wanted, sought) = (of(waits_for_a_node), of(seeks_a_node));
        let seeks_else = remember(&mut self.seeking.lock(), key, sought);
        let waits_else = remember(&mut self.waiting.lock(), key, wanted);
        seeks_else || waits_else
    }

    /// The Volumes with claims that wait for this node or for any.
    pub(crate) fn waiting_for(&self, node: &str) -> Vec<Key> {
        let waiting = self.waiting.lock();
        waiting.iter().filter(|(_, wanted)| has(wanted, node)).map(|(key, _)| key.clone()).collect()
    }

    /// Whether a claim waits for nothing but this node, or any.
    pub(crate) fn is_sought(&self, node: &str) -> bool {
        self.seeking.lock().values().any(|wanted| has(wanted, node))
    }

    /// The nodes for which claims of this Volume wait and for nothing else; None for any.
    pub(crate) fn sought_by(&self, key: &Key) -> Wanted {
        self.seeking.lock().get(key).cloned().unwrap_or_default()
    }

    /// The Volumes with claims that wait for whatever node.
    pub(crate) fn waiting(&self) -> Vec<Key> {
        self.waiting.lock().keys().cloned().collect()
    }

    /// Forgets a node that is gone for good, with its mutexes. One that somebody holds or waits for stays, for as long.
    pub(crate) fn forget(&self, node: &str) {
        let mut mutexes = self.mutexes.lock();
        mutexes.retain(|place, mutex| place.node != node || Arc::strong_count(mutex) > 1);
    }

    /// Takes the mutex of a driver and a node: whoever counts the driver's volumes there and adds one must not be
    /// overtaken (trap L9).
    pub(crate) async fn lock(&self, place: Place) -> Locked {
        let mutex = self.mutexes.lock().entry(place.clone()).or_default().clone();
        Locked { place, is_read: mutex.lock_owned().await }
    }
}

/// The mutex of a driver and a node, held until this is dropped.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) place: Place,
    is_read: OwnedMutexGuard<IsRead>,
}

impl Locked {
    /// Whether all that is at the place is in the cache.
    pub(crate) fn is_read(&self) -> bool {
        *self.is_read
    }

    /// Says that all that is at the place was read into the cache.
    pub(crate) fn has_read(&mut self) {
        *self.is_read = true;
    }

    /// Awaits a grant at the place, which returns whether it has made it. If it has not, or nobody knows, what is there has to be
    /// read again: also when this is dropped before there is an answer.
    pub(crate) async fn grant<E>(&mut self, grant: impl Future<Output = Result<bool, E>>) -> Result<bool, E> {
        *self.is_read = false;
        *self.is_read = grant.await?;
        Ok(*self.is_read)
    }
}

/// Whether a node is among those that are wanted, or any is.
fn has(wanted: &Wanted, node: &str) -> bool {
    wanted.iter().any(|wanted| wanted.as_deref().is_none_or(|name| name == node))
}

/// Writes down what is wanted for a Volume. True if it is something, and something else than before.
fn remember(all: &mut HashMap<Key, Wanted>, key: &Key, wanted: Wanted) -> bool {
    if wanted.is_empty() {
        all.remove(key);
        return false;
    }
    let is_news = all.get(key) != Some(&wanted);
    if is_news {
        all.insert(key.clone(), wanted);
    }
    is_news
}

/// Whether a change of a node can end this wait, or the wait of claims behind it in line.
fn waits_for_a_node(verdict: &Verdict) -> bool {
    let Verdict::Wait(why) = verdict else { return false };
    why.is_for_the_volume()
        || matches!(
            why,
            Waiting::NodeNotUsable { .. } | Waiting::NoNode { .. } | Waiting::PluginNotReady { .. }
        )
}

/// Whether no node can take the claim, or not the one that it names: perhaps only for want of room there.
fn seeks_a_node(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Wait(Waiting::NodeNotUsable { .. } | Waiting::NoNode { .. }))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::super::objects_tests::key_of;
    use super::*;
    use crate::api::VolumeClaim;
    use crate::api::claim::VolumeClaimSpec;
    use crate::claim::Holder;

    /// A claim that names this node, or none, and waits.
    fn waits(room: &Room, key: &Key, node: Option<&str>, why: Waiting) -> bool {
        let mut claim = VolumeClaim::new("claim", VolumeClaimSpec::default());
        claim.metadata.uid = Some("claim".into());
        claim.spec.node_name = node.map(str::to_owned);
        room.wait(key, &[ClaimSeen::of(&claim)], &[("claim".into(), Verdict::Wait(why))])
    }

    /// What is full may be so only for what lingers there.
    #[test]
    fn who_waits_for_a_node_alone_seeks_it() {
        let room = Room::default();
        let (named, any) = (key_of("ns", "named"), key_of("ns", "any"));
        waits(&room, &named, Some("node-1"), Waiting::Held(Holder::default()));
        assert!(!room.is_sought("node-1") && room.sought_by(&named).is_empty(), "it waits for the volume");
        assert!(waits(&room, &named, Some("node-1"), full("node-1")), "what lingers there is looked at");
        assert!(!waits(&room, &named, Some("node-1"), full("node-1")), "once");
        assert!(room.is_sought("node-1") && !room.is_sought("node-2"));
        assert_eq!(room.sought_by(&named), [Some("node-1".to_owned())].into());
        waits(&room, &any, None, no_node());
        assert!(room.is_sought("node-2"));
        for key in [&named, &any] {
            room.wait(key, &[], &[]);
        }
        assert!(!room.is_sought("node-1") && room.sought_by(&any).is_empty());
    }

    fn place(driver: &str, node: &str) -> Place {
        Place { driver: driver.into(), node: node.into() }
    }

    fn no_node() -> Waiting {
        Waiting::NoNode { why: "all are full".into() }
    }

    fn full(node: &str) -> Waiting {
        Waiting::NodeNotUsable { node: node.into(), why: "full".into() }
    }

    #[test]
    fn a_node_wakes_who_waits_for_it_or_for_any() {
        let room = Room::default();
        let (named, any, other) = (key_of("ns", "named"), key_of("ns", "any"), key_of("ns", "other"));
        assert!(waits(&room, &named, Some("node-1"), full("node-1")));
        assert!(waits(&room, &any, None, no_node()));
        let missing = Waiting::VolumeNotFound { volume: "v".into() };
        assert!(!waits(&room, &other, Some("node-1"), missing), "it waits for no node");
        let woken = |node| room.waiting_for(node).into_iter().collect::<std::collections::HashSet<_>>();
        assert_eq!(woken("node-1"), [named.clone(), any.clone()].into());
        assert_eq!(woken("node-3"), [any.clone()].into());
        assert!(!room.wait(&any, &[], &[]));
        assert!(woken("node-3").is_empty());
        // While it is held the node can fall ill, and then it no longer holds up those behind it.
        waits(&room, &other, Some("node-3"), Waiting::Held(Holder::default()));
        assert_eq!(woken("node-3"), [other].into());
        assert_eq!(room.waiting().len(), 2);
    }

    #[test]
    fn only_news_asks_for_another_look() {
        let (room, key) = (Room::default(), key_of("ns", "volume"));
        let full_on = |node| waits(&room, &key, Some(node), full(node));
        assert!(full_on("node-1"));
        assert!(!full_on("node-1"));
        assert!(full_on("node-2"));
        assert!(!room.wait(&key, &[], &[]));
        assert!(full_on("node-2"));
    }

    #[tokio::test]
    async fn a_node_that_is_gone_keeps_no_mutex_but_one_that_is_held() {
        let room = Room::default();
        let held = room.lock(place("driver", "gone")).await;
        drop(room.lock(place("other", "gone")).await);
        drop(room.lock(place("driver", "there")).await);
        room.forget("gone");
        assert_eq!(room.mutexes.lock().len(), 2);
        let mut next = Box::pin(room.lock(place("driver", "gone")));
        assert!(futures::poll!(&mut next).is_pending(), "two at once");
        drop(held);
        drop(next.await);
        room.forget("gone");
        assert_eq!(room.mutexes.lock().len(), 1);
    }

    #[tokio::test]
    async fn what_is_at_a_place_is_read_again_after_a_grant_that_nobody_knows_of() {
        let room = Room::default();
        let mut held = room.lock(place("driver", "node-1")).await;
        assert!(!held.is_read(), "the leader before may have granted there");
        held.has_read();
        assert_eq!(held.grant(async { Ok::<_, ()>(true) }).await, Ok(true));
        drop(held);
        let mut held = room.lock(place("driver", "node-1")).await;
        assert!(held.is_read(), "it is the same leader's");
        assert_eq!(held.grant(async { Err(()) }).await, Err(()));
        assert!(!held.is_read(), "without an answer it may have been made");
        held.has_read();
        assert_eq!(held.grant(async { Ok::<_, ()>(false) }).await, Ok(false));
        assert!(!held.is_read(), "somebody else has made it");
        held.has_read();
        assert!(held.grant(std::future::pending::<Result<bool, ()>>()).now_or_never().is_none());
        assert!(!held.is_read(), "the pass was ended meanwhile");
    }

    #[tokio::test]
    async fn a_place_is_locked_by_one_at_a_time() {
        let room = Room::default();
        let held = room.lock(place("driver", "node-1")).await;
        assert_eq!(held.place, place("driver", "node-1"));
        drop((room.lock(place("driver", "node-2")).await, room.lock(place("other", "node-1")).await));
        let mut next = Box::pin(room.lock(place("driver", "node-1")));
        assert!(futures::poll!(&mut next).is_pending());
        drop(held);
        drop(next.await);
        drop(room.lock(place("driver", "node-1")).await);
    }
}
