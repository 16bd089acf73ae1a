//! When a failed step is tried again. Per object and step, in memory; the count of attempts is carried on from the
//! object's status after a restart.
//!
//! Calls of the Controller service and of the Node service wait each for themselves: an Attachment whose controller calls
//! are made on its own node has two workers here, and both may have something to undo at a time. ControllerModifyVolume and
//! ValidateVolumeCapabilities have waits of their own too, which other calls of the volume in between do not end (`volume/orders.rs`).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use kube::Resource;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::{Failure, Pace};
use crate::api::conditions::Reason;
use crate::csi::{Rpc, Service};
use crate::k8s::backoff::Backoff;

/// The waits after an infeasible call.
const SLOW: Backoff = Backoff { first: Duration::from_secs(75), max: Duration::from_secs(300) };

/// The waits where only a look is repeated.
const STEADY: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(15) };

/// What a failure was about. Another call or another generation of the object is another step, tried at once: so
/// closing interrupts the backoff of attaching, and a status write of our own interrupts nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// UID of the claim, Attachment or Volume.
    pub uid: &'a str,
    /// The call.
    pub rpc: Rpc,
    /// metadata.generation of the object; deletion raises it too.
    pub generation: i64,
}

impl<'a> Step<'a> {
    /// A call about an object.
    #[must_use]
    pub fn of(object: &'a impl Resource, rpc: Rpc) -> Self {
        let meta = object.meta();
        Self { uid: meta.uid.as_deref().unwrap_or_default(), rpc, generation: meta.generation.unwrap_or(0) }
    }

    fn key(&self) -> Key {
        let queue = match (self.rpc, self.rpc.service()) {
            (Rpc::ControllerModifyVolume, _) => Waits::Modification,
            (Rpc::ValidateVolumeCapabilities, _) => Waits::Validation,
            (_, service) => Waits::Service(service),
        };
        (self.uid.to_owned(), queue)
    }
}

#[derive(Debug)]
struct Entry {
    rpc: Rpc,
    generation: i64,
    attempts: u32,
    due: Instant,
    /// Reason of the failure, as the condition has it.
    reason: Reason,
    /// The driver whose return ends the wait.
    missing: Option<String>,
    /// Why the step failed, in words, where no claim is left to show it.
    word: Option<String>,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Failed attempts in a row, this one included.
    pub number: u32,
    /// Time until the next.
    pub next: Duration,
}

/// The waits of all objects of this agent.
#[derive(Debug, Default)]
pub struct Retries {
    entries: Mutex<HashMap<Key, Entry>>,
}

/// What waits for itself about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waits {
    /// The calls of this service.
    Service(Service),
    /// ControllerModifyVolume.
    Modification,
    /// ValidateVolumeCapabilities.
    Validation,
}

/// UID of an object, and what waits about it.
type Key = (String, Waits);

/// The waits that an object may have.
const WAITS: [Waits; 4] = [
    Waits::Service(Service::Controller),
    Waits::Service(Service::Node),
    Waits::Modification,
    Waits::Validation,
];

