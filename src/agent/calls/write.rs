//! Writing down what a call came to.
//!
//! Somebody else may have written to the object during the call. That does not change what the call did, and the next
//! occasion to say it, another call, may be minutes away: so it is written onto the newer version.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Api;

use super::status::Progress;
use crate::agent::context::Agent;
use crate::api::{Attachment, AttachmentStatus, Volume, VolumeClaim, VolumeClaimStatus, VolumeStatus};
use crate::k8s::cache::Cached;
use crate::k8s::{ApiError, Cache};

/// How often it is written onto a newer version before the step is planned again.
const CONFLICTS: usize = 3;

/// An object whose status shows the progress of calls.
pub(crate) trait Called: Cached {
    /// Its status.
    type Status: Progress + Default;
    /// As it was seen.
    fn status(&self) -> Option<&Self::Status>;
}

macro_rules! called {
    ($($object:ty: $status:ty),+ $(,)?) => {$(
        impl Called for $object {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }
        }
    )+};
}
called!(VolumeClaim: VolumeClaimStatus, Attachment: AttachmentStatus, Volume: VolumeStatus);

impl Agent {
    /// Writes an outcome: what `change` makes of the status of the object, or of each newer version for which `still`
    /// holds.
    ///
    /// # Errors
    /// Conflict: it does not hold any more, or somebody writes all the time. The step has to be planned again.
    pub async fn write_outcome<K: Called>(
        &self,
        api: &Api<K>,
        cache: &Cache<K>,
        object: &Arc<K>,
        change: impl Fn(&mut K::Status, Option<i64>, Timestamp),
        still: impl Fn(&K) -> bool,
    ) -> Result<(), ApiError> {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let mut object = object.clone();
        for left in (0..CONFLICTS).rev() {
            let before = object.status().cloned().unwrap_or_default();
            let mut after = before.clone();
            change(&mut after, object.meta().generation, Timestamp::now());
            match (self.write_status(api, cache, &*object, &before, &after).await, cache.by_uid(&uid)) {
                (Err(ApiError::Conflict(_)), Some(fresh)) if left > 0 && still(&fresh) => object = fresh,
                (written, _) => return written,
            }
        }
        Ok(())
    }
}
