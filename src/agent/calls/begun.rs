//! Volumes for which CreateVolume may have been called without their status saying so.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::agent::caches::Caches;
use crate::api::Volume;
use crate::volume::calls;

/// Volumes, by UID, for which this process has called CreateVolume, or the process before it may have, and of which nothing has
/// been written since (docs/adr/0059).
#[derive(Debug, Default)]
pub(crate) struct Begun(Mutex<HashSet<String>>);

impl Begun {
    /// Takes in what was this agent's to create when the process began: the process before it may have called.
    pub fn before(&self, caches: &Caches, node: &str) {
        let theirs = caches.volumes.all().into_iter().filter(|volume| calls::creates(volume, node));
        self.0.lock().extend(theirs.filter_map(|volume| volume.metadata.uid.clone()));
    }

    /// CreateVolume is called now.
    pub fn begins(&self, uid: &str) {
        self.0.lock().insert(uid.to_owned());
    }

    /// What has come of it is in the status, or the Volume is gone.
    pub fn ended(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Whether CreateVolume may have been called before for a Volume.
    pub fn may_have_created(&self, volume: &Volume) -> bool {
        let remembered = volume.metadata.uid.as_ref().is_some_and(|uid| self.0.lock().contains(uid));
        calls::may_have_been_created(volume, remembered)
    }
}
