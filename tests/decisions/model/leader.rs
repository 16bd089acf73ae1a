//! The leaders. One pass looks at a view of the API and may make any one of its writes; nothing is kept.

use std::collections::BTreeMap;

use moor::api::capability::VolumeUse;
use moor::api::plugin::Balancing;
use moor::api::{AccessMode, AttachmentMode, AttachmentState, ClaimState};
use moor::attachment::closing::{self, ClosingStep};
use moor::attachment::record::Done;
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::admission::{self, Grant, Verdict};
use moor::claim::release::{self, ReleaseStep};
use moor::claim::writer;
use moor::claim::{ClaimSeen, ForgottenSeen, Mount, NodeSeen, VolumeSeen};
use moor::volume::{InstanceSeen, VolumeStep};

use super::config::{CLAIMS, Config, DRIVER, NODES, VOLUME_ID, instance_name, node_ids, node_name};
use super::losses;
use super::seen::{NAMES, VOLUME, att_seen, claim_seen, handle_seen};
use super::seen::{claim_of, lock_of, node_uid, uid_name, uid_of, volume_uid, writer_ref};
use super::state::{Actor, Att, Claim, Handle, Lock, Machine, Rec, State, Uid, Vol};
use super::volumes::{self, Name, VolumeDoes};

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
    /// What Leases and instances say.
    pub machines: [Machine; NODES],
    /// What the Node objects say.
    pub nodes: [Machine; NODES],
    pub volumes: [Option<Vol>; 2],
    /// By node: the Attachment of a mount that it reports as forgotten.
    pub forgotten: [Option<Uid>; NODES],
    /// By node: its Lease says that it has mounts of Attachments that are gone or lost.
    pub unclean: [bool; NODES],
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
    /// A step about a Volume that changes it or its VolumeHandle, with what was seen of both.
    Volume(u8, Vol, Handle, VolumeDoes),
    MoveHandle(Handle, u8),
    MoveAttachment(Att, u8),
    /// Live reads say that the node is lost; the write that follows is `State::declaring`.
    LookAtNode(Att),
    /// The claim's node was lost.
    EndClaim(u8, Claim),
    Close(Uid),
    FreeAttachment(Att),
    /// Live looks say that the lost node is still out; the write that follows is `State::freeing`.
    LookBeforeFree(Att),
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
        machines: state.machines,
        nodes: state.nodes_of(who),
        volumes: state.volumes,
        forgotten: state.nodes.each_ref().map(|n| n.records.iter().find(|r| r.forgotten).map(|r| r.uid)),
        unclean: state.nodes.each_ref().map(|n| n.records.iter().any(|r| is_left_over(state, r))),
    }
}

/// What the node's Lease says is what its records and the API say when the Lease is renewed; here that is always.
fn is_left_over(state: &State, rec: &Rec) -> bool {
    let traces = rec.staged != Done::No || rec.targets.iter().any(Option::is_some);
    traces && !rec.forgotten && state.att(rec.uid).is_none_or(|a| a.lost)
}

/// Asks every decision of the leader, about every Volume by name.
pub fn plans(config: &Config, view: &LeaderView) -> Vec<LeaderDoes> {
    volumes::names(config, &view.volumes).iter().flat_map(|name| pass(config, view, name)).collect()
}

