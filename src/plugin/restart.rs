//! When a Pod that moor runs for a driver is ended, so that another one takes its place, because the driver in it is not well.
//! Pure.
//!
//! kubelet starts a container again that has ended. One that runs and does not answer, or answers at no socket, is known to moor
//! alone.

use std::time::Duration;

/// The longest time for which a driver may be ill.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many times the health timeout a driver may be ill before its Pod is ended for the first time.
const PATIENCE: u32 = 4;

/// For how long a driver may be ill without a break before its Pod is ended, after it was ended `before` so often without becoming
/// well: four times the health timeout, then twice as long each time, up to an hour.
#[must_use]
pub fn patience(health_timeout: Duration, before: u32) -> Duration {
    let first = health_timeout.saturating_mul(PATIENCE).max(Duration::from_secs(1));
    first.saturating_mul(2_u32.saturating_pow(before)).min(LONGEST.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_restarts_doubles_up_to_an_hour_and_they_go_on_for_ever() {
        let all = |timeout| [0, 1, 2, 4, 5, 99].map(|n| patience(Duration::from_secs(timeout), n).as_secs());
        assert_eq!(all(30), [120, 240, 480, 1920, 3600, 3600]);
        assert_eq!(all(3600), [14400; 6], "never sooner than the first");
        assert_eq!(all(0), [1, 2, 4, 16, 32, 3600]);
    }
}
