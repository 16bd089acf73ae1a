//! One controller call for a volume at a time (rule R2): attaching and growing have a worker each, which may be at the same
//! volume. A question how the volume is has its turn only while nobody wants to call.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::budgets::Busy;
use crate::agent::queues::Parked;

/// The VolumeHandles that a worker makes a controller call for, and who waits for one of them.
pub(crate) struct Flights {
    taken: Mutex<HashMap<String, Taken>>,
    /// Puts a key that waits back into its queue.
    wake: Box<dyn Fn(Parked) + Send + Sync>,
}

struct Taken {
    /// Passes that are woken when it is free.
    waiting: Vec<Parked>,
    /// Whoever has it makes no call that changes anything, and lets go when this is told.
    wanted: Option<Arc<Notify>>,
}

/// The right to make controller calls for a volume, for as long as it lives.
pub(crate) struct Flight<'a> {
    flights: &'a Flights,
    handle: String,
}

/// The right to ask how a volume is, for as long as nobody wants to make another call.
pub(crate) struct Spare<'a> {
    _flight: Flight<'a>,
    wanted: Arc<Notify>,
}

impl Spare<'_> {
    /// Returns when somebody wants to make a call.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

impl Flights {
    /// Nobody makes a call.
    pub fn new(wake: impl Fn(Parked) + Send + Sync + 'static) -> Self {
        Self { taken: Mutex::default(), wake: Box::new(wake) }
    }

    /// The VolumeHandles that calls are made for now. A question that is given up leaves nothing running.
    pub fn handles(&self) -> Vec<String> {
        let taken = self.taken.lock();
        taken.iter().filter(|(_, by)| by.wanted.is_none()).map(|(handle, _)| handle.clone()).collect()
    }

    /// The right for the pass of this key, which is woken when it can have it.
    ///
    /// # Errors
    /// Another pass has it.
    pub fn begin(&self, handle: &str, key: &Parked) -> Result<Flight<'_>, Busy> {
        let mut taken = self.taken.lock();
        if let Some(by) = taken.get_mut(handle) {
            if !by.waiting.contains(key) {
                by.waiting.push(key.clone());
            }
            if let Some(wanted) = &by.wanted {
                wanted.notify_one();
            }
            return Err(Busy);
        }
        taken.insert(handle.to_owned(), Taken { waiting: Vec::new(), wanted: None });
        Ok(Flight { flights: self, handle: handle.to_owned() })
    }

    /// The right to ask how a volume is, if no call is made for it now.
    pub fn spare(&self, handle: &str) -> Option<Spare<'_>> {
        let mut taken = self.taken.lock();
        if taken.contains_key(handle) {
            return None;
        }
        let wanted = Arc::new(Notify::new());
        taken.insert(handle.to_owned(), Taken { waiting: Vec::new(), wanted: Some(wanted.clone()) });
        Some(Spare { _flight: Flight { flights: self, handle: handle.to_owned() }, wanted })
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let taken = self.flights.taken.lock().remove(&self.handle);
        taken.into_iter().flat_map(|by| by.waiting).for_each(|key| (self.flights.wake)(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_call_and_who_waits_is_woken() {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let flights = Flights::new({
            let woken = woken.clone();
            move |key| woken.lock().push(key)
        });
        let [attach, grow] = [Parked::Handle("h".into()), Parked::Volume("uid".into())];
        let flight = flights.begin("h", &attach).ok().unwrap();
        assert!(flights.begin("other", &grow).is_ok());
        assert!(flights.begin("h", &grow).is_err() && flights.begin("h", &grow).is_err());
        assert!(woken.lock().is_empty());
        drop(flight);
        assert_eq!(woken.lock().as_slice(), std::slice::from_ref(&grow), "once");
        assert!(flights.begin("h", &grow).is_ok());
    }
    #[tokio::test]
    async fn a_question_lets_go_when_somebody_wants_to_call() {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let flights = Flights::new({
            let woken = woken.clone();
            move |key| woken.lock().push(key)
        });
        let attach = Parked::Handle("h".into());
        let spare = flights.spare("h").unwrap();
        assert!(flights.spare("h").is_none() && flights.handles().is_empty());
        assert!(flights.begin("h", &attach).is_err());
        spare.wanted().await;
        drop(spare);
        assert_eq!(woken.lock().as_slice(), std::slice::from_ref(&attach));
        let flight = flights.begin("h", &attach).ok().unwrap();
        assert!(flights.spare("h").is_none(), "nobody asks beside a call");
        assert_eq!(flights.handles(), ["h"]);
        drop(flight);
        assert!(flights.spare("h").is_some());
    }
}
