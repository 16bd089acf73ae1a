//! Which mounts of this node were taken from it while it was silent, and what its Lease says of them (rule R4).

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::AttachmentUid;
use crate::heartbeat::Leftovers;

/// The leftovers of this node, as far as they are known, and what its Lease says of them.
#[derive(Debug)]
pub(super) struct LostMounts {
    /// UIDs of Attachments that were gone or lost when the agent was heard again.
    pub found: Mutex<BTreeSet<AttachmentUid>>,
    /// The leftovers that the Lease names, or is about to name.
    pub said: Mutex<Leftovers>,
    changed: Notify,
}

impl Default for LostMounts {
    fn default() -> Self {
        Self { found: Mutex::default(), said: Mutex::new(Leftovers::none()), changed: Notify::new() }
    }
}

impl LostMounts {
    /// Has the Lease renewed now, and not only when that is due, because leftovers or forgotten mounts have changed.
    pub fn tell(&self) {
        self.changed.notify_one();
    }

    /// Ends when there is something to renew the Lease for.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}
