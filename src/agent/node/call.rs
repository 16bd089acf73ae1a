//! The calls of the node's worker.

use std::sync::Arc;

use tokio::time::sleep;

use super::pass::Pass;
use super::report::{Wait, shows_own_failure};
use crate::agent::calls::attempt::{Due, NotDone, Word};
use crate::agent::queues::Parked;
use crate::api::conditions::{PATIENCE, Reason};
use crate::api::{ClaimUid, VolumeClaim};
use crate::attachment::node_side::Seen;
use crate::attachment::record::Record;
use crate::csi::{CallError, Process, Rpc};

impl Pass {
    /// A call of this pass.
    pub(super) fn due<'a>(&'a self, rpc: Rpc, driver: &'a str) -> Due<'a> {
        let key = Parked::Node(self.handle.clone());
        Due { agent: &self.agent, rpc, driver, key, word: Word::Term(self.term), given: None }
    }

    /// NodeUnpublishVolume of a claim's target. Where the volume is staged, and kubelet has said that the Pod is done with
    /// the target, that is enough (rule R2); what a driver mounts without staging is the volume itself.
    pub(super) fn due_unpublish<'a>(&'a self, claim: &ClaimUid, record: &'a Record, seen: &Seen) -> Due<'a> {
        let due = self.due(Rpc::NodeUnpublishVolume, &record.driver_name);
        let is_enough = record.stage && seen.released.contains(claim);
        if is_enough { Due { word: Word::Kubelet, ..due } } else { due }
    }

    /// Makes a call to this process that is due, if one may be started still: what came before it, a Secret, the disk with the records, may
    /// have taken longer than the Lease lasts, and the volume may be elsewhere by now (rule R2). When the call takes long,
    /// says so once on the claims that wait for it. A claim that has waited for long before is no reason: many at once
    /// would each pay a write for every call that is over in a moment.
    pub(super) async fn call<T>(
        &self,
        due: &Due<'_>,
        process: Option<&Arc<Process>>,
        call: impl Future<Output = Result<T, CallError>>,
        waiting: &[Arc<VolumeClaim>],
        reason: Reason,
    ) -> Result<Result<T, CallError>, NotDone> {
        due.may_call()?;
        let rpc = due.rpc;
        let mut call = Box::pin(due.call(process, call));
        tokio::select! {
            result = &mut call => return Ok(result),
            () = sleep(PATIENCE) => {}
        }
        let words = async {
            for claim in waiting.iter().filter(|claim| !shows_own_failure(claim)) {
                self.report_waiting(claim, Wait::new(reason, format!("{rpc} is running"))).await;
            }
        };
        // Both at once: the answer is taken in while the words are written, however slow the API server is.
        let mut words = std::pin::pin!(words);
        Ok(tokio::select! {
            result = &mut call => {
                // The claim is written by one task at a time.
                words.await;
                result
            }
            () = &mut words => call.await,
        })
    }
}
