//! How soon the leader puts an object right again that somebody else changes back each time: a tool that applies its own idea of
//! it, say. Both would write at the speed of the watch.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::k8s::backoff::Backoff;

/// The waits between two corrections that say the same.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(2), max: Duration::from_secs(300) };
/// Whoever has left a correction alone for so long does not change it back each time.
const LASTING: Duration = Duration::from_secs(600);

/// What was written last, by the object's name. In memory: the next leader writes at once, and then waits as this one did.
#[derive(Debug, Default)]
pub(crate) struct Corrections(Mutex<HashMap<String, Last>>);

#[derive(Debug)]
struct Last {
    wanted: String,
    at: Instant,
    /// How often it was written since it was last left alone.
    times: u32,
    pause: Duration,
}

impl Corrections {
    /// How long it is until an object may be made to say what is `wanted` once more; None: now. What it was not made to say the
    /// last time comes at once.
    pub(crate) fn wait(&self, name: &str, wanted: &str) -> Option<Duration> {
        let all = self.0.lock();
        let last = all.get(name).filter(|last| last.wanted == wanted)?;
        Some(last.pause.saturating_sub(last.at.elapsed())).filter(|left| !left.is_zero())
    }

    /// An object was made to say what is `wanted`.
    pub(crate) fn made(&self, name: &str, wanted: String) {
        let mut all = self.0.lock();
        let last = all.get(name).filter(|last| last.wanted == wanted && last.at.elapsed() < LASTING);
        let times = last.map_or(1, |last| last.times.saturating_add(1));
        all.retain(|_, last| last.at.elapsed() < LASTING);
        let last = Last { wanted, at: Instant::now(), times, pause: PAUSES.delay(times) };
        all.insert(name.to_owned(), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_changed_back_each_time_is_put_right_less_and_less_often() {
        let corrections = Corrections::default();
        let mut last = Duration::ZERO;
        for times in 1..=8 {
            assert_eq!(corrections.wait("driver", "ours"), None, "time {times}");
            corrections.made("driver", "ours".into());
            let wait = corrections.wait("driver", "ours").unwrap();
            assert!(wait > last, "time {times}: {wait:?}");
            assert_eq!(corrections.wait("driver", "else"), None, "it is to be otherwise now");
            assert_eq!(corrections.wait("another", "ours"), None);
            last = wait;
            tokio::time::advance(wait).await;
        }
        for _ in 0..4 {
            corrections.made("driver", "ours".into());
        }
        assert!(corrections.wait("driver", "ours").unwrap() <= Duration::from_secs(300));
        tokio::time::advance(Duration::from_secs(600)).await;
        corrections.made("driver", "ours".into());
        assert!(corrections.wait("driver", "ours").unwrap() <= Duration::from_secs(2), "it was left alone");
    }
}
