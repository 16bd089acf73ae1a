//! What a process that does not lead makes of the events that it sees: how it learns that it may, and what it keeps of them, since
//! nobody works on its queue until it does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::Notify;

use super::caches::{BY_CONTENT, BY_VOLUME};
use super::key::{Key, VolumeKey};
use super::known::Known;
use crate::api::provision::{ProvisionedFor, provisioned_name};
use crate::k8s::Named;
use crate::k8s::cache::Cache;

/// Time between looks for what is gone.
pub(crate) const PAUSE: Duration = Duration::from_secs(600);

/// What tells that the Lease of this name has changed.
pub(crate) fn told_of(leases: &Cache<Lease>, name: &str) -> Arc<Notify> {
    let (changed, name) = (Arc::<Notify>::default(), name.to_owned());
    let tell = changed.clone();
    leases.on_change(move |before, after| {
        if after.or(before).is_some_and(|lease| lease.metadata.name.as_ref() == Some(&name)) {
            tell.notify_one();
        }
    });
    changed
}

/// Drops the keys of what is gone: each object that comes and goes would leave one. What a process that begins to watch now would do
/// something about is kept.
pub(crate) fn forget_gone(known: &Known) {
    let is_gone = |key: &VolumeKey| known.volumes.get_in(key.named()).is_none();
    let handles = known.handles.all();
    let copies = known.volumes.all();
    let left = Left {
        handles: handles.iter().map(|h| VolumeKey::of_owner(&h.spec.volume)).filter(is_gone).collect(),
        copied: copies
            .iter()
            .filter_map(|v| v.spec.persistent_volume.as_ref()?.copy_of.as_ref())
            .map(|of| of.claim.clone())
            .collect(),
    };
    known.queue.retain(|key| left.has(known, key));
}

/// What objects name that may be gone themselves.
struct Left {
    /// Volumes that are gone, and have left their VolumeHandles.
    handles: HashSet<VolumeKey>,
    /// Claims of which Volumes are made as copies.
    copied: HashSet<ProvisionedFor>,
}

impl Left {
    fn has(&self, known: &Known, key: &Key) -> bool {
        let is_volume = |key: &VolumeKey| known.volumes.get_in(key.named()).is_some();
        match key {
            Key::Volume(volume) => {
                let name = volume.to_string();
                let is_named =
                    known.claims.count(BY_VOLUME, &name) + known.attachments.count(BY_VOLUME, &name) > 0;
                is_named || is_volume(volume) || self.handles.contains(volume)
            }
            Key::Snapshot(snapshot) => known.snapshots.get_in(snapshot.named()).is_some(),
            Key::Export(volume) => is_volume(volume),
            Key::Import(name) => known.volumes.get_in(Named { namespace: &known.namespace, name }).is_some(),
            Key::Provision(claim) => is_claim(known, claim) || is_made(known, claim),
            Key::Resize(claim) | Key::Modify(claim) => is_claim(known, claim),
            Key::Copied(claim) => is_claim(known, claim) || self.copied.contains(claim),
            Key::PersistentVolume(name) => known.pvs.get(name).is_some(),
            Key::Content(name) => known.contents.get(name).is_some() || is_content(known, name),
            Key::GroupContent(name) => known.group_contents.get(name).is_some() || is_content(known, name),
            // There are few.
            Key::Plugin(_) | Key::Capacities(_) => true,
        }
    }
}

/// Whether a Snapshot was made for the content.
fn is_content(known: &Known, name: &str) -> bool {
    known.snapshots.count(BY_CONTENT, name) > 0
}

fn is_claim(known: &Known, claim: &ProvisionedFor) -> bool {
    let named = Named { namespace: &claim.namespace, name: &claim.name };
    known.pvcs.get_in(named).is_some_and(|found| found.metadata.uid.as_ref() == Some(&claim.uid))
}

/// Whether a Volume was made for the claim.
fn is_made(known: &Known, claim: &ProvisionedFor) -> bool {
    let name = provisioned_name(&claim.uid);
    known.volumes.get_in(Named { namespace: &known.namespace, name: &name }).is_some()
}

#[cfg(test)]
#[path = "standby_tests.rs"]
mod tests;
