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
use moor::claim::{NodeSeen, VolumeSeen};
use moor::volume::{self, InstanceSeen, VolumeStep};

use super::config::{CLAIMS, Config, DRIVER, NODES, VOLUME_ID, instance_name, node_ids, node_name};
use super::seen::{NAMES, NAMESPACE, VOLUME, att_seen, claim_seen, controller_ref, handle_seen};
use super::seen::{claim_of, uid_of};
use super::state::{Actor, Att, Claim, Handle, State, Uid};

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

/// One write of a leader, with what it saw of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaderDoes {
    Create(Att),
    Join {
        claim: u8,
        seen: Claim,
        uid: Uid,
        node: u8,
    },
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
                steps.push(LeaderDoes::Join { claim: c, seen, uid: att.uid, node: att.node });
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
            Some(ReleaseStep::Free) => steps.push(LeaderDoes::FreeClaim(c, claim)),
            Some(ReleaseStep::FreeIfAttachmentGone) => {
                steps.push(LeaderDoes::FreeClaimIfAttachmentGone(c, claim));
            }
            None => {}
        }
    }
    steps
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
pub fn act(state: &mut State, who: Actor, step: LeaderDoes) {
    match step {
        LeaderDoes::Create(att) => {
            state.create(who, att);
        }
        LeaderDoes::Join { claim, seen, uid, node } => {
            let new = Claim { held: true, assigned: Some((uid, node)), ..seen };
            state.update_claim(who, claim, &seen, new);
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

/// The write that ends a closing.
pub fn finish(state: &mut State) {
    if let Some((seen, mode)) = state.finishing.take() {
        state.update_handle(Actor::Leader(0), &seen, Handle { mode, closing: false, ..seen });
    }
}

/// The write that names another instance.
pub fn finish_move(state: &mut State) {
    if let Some((seen, to)) = state.moving.take() {
        state.update_handle(Actor::Leader(0), &seen, Handle { controller: to, ..seen });
    }
}
