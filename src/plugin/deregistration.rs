//! When a driver has left a node for good, so that its PluginInstance goes. Pure.

use std::time::Duration;

use crate::api::{PluginInstance, PluginInstanceStatus};

/// Whether a driver has left the node of an instance that nothing names and on whose node nothing of it is attached. Its
/// processes, or moor's agent by its own word, have been `gone` for so long.
///
/// Twice the longest call is by default 10 min, longer than kubelet waits between the starts of a container that fails (5
/// min). What the node reports as mounted, or waits to undo, has to stay known.
#[must_use]
pub fn has_left(instance: &PluginInstance, gone: Duration, longest_call: Duration) -> bool {
    let is_over = |status: &PluginInstanceStatus| status.has_left() && status.is_clean();
    instance.status.as_ref().is_some_and(is_over) && gone > 2 * longest_call
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::api::conditions::{self, Desired, Reason};
    use crate::api::instance::ForgottenMount;
    use crate::api::{PluginInstanceSpec, PluginInstanceStatus};

    const LONGEST: Duration = Duration::from_secs(300);

    fn has_left(gone: u64, edit: impl FnOnce(&mut PluginInstanceStatus)) -> bool {
        let mut instance = PluginInstance::new("a", PluginInstanceSpec::default());
        let mut status = PluginInstanceStatus { gone: true, ..PluginInstanceStatus::default() };
        edit(&mut status);
        instance.status = Some(status);
        super::has_left(&instance, Duration::from_secs(gone), LONGEST)
    }

    #[test]
    fn a_driver_that_only_starts_anew_has_not_left() {
        assert!(has_left(601, |_| {}) && !has_left(600, |_| {}));
        assert!(!has_left(601, |status| status.gone = false));
        let ends = |status: &mut PluginInstanceStatus| {
            status.gone = false;
            let ends = Desired::new(Reason::AgentShutdown, "");
            conditions::set(&mut status.conditions, &ends, None, Timestamp::UNIX_EPOCH);
        };
        assert!(has_left(601, ends), "nobody speaks of it any more");
    }

    #[test]
    fn what_is_reported_stays_known() {
        assert!(!has_left(601, |status| status.forgotten_handles.push("h".into())));
        assert!(!has_left(601, |status| status.forgotten.push(ForgottenMount::default())));
        for (reason, left) in [(Reason::UndoWaits, false), (Reason::NothingWaits, true)] {
            let said = |status: &mut PluginInstanceStatus| {
                let desired = Desired::new(reason, "why");
                conditions::set(&mut status.conditions, &desired, None, Timestamp::now());
            };
            assert_eq!(has_left(601, said), left, "{reason:?}");
        }
    }
}
