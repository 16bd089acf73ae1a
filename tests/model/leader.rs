//! The leaders. One pass looks at a view of the API and may make any one of its writes; nothing is kept.

use std::collections::BTreeMap;

use moor::api::AttachmentState;
use moor::api::capability::VolumeUse;
use moor::api::plugin::Balancing;
use moor::api::volume::{VolumeAssignment, VolumeOperation, VolumeState};
use moor::api::{AccessMode, AttachmentMode, Volume};
use moor::attachment::closing::{self, ClosingStep};
use moor::claim::admission::{self, Grant, Verdict};
use moor::claim::release::{self, ReleaseStep};
use moor::claim::writer;
use moor::claim::{NodeSeen, VolumeSeen};
use moor::volume::{self, InstanceSeen, VolumeStep};

use super::config::{CLAIMS, Config, DRIVER, NODES, VOLUME_ID, instance_name, node_ids, node_name};
use super::seen::{NAMES, NAMESPACE, VOLUME, att_seen, claim_seen, controller_ref, handle_seen};
use super::seen::{claim_of, lock_of, uid_of, writer_ref};
use super::state::{Actor, Att, Claim, Handle, Lock, State, Uid};

/// What a leader looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaderView {
    pub claims: [Option<Claim>; CLAIMS],
    pub atts: Vec<Att>,
    pub handle: Handle,
    /// Controller plugins whose process runs.
    pub alive: [bool; NODES],
    /// The node whose plugin is not healthy.
    pub sick: Option<u8>,
}

/// A write that the writer's lock may hold up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Follow {
    /// Assign the claim.
    Join { claim: u8, seen: Claim, uid: Uid, node: u8 },
    /// Write its name into the VolumeHandle.
    Name(Handle, Lock),
}

/// One write of a leader, with what it saw of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaderDoes {
    Create(Att),
    Follow(Follow),
    /// Looks live at whom the named writer replaced; the write that follows is `State::following`.
    LookBehind((u8, Uid), Follow),
    Retire(Handle, Lock),
    BeginClosing(Handle),
    /// LIST by quorum; the write that follows is `State::finishing`.
    ListForFinish(Handle, AccessMode),
    MoveHandle(Handle, u8),
    MoveAttachment(Att, u8),
    Close(Uid),
    FreeAttachment(Att),
    FreeClaim(u8, Claim),
    FreeClaimIfAttachmentGone(u8, Claim),
}

pub fn view(state: &State, who: Actor) -> LeaderView {
    LeaderView {
        claims: *state.claims_of(who),
        atts: state.atts_of(who).to_vec(),
        handle: state.handle_of(who),
        alive: state.controllers.map(|c| c.alive),
        sick: state.sick,
    }
}

/// Asks every decision of the leader.
pub fn plans(config: &Config, view: &LeaderView) -> Vec<LeaderDoes> {
    let mut steps = Vec::new();
    let claims: Vec<_> = (0..)
        .zip(&view.claims)
        .filter_map(|(c, claim)| claim.as_ref().map(|k| claim_seen(config, c, k)))
        .collect();
    let atts: Vec<_> = view.atts.iter().map(|a| att_seen(config, a)).collect();
    let handle = handle_seen(config, &view.handle);
    let uses =
        config.claims.map(|c| VolumeUse { access_mode: c.mode, attachment_mode: AttachmentMode::FileSystem });
    let volume = VolumeSeen {
        uid: VOLUME.into(),
        deleted: false,
        ready: true,
        driver: DRIVER.into(),
        handle: VOLUME_ID.into(),
        uses: uses.to_vec(),
        shares_node: config.shares_node,
        unprepared: None,
        attaches_read_only: false,
    };
    let nodes: Vec<_> = node_ids().map(|n| node_seen(view, n)).collect();
    let seen = admission::Seen {
        volume_name: VOLUME,
        volume: Some(&volume),
        handle: Some(&handle),
        claims: &claims,
        attachments: &atts,
        nodes: &nodes,
        forgotten: &[],
    };
    let mut wanted = None;
    for (uid, verdict) in admission::admit(&seen) {
        let Verdict::Grant(grant) = verdict else { continue };
        match grant {
            Grant::Create { attachment, node } => steps.push(create(config, view, &uid, &attachment, &node)),
            Grant::Join { uid: att, .. } => {
                let c = claim_of(&uid);
                let seen = view.claims[usize::from(c)].expect("a granted claim");
                let att = view.atts.iter().find(|a| a.uid == uid_of(&att)).expect("a joined Attachment");
                let join = Follow::Join { claim: c, seen, uid: att.uid, node: att.node };
                let writes = claims.iter().any(|k| k.uid == uid && k.needs_writer_lock());
                steps.push(behind(view, join, writes));
            }
            Grant::NameWriter { uid: att, .. } => {
                let before = view.handle.writer.filter(|w| !w.released).map(|w| w.holder);
                let lock = Lock { holder: (claim_of(&uid), uid_of(&att)), released: false, after: before };
                steps.push(behind(view, Follow::Name(view.handle, lock), true));
            }
            Grant::SwitchMode { mode } => wanted = Some(mode),
        }
    }
    let grants = !steps.is_empty();
    if view.handle.closing {
        wanted = claims.iter().find(|c| c.wants_grant()).map(|c| c.mode);
    }
    steps.extend(handle_step(config, view, wanted));
    if config.attach {
        steps.extend(view.atts.iter().filter_map(|a| move_attachment(view, a)));
    }
    if !(grants && config.ordered) {
        for (att, seen) in view.atts.iter().zip(&atts) {
            match closing::plan(seen, &claims) {
                Some(ClosingStep::Close) => steps.push(LeaderDoes::Close(att.uid)),
                Some(ClosingStep::Free) => steps.push(LeaderDoes::FreeAttachment(*att)),
                None => {}
            }
        }
    }
    for seen in &claims {
        let c = claim_of(&seen.uid);
        let claim = view.claims[usize::from(c)].expect("a claim that was seen");
        match release::plan(seen, &atts) {
            Some(ReleaseStep::Free) => steps.push(match writer::retire(Some(&handle), seen) {
                Some(lock) => LeaderDoes::Retire(view.handle, lock_of(&lock)),
                None => LeaderDoes::FreeClaim(c, claim),
            }),
            Some(ReleaseStep::FreeIfAttachmentGone) => {
                steps.push(LeaderDoes::FreeClaimIfAttachmentGone(c, claim));
            }
            None => {}
        }
    }
    steps
}

