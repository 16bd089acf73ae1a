//! Exponential delay with jitter.

use std::time::Duration;

use rand::Rng;

/// How long to wait after the n-th failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Backoff {
    /// Per object: 1 s doubling to 5 min, without a limit on attempts.
    pub const OBJECT: Self = Self { first: Duration::from_secs(1), max: Duration::from_secs(300) };
    /// Per object, where the API server did not answer: 1 s doubling to 8 s. What is sent when it does again is bounded by the
    /// number of workers.
    pub const UNANSWERED: Self = Self { first: Duration::from_secs(1), max: Duration::from_secs(8) };
    /// Per watch: 800 ms, as client-go's reflector, doubling to 8 s. Until its watches are open again a process is blind; they go on
    /// from where they were, which costs the API server next to nothing.
    pub const WATCH: Self = Self { first: Duration::from_millis(800), max: Duration::from_secs(8) };

    /// Delay after `failures` failures in a row, the first being 1. Up to a fifth shorter than the
    /// exact power of two, so that objects which failed together do not return together.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let exact = self.first.saturating_mul(1_u32 << doublings).min(self.max);
        spread(exact, 0.8)
    }
}

/// A pause of at least this part of `pause` and at most all of it, by chance: those that have waited for one thing do not come back,
/// or go on, in step.
pub(crate) fn spread(pause: Duration, least: f64) -> Duration {
    pause.mul_f64(rand::rng().random_range(least..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_to_its_maximum_and_stays_there() {
        for (failures, exact) in [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (4_000_000, 300.0)] {
            let delay = Backoff::OBJECT.delay(failures).as_secs_f64();
            assert!(delay <= exact && delay >= exact * 0.8, "{failures} failures gave {delay} s");
        }
    }
}
