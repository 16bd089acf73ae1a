//! What the audits of this agent have found so far, when the next one is due, and which VolumeHandles are looked at again.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::attachment::Fixed;
use crate::attachment::AttachmentSeen;
use crate::attachment::drift::{self, Finding};

/// As if no more listings in a row had shown nothing new while anything is reported: four times the shortest interval.
const QUIET_WHILE_IT_DIFFERS: u32 = 2;

/// The audits of this agent.
#[derive(Debug)]
pub(crate) struct Audits {
    /// The shortest time between two audits of one driver.
    shortest: Duration,
    drivers: Mutex<HashMap<String, Driver>>,
    pub looks: Mutex<HashMap<String, Look>>,
}

#[derive(Debug, Default)]
struct Driver {
    /// Listings in a row that showed nothing new, or failed.
    quiet: u32,
    /// What the last one showed.
    found: Found,
    /// Storage and objects do not have each other.
    differs: bool,
}

/// A second look at one VolumeHandle that is due.
#[derive(Debug)]
pub(crate) struct Look {
    pub published: Vec<String>,
    pub before: Vec<AttachmentSeen>,
    pub earlier: BTreeSet<Finding>,
}

/// What a listing showed, by VolumeHandle.
pub(crate) type Found = HashMap<String, BTreeSet<Finding>>;

impl Audits {
    /// Audits at least `shortest` apart; zero is never.
    pub fn new(shortest: Duration) -> Self {
        Self { shortest, drivers: Mutex::default(), looks: Mutex::default() }
    }

    /// Takes in the findings of a listing. Returns those of the listing before.
    pub fn listed(&self, driver: &str, found: Found) -> Found {
        let mut drivers = self.drivers.lock();
        let state = drivers.entry(driver.to_owned()).or_default();
        state.quiet = if state.found == found { state.quiet.saturating_add(1) } else { 0 };
        std::mem::replace(&mut state.found, found)
    }

    /// Whether the last listing of an Attachment's driver differed from the Attachments of its VolumeHandle.
    pub fn differed(&self, of: &Fixed) -> bool {
        self.drivers
            .lock()
            .get(&of.driver_name)
            .is_some_and(|state| state.found.contains_key(&of.handle_name))
    }

    /// Takes in what a listing has shown of storage and objects that do not have each other: whether it is otherwise than before, and
    /// whether it is anything.
    pub fn compared(&self, driver: &str, is_news: bool, differs: bool) {
        let mut drivers = self.drivers.lock();
        let state = drivers.entry(driver.to_owned()).or_default();
        state.differs = differs;
        if is_news {
            state.quiet = 0;
        }
    }

    pub fn failed(&self, driver: &str) {
        let mut drivers = self.drivers.lock();
        let state = drivers.entry(driver.to_owned()).or_default();
        state.quiet = state.quiet.saturating_add(1);
    }

    /// Time until the next listing: longer the longer nothing happens, never more than a third of the time spent on
    /// listings, and spread, because agents start together.
    pub fn pause(&self, driver: &str, took: Duration) -> Duration {
        let quiet = self.drivers.lock().get(driver).map_or(0, |state| {
            // Somebody may be putting it right, and waits to see that.
            if state.differs { state.quiet.min(QUIET_WHILE_IT_DIFFERS) } else { state.quiet }
        });
        let interval = self.shortest.saturating_mul(drift::interval_factor(quiet));
        let spread = 0.9 + 0.2 * rand::random::<f64>();
        interval.max(took.saturating_mul(2)).mul_f64(spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::handle::DriftKind;

    fn found(handle: &str) -> Found {
        let finding = Finding { node_id: "n".into(), kind: DriftKind::Unexpected };
        HashMap::from([(handle.to_owned(), BTreeSet::from([finding]))])
    }

    #[test]
    fn listings_become_rare_while_nothing_is_new_and_frequent_when_something_is() {
        let audits = Audits::new(Duration::from_secs(300));
        let within = |factor: f64| {
            let pause = audits.pause("d", Duration::ZERO).as_secs_f64() / 300.0;
            assert!((0.9 * factor..=1.1 * factor).contains(&pause), "{pause} is not about {factor}");
        };
        within(1.0);
        for factor in [2.0, 4.0, 8.0, 16.0, 16.0] {
            assert!(audits.listed("d", HashMap::new()).is_empty());
            within(factor);
        }
        assert!(audits.listed("d", found("h")).is_empty(), "the one before showed nothing");
        within(1.0);
        assert_eq!(audits.listed("d", found("h")), found("h"));
        within(2.0);
        audits.listed("d", HashMap::new());
        within(1.0);
        // Failures too, and another driver is another matter.
        audits.failed("d");
        within(2.0);
        assert!(audits.listed("other", HashMap::new()).is_empty());
        within(2.0);
    }

    #[test]
    fn listings_stay_frequent_while_storage_or_an_object_is_alone() {
        let audits = Audits::new(Duration::from_secs(300));
        let pause = || audits.pause("d", Duration::ZERO).as_secs_f64() / 300.0;
        for _ in 0..9 {
            audits.listed("d", HashMap::new());
            audits.compared("d", false, true);
        }
        assert!((3.6..=4.4).contains(&pause()), "{}", pause());
        audits.compared("d", false, false);
        assert!(pause() > 14.0, "{}", pause());
        audits.compared("d", true, false);
        assert!(pause() < 1.2, "{}", pause());
    }

    #[test]
    fn what_the_last_listing_showed_is_known() {
        let audits = Audits::new(Duration::from_secs(1));
        let differed = |driver: &str, handle: &str| {
            let (handle_name, driver_name) = (handle.into(), driver.into());
            audits.differed(&Fixed { handle_name, driver_name, ..Fixed::default() })
        };
        assert!(!differed("d", "h"));
        audits.listed("d", found("h"));
        assert!(differed("d", "h") && !differed("d", "other") && !differed("e", "h"));
        audits.listed("d", HashMap::new());
        assert!(!differed("d", "h"));
    }

    #[test]
    fn a_listing_that_takes_long_is_made_less_often() {
        let audits = Audits::new(Duration::from_secs(1));
        assert!(audits.pause("d", Duration::from_secs(120)) >= Duration::from_secs(200));
    }
}