/// Design R3's order: the name was seen in the VolumeHandle, now whom it replaced is looked at.
fn behind(view: &LeaderView, then: Follow, writes: bool) -> LeaderDoes {
    match view.handle.writer.and_then(|w| w.after) {
        Some(before) if writes => LeaderDoes::LookBehind(before, then),
        _ => LeaderDoes::Follow(then),
    }
}

fn node_seen(view: &LeaderView, n: u8) -> NodeSeen {
    NodeSeen {
        name: node_name(n).into(),
        uid: node_name(n).into(),
        healthy: view.sick != Some(n),
        reachable: true,
        has_room: true,
        load: view.atts.iter().filter(|a| a.node == n).count(),
    }
}

fn create(config: &Config, view: &LeaderView, claim: &str, name: &str, node: &str) -> LeaderDoes {
    let mode = config.claims[usize::from(claim_of(claim))].mode;
    let node = node_ids().find(|n| node_name(*n) == node).expect("a node of the model");
    assert_eq!(NAMES.of(mode, node), name, "the lock's name");
    LeaderDoes::Create(Att {
        uid: 0,
        node,
        mode,
        epoch: view.handle.epoch,
        controller: view.handle.controller,
        state: AttachmentState::Taken,
        deleted: false,
    })
}

/// Design R2: the assignment on an Attachment follows the VolumeHandle's when a controller step is due.
fn move_attachment(view: &LeaderView, att: &Att) -> Option<LeaderDoes> {
    let due = matches!(att.state, AttachmentState::Taken | AttachmentState::NodeDetached);
    let to = view.handle.controller;
    (due && att.controller != to).then_some(LeaderDoes::MoveAttachment(*att, to))
}

fn handle_step(config: &Config, view: &LeaderView, wanted: Option<AccessMode>) -> Option<LeaderDoes> {
    let handle = handle_seen(config, &view.handle);
    let instances: Vec<_> = (0..)
        .zip(view.alive)
        .map(|(i, alive)| InstanceSeen {
            name: instance_name(i).into(),
            agent: node_name(i).into(),
            healthy: alive,
            dead: !alive,
            topology: BTreeMap::new(),
        })
        .collect();
    let volume = ready_volume(config);
    let seen = volume::Seen {
        volume: &volume,
        held: true,
        plugin: Some(Balancing::SingleActive),
        controllers: if config.attach { &instances } else { &[] },
        any_healthy: true,
        can_create: false,
        handle: Some(&handle),
        in_use_by: None,
        wanted_mode: wanted,
    };
    match volume::plan(&seen) {
        VolumeStep::Idle => None,
        VolumeStep::BeginClosing => Some(LeaderDoes::BeginClosing(view.handle)),
        VolumeStep::FinishClosing(mode) => Some(LeaderDoes::ListForFinish(view.handle, mode)),
        VolumeStep::MoveHandle(to) => {
            let to = node_ids().find(|i| instance_name(*i) == to.instance).expect("an instance of the model");
            Some(LeaderDoes::MoveHandle(view.handle, to))
        }
        other => unreachable!("a Ready Volume plans {other:?}"),
    }
}

