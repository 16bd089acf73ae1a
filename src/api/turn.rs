//! When a Ready condition says that a driver has become well or ill, which is worth an Event.

use super::conditions::{Condition, READY, Reason, find};

/// What has become of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is well, and was not.
    Well,
    /// It is ill, and was well or starting.
    Ill,
}

/// What has become of a driver between two states of an object's conditions, and what the Ready condition says now. One that
/// starts, or that nobody has found yet, is not ill; and an illness that is another one is no news.
#[must_use]
pub fn turned<'a>(before: &[Condition], after: &'a [Condition]) -> Option<(Turn, &'a str)> {
    let before = find(before, READY);
    let after = find(after, READY)?;
    let was_well = before.is_some_and(is_well);
    let turn = match is_well(after) {
        true if !was_well => Turn::Well,
        false if was_well => Turn::Ill,
        false if before.is_none_or(|c| c.reason == Reason::Starting.as_str()) && !is_quiet(after) => {
            Turn::Ill
        }
        _ => return None,
    };
    Some((turn, &after.message))
}

fn is_well(ready: &Condition) -> bool {
    ready.status == "True"
}

/// Whether nothing is wrong yet with what is not well.
fn is_quiet(ready: &Condition) -> bool {
    [Reason::Starting, Reason::NoInstance, Reason::NoController]
        .iter()
        .any(|reason| ready.reason == reason.as_str())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::api::conditions::{self, Desired};

    fn saying(reason: Reason) -> Vec<Condition> {
        let mut all = Vec::new();
        let others = Desired::new(Reason::InOrder, "all are");
        for desired in [others, Desired::new(reason, reason.as_str())] {
            conditions::set(&mut all, &desired, None, Timestamp::UNIX_EPOCH);
        }
        all
    }

    #[test]
    fn each_turn_is_told_once() {
        use Reason::{AgentShutdown, Gone, Healthy, NoInstance, Starting, Unhealthy};
        for (course, told) in [
            (vec![Healthy, Healthy, Gone, Unhealthy, Gone, Healthy], vec![Turn::Well, Turn::Ill, Turn::Well]),
            (vec![Starting, Healthy, Unhealthy, Gone, Unhealthy], vec![Turn::Well, Turn::Ill]),
            (vec![Starting, Starting, Unhealthy, Unhealthy, Healthy], vec![Turn::Ill, Turn::Well]),
            (vec![Unhealthy, AgentShutdown, Healthy, AgentShutdown], vec![Turn::Ill, Turn::Well, Turn::Ill]),
            (vec![NoInstance, Unhealthy, Healthy, NoInstance], vec![Turn::Well, Turn::Ill]),
        ] {
            let mut before = Vec::new();
            let mut turns = Vec::new();
            for &reason in &course {
                let after = saying(reason);
                if let Some((turn, message)) = turned(&before, &after) {
                    assert_eq!(message, reason.as_str());
                    turns.push(turn);
                }
                before = after;
            }
            assert_eq!(turns, told, "{course:?}");
        }
    }
}
