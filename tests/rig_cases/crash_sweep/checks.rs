//! What must hold of the calls and writes of one way, with a crash on it or without.

use moor::csi::Rpc;

use super::Way;
use crate::rig::{Entry, Rig};

/// The state whose write says that a call is done, and on which kind.
fn checkpoint(rpc: Rpc) -> Option<(&'static str, &'static str)> {
    match rpc {
        Rpc::CreateVolume | Rpc::ValidateVolumeCapabilities => Some(("volumes", "Created")),
        Rpc::DeleteVolume => Some(("volumes", "Deleted")),
        Rpc::ControllerPublishVolume => Some(("attachments", "Attached")),
        Rpc::NodeUnstageVolume | Rpc::NodeUnpublishVolume => Some(("attachments", "NodeDetached")),
        Rpc::ControllerUnpublishVolume => Some(("attachments", "freed")),
        _ => None,
    }
}

/// Every call of the way was made, in its order; what is repeated is the same call; what was recorded as done is not
/// repeated; and nothing is made any more once its undoing has begun.
pub fn trace(rig: &Rig, key: &str, since: usize, way: &Way) -> Result<(), String> {
    let calls = rig.journal.calls_of(key);
    let mut first: Vec<&'static str> = Vec::new();
    for entry in calls.iter().filter(|entry| entry.is_ok()) {
        let name = entry.call().unwrap().rpc.name();
        if !first.contains(&name) {
            first.push(name);
        }
    }
    // What is given up half-way has only some of the calls.
    let expected: Vec<_> = way.calls.iter().filter(|name| !way.given_up || first.contains(name)).collect();
    if first.iter().collect::<Vec<_>>() != expected {
        return Err(format!("calls {first:?} instead of {:?}", way.calls));
    }
    repeats(&calls)?;
    let writes = rig.journal.since(since, |entry| entry.write().is_some());
    for entry in &calls {
        let Some((kind, state)) = checkpoint(entry.call().unwrap().rpc) else { continue };
        let done = writes.iter().find(|write| {
            let written = write.write().unwrap();
            write.is_taken() && written.kind == kind && written.state() == Some(state)
        });
        if let Some((ended, _)) = done.and_then(|done| done.ended)
            && ended < entry.began
        {
            return Err(format!("{} after {state} was written", entry.label()));
        }
    }
    Ok(())
}

/// One crash repeats a call once; a claim's own calls differ in the target and are told apart by it.
fn repeats(calls: &[Entry]) -> Result<(), String> {
    for (number, entry) in calls.iter().enumerate() {
        let call = entry.call().unwrap();
        let same = |other: &&Entry| other.call().unwrap().rpc == call.rpc;
        let earlier: Vec<_> = calls[..number].iter().filter(same).collect();
        let identical =
            earlier.iter().filter(|other| other.call().unwrap().arguments == call.arguments).count();
        if identical > 1 {
            return Err(format!("{} was made {} times", call.rpc, identical + 1));
        }
        // Two claims are published at two targets; every other call exists once.
        let own = matches!(call.rpc, Rpc::NodePublishVolume | Rpc::NodeUnpublishVolume);
        if earlier.len() > identical && !own {
            return Err(format!("{} was repeated with other arguments", call.rpc));
        }
    }
    let undone = calls.iter().position(|entry| entry.call().unwrap().rpc == Rpc::NodeUnstageVolume);
    let makes =
        |entry: &Entry| matches!(entry.call().unwrap().rpc, Rpc::NodeStageVolume | Rpc::NodePublishVolume);
    if undone.is_some_and(|undone| calls[undone..].iter().any(makes)) {
        return Err("staged or published again after NodeUnstageVolume".to_owned());
    }
    Ok(())
}
