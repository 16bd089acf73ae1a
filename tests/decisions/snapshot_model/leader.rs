//! What a leader decides on what it sees, with its live looks, and what its writes make of the objects.

use moor::api::plugin::Balancing;
use moor::api::volume::VolumeOperation;
use moor::attachment::HandleSeen;
use moor::leader::{LeaderStep, Look, Looked};
use moor::snapshot::{self, SnapshotStep, VolumeSeen};
use moor::volume::{self, CallerNow, InstanceSeen, PluginSeen, SourceSeen, VolumeStep};

use super::objects::{controller, copied, copied_by, kept, lock, made_from, origin};
use super::state::Call;
use super::state::{Config, Harm, Objects, Order, State, Write};
use crate::fixtures::{self, DRIVER};
use crate::observed::Observed;

fn plugin(controllers: &[InstanceSeen]) -> PluginSeen<'_> {
    PluginSeen {
        balancing: Some(Balancing::Spread),
        is_local: false,
        active: None,
        ends: false,
        older: None,
        controllers,
        controllers_said: None,
        any_healthy: true,
        can_create: true,
        attaches: true,
        grows: None,
        modifies: None,
        secrets: None,
    }
}

/// Everything that this leader would write next, of what it sees; `now` answers its live looks.
pub fn decisions(config: &Config, seen: &Objects, now: &Objects) -> Vec<Write> {
    let all = [of_kept(config, seen, now), of_origin(config, seen, now), of_copied(config, seen)];
    all.into_iter().flatten().collect()
}

fn of_kept(config: &Config, seen: &Objects, now: &Objects) -> Option<Write> {
    let it = seen.kept?;
    let (snapshot, volume) = (kept(config, &it), seen.origin.map(|it| origin(config, &it)));
    let lock = seen.lock.map(|closing| lock(config, closing));
    let instances = [fixtures::instance(&controller())];
    let mut looked = snapshot::Looked::default();
    loop {
        let seen = snapshot::Seen {
            snapshot: &snapshot,
            held: it.held,
            plugin_name: "plugin",
            plugin: plugin(&instances),
            driver: DRIVER,
            takes: Some(true),
            finds: true,
            not_allowed: None,
            volumes: vec![VolumeSeen { name: "origin", volume: volume.as_ref(), lock: lock.as_ref() }],
            made_from: made_from(config, seen),
        };
        match snapshot::plan(&seen, &looked) {
            SnapshotStep::Idle | SnapshotStep::Wait(_) => return None,
            SnapshotStep::Look(snapshot::Look::Caller(caller)) => {
                looked.callers.push((caller, CallerNow::MayCall));
            }
            SnapshotStep::Look(snapshot::Look::MadeFrom) => looked.made_from = Some(made_from(config, now)),
            SnapshotStep::Look(snapshot::Look::Holders(_)) => looked.holders = Some(Vec::new()),
            SnapshotStep::Assign(to) => {
                let deletes = to.operation == moor::api::snapshot::SnapshotOperation::Delete;
                let order = if deletes { Order::Delete } else { Order::Make };
                return Some(Write::AssignKept { order, confirmed: to.snapshot_handle.is_some() });
            }
            SnapshotStep::Restore(_) => unreachable!("no status is lost here"),
            SnapshotStep::Free => return Some(Write::FreeKept),
        }
    }
}

fn of_origin(config: &Config, seen: &Objects, now: &Objects) -> Option<Write> {
    let it = seen.origin?;
    let observed = Observed {
        volume: Some(origin(config, &it)),
        handle: seen.lock.map(|closing| HandleSeen::of(&lock(config, closing))),
        instances: vec![fixtures::instance(&controller())],
        copied_by: copied_by(config, seen),
        ..Observed::default()
    };
    let mut looked = Looked::default();
    loop {
        match observed.plan(&looked).step {
            LeaderStep::Look(look) => match look {
                Look::Locks => looked.locks = Some(Vec::new()),
                Look::Attachment { name } => drop(looked.attachments.insert(name, None)),
                Look::Copies { .. } => looked.copied_by = Some(copied_by(config, now)),
                Look::PersistentVolumes(_) => looked.named_by = Some(None),
                Look::Assigned => {
                    let live = now.origin.map(|it| origin(config, &it));
                    looked.assigned = Some(live.and_then(|volume| volume.spec.assignment));
                }
                Look::Handle { name } => {
                    looked
                        .handles
                        .insert(name, now.lock.map(|closing| HandleSeen::of(&lock(config, closing))));
                }
                other => unreachable!("{other:?}: there are no claims and no other owners"),
            },
            LeaderStep::BeginClosing { last: _ } => return Some(Write::Close),
            LeaderStep::AssignVolume(to) if to.operation == VolumeOperation::Delete => {
                return Some(Write::OrderDeletion);
            }
            LeaderStep::RemoveHandle => return Some(Write::RemoveLock),
            LeaderStep::FreeVolume => return Some(Write::FreeOrigin),
            LeaderStep::Rest => return None,
            other => unreachable!("{other:?}: the Volume is Ready, or on its way out"),
        }
    }
}

/// Only how it is taken up; what comes of it later is in `volume_model`.
fn of_copied(config: &Config, seen: &Objects) -> Option<Write> {
    let it = seen.copied.filter(|it| it.order == Order::None && !it.deleted)?;
    let volume = copied(config, &it);
    let snapshot = seen.kept.map(|it| kept(config, &it));
    let instances = [fixtures::instance(&controller())];
    let step = volume::plan(&volume::Seen {
        volume: &volume,
        held: it.held,
        plugin: plugin(&instances),
        not_allowed: None,
        same_driver: true,
        adopts: false,
        handle: None,
        source: SourceSeen::Snapshot {
            name: "kept",
            snapshot: snapshot.as_ref(),
            member: config.group.then_some("origin"),
            driver: DRIVER,
        },
        copied_by: None,
        in_use_by: None,
        has_attachments: false,
        first_place: None,
        wanted_mode: None,
    });
    matches!(step, VolumeStep::Assign(_)).then_some(Write::AssignCopied)
}

/// The write, if its object is still as it was when it was decided.
pub fn write(state: &mut State, write: Write, seen: &Objects) {
    match write {
        Write::AssignKept { order, confirmed } if state.now.kept == seen.kept => {
            if let Some(kept) = &mut state.now.kept {
                (kept.held, kept.order, kept.confirmed) = (true, order, confirmed);
            }
        }
        Write::FreeKept if state.now.kept == seen.kept => state.now.kept = None,
        Write::Close if state.now.lock == seen.lock => state.now.lock = seen.lock.map(|_| true),
        Write::OrderDeletion if state.now.origin == seen.origin => {
            if let Some(origin) = &mut state.now.origin {
                origin.ordered = true;
            }
        }
        Write::RemoveLock if state.now.lock == seen.lock => {
            if state.flies(Call::Take) {
                state.harm = state.harm.or(Some(Harm::UnlockedUnderItsSnapshot));
            }
            state.now.lock = None;
        }
        Write::FreeOrigin if state.now.origin == seen.origin => state.now.origin = None,
        Write::AssignCopied if state.now.copied == seen.copied => {
            if let Some(copied) = &mut state.now.copied {
                (copied.held, copied.order) = (true, Order::Make);
            }
        }
        // A conflict: it looks again.
        Write::AssignKept { .. }
        | Write::FreeKept
        | Write::Close
        | Write::OrderDeletion
        | Write::RemoveLock
        | Write::FreeOrigin
        | Write::AssignCopied => {}
    }
}
