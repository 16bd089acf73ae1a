//! What happens in one cell.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::api::conditions::{APPLIED, find};
use moor::api::{SnapshotState, VolumeState};
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::table::{Cell, End, Operation, SNAPSHOT, SOURCE, Trouble};
use crate::rig::{Entry, Rig, registered, volume};
use crate::snapshots::objects::{self, restored, snapshot};

/// The size that a volume is to have.
const LARGER: i64 = 2 << 20;

type Checked = Result<(), String>;

/// The cell up to the point where it needs the agents to be started again, or to its end. True if there is more.
pub async fn begin(rig: &Arc<Rig>, cell: Cell) -> Result<bool, String> {
    prepare(rig, cell).await;
    let (about, rpc) = (cell.about(), cell.operation.rpc());
    match cell.trouble {
        Trouble::Fails(fault) => rig.fake.fail(&about, rpc, fault),
        Trouble::Pretends => rig.fake.pretend(&about, rpc),
    }
    ask(rig, cell).await;
    if cell.is_believed() {
        finish(rig, cell).await?;
        return Ok(false);
    }
    let what = format!("{rpc} of {} fails {} times", cell.key(), cell.attempts());
    let tried = || (ended(rig, cell) >= cell.attempts()).then_some(());
    rig.cluster.until(&what, tried, || rig.story(&cell.key())).await;
    if cell.end == End::Deleted {
        return deleted(rig, cell).await;
    }
    let undone = [Rpc::DeleteVolume, Rpc::DeleteSnapshot].into_iter().filter(|undo| *undo != rpc);
    for undo in undone {
        if rig.count(&cell.key(), undo) + rig.count(&cell.snapshot(), undo) > 0 {
            return Err(format!("{undo} of what is wanted"));
        }
    }
    heal(rig, cell);
    if cell.is_slow() {
        return Ok(true);
    }
    finish(rig, cell).await?;
    Ok(false)
}

/// From where the trouble has ended and the call is due again.
pub async fn finish(rig: &Arc<Rig>, cell: Cell) -> Checked {
    until_done(rig, cell).await;
    heal(rig, cell);
    end(rig, cell).await
}

fn heal(rig: &Rig, cell: Cell) {
    rig.fake.heal(&cell.about(), cell.operation.rpc());
    rig.fake.behave(&cell.about(), cell.operation.rpc());
}

/// How often the call has ended.
fn ended(rig: &Rig, cell: Cell) -> usize {
    let calls = rig.journal.calls_of(&cell.about());
    let is_it = |entry: &&Entry| entry.call().is_some_and(|call| call.rpc == cell.operation.rpc());
    calls.iter().filter(is_it).filter(|entry| entry.ended.is_some()).count()
}

/// What is there before the operation.
async fn prepare(rig: &Rig, cell: Cell) {
    let (key, name) = (cell.key(), cell.snapshot());
    match cell.operation {
        Operation::Create | Operation::Restore | Operation::Copy => {}
        Operation::Register => drop(rig.fake.backend().add(&key)),
        Operation::RegisterSnapshot => drop(rig.fake.backend().add_snapshot(&name, SOURCE)),
        Operation::Delete | Operation::Expand | Operation::Modify | Operation::Edit | Operation::Snapshot => {
            rig.make_volume(&volume(&key)).await;
            rig.until_volume_ready(&key).await;
        }
        Operation::DropSnapshot => {
            rig.make_volume(&volume(&key)).await;
            rig.until_volume_ready(&key).await;
            rig.make_snapshot(&snapshot(&name, &key)).await;
            rig.until_snapshot(&name, SnapshotState::Ready).await;
        }
    }
}

/// What a user does for the operation.
async fn ask(rig: &Rig, cell: Cell) {
    let (key, name) = (cell.key(), cell.snapshot());
    match cell.operation {
        Operation::Create => rig.make_volume(&volume(&key)).await,
        Operation::Restore => {
            rig.make_volume(&restored(&key, &json!({ "snapshotName": SNAPSHOT }))).await;
        }
        Operation::Copy => rig.make_volume(&restored(&key, &json!({ "volumeName": SOURCE }))).await,
        Operation::Register => rig.make_volume(&registered(&key, &format!("vol-{key}"))).await,
        Operation::Delete => rig.delete_volume(&key).await,
        Operation::Expand => change(rig, &key, json!({ "capacity": "2Mi" })).await,
        Operation::Modify => change(rig, &key, json!({ "mutableParameters": { "tier": "gold" } })).await,
        Operation::Edit => {
            let modes = ["SingleNodeWriter", "MultiNodeReader"].map(|mode| json!({ "accessMode": mode }));
            let options = json!({ "mountFlags": ["noatime"] });
            change(rig, &key, json!({ "capabilities": modes, "mountOptions": options })).await;
        }
        Operation::Snapshot => rig.make_snapshot(&snapshot(&name, &key)).await,
        Operation::DropSnapshot => rig.delete_snapshot(&name).await,
        Operation::RegisterSnapshot => {
            rig.make_snapshot(&objects::registered(&name, &format!("snap-{name}"), json!({}))).await;
        }
    }
}

