//! One controller call for a volume at a time (rule R2): attaching and growing have a worker each, which may be at the same
//! volume.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::budgets::Busy;
use crate::agent::queues::Parked;

/// The VolumeHandles that a worker makes a controller call for, and who waits for one of them.
pub(crate) struct Flights {
    taken: Mutex<HashMap<String, Vec<Parked>>>,
    /// Puts a key that waits back into its queue.
    wake: Box<dyn Fn(Parked) + Send + Sync>,
}

/// The right to make controller calls for a volume, for as long as it lives.
pub(crate) struct Flight<'a> {
    flights: &'a Flights,
    handle: String,
}

impl Flights {
    /// Nobody makes a call.
    pub fn new(wake: impl Fn(Parked) + Send + Sync + 'static) -> Self {
        Self { taken: Mutex::default(), wake: Box::new(wake) }
    }

    /// The VolumeHandles that calls are made for now.
    pub fn handles(&self) -> Vec<String> {
        self.taken.lock().keys().cloned().collect()
    }

    /// The right for the pass of this key, which is woken when it can have it.
    ///
    /// # Errors
    /// Another pass has it.
    pub fn begin(&self, handle: &str, key: &Parked) -> Result<Flight<'_>, Busy> {
        let mut taken = self.taken.lock();
        if let Some(waiting) = taken.get_mut(handle) {
            if !waiting.contains(key) {
                waiting.push(key.clone());
            }
            return Err(Busy);
        }
        taken.insert(handle.to_owned(), Vec::new());
        Ok(Flight { flights: self, handle: handle.to_owned() })
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let waiting = self.flights.taken.lock().remove(&self.handle);
        waiting.into_iter().flatten().for_each(|key| (self.flights.wake)(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
}
