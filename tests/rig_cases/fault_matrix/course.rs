//! What happens in one cell.

use std::sync::Arc;

use moor::csi::{Meaning, Rpc};

use super::shown::{self, Shown, failure};
use super::table::{Cell, End};
use super::trace;
use crate::rig::{Entry, Rig, condition, registered, volume, volume_claim};

/// Failures in a row that a cell waits for, so that at least one repetition falls into the fault.
const ATTEMPTS: i64 = 2;

type Checked = Result<(), String>;

/// The cell up to the point where it needs the agents to be started again, or to its end. True if there is more.
pub async fn begin(rig: &Arc<Rig>, cell: Cell) -> Result<bool, String> {
    let key = cell.key();
    if cell.rpc.is_inverse() {
        objects(rig, cell).await;
        rig.until_ready(&key).await;
        rig.fake.fail(&key, cell.rpc, cell.fault);
        if cell.rpc == Rpc::ControllerUnpublishVolume && cell.is_believed_gone() && !cell.has_effect() {
            // The driver is going to say that it is not attached, so it is not.
            rig.fake.detach_silently(&key);
        }
        rig.delete_claim(&key).await;
        rig.delete_volume(&key).await;
        if cell.is_believed_gone() {
            end(rig, cell).await?;
            return Ok(false);
        }
    } else {
        rig.fake.fail(&key, cell.rpc, cell.fault);
        objects(rig, cell).await;
    }
    let shown = until_shown(rig, cell).await;
    shown::check(&shown, cell)?;
    every_attempt_is_told(rig, cell, &shown)?;
    if cell.rpc == Rpc::ControllerPublishVolume {
        told_on_the_claim(rig, cell).await;
    }
    if cell.end == End::Deleted {
        deleted(rig, cell).await?;
        return Ok(false);
    }
    still_wanted(rig, cell)?;
    rig.fake.heal(&key, cell.rpc);
    if cell.is_slow() {
        return Ok(true);
    }
    finish(rig, cell).await?;
    Ok(false)
}

/// From where the fault has ended and the call is due again.
pub async fn finish(rig: &Arc<Rig>, cell: Cell) -> Checked {
    let key = cell.key();
    if !cell.rpc.is_inverse() {
        rig.until_ready(&key).await;
        rig.delete_claim(&key).await;
        rig.delete_volume(&key).await;
    }
    end(rig, cell).await
}

/// Claim and Volume, on a node that does not attach.
async fn objects(rig: &Rig, cell: Cell) {
    let key = cell.key();
    let object = if cell.rpc == Rpc::ValidateVolumeCapabilities {
        let handle = rig.fake.backend().add(&key);
        registered(&key, &handle)
    } else {
        volume(&key)
    };
    rig.make_volume(&object).await;
    rig.make_claim(&volume_claim(&key, &key, "node-2")).await;
}

async fn until_shown(rig: &Rig, cell: Cell) -> Shown {
    // What is tried again only after a minute fails once.
    let attempts = if cell.is_slow() { 1 } else { ATTEMPTS };
    let what = format!("{} shows its failure {attempts} times", cell.key());
    let look = || failure(&rig.cluster, cell).filter(|shown| shown.attempts >= attempts);
    rig.cluster.until(&what, look, || rig.story(&cell.key())).await
}

/// Each failed attempt was written down, not only the last, and there were no others.
fn every_attempt_is_told(rig: &Rig, cell: Cell, shown: &Shown) -> Checked {
    let key = cell.key();
    let attachment = rig.cluster.attachment_of(&key).and_then(|a| a.metadata.name.clone());
    let told: Vec<i64> = rig
        .journal
        // The last one may have been seen by the watch before its answer was.
        .since(0, |entry| entry.is_taken() || entry.outcome().is_none())
        .iter()
        .filter_map(Entry::write)
        .filter(|write| write.name == key || Some(&write.name) == attachment.as_ref())
        .filter_map(|write| write.body.pointer("/status/attempts")?.as_i64())
        .collect();
    if let Some(missing) = (1..=shown.attempts).find(|attempt| !told.contains(attempt)) {
        return Err(format!("attempt {missing} was never shown: {told:?}"));
    }
    // Deletion makes it another step, which is due at once and counted anew: a second attempt 1 in a row is no change
    // that is written. And one call may have begun since.
    let calls = rig.journal.calls_of(&key);
    let made = calls.iter().filter(|entry| entry.call().is_some_and(|call| call.rpc == cell.rpc)).count();
    if made > told.len() + 2 {
        return Err(format!("{made} calls, and told of attempts {told:?}"));
    }
    Ok(())
}

