//! Writing down what a call came to.
//!
//! Somebody else may have written to the object during the call. That does not change what the call did, and the next
//! occasion to say it, another call, may be minutes away: so it is written onto the newer version.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::object::HasStatus;

use super::status::Progress;
use crate::agent::context::Agent;
use crate::k8s::{ApiError, Cache, Written};

/// How often it is written onto a newer version before the step is planned again.
const CONFLICTS: usize = 3;

/// An object whose status shows the progress of calls.
pub(crate) trait Called: Written + HasStatus<Status: Progress + Default> {}
impl<K: Written + HasStatus<Status: Progress + Default>> Called for K {}

impl Agent {
    /// Writes an outcome: what `change` makes of the status of the object, or of each newer version for which `still`
    /// holds.
    ///
    /// # Errors
    /// Conflict: it does not hold any more, or somebody writes all the time. The step has to be planned again.
    pub async fn write_outcome<K: Called>(
        &self,
        cache: &Cache<K>,
        object: &Arc<K>,
        change: impl Fn(&mut K::Status, Option<i64>, Timestamp),
        still: impl Fn(&K) -> bool,
    ) -> Result<(), ApiError> {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let mut object = object.clone();
        for left in (0..CONFLICTS).rev() {
            let mut after = object.status().cloned().unwrap_or_default();
            change(&mut after, object.meta().generation, Timestamp::now());
            let written = self.writer.update_status(cache, &*object, &after).await;
            match (written, cache.by_uid(&uid)) {
                (Err(ApiError::Conflict(_)), Some(fresh)) if left > 0 && still(&fresh) => object = fresh,
                (written, _) => return written.map(drop),
            }
        }
        Ok(())
    }
}
