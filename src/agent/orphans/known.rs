//! What the comparisons of this agent have found so far, and what is reported of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use parking_lot::Mutex;

use super::ledger::Ledger;
use super::said::Said;
use crate::api::storage::{MAX_NAMED, MissingStorage, OrphanedStorage, StorageKind, StorageReport};
use crate::api::{Plugin, Snapshot, Volume};

/// What this agent knows of storage and objects that do not have each other.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(super) ledger: Ledger,
    compared: Mutex<HashMap<(String, StorageKind), Compared>>,
}

/// What was found of one kind of a driver's storage.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Ids of what stood at the last listing, by UID of the object.
    pub before: BTreeMap<String, String>,
    /// Ids without object at the last listing.
    pub orphans: BTreeSet<String>,
    /// UIDs of the objects without storage at the last listing.
    pub missing: BTreeSet<String>,
    pub report: Report,
}

/// What is reported of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Report {
    /// It was not compared since this process began: what is written stays.
    #[default]
    Unknown,
    /// The driver does not list it.
    NotListed,
    /// What was found, and how many orphans there are.
    Found(Vec<OrphanedStorage>, i64, Vec<MissingStorage>),
}

impl Orphans {
    /// With the ledger in this file.
    pub fn open(ledger: &Path) -> Self {
        Self { ledger: Ledger::open(ledger), compared: Mutex::default() }
    }

    /// Takes in a Volume whose calls are made here. Returns whether its storage is reported to have none.
    pub fn see_volume(&self, driver: &str, volume: &Volume) -> bool {
        self.see(driver, &Said::from(volume))
    }

    /// As [`Self::see_volume`].
    pub fn see_snapshot(&self, driver: &str, snapshot: &Snapshot) -> bool {
        self.see(driver, &Said::from(snapshot))
    }

    fn see(&self, driver: &str, said: &Said) -> bool {
        self.ledger.take_in(driver, said);
        let compared = self.compared.lock();
        let report = compared.get(&(driver.to_owned(), said.kind)).map(|compared| &compared.report);
        let Some(Report::Found(orphans, ..)) = report else { return false };
        said.id.as_ref().is_some_and(|id| orphans.iter().any(|orphan| orphan.handle == *id))
    }

    /// Takes in what is told of a driver, whichever agent has found it.
    pub fn see_plugin(&self, plugin: &Plugin) {
        for orphan in plugin.status.iter().flat_map(|status| &status.orphans) {
            self.ledger.take_in_orphan(plugin.driver_name(), orphan);
        }
    }

    /// What was found at the last listing.
    pub(super) fn with<T>(
        &self,
        driver: &str,
        kind: StorageKind,
        look: impl FnOnce(&mut Compared) -> T,
    ) -> T {
        look(self.compared.lock().entry((driver.to_owned(), kind)).or_default())
    }

    /// Whether anything is found of a driver's storage that is not as it should be.
    pub fn differs(&self, driver: &str) -> bool {
        let differs = |compared: &mut Compared| !compared.orphans.is_empty() || !compared.missing.is_empty();
        StorageKind::ALL.into_iter().any(|kind| self.with(driver, kind, differs))
    }

    /// The report on a driver's storage, after the one that is written.
    pub fn report(&self, driver: &str, written: Option<&StorageReport>) -> Option<StorageReport> {
        let (mut all, mut is_listed) = (StorageReport::default(), false);
        for kind in StorageKind::ALL {
            let report = match (self.with(driver, kind, |compared| compared.report.clone()), written) {
                (Report::NotListed, _) | (Report::Unknown, None) => continue,
                (Report::Unknown, Some(written)) => as_written(written, kind),
                (found @ Report::Found(..), _) => found,
            };
            let Report::Found(orphans, count, missing) = report else { continue };
            is_listed = true;
            all.orphans.extend(orphans);
            all.missing.extend(missing);
            match kind {
                StorageKind::Volume => all.orphaned_volumes = count,
                StorageKind::Snapshot => all.orphaned_snapshots = count,
            }
        }
        all.orphans.truncate(MAX_NAMED);
        all.missing.truncate(MAX_NAMED);
        is_listed.then_some(all)
    }
}

fn as_written(written: &StorageReport, kind: StorageKind) -> Report {
    let orphans = written.orphans.iter().filter(|orphan| orphan.kind == kind).cloned().collect();
    let missing = written.missing.iter().filter(|missing| missing.kind == kind).cloned().collect();
    let count = match kind {
        StorageKind::Volume => written.orphaned_volumes,
        StorageKind::Snapshot => written.orphaned_snapshots,
    };
    Report::Found(orphans, count, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_compared_yet_stays_as_it_is_written() {
        let orphans = Orphans::open(Path::new("/nowhere/ledger"));
        let written =
            StorageReport { orphaned_volumes: 1, orphaned_snapshots: 2, ..StorageReport::default() };
        assert_eq!(orphans.report("d", Some(&written)).as_ref(), Some(&written));
        assert_eq!(orphans.report("d", None), None);
        orphans.with("d", StorageKind::Volume, |compared| {
            compared.report = Report::Found(Vec::new(), 0, Vec::new());
        });
        let now = orphans.report("d", Some(&written)).unwrap();
        assert_eq!((now.orphaned_volumes, now.orphaned_snapshots), (0, 2));
        for kind in StorageKind::ALL {
            orphans.with("d", kind, |compared| compared.report = Report::NotListed);
        }
        assert_eq!(orphans.report("d", Some(&written)), None);
    }
}