/// Nothing is undone that somebody still wants: the call is made again.
fn still_wanted(rig: &Rig, cell: Cell) -> Checked {
    if cell.rpc.is_inverse() {
        return Ok(());
    }
    let trace = rig.journal.trace_of(&cell.key());
    match trace
        .iter()
        .find(|name| name.contains("Unpublish") || name.contains("Unstage") || name.contains("Delete"))
    {
        Some(inverse) => Err(format!("{inverse} while the claim is wanted: {trace:?}")),
        None => Ok(()),
    }
}

/// The claim says what its Attachment suffers from.
async fn told_on_the_claim(rig: &Rig, cell: Cell) {
    let told = || {
        let claim = rig.cluster.claim(&cell.key())?;
        let ready = condition(&claim.status.as_ref()?.conditions)?.clone();
        let says = |part: &str| ready.message.contains(part);
        (says(cell.rpc.name()) && says(&cell.shown())).then_some(())
    };
    let what = format!("claim {} says why it is not attached", cell.key());
    rig.cluster.until(&what, told, || rig.story(&cell.key())).await;
}

/// Claim and Volume are deleted while the call still fails.
async fn deleted(rig: &Arc<Rig>, cell: Cell) -> Checked {
    let key = cell.key();
    let since = rig.journal.now();
    rig.delete_claim(&key).await;
    rig.delete_volume(&key).await;
    if cell.rpc == Rpc::CreateVolume && cell.leaves_open() {
        // There may be a volume, and only a repetition will tell: it is repeated, and nothing is let go before.
        let again = || {
            let after = rig.journal.since(since, |e| e.call().is_some_and(|c| c.key == key));
            (after.len() >= 2).then_some(())
        };
        rig.cluster.until(&format!("CreateVolume of {key} is repeated"), again, || rig.story(&key)).await;
        if rig.volume_api().get_opt(&key).await.unwrap().is_none() {
            return Err("the Volume was let go while CreateVolume may still succeed".to_owned());
        }
        rig.fake.heal(&key, cell.rpc);
    }
    end(rig, cell).await?;
    let trace = rig.journal.trace_of(&key);
    let has = |name: &str| trace.contains(&name);
    let expected: &[(&str, bool)] = match cell.rpc {
        Rpc::CreateVolume => &[("ControllerPublishVolume", false), ("DeleteVolume", cell.leaves_open())],
        Rpc::ControllerPublishVolume => &[("NodeStageVolume", false), ("ControllerUnpublishVolume", true)],
        // CSI: unknown outcome, must be unstaged; final error, must not. A lie is seen in the mount table.
        Rpc::NodeStageVolume => &[
            ("NodePublishVolume", false),
            ("NodeUnstageVolume", cell.meaning() == Meaning::StillRunning || cell.is_lie()),
            ("ControllerUnpublishVolume", true),
        ],
        Rpc::NodePublishVolume => {
            &[("NodeUnpublishVolume", true), ("NodeUnstageVolume", true), ("ControllerUnpublishVolume", true)]
        }
        _ => &[],
    };
    match expected.iter().find(|(name, wanted)| has(name) != *wanted) {
        Some((name, wanted)) => Err(format!("{name} should be there: {wanted}; {trace:?}")),
        None => Ok(()),
    }
}

/// Everything goes, and the calls were right.
async fn end(rig: &Arc<Rig>, cell: Cell) -> Checked {
    let key = cell.key();
    rig.until_claim_gone(&key).await;
    rig.until_volume_gone(&key).await;
    rig.fake.heal(&key, cell.rpc);
    let left = rig.fake.backend().volumes.remove(&key).is_some();
    // A registered volume is its owner's, and one that the driver denies to have cannot be deleted.
    let denied = match cell.rpc {
        Rpc::ValidateVolumeCapabilities => true,
        Rpc::CreateVolume => cell.is_lie() && !cell.leaves_open() && cell.end == End::Deleted,
        Rpc::DeleteVolume => cell.is_believed_gone() && !cell.has_effect(),
        _ => false,
    };
    if left != denied {
        return Err(format!("the storage still has the volume: {left}, expected: {denied}"));
    }
    trace::check(rig, cell)
}
