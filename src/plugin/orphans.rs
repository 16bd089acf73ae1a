//! What a Plugin, and its Volumes and Snapshots, say of storage and objects that do not have each other, by what the agents report of
//! their drivers' listings. Nothing is done about it (docs/adr/0041).

use std::collections::BTreeMap;

use super::belief::counts;
use crate::api::conditions::{Desired, Reason, first_few};
use crate::api::storage::{MAX_NAMED, MissingStorage, OrphanedStorage, StorageKind, StorageReport};
use crate::api::{Plugin, PluginInstance};

/// Orphans that a message names.
const SHOWN: usize = 3;

/// The orphans of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The first ones.
    pub named: Vec<OrphanedStorage>,
    /// How many volumes there are.
    pub volumes: i64,
    /// How many snapshots there are.
    pub snapshots: i64,
}

/// The reports that count: that of the active instance where there is one and it has compared, else those of all, so that what one
/// has found stays told until another one has looked.
fn reports<'a>(
    plugin: &'a Plugin,
    instances: impl Iterator<Item = &'a PluginInstance>,
) -> Vec<&'a StorageReport> {
    let driver = plugin.driver_name();
    let reported = |instance: &'a PluginInstance| {
        // Only who has the Controller service can have listed anything (rule R13).
        let status =
            instance.status.as_ref().filter(|status| status.controller && counts(instance, driver))?;
        Some((instance.metadata.name.as_deref(), status.storage.as_ref()?))
    };
    let all: Vec<_> = instances.filter_map(reported).collect();
    let active = plugin.active().map(|active| active.instance.as_str());
    match all.iter().find(|(name, _)| name.is_some() && *name == active) {
        Some((_, report)) => vec![*report],
        None => all.into_iter().map(|(_, report)| report).collect(),
    }
}

/// The orphans of a Plugin's driver, each once, whoever has found it first.
#[must_use]
pub fn orphans<'a>(plugin: &'a Plugin, instances: impl Iterator<Item = &'a PluginInstance>) -> Orphans {
    let reports = reports(plugin, instances);
    let mut named: BTreeMap<(StorageKind, &str), &OrphanedStorage> = BTreeMap::new();
    for orphan in reports.iter().flat_map(|report| &report.orphans) {
        let first = named.entry((orphan.kind, orphan.handle.as_str())).or_insert(orphan);
        if orphan.since.0 < first.since.0 {
            *first = orphan;
        }
    }
    let of = |kind: StorageKind, counted: fn(&StorageReport) -> i64| {
        let here = named.keys().filter(|(of, _)| *of == kind).count();
        let counted = reports.iter().map(|report| counted(report)).max().unwrap_or_default();
        counted.max(i64::try_from(here).unwrap_or(i64::MAX))
    };
    Orphans {
        volumes: of(StorageKind::Volume, |report| report.orphaned_volumes),
        snapshots: of(StorageKind::Snapshot, |report| report.orphaned_snapshots),
        named: named.into_values().take(MAX_NAMED).cloned().collect(),
    }
}

impl Orphans {
    /// Without those of which it turned out that somebody has them.
    #[must_use]
    pub fn without(mut self, kept: impl Fn(&OrphanedStorage) -> bool) -> Self {
        let count = |named: &[OrphanedStorage], kind: StorageKind| {
            i64::try_from(named.iter().filter(|orphan| orphan.kind == kind).count()).unwrap_or(i64::MAX)
        };
        let before = StorageKind::ALL.map(|kind| count(&self.named, kind));
        self.named.retain(|orphan| !kept(orphan));
        let [volumes, snapshots] = StorageKind::ALL.map(|kind| count(&self.named, kind));
        self.volumes -= before[0] - volumes;
        self.snapshots -= before[1] - snapshots;
        self
    }

    /// The condition of the Plugin; None as long as there was never an orphan.
    #[must_use]
    pub fn condition(&self, was_told: bool) -> Option<Desired> {
        if self.volumes + self.snapshots == 0 {
            let words = "an object stands for everything that moor has had made and that the driver lists";
            return was_told.then(|| Desired::new(Reason::NoOrphans, words));
        }
        let ids = self.named.iter().map(|orphan| format!("{} {}", word(orphan.kind), orphan.handle));
        let all: Vec<String> = ids.collect();
        let words = format!(
            "the driver lists {} that moor has had made and that no object stands for: {}; moor deletes nothing of it. See `kubectl moor \
             orphans`: register what is to stay, and delete the rest with the storage's own tools",
            self.counted(),
            first_few(all.iter().map(String::as_str), SHOWN)
        );
        Some(Desired::new(Reason::OrphansFound, words))
    }

    fn counted(&self) -> String {
        let of = |count: i64, one: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            more => Some(format!("{more} {one}s")),
        };
        let [volumes, snapshots] = [of(self.volumes, "volume"), of(self.snapshots, "snapshot")];
        volumes.into_iter().chain(snapshots).collect::<Vec<_>>().join(" and ")
    }
}

fn word(kind: StorageKind) -> &'static str {
    match kind {
        StorageKind::Volume => "volume",
        StorageKind::Snapshot => "snapshot",
    }
}

/// Whether it is reported that the driver does not list the storage of the object with this UID. None where nobody compares.
#[must_use]
pub fn is_missing<'a>(
    plugin: &'a Plugin,
    instances: impl Iterator<Item = &'a PluginInstance>,
    uid: &str,
) -> Option<bool> {
    let reports = reports(plugin, instances);
    let is_it = |missing: &MissingStorage| missing.uid == uid;
    (!reports.is_empty()).then(|| reports.iter().any(|report| report.missing.iter().any(is_it)))
}

/// The condition StorageFound of an object whose storage the driver knows by this id; None while there is nothing to say.
#[must_use]
pub fn found(is_missing: bool, was_told: bool, kind: StorageKind, id: &str) -> Option<Desired> {
    if is_missing {
        let (word, kept) = (word(kind), kind.as_str());
        let words = format!(
            "the driver listed the {word} {id} before, and does not list it any more: somebody may have deleted it there, or the driver \
             looks elsewhere; moor does nothing about it. If it is gone, delete this {kept}, and create it anew from a backup"
        );
        return Some(Desired::new(Reason::StorageMissing, words));
    }
    let words = "the driver lists it again, or is not asked for its list any more";
    was_told.then(|| Desired::new(Reason::StorageListed, words))
}

#[cfg(test)]
#[path = "orphans_tests.rs"]
mod tests;