fn pass(config: &Config, view: &LeaderView, name: &Name) -> Vec<LeaderDoes> {
    let mut steps = Vec::new();
    let claims: Vec<_> = (0..)
        .zip(&view.claims)
        .filter(|(c, _)| name.claims.contains(c))
        .filter_map(|(c, claim)| claim.as_ref().map(|k| claim_seen(config, c, k)))
        .collect();
    let locks: Vec<_> = view.atts.iter().map(|a| att_seen(config, a)).collect();
    let own: Vec<Att> = view.atts.iter().filter(|a| name.volumes.contains(&a.volume)).copied().collect();
    let atts: Vec<_> = own.iter().map(|a| att_seen(config, a)).collect();
    let handle = handle_seen(config, &view.handle);
    let uses = config
        .claims
        .iter()
        .map(|c| VolumeUse { access_mode: c.mode, attachment_mode: AttachmentMode::FileSystem });
    let volume = name.current.map(|(v, vol)| VolumeSeen {
        uid: volume_uid(v),
        deleted: vol.deleted,
        ready: vol.ready,
        driver: DRIVER.into(),
        handle: VOLUME_ID.into(),
        uses: uses.collect(),
        unprepared: None,
        attaches_read_only: false,
    });
    let nodes: Vec<_> = node_ids().map(|n| node_seen(view, n)).collect();
    let reported = |(n, uid): (u8, Option<Uid>)| {
        let mount = Mount::Reported(uid_name(uid?));
        Some(ForgottenSeen { node: node_name(n).into(), instance: instance_name(n).into(), mount })
    };
    let forgotten: Vec<_> = (0..).zip(view.forgotten).filter_map(reported).collect();
    let seen = admission::Seen {
        volume_name: VOLUME,
        volume: volume.as_ref(),
        handle: handle.as_ref(),
        claims: &claims,
        attachments: &locks,
        nodes: &nodes,
        forgotten: &forgotten,
        not_allowed: &[],
    };
    let mut wanted = None;
    for (uid, verdict) in admission::admit(&seen) {
        let Verdict::Grant(grant) = verdict else { continue };
        match grant {
            Grant::Create { attachment, node } => {
                steps.push(create(config, view, name, &uid, &attachment, &node));
            }
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
    steps.extend(losses::plans(config, view, &own, &claims));
    if steps.iter().any(|step| matches!(step, LeaderDoes::EndClaim(..))) {
        // A pass ends the claims of a lost node before anything else.
        return steps.into_iter().filter(|step| matches!(step, LeaderDoes::EndClaim(..))).collect();
    }
    if view.handle.there && view.handle.closing {
        wanted = claims.iter().find(|c| c.wants_grant()).map(|c| c.mode);
    }
    if let Some(current) = name.current {
        let in_use = claims.iter().any(|c| c.uses().is_some()) || !locks.is_empty();
        steps.extend(handle_step(config, view, current, in_use, wanted));
    } else if let Some(left) = handle.as_ref().filter(|_| !own.is_empty() && own_handle(view, name)) {
        steps.extend(
            heir_without_volume(config, left, &view.alive).map(|to| LeaderDoes::MoveHandle(view.handle, to)),
        );
    }
    if config.attach {
        steps.extend(own.iter().filter_map(|a| move_attachment(view, a)));
    }
    if !(grants && config.ordered) {
        for (att, seen) in own.iter().zip(&atts) {
            match closing::plan(seen, &claims) {
                // Without the look it closes too early, which costs time and is no harm: that is what is checked here.
                Some(ClosingStep::Close | ClosingStep::CloseIfUnused) => {
                    steps.push(LeaderDoes::Close(att.uid));
                }
                Some(ClosingStep::Free) => steps.push(LeaderDoes::FreeAttachment(*att)),
                Some(ClosingStep::FreeIfStillOut) => steps.push(LeaderDoes::LookBeforeFree(*att)),
                None => {}
            }
        }
    }
    steps.extend(claims.iter().filter_map(|seen| free(view, handle.as_ref(), &atts, seen)));
    steps
}

fn free(
    view: &LeaderView,
    handle: Option<&HandleSeen>,
    atts: &[AttachmentSeen],
    seen: &ClaimSeen,
) -> Option<LeaderDoes> {
    let c = claim_of(&seen.uid);
    let claim = view.claims[usize::from(c)].expect("a claim that was seen");
    Some(match release::plan(seen, atts)? {
        ReleaseStep::Free => match writer::retire(handle, seen) {
            Some(lock) => LeaderDoes::Retire(view.handle, lock_of(&lock)),
            None => LeaderDoes::FreeClaim(c, claim),
        },
        ReleaseStep::FreeIfAttachmentGone => LeaderDoes::FreeClaimIfAttachmentGone(c, claim),
    })
}

/// Rule R3's order: the name was seen in the VolumeHandle, now whom it replaced is looked at.
fn behind(view: &LeaderView, then: Follow, writes: bool) -> LeaderDoes {
    match view.handle.writer.and_then(|w| w.after) {
        Some(before) if writes => LeaderDoes::LookBehind(before, then),
        _ => LeaderDoes::Follow(then),
    }
}

fn node_seen(view: &LeaderView, n: u8) -> NodeSeen {
    let (machine, node) = (&view.machines[usize::from(n)], &view.nodes[usize::from(n)]);
    NodeSeen {
        name: node_name(n).into(),
        uid: node_uid(n, machine.uid),
        healthy: view.sick != Some(n) && !machine.away && !node.tainted && !node.unregistered,
        reachable: true,
        unclean: view.unclean[usize::from(n)],
        twin: None,
        has_room: true,
        load: view.atts.iter().filter(|a| a.node == n).count(),
    }
}

fn create(config: &Config, view: &LeaderView, of: &Name, claim: &str, name: &str, node: &str) -> LeaderDoes {
    let mode = config.claims[usize::from(claim_of(claim))].mode;
    let node = node_ids().find(|n| node_name(*n) == node).expect("a node of the model");
    assert_eq!(NAMES.of(mode, node), name, "the lock's name");
    LeaderDoes::Create(Att {
        uid: 0,
        volume: of.current.expect("a grant on a Volume").0,
        node,
        node_uid: view.machines[usize::from(node)].uid,
        mode,
        epoch: view.handle.epoch,
        controller: view.handle.controller,
        state: AttachmentState::Taken,
        deleted: false,
        lost: false,
    })
}

/// Rule R2: the assignment on an Attachment follows the VolumeHandle's when a controller step is due.
fn move_attachment(view: &LeaderView, att: &Att) -> Option<LeaderDoes> {
    let due = matches!(att.state, AttachmentState::Taken | AttachmentState::NodeDetached)
        || (att.lost && att.state == AttachmentState::Attached);
    let to = view.handle.controller;
    (view.handle.there && due && att.controller != to).then_some(LeaderDoes::MoveAttachment(*att, to))
}

/// The VolumeHandle is of a Volume of this name.
fn own_handle(view: &LeaderView, name: &Name) -> bool {
    name.volumes.contains(&view.handle.owner)
}

/// Asks [`moor::volume::heir_without_volume`].
pub fn heir_without_volume(config: &Config, handle: &HandleSeen, alive: &[bool; NODES]) -> Option<u8> {
    let instances = instances(config, alive);
    let to = moor::volume::heir_without_volume(handle, &instances, Balancing::SingleActive)?;
    node_ids().find(|i| instance_name(*i) == to.instance)
}

/// The controller instances, as a leader sees them.
fn instances(config: &Config, alive: &[bool; NODES]) -> Vec<InstanceSeen> {
    let seen = |(i, alive): (u8, &bool)| InstanceSeen {
        name: instance_name(i).into(),
        agent: node_name(i).into(),
        healthy: *alive,
        serving: *alive,
        dead: !alive,
        topology: BTreeMap::new(),
    };
    (0..).zip(alive).filter(|_| config.attach).map(seen).collect()
}

fn handle_step(
    config: &Config,
    view: &LeaderView,
    (v, vol): (u8, Vol),
    in_use: bool,
    wanted: Option<AccessMode>,
) -> Option<LeaderDoes> {
    let handle = handle_seen(config, &view.handle);
    let instances = instances(config, &view.alive);
    let volume = volumes::object(config, v, &vol);
    let seen = moor::volume::Seen {
        volume: &volume,
        held: vol.held,
        plugin: Some(Balancing::SingleActive),
        older_plugin: None,
        not_allowed: None,
        same_driver: true,
        controllers: &instances,
        names_controllers: false,
        any_healthy: true,
        can_create: false,
        attaches: config.attach,
        handle: handle.as_ref(),
        in_use_by: in_use.then(|| "somebody".to_owned()),
        wanted_mode: wanted,
    };
    let step = moor::volume::plan(&seen);
    match step {
        VolumeStep::Idle | VolumeStep::Wait(_) => None,
        VolumeStep::Assign(_)
        | VolumeStep::MakeHandle
        | VolumeStep::ContestHandle
        | VolumeStep::ReportReady
        | VolumeStep::RemoveHandle
        | VolumeStep::FreeVolume => Some(LeaderDoes::Volume(v, vol, view.handle, volumes::kind(&step))),
        VolumeStep::BeginClosing => Some(LeaderDoes::BeginClosing(view.handle)),
        VolumeStep::FinishClosing { mode, first_controller: _ } => {
            Some(LeaderDoes::ListForFinish(view.handle, mode))
        }
        VolumeStep::MoveHandle(to) => {
            let to = node_ids().find(|i| instance_name(*i) == to.instance).expect("an instance of the model");
            Some(LeaderDoes::MoveHandle(view.handle, to))
        }
        VolumeStep::AssignDelete(_)
        | VolumeStep::RestoreStatus
        | VolumeStep::JudgeRejected
        | VolumeStep::JudgeAnew => {
            unreachable!("a registered Volume keeps its storage")
        }
    }
}

/// Makes the write.
pub fn act(config: &Config, state: &mut State, who: Actor, step: LeaderDoes) {
    match step {
        LeaderDoes::Volume(v, vol, handle, does) => volumes::act(config, state, who, (v, vol), &handle, does),
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
        LeaderDoes::LookAtNode(att) => losses::look(config, state, att),
        LeaderDoes::EndClaim(c, seen) => {
            state.update_claim(who, c, &seen, Claim { state: ClaimState::Lost, ..seen });
        }
        LeaderDoes::Close(uid) => {
            state.delete_att(who, uid);
        }
        LeaderDoes::FreeAttachment(seen) => {
            state.free_att(who, &seen);
        }
        LeaderDoes::LookBeforeFree(seen) => losses::look_before_free(config, state, who, seen),
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