impl Retries {
    /// How long this step still has to wait; nothing if it may be tried.
    #[must_use]
    pub fn wait(&self, step: &Step<'_>) -> Option<Duration> {
        let entries = self.entries.lock();
        let entry =
            entries.get(&step.key()).filter(|e| e.rpc == step.rpc && e.generation == step.generation)?;
        Some(entry.due.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Whether the last attempt of this step failed, in this process.
    #[must_use]
    pub fn has_failed(&self, step: &Step<'_>) -> bool {
        self.entries.lock().get(&step.key()).is_some_and(|entry| entry.rpc == step.rpc)
    }

    /// Counts a failure. `before` is the number of attempts in the object's status, for the first failure of this
    /// process. `driver` is the plugin's name.
    pub fn failed(&self, step: &Step<'_>, failure: &Failure, before: Option<i64>, driver: &str) -> Attempt {
        let mut entries = self.entries.lock();
        let key = step.key();
        let earlier = match entries.get(&key) {
            Some(entry) if entry.rpc == step.rpc && entry.generation == step.generation => entry.attempts,
            Some(_) => 0,
            None => before.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        };
        let number = earlier.saturating_add(1);
        let word = entries.get(&key).and_then(|entry| entry.word.clone());
        let backoff = match failure.pace {
            Pace::Usual => Backoff::OBJECT,
            Pace::Slow => SLOW,
            Pace::Steady => STEADY,
        };
        let next = backoff.delay(number);
        let entry = Entry {
            rpc: step.rpc,
            generation: step.generation,
            attempts: number,
            due: Instant::now() + next,
            reason: failure.reason,
            missing: failure.plugin_missing.then(|| driver.to_owned()),
            word,
        };
        entries.insert(key, entry);
        Attempt { number, next }
    }

    /// Forgets the failures of an object, which is gone or has only one worker, whose step succeeded. Returns whether
    /// [`Self::word`] said why it had not.
    pub fn clear(&self, uid: &str) -> bool {
        let told = WAITS.map(|waits| self.forget(uid, waits));
        told.contains(&true)
    }

    /// Forgets the failures of an object's calls of one service, of which one succeeded. Returns whether [`Self::word`]
    /// said why it had not.
    pub fn succeeded(&self, uid: &str, service: Service) -> bool {
        self.forget(uid, Waits::Service(service))
    }

    /// Forgets the failures of a step that has succeeded, and those that wait with it.
    pub fn ended(&self, step: &Step<'_>) {
        let (uid, waits) = step.key();
        self.forget(&uid, waits);
    }

    fn forget(&self, uid: &str, waits: Waits) -> bool {
        self.entries.lock().remove(&(uid.to_owned(), waits)).is_some_and(|entry| entry.word.is_some())
    }

    /// Keeps in words why the last step on the node failed, for one of which no claim can tell. Returns whether that is
    /// news.
    pub fn keep_word(&self, uid: &str, word: String) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&(uid.to_owned(), Waits::Service(Service::Node))) else {
            return false;
        };
        let news = entry.word.as_ref() != Some(&word);
        entry.word = Some(word);
        news
    }

    /// What [`Self::keep_word`] has kept.
    #[must_use]
    pub fn word(&self, uid: &str) -> Option<String> {
        self.entries.lock().get(&(uid.to_owned(), Waits::Service(Service::Node)))?.word.clone()
    }

    /// Makes the steps due that waited for a plugin which answers again. Returns the UIDs of their objects.
    pub fn plugin_is_back(&self, driver: &str) -> Vec<String> {
        self.make_due(|entry| entry.missing.take_if(|missing| missing == driver).is_some())
    }

    /// Makes the steps due that failed for a reason which is over. Returns the UIDs of their objects.
    pub fn reason_is_over(&self, reason: Reason) -> Vec<String> {
        self.make_due(|entry| entry.reason == reason)
    }

    fn make_due(&self, is_over: impl Fn(&mut Entry) -> bool) -> Vec<String> {
        let (now, mut due) = (Instant::now(), BTreeSet::new());
        for ((uid, _), entry) in self.entries.lock().iter_mut() {
            if is_over(entry) {
                entry.due = now;
                due.insert(uid.clone());
            }
        }
        due.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::DriverOn;

    const AT: DriverOn<'_> = DriverOn { driver: "d", node: "n" };

    fn step(rpc: Rpc, generation: i64) -> Step<'static> {
        Step { uid: "u", rpc, generation }
    }

