//! Holds back the Lease after the API server's history went back, until the node has said which volumes it has
//! mounted (rule R7): the leader waits for that, and takes none of them for free before.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::forgotten::{OfDriver, say};
use crate::agent::context::Agent;
use crate::api::PluginInstanceStatus;
use crate::api::instance::ForgottenMount;
use crate::api::names::instance_name;

/// The VolumeHandles whose records have yet to be compared with the API server. None where nothing went back, or
/// everything was said.
#[derive(Debug, Default)]
pub(crate) struct Settling(Mutex<Option<BTreeSet<String>>>);

impl Settling {
    /// Begins with these VolumeHandles to compare.
    pub fn begin(&self, handles: BTreeSet<String>) {
        *self.state() = (!handles.is_empty()).then_some(handles);
    }

    /// Takes a VolumeHandle off the list after a pass over it that had nothing more to do, or nothing that it may do
    /// now.
    pub fn looked(&self, handle: &str) {
        if let Some(left) = self.state().as_mut() {
            left.remove(handle);
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agent {
    /// Fails with what is missing, until everything that is mounted here was said.
    pub fn settled(&self) -> Result<(), String> {
        match self.settling.state().as_ref().map(BTreeSet::len) {
            None => return Ok(()),
            Some(0) => {}
            Some(left) => return Err(format!("{left} volumes are yet to be compared with a restored etcd")),
        }
        let drivers: BTreeSet<_> =
            self.records.forgotten().into_iter().map(|stored| stored.record.driver_name).collect();
        for driver in drivers {
            let instance = self.instances.get("", &instance_name(&self.node_name, &driver));
            // Without Plugin or instance only the Lease says it, and that is what waits here.
            let (Some(_), Some(instance)) = (self.plugin_of(&driver), instance) else { continue };
            let report = || OfDriver::seen(&self.records, &self.retries, &driver).reported;
            if !instance.status.as_ref().is_some_and(|status| says(status, report())) {
                return Err(format!("what a restored etcd has forgotten of {driver} is yet to be reported"));
            }
        }
        *self.settling.state() = None;
        Ok(())
    }
}

/// Whether a status already says this report, as it is cut and sorted for a status.
fn says(status: &PluginInstanceStatus, report: Vec<ForgottenMount>) -> bool {
    let mut said = PluginInstanceStatus::default();
    say(report, &mut said);
    (&status.forgotten, &status.forgotten_handles) == (&said.forgotten, &said.forgotten_handles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::MAX_FORGOTTEN;

    /// Else the Lease is never renewed again, and nothing on the node is made or undone.
    #[test]
    fn what_a_status_has_room_for_counts_as_said() {
        let mount =
            |name: usize| ForgottenMount { handle_name: format!("h{name}"), ..ForgottenMount::default() };
        let nameless = ForgottenMount { reason: "Unreadable".into(), ..ForgottenMount::default() };
        for report in [vec![mount(1), nameless], (0..=MAX_FORGOTTEN).map(mount).collect()] {
            let mut status = PluginInstanceStatus::default();
            assert!(!says(&status, report.clone()));
            say(report.clone(), &mut status);
            assert!(says(&status, report));
        }
    }

    #[test]
    fn every_handle_is_looked_at() {
        let settling = Settling::default();
        settling.begin(BTreeSet::new());
        assert!(settling.state().is_none());
        settling.begin(["a".to_owned(), "b".into()].into());
        settling.looked("a");
        assert_eq!(settling.state().as_ref().map(BTreeSet::len), Some(1));
        settling.looked("b");
        settling.looked("c");
        assert_eq!(settling.state().as_ref().map(BTreeSet::len), Some(0));
    }
}
