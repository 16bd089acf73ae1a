//! A record that cannot be read. Its file says by its name which Attachment it is of, and that says the rest.

use std::sync::Arc;

use super::observe::View;
use super::{Pass, Trouble};
use crate::api::VolumeClaim;
use crate::attachment::record::Done;
use crate::claim::ClaimSeen;

impl Pass {
    /// Writes a record in place of one that cannot be read, of all that it could speak of: the undo finds out what of it
    /// is there. A target of a claim that was removed by hand is not among it.
    pub(super) async fn presume(&self, uid: &str, view: &View) -> Result<(), Trouble> {
        let Some(attachment) = view.attachments.get(uid) else { return Ok(()) };
        let mut stored = self.new_record(attachment)?;
        stored.record.staged = if stored.record.stage { Done::Maybe } else { Done::No };
        self.know(&mut stored.record.revision, &**attachment);
        let used_by = |claim: &&Arc<VolumeClaim>| ClaimSeen::of(claim).uses() == Some(uid);
        for claim in view.claims.values().filter(used_by) {
            self.add_target(&mut stored, claim)?;
        }
        tracing::warn!(
            attachment = uid,
            "its record cannot be read: all that it could speak of is undone or made again"
        );
        self.agent.records.put(stored).await?;
        Ok(())
    }
}