fn ready_volume(config: &Config) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.name = Some(VOLUME.into());
    volume.metadata.namespace = Some(NAMESPACE.into());
    volume.metadata.uid = Some(VOLUME.into());
    volume.spec.volume_handle = Some(VOLUME_ID.into());
    volume.spec.assignment = Some(VolumeAssignment {
        operation: VolumeOperation::Validate,
        controller: config.attach.then(|| controller_ref(0)),
    });
    volume.status.get_or_insert_default().state = VolumeState::Ready;
    volume
}

/// Makes the write.
pub fn act(config: &Config, state: &mut State, who: Actor, step: LeaderDoes) {
    match step {
        LeaderDoes::Create(att) => {
            state.create(who, att);
        }
        LeaderDoes::Follow(then) => follow(state, who, then),
        LeaderDoes::LookBehind((c, uid), then) => {
            let behind = (who, then);
            if writer_let_go(config, state, c, uid) && !state.following.contains(&behind) {
                state.following.push(behind);
            }
        }
        LeaderDoes::Retire(seen, lock) => {
            state.update_handle(who, &seen, Handle { writer: Some(lock), ..seen });
        }
        LeaderDoes::BeginClosing(seen) => {
            let new = Handle { closing: true, epoch: seen.epoch + 1, ..seen };
            state.update_handle(who, &seen, new);
        }
        LeaderDoes::ListForFinish(seen, mode) => {
            if state.atts.iter().all(|a| a.epoch >= seen.epoch) {
                state.finishing = Some((seen, mode));
            }
        }
        LeaderDoes::MoveHandle(seen, to) if state.habits.slow_move => state.moving = Some((seen, to)),
        LeaderDoes::MoveHandle(seen, to) => {
            state.update_handle(who, &seen, Handle { controller: to, ..seen });
        }
        LeaderDoes::MoveAttachment(seen, to) => {
            state.update_att(who, &seen, Att { controller: to, ..seen });
        }
        LeaderDoes::Close(uid) => {
            state.delete_att(who, uid);
        }
        LeaderDoes::FreeAttachment(seen) => {
            state.free_att(who, &seen);
        }
        LeaderDoes::FreeClaim(c, seen) => {
            state.release_claim(who, c, &seen);
        }
        LeaderDoes::FreeClaimIfAttachmentGone(c, seen) => {
            let gone = seen.assigned.is_none_or(|(uid, _)| state.att(uid).is_none());
            if gone {
                state.release_claim(who, c, &seen);
            }
        }
    }
}

fn follow(state: &mut State, who: Actor, then: Follow) {
    match then {
        Follow::Join { claim, seen, uid, node } => {
            let new = Claim { held: true, assigned: Some((uid, node)), ..seen };
            state.update_claim(who, claim, &seen, new);
        }
        Follow::Name(seen, lock) => {
            state.update_handle(who, &seen, Handle { writer: Some(lock), ..seen });
        }
    }
}

/// The live look of `controller/writers.rs`.
fn writer_let_go(config: &Config, state: &State, c: u8, uid: Uid) -> bool {
    let claim = state.claims[usize::from(c)].map(|k| claim_seen(config, c, &k));
    writer::has_let_go(&writer_ref((c, uid)), claim.as_ref(), state.att(uid).is_some())
}

/// The write that the look behind the writer's lock allowed.
pub fn finish_follow(state: &mut State, at: usize) {
    let (who, then) = state.following.remove(at);
    follow(state, who, then);
}

/// A write whose object has changed since will be refused.
pub fn drop_refused(state: &mut State) {
    let (claims, now) = (state.claims, state.handle);
    state.following.retain(|(_, then)| match then {
        Follow::Join { claim, seen, .. } => claims[usize::from(*claim)].as_ref() == Some(seen),
        Follow::Name(seen, _) => *seen == now,
    });
}

/// The write that ends a closing.
pub fn finish(state: &mut State) {
    if let Some((seen, mode)) = state.finishing.take() {
        state.update_handle(Actor::Leader(0), &seen, Handle { mode, closing: false, writer: None, ..seen });
    }
}

/// The write that names another instance.
pub fn finish_move(state: &mut State) {
    if let Some((seen, to)) = state.moving.take() {
        state.update_handle(Actor::Leader(0), &seen, Handle { controller: to, ..seen });
    }
}
