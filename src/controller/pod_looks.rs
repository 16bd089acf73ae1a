//! What was found of the Pods of claims that wait for a grant or a mount, and when each is looked at again. No watch tells of
//! Pods: there are many, and only those matter that wait for a volume.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::names::handle_of_import;
use crate::api::{ClaimUid, Volume};
use crate::claim::{ClaimSeen, Entitled};

/// Time to the second look at a Pod. Each later one takes twice as long.
const FIRST: Duration = Duration::from_secs(2);
/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(10);
/// Time for which a claim that is refused is left to its agent, which deletes it. Nobody looks at it meanwhile: it stays
/// refused.
const REFUSED: Duration = Duration::from_secs(60);

/// What was found, by UID of the claim. In memory: a new leader looks at every Pod that a claim needs anyway.
#[derive(Debug, Default)]
pub(crate) struct PodLooks(Mutex<HashMap<ClaimUid, Found>>);

/// Which volume a claim asks for. What was found for a claim holds for this very Volume: another one of its name, also the first
/// one, may have been made of another PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedVolume {
    /// The VolumeHandle of the Volume, or the one that it is to be made for.
    pub handle_name: Option<String>,
    /// UID of the Volume; None before it is made.
    uid: Option<String>,
}

impl AskedVolume {
    /// The Volume of this name, if it is there, with the name of its VolumeHandle.
    pub(crate) fn of(name: &str, volume: Option<&Volume>, handle_name: Option<&str>) -> Self {
        let handle_name = if volume.is_some() { handle_name } else { handle_of_import(name) };
        let uid = volume.and_then(|volume| volume.metadata.uid.clone());
        Self { handle_name: handle_name.map(str::to_owned), uid }
    }
}

#[derive(Debug)]
struct Found {
    entitled: Entitled,
    /// Whether the claim was granted then: only the Pod itself was looked at.
    granted: bool,
    /// What the claim asked for then.
    asked: AskedVolume,
    pause: Duration,
    again: Instant,
}

impl Found {
    /// Whether it answers what matters of the claim now.
    fn is_about(&self, claim: &ClaimSeen, asked: &AskedVolume) -> bool {
        claim.uses().is_some() || (!self.granted && self.asked == *asked)
    }
}

/// What is known of the Pods of a Volume's claims, by UID of the claim.
#[derive(Debug, Default)]
pub(crate) struct PodsSeen {
    /// What was found, as far as it is not to be looked at again.
    pub known: BTreeMap<ClaimUid, Entitled>,
    /// For how long it has been due to be looked at again.
    pub overdue: BTreeMap<ClaimUid, Duration>,
}

impl PodLooks {
    /// Takes in what a look has found.
    pub(crate) fn found(&self, claim: &ClaimSeen, asked: &AskedVolume, entitled: &Entitled) {
        let mut all = self.0.lock();
        if *entitled == Entitled::PodGone {
            // The claim goes; until it has, each pass looks anew.
            all.remove(&claim.uid);
            return;
        }
        let is_refused =
            claim.not_entitled.is_some() || matches!(entitled, Entitled::No(_) | Entitled::Otherwise(_));
        let pause = match all.get(&claim.uid) {
            _ if is_refused => REFUSED,
            None => FIRST,
            Some(before) => LONGEST.min(before.pause * 2),
        };
        let (entitled, asked) = (entitled.clone(), asked.clone());
        let (granted, again) = (claim.uses().is_some(), Instant::now() + pause);
        all.insert(claim.uid.clone(), Found { entitled, granted, asked, pause, again });
    }

    /// What is known of the Pods of these claims.
    pub(crate) fn seen(&self, claims: &[ClaimSeen], asked: &AskedVolume) -> PodsSeen {
        let (all, now) = (self.0.lock(), Instant::now());
        let mut seen = PodsSeen::default();
        for claim in claims.iter().filter(|claim| claim.needs_pod()) {
            let Some(found) = all.get(&claim.uid) else { continue };
            if now < found.again && found.is_about(claim, asked) {
                seen.known.insert(claim.uid.clone(), found.entitled.clone());
            } else {
                seen.overdue.insert(claim.uid.clone(), now.saturating_duration_since(found.again));
            }
        }
        seen
    }

    /// When the first of the Pods that these claims need is to be looked at again.
    pub(crate) fn next(&self, claims: &[ClaimSeen]) -> Option<Duration> {
        let (all, now) = (self.0.lock(), Instant::now());
        let concerned = claims.iter().filter(|claim| claim.needs_pod());
        concerned.map(|c| all.get(&c.uid).map_or(Duration::ZERO, |f| f.again.duration_since(now))).min()
    }

