//! What goes wrong with a Snapshot that was made for a content, as that says it.

use crate::api::Snapshot;
use crate::api::conditions::{READY, Reason, find};

/// What somebody has to know: the driver's words, or what the Snapshot waits for that does not come by itself.
pub(super) fn goes_wrong(snapshot: &Snapshot) -> Option<String> {
    let status = snapshot.status.as_ref()?;
    if let Some(error) = &status.last_error {
        return Some(format!("{}: {}: {}", error.rpc, error.code, error.message));
    }
    let ready = find(&status.conditions, READY).filter(|condition| condition.status != "True")?;
    let comes = [Reason::Creating, Reason::NotReadyToUse, Reason::Deleted, Reason::Retained];
    let comes = comes.iter().any(|reason| reason.as_str() == ready.reason);
    (!comes && !ready.message.is_empty()).then(|| ready.message.clone())
}
