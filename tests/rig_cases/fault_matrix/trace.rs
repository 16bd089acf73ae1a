//! What must hold of the calls and writes of every cell.

use moor::csi::{Meaning, Rpc, meaning};

use super::table::{CALLS, Cell, success};
use crate::rig::{Entry, Outcome, Rig};

/// A repeated call is the same call; no call overlaps another (the driver sees that); and no state says that a call is
/// done before the driver has said so.
pub fn check(rig: &Rig, cell: Cell) -> Result<(), String> {
    let key = cell.key();
    let calls = rig.journal.calls_of(&key);
    for rpc in CALLS {
        let mut same = calls.iter().filter_map(Entry::call).filter(|call| call.rpc == rpc);
        if let Some(first) = same.next()
            && same.any(|other| other.arguments != first.arguments)
        {
            return Err(format!("{rpc} was repeated with other arguments"));
        }
    }
    let backend = rig.fake.backend();
    let forbidden = backend.violations.iter().filter(|(of, _)| *of == key);
    let forbidden: Vec<_> = forbidden.map(|(_, what)| what.clone()).collect();
    if !forbidden.is_empty() {
        return Err(forbidden.join("; "));
    }
    drop(backend);
    states(rig, &key, &calls)
}

fn states(rig: &Rig, key: &str, calls: &[Entry]) -> Result<(), String> {
    let attachments: Vec<String> = rig
        .journal
        .since(0, |entry| entry.write().is_some_and(|w| w.kind == "volumeclaims" && w.name == key))
        .iter()
        .filter_map(|entry| {
            let name = entry.write()?.body.pointer("/spec/assignment/attachment")?;
            Some(name.as_str()?.to_owned())
        })
        .collect();
    for rpc in CALLS {
        let (kind, state) = success(rpc);
        let about = |name: &str| {
            if kind == "attachments" { attachments.iter().any(|a| a == name) } else { name == key }
        };
        let written = rig.journal.since(0, |entry| {
            entry.write().is_some_and(|w| w.kind == kind && w.state() == Some(state) && about(&w.name))
        });
        // An Attachment that was closed before its node did anything is detached without a call; another follows.
        let undone = calls.iter().find(|e| e.call().is_some_and(|call| Some(call.rpc) == undone_by(rpc)));
        let begun = undone.map_or(0, |entry| entry.began);
        let Some(first) = written.iter().find(|entry| entry.began > begun) else { continue };
        // Only of calls that were made at all: of a Volume that is registered nothing is created, and so on.
        let mut made =
            calls.iter().filter(|entry| entry.call().is_some_and(|call| call.rpc == rpc)).peekable();
        if made.peek().is_none() {
            continue;
        }
        let answered = made.filter(|entry| settles(rpc, entry.outcome())).filter_map(|entry| entry.ended);
        let soonest = answered.map(|(at, _)| at).min();
        if soonest.is_none_or(|soonest| soonest > first.began) {
            return Err(format!("{state} was written before {rpc} had succeeded"));
        }
    }
    Ok(())
}

/// The node's call that this one undoes.
fn undone_by(rpc: Rpc) -> Option<Rpc> {
    match rpc {
        Rpc::NodeUnpublishVolume => Some(Rpc::NodePublishVolume),
        Rpc::NodeUnstageVolume => Some(Rpc::NodeStageVolume),
        _ => None,
    }
}

/// The driver's word that it is done, or that there is nothing to undo.
fn settles(rpc: Rpc, outcome: Option<Outcome>) -> bool {
    let Some(Outcome::Code(code)) = outcome else { return false };
    matches!(meaning(rpc, code), Meaning::Success | Meaning::AlreadyGone)
}