    /// Forgets a claim that is gone, or has what it asked for.
    pub(crate) fn forget(&self, claim: &ClaimUid) {
        self.0.lock().remove(claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ClaimState;
    use crate::fixtures;

    fn claim() -> ClaimSeen {
        ClaimSeen { of_pod: true, ..fixtures::claim("a") }
    }

    fn of(handle_name: &str) -> AskedVolume {
        AskedVolume { handle_name: Some(handle_name.into()), uid: Some("v".into()) }
    }

    fn granted(state: ClaimState) -> ClaimSeen {
        let assignment = Some(fixtures::grant(&fixtures::attachment("att")));
        ClaimSeen { assignment, held: true, state, ..claim() }
    }

    fn known(looks: &PodLooks, claim: &ClaimSeen, asked: &AskedVolume) -> Option<Entitled> {
        looks.seen(std::slice::from_ref(claim), asked).known.remove(&claim.uid)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_looked_at_again_while_its_claim_waits_and_less_and_less_often() {
        for claim in [claim(), granted(ClaimState::Taken)] {
            let (looks, claims) = (PodLooks::default(), [claim.clone()]);
            assert_eq!(looks.next(&claims), Some(Duration::ZERO), "nobody has looked");
            let mut pauses = Vec::new();
            for _ in 0..5 {
                looks.found(&claim, &of("h"), &Entitled::Yes);
                assert_eq!(known(&looks, &claim, &of("h")), Some(Entitled::Yes));
                let pause = looks.next(&claims).unwrap();
                pauses.push(pause.as_secs());
                tokio::time::advance(pause).await;
                assert_eq!(known(&looks, &claim, &of("h")), None, "it is to be looked at again");
            }
            assert_eq!(pauses, [2, 4, 8, 10, 10]);
            tokio::time::advance(Duration::from_secs(3)).await;
            let overdue = looks.seen(&claims, &of("h")).overdue;
            assert_eq!(overdue.get(&claim.uid), Some(&Duration::from_secs(3)));
            assert_eq!(
                looks.next(&[ClaimSeen { deleted: true, ..claim }]),
                None,
                "it does not wait any more"
            );
        }
        let looks = PodLooks::default();
        assert_eq!(looks.next(&[fixtures::claim("b")]), None, "it is no Pod's");
        assert_eq!(looks.next(&[granted(ClaimState::Ready)]), None, "it is mounted");
    }

    /// Whoever has an agent's token may make any number of claims that are refused.
    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_refused_is_looked_at_once() {
        let refused = ClaimSeen { not_entitled: Some("no".into()), ..claim() };
        for (claim, found) in [
            (claim(), Entitled::No("no".into())),
            (refused.clone(), Entitled::No("no".into())),
            (refused, Entitled::Yes),
        ] {
            let (looks, claims) = (PodLooks::default(), [claim.clone()]);
            looks.found(&claim, &of("h"), &found);
            assert_eq!(looks.next(&claims), Some(Duration::from_secs(60)), "{found:?}");
            tokio::time::advance(Duration::from_secs(59)).await;
            assert!(looks.seen(&claims, &of("h")).overdue.is_empty(), "its agent has time to delete it");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(looks.seen(&claims, &of("h")).overdue.len(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_of_one_volume_and_of_a_pod_that_is_there() {
        let (looks, claim) = (PodLooks::default(), claim());
        looks.found(&claim, &of("h"), &Entitled::Yes);
        assert_eq!(known(&looks, &claim, &of("other")), None);
        looks.found(&claim, &of("h"), &Entitled::PodGone);
        assert_eq!(known(&looks, &claim, &of("h")), None);
        assert_eq!(looks.next(std::slice::from_ref(&claim)), Some(Duration::ZERO));
        looks.found(&claim, &AskedVolume::default(), &Entitled::Yes);
        looks.forget(&claim.uid);
        assert_eq!(known(&looks, &claim, &AskedVolume::default()), None);
    }

    /// While a claim waits another one has the Volume made, or made anew, of a PersistentVolume that says otherwise.
    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_of_one_volume_and_not_of_the_next_of_its_name() {
        let (looks, claim) = (PodLooks::default(), claim());
        let name = format!("pv-{}", "0".repeat(52));
        let before = AskedVolume::of(&name, None, None);
        assert!(before.handle_name.is_some());
        looks.found(&claim, &before, &Entitled::Yes);
        assert_eq!(known(&looks, &claim, &before), Some(Entitled::Yes));
        let made = AskedVolume { uid: Some("first".into()), ..before };
        assert_eq!(known(&looks, &claim, &made), None);
        looks.found(&claim, &made, &Entitled::Yes);
        assert_eq!(known(&looks, &claim, &AskedVolume { uid: Some("next".into()), ..made }), None);
    }

    /// Of a claim that is granted nobody looks whether its Pod may have the volume: for the next grant that is looked at.
    #[tokio::test(start_paused = true)]
    async fn what_was_found_for_a_mount_grants_nothing() {
        let (looks, taken) = (PodLooks::default(), granted(ClaimState::Taken));
        looks.found(&claim(), &of("h"), &Entitled::Yes);
        assert_eq!(known(&looks, &taken, &of("h")), Some(Entitled::Yes), "the Pod was there");
        looks.found(&taken, &of("h"), &Entitled::Yes);
        let given_back = ClaimSeen { yielded: Some("att".into()), ..taken };
        assert_eq!(known(&looks, &given_back, &of("h")), None);
    }
}