async fn change(rig: &Rig, key: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    rig.volume_api().patch(key, &PatchParams::default(), &patch).await.unwrap();
}

async fn until_done(rig: &Rig, cell: Cell) {
    let (key, name) = (cell.key(), cell.snapshot());
    match cell.operation {
        Operation::Snapshot | Operation::RegisterSnapshot => {
            return rig.until_snapshot(&name, SnapshotState::Ready).await;
        }
        Operation::DropSnapshot => return rig.until_snapshot_gone(&name).await,
        Operation::Delete => return rig.until_volume_gone(&key).await,
        _ => {}
    }
    let done = || {
        let status = rig.cluster.volume(&key)?.status.clone()?;
        let gold = status.mutable_parameters.get("tier").is_some_and(|tier| tier == "gold");
        let is_done = match cell.operation {
            Operation::Expand => status.capacity_bytes == Some(LARGER),
            Operation::Modify => gold && status.modification.is_none(),
            Operation::Edit => find(&status.conditions, APPLIED).is_some_and(|said| said.reason == "Applied"),
            _ => true,
        };
        (is_done && status.state == VolumeState::Ready).then_some(())
    };
    rig.cluster.until(&format!("{} is done", cell.key()), done, || rig.story(&key)).await;
    let backend = rig.fake.backend();
    let stored = &backend.volumes[&key];
    match cell.operation {
        Operation::Expand => assert_eq!(stored.grown, LARGER, "{key}"),
        Operation::Modify => assert_eq!(stored.modified["tier"], "gold", "{key}"),
        _ => {}
    }
}

/// What the operation is about is deleted while the call still fails.
async fn deleted(rig: &Arc<Rig>, cell: Cell) -> Result<bool, String> {
    let of_snapshot = matches!(cell.operation, Operation::Snapshot | Operation::RegisterSnapshot);
    let tried = ended(rig, cell);
    if of_snapshot {
        rig.delete_snapshot(&cell.snapshot()).await;
    } else {
        rig.delete_volume(&cell.key()).await;
    }
    if cell.leaves_open() {
        // There may be something, and only a repetition will tell: it is repeated, and nothing is let go before.
        let again = || (ended(rig, cell) > tried).then_some(());
        let what = format!("{} of {} is repeated", cell.operation.rpc(), cell.key());
        rig.cluster.until(&what, again, || rig.story(&cell.key())).await;
        let is_there = if of_snapshot {
            rig.snapshot_api().get_opt(&cell.snapshot()).await.unwrap().is_some()
        } else {
            rig.volume_api().get_opt(&cell.key()).await.unwrap().is_some()
        };
        if !is_there {
            return Err("it was let go while the call may still succeed".to_owned());
        }
        heal(rig, cell);
    }
    if of_snapshot {
        rig.until_snapshot_gone(&cell.snapshot()).await;
    } else {
        rig.until_volume_gone(&cell.key()).await;
    }
    heal(rig, cell);
    end(rig, cell).await?;
    Ok(false)
}

/// Everything goes, and the calls were right.
async fn end(rig: &Arc<Rig>, cell: Cell) -> Checked {
    let (key, name) = (cell.key(), cell.snapshot());
    rig.delete_snapshot(&name).await;
    rig.until_snapshot_gone(&name).await;
    rig.delete_volume(&key).await;
    rig.until_volume_gone(&key).await;
    let mut backend = rig.fake.backend();
    let left = [backend.volumes.remove(&key).is_some(), backend.snapshots.remove(&name).is_some()];
    // What is registered is its owner's.
    let stays = match cell.operation {
        Operation::Register => [true, false],
        Operation::RegisterSnapshot => [false, true],
        Operation::Snapshot | Operation::DropSnapshot => [false, cell.is_left()],
        _ => [cell.is_left(), false],
    };
    if left != stays {
        return Err(format!("the storage still has volume and snapshot: {left:?}, expected: {stays:?}"));
    }
    let is_about = |of: &String| *of == key || *of == name;
    let forbidden: Vec<_> = backend.violations.iter().filter(|(of, _)| is_about(of)).cloned().collect();
    drop(backend);
    if !forbidden.is_empty() {
        return Err(format!("{forbidden:?}"));
    }
    let (of_volume, of_snapshot) = cell.calls();
    trace(rig, &key, &of_volume)?;
    trace(rig, &name, &of_snapshot)
}

/// These calls were made about it, in this order, and what was repeated was the same call. Nothing comes after its end.
fn trace(rig: &Rig, key: &str, expected: &[Rpc]) -> Checked {
    let calls = rig.journal.calls_of(key);
    let calls: Vec<_> = calls.iter().filter_map(Entry::call).collect();
    let mut order = Vec::new();
    for call in &calls {
        if !order.contains(&call.rpc) {
            order.push(call.rpc);
        }
        let first = calls.iter().find(|other| other.rpc == call.rpc).unwrap_or(call);
        if first.arguments != call.arguments {
            return Err(format!("{} was repeated with other arguments", call.rpc));
        }
    }
    let last = calls.last().map(|call| call.rpc);
    if order == expected && last == expected.last().copied() {
        return Ok(());
    }
    Err(format!("calls about {key}: {:?}, expected: {expected:?}", rig.journal.trace_of(key)))
}