    fn failure(pace: Pace) -> Failure {
        Failure { pace, ..Failure::local(Reason::StateNotWritable, Rpc::NodeStageVolume, String::new()) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_step_waits_longer_each_time() {
        let retries = Retries::default();
        let stage = step(Rpc::NodeStageVolume, 1);
        assert_eq!(retries.wait(&stage), None);
        let first = retries.failed(&stage, &failure(Pace::Usual), None, "d");
        assert_eq!(first.number, 1);
        assert!(first.next <= Duration::from_secs(1));
        assert!(retries.wait(&stage).is_some());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(retries.wait(&stage), None);
        let second = retries.failed(&stage, &failure(Pace::Usual), None, "d");
        assert_eq!(second.number, 2);
        assert!(second.next > Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn another_call_or_generation_is_tried_at_once() {
        let retries = Retries::default();
        retries.failed(&step(Rpc::ControllerPublishVolume, 1), &failure(Pace::Slow), Some(7), "d");
        assert!(retries.wait(&step(Rpc::ControllerPublishVolume, 1)).is_some());
        assert_eq!(retries.wait(&step(Rpc::ControllerUnpublishVolume, 1)), None);
        assert_eq!(retries.wait(&step(Rpc::ControllerPublishVolume, 2)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_growth_in_between_does_not_end_the_wait_of_a_modification() {
        let retries = Retries::default();
        let modify = step(Rpc::ControllerModifyVolume, 1);
        retries.failed(&modify, &failure(Pace::Slow), None, "d");
        let grow = step(Rpc::ControllerExpandVolume, 2);
        assert_eq!(retries.wait(&grow), None);
        retries.failed(&grow, &failure(Pace::Usual), None, "d");
        assert!(retries.wait(&modify).is_some());
        retries.clear("u");
        assert!(retries.wait(&modify).is_none() && retries.wait(&grow).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_counted_on_after_a_restart() {
        let retries = Retries::default();
        let attempt = retries.failed(&step(Rpc::NodeStageVolume, 1), &failure(Pace::Usual), Some(4), "d");
        assert_eq!(attempt.number, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_infeasible_step_starts_at_a_minute() {
        let retries = Retries::default();
        let attempt = retries.failed(&step(Rpc::NodeStageVolume, 1), &failure(Pace::Slow), None, "d");
        assert!(attempt.next >= Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn the_return_of_the_plugin_ends_the_wait() {
        let retries = Retries::default();
        let stage = step(Rpc::NodeStageVolume, 1);
        retries.failed(&stage, &Failure::plugin_not_running(Rpc::NodeStageVolume, AT), Some(20), "d");
        assert!(retries.plugin_is_back("other").is_empty());
        assert!(retries.wait(&stage).is_some());
        assert_eq!(retries.plugin_is_back("d"), ["u"]);
        assert_eq!(retries.wait(&stage), None);
    }

    /// An Attachment whose controller calls are made on its own node, and whose node is lost.
    #[tokio::test(start_paused = true)]
    async fn two_workers_on_one_object_count_and_wait_each_for_themselves() {
        let retries = Retries::default();
        let steps = [step(Rpc::NodeUnstageVolume, 1), step(Rpc::ControllerUnpublishVolume, 1)];
        for number in 1..=8 {
            for step in &steps {
                let missing = Failure::plugin_not_running(step.rpc, AT);
                assert_eq!(retries.failed(step, &missing, None, "d").number, number, "{}", step.rpc);
            }
        }
        assert!(steps.iter().all(|step| retries.wait(step).is_some_and(|left| left.as_secs() > 1)));
        assert_eq!(retries.plugin_is_back("d"), ["u"], "both are due, and it is named once");
        assert!(steps.iter().all(|step| retries.wait(step).is_none()));

        for step in &steps {
            retries.failed(step, &failure(Pace::Slow), None, "d");
        }
        assert!(retries.keep_word("u", "is in use".into()));
        assert!(!retries.succeeded("u", Service::Controller), "the word is of the node's calls");
        assert_eq!(retries.word("u").as_deref(), Some("is in use"));
        assert!(retries.wait(&steps[0]).is_some() && retries.wait(&steps[1]).is_none());
        retries.failed(&steps[1], &failure(Pace::Slow), None, "d");
        assert!(retries.clear("u"));
        assert!(steps.iter().all(|step| retries.wait(step).is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_reason_ends_the_wait() {
        let retries = Retries::default();
        let stage = step(Rpc::NodeStageVolume, 1);
        retries.failed(&stage, &failure(Pace::Slow), None, "d");
        assert!(retries.reason_is_over(Reason::TargetInUse).is_empty());
        assert!(retries.wait(&stage).is_some());
        assert_eq!(retries.reason_is_over(Reason::StateNotWritable), ["u"]);
        assert_eq!(retries.wait(&stage), None);
    }
}
