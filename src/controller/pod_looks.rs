//! What was found of the Pods of waiting claims, and when each is looked at again. No watch tells of Pods: there are many, and
//! only those matter that wait for a volume.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ClaimUid;
use crate::claim::{ClaimSeen, Entitled};

/// Time to the second look at a Pod. Each later one takes twice as long.
const FIRST: Duration = Duration::from_secs(2);
/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(10);

/// What was found, by UID of the claim. In memory: a new leader looks at every waiting claim anyway.
#[derive(Debug, Default)]
pub(crate) struct PodLooks(Mutex<HashMap<ClaimUid, Found>>);

#[derive(Debug)]
struct Found {
    entitled: Entitled,
    /// The VolumeHandle of the Volume that the claim named then.
    handle_name: Option<String>,
    pause: Duration,
    again: Instant,
}

impl PodLooks {
    /// Takes in what a look has found.
    pub(crate) fn found(&self, claim: &ClaimUid, handle_name: Option<&str>, entitled: &Entitled) {
        let mut all = self.0.lock();
        if *entitled == Entitled::PodGone {
            // The claim goes; until it has, each pass looks anew.
            all.remove(claim);
            return;
        }
        let pause = all.get(claim).map_or(FIRST, |before| LONGEST.min(before.pause * 2));
        let (entitled, handle_name) = (entitled.clone(), handle_name.map(str::to_owned));
        all.insert(claim.clone(), Found { entitled, handle_name, pause, again: Instant::now() + pause });
    }

    /// What is known of the Pods of these claims, as far as it is not to be looked at again.
    pub(crate) fn known(
        &self,
        claims: &[ClaimSeen],
        handle_name: Option<&str>,
    ) -> BTreeMap<ClaimUid, Entitled> {
        let (all, now) = (self.0.lock(), Instant::now());
        let waiting = claims.iter().filter(|claim| waits(claim));
        let known = waiting.filter_map(|claim| {
            let found = all.get(&claim.uid)?;
            let counts = now < found.again && found.handle_name.as_deref() == handle_name;
            counts.then(|| (claim.uid.clone(), found.entitled.clone()))
        });
        known.collect()
    }

    /// When the first of the waiting claims is to be looked at again, if any waits whose Pod matters.
    pub(crate) fn next(&self, claims: &[ClaimSeen]) -> Option<Duration> {
        let (all, now) = (self.0.lock(), Instant::now());
        let waiting = claims.iter().filter(|claim| waits(claim));
        waiting.map(|c| all.get(&c.uid).map_or(Duration::ZERO, |f| f.again.duration_since(now))).min()
    }

    /// Forgets a claim that is gone, or has what it asked for.
    pub(crate) fn forget(&self, claim: &ClaimUid) {
        self.0.lock().remove(claim);
    }
}

fn waits(claim: &ClaimSeen) -> bool {
    claim.of_pod && claim.wants_grant()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn claim() -> ClaimSeen {
        ClaimSeen { of_pod: true, ..fixtures::claim("a") }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_looked_at_again_while_its_claim_waits_and_less_and_less_often() {
        let (looks, claims) = (PodLooks::default(), [claim()]);
        assert_eq!(looks.next(&claims), Some(Duration::ZERO), "nobody has looked");
        let mut pauses = Vec::new();
        for _ in 0..5 {
            looks.found(&"a".into(), Some("h"), &Entitled::Yes);
            assert_eq!(looks.known(&claims, Some("h")).get(&"a".into()), Some(&Entitled::Yes));
            let pause = looks.next(&claims).unwrap();
            pauses.push(pause.as_secs());
            tokio::time::advance(pause).await;
            assert!(looks.known(&claims, Some("h")).is_empty(), "it is to be looked at again");
        }
        assert_eq!(pauses, [2, 4, 8, 10, 10]);
        assert_eq!(looks.next(&[ClaimSeen { deleted: true, ..claim() }]), None, "it does not wait any more");
        assert_eq!(looks.next(&[fixtures::claim("b")]), None, "it is no Pod's");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_of_one_volume_and_of_a_pod_that_is_there() {
        let (looks, claims) = (PodLooks::default(), [claim()]);
        looks.found(&"a".into(), Some("h"), &Entitled::Yes);
        assert!(looks.known(&claims, Some("other")).is_empty());
        looks.found(&"a".into(), Some("h"), &Entitled::PodGone);
        assert!(looks.known(&claims, Some("h")).is_empty());
        assert_eq!(looks.next(&claims), Some(Duration::ZERO));
        looks.found(&"a".into(), None, &Entitled::Yes);
        looks.forget(&"a".into());
        assert!(looks.known(&claims, None).is_empty());
    }
}
