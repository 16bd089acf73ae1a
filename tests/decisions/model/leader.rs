//! The leaders. One pass plans with [`moor::leader::plan`] on a view of the API and may make its one write; nothing is kept.

use moor::api::volume::DeletionPolicy;
use moor::api::{AccessMode, AttachmentState, ClaimState};
use moor::attachment::record::Done;
use moor::leader::{LeaderStep, Looked};

use super::config::{CLAIMS, Config, NODES, node_ids, node_name};
use super::harm::Harm;
use super::scene::{answer, observed};
use super::seen::{NAMES, claim_of, given, lock_of, uid_of};
use super::state::{Actor, Att, Claim, Given, Handle, Lock, Machine, Rec, State, Uid, Vol};
use super::volumes::{self, Name, VolumeDoes};

/// What a leader looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaderView {
    pub claims: [Option<Claim>; CLAIMS],
    pub atts: Vec<Att>,
    pub handle: Handle,
    /// Controller plugins whose process runs.
    pub alive: [bool; NODES],
    /// Their tenures, and those that they were relieved of before.
    pub tenures: [(u8, u8); NODES],
    /// The node whose plugin is not healthy.
    pub sick: Option<u8>,
    /// What Leases and instances say.
    pub machines: [Machine; NODES],
    /// What the Node objects say.
    pub nodes: [Machine; NODES],
    pub volumes: [Option<Vol>; 2],
    /// By node: the Attachment of a mount that it reports as forgotten.
    pub forgotten: [Option<Uid>; NODES],
    /// Attachments whose time to linger is over.
    pub lingered: Vec<Uid>,
    /// By node: its Lease says that it has mounts of Attachments that are gone or lost.
    pub unclean: [bool; NODES],
}

/// One write of a leader, with what it saw of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaderDoes {
    /// Live looks come first, about this name of a Volume; the step that follows is planned with what they show.
    Look(usize),
    Create(Att),
    Assign {
        claim: u8,
        seen: Claim,
        uid: Uid,
        node: u8,
    },
    /// Write the writer's lock: name a claim, or say that one is done.
    Writer(Handle, Lock),
    BeginClosing(Handle, bool),
    FinishClosing(Handle, AccessMode),
    /// A step about a Volume that changes it or its VolumeHandle, with what was seen of both.
    Volume(u8, Vol, Handle, VolumeDoes),
    MoveHandle(Handle, Given),
    MoveAttachment(Att, Given),
    DeclareLost(Att),
    /// The claim's node was lost.
    EndClaim(u8, Claim),
    Close(Uid),
    /// The claim has ended, or its Pod is gone.
    DeleteClaim(u8, Claim),
    FreeAttachment(Att),
    FreeClaim(u8, Claim),
}

pub fn view(state: &State, who: Actor) -> LeaderView {
    LeaderView {
        claims: *state.claims_of(who),
        atts: state.atts_of(who).to_vec(),
        handle: state.handle_of(who),
        alive: state.controllers.map(|c| c.alive),
        tenures: state.controllers.map(|c| (c.tenure, c.relieved)),
        sick: state.sick,
        machines: state.machines,
        nodes: state.nodes_of(who),
        volumes: state.volumes,
        forgotten: state.nodes.each_ref().map(|n| n.records.iter().find(|r| r.forgotten).map(|r| r.uid)),
        lingered: state.lingered.clone(),
        unclean: state.nodes.each_ref().map(|n| n.records.iter().any(|r| is_left_over(state, r))),
    }
}

/// What the node's Lease says is what its records and the API say when the Lease is renewed; here that is always.
fn is_left_over(state: &State, rec: &Rec) -> bool {
    let traces = rec.staged != Done::No || rec.targets.iter().any(Option::is_some);
    traces && !rec.forgotten && state.att(rec.uid).is_none_or(|a| a.lost)
}

/// The step that is due for each name of a Volume.
pub fn plans(config: &Config, view: &LeaderView) -> Vec<LeaderDoes> {
    let names = volumes::names(config, &view.volumes);
    let due = |(at, name): (usize, &Name)| {
        let observed = observed(config, view, name);
        match observed.plan(&Looked::default()).step {
            LeaderStep::Rest => None,
            LeaderStep::Look(_) => Some(LeaderDoes::Look(at)),
            step => Some(does(config, view, name, &step)),
        }
    };
    names.iter().enumerate().filter_map(due).collect()
}

/// Looks live until the plan looks no more, and returns what it leads to.
fn looked(config: &Config, state: &State, view: &LeaderView, name: &Name) -> Option<LeaderDoes> {
    let observed = observed(config, view, name);
    let mut looked = Looked::default();
    loop {
        match observed.plan(&looked).step {
            LeaderStep::Rest => return None,
            LeaderStep::Look(look) => answer(config, state, view, look, &mut looked),
            step => return Some(does(config, view, name, &step)),
        }
    }
}

/// A step in the model's words.
fn does(config: &Config, view: &LeaderView, name: &Name, step: &LeaderStep) -> LeaderDoes {
    let att =
        |uid: &str| *view.atts.iter().find(|a| a.uid == uid_of(uid)).expect("an Attachment that was seen");
    let claim = |uid: &str| {
        let c = claim_of(uid);
        (c, view.claims[usize::from(c)].expect("a claim that was seen"))
    };
    let volume = |does: VolumeDoes| {
        let (v, vol) = name.current.expect("a step on a Volume");
        LeaderDoes::Volume(v, vol, view.handle, does)
    };
    match step {
        LeaderStep::DeclareLost { attachment, cause: _ } => LeaderDoes::DeclareLost(att(attachment)),
        LeaderStep::EndClaim { claim: ended, attachment: _ } => {
            let (c, seen) = claim(ended);
            LeaderDoes::EndClaim(c, seen)
        }
        LeaderStep::Close { attachment } => LeaderDoes::Close(uid_of(attachment)),
        LeaderStep::FreeAttachment { attachment } => LeaderDoes::FreeAttachment(att(attachment)),
        // Without a controller service an Attachment names none, and here each stands for number 0.
        LeaderStep::MoveAttachment { attachment } => {
            LeaderDoes::MoveAttachment(att(attachment), view.handle.controller)
        }
        LeaderStep::FreeClaim { claim: freed } => {
            let (c, seen) = claim(freed);
            LeaderDoes::FreeClaim(c, seen)
        }
        LeaderStep::DeleteClaim { claim: deleted } => {
            let (c, seen) = claim(deleted);
            LeaderDoes::DeleteClaim(c, seen)
        }
        LeaderStep::CreateAttachment { claim: first, name: lock, node } => {
            create(config, view, name, (claim_of(first), lock, node))
        }
        LeaderStep::AssignClaim { claim: granted, attachment } => {
            let ((c, seen), att) = (claim(granted), att(attachment));
            LeaderDoes::Assign { claim: c, seen, uid: att.uid, node: att.node }
        }
        LeaderStep::NameWriter { claim: named, attachment: _, attachment_uid } => {
            let before = view.handle.writer.filter(|w| !w.released).map(|w| w.holder);
            let holder = (claim_of(named), uid_of(attachment_uid));
            LeaderDoes::Writer(view.handle, Lock { holder, released: false, after: before })
        }
        LeaderStep::RetireWriter(writer) => LeaderDoes::Writer(view.handle, lock_of(writer)),
        LeaderStep::BeginClosing { last } => {
            assert_ne!(*last, Some(DeletionPolicy::Delete), "a registered Volume keeps its storage");
            LeaderDoes::BeginClosing(view.handle, last.is_some())
        }
        LeaderStep::FinishClosing { mode, first_controller: _ } => {
            LeaderDoes::FinishClosing(view.handle, *mode)
        }
        LeaderStep::MoveHandle(to) => LeaderDoes::MoveHandle(view.handle, given(to)),
        LeaderStep::AssignVolume(_) => volume(VolumeDoes::Assign),
        LeaderStep::ReportReady => volume(VolumeDoes::ReportReady),
        LeaderStep::FreeVolume => volume(VolumeDoes::Free),
        LeaderStep::CreateHandle { epoch, closing, closed_for, controller } => {
            let controller = controller.as_ref().map(given).unwrap_or_default();
            let epoch = u8::try_from(*epoch).expect("a small epoch");
            let last = closed_for.map(|_| false);
            volume(VolumeDoes::Make { epoch, closing: *closing, last, controller })
        }
        LeaderStep::TakeOver => volume(VolumeDoes::TakeOver),
        LeaderStep::RemoveHandle => volume(VolumeDoes::Remove),
        LeaderStep::Rest
        | LeaderStep::Look(_)
        | LeaderStep::Abandon { .. }
        | LeaderStep::RefuseClaim { .. }
        | LeaderStep::ImportVolume { .. }
        | LeaderStep::RenewVolume { .. }
        | LeaderStep::AllowDeletion(_)
        | LeaderStep::RestoreStatus { .. }
        | LeaderStep::ReportExpanded(_)
        | LeaderStep::ReportModified
        // An Attachment is asked for it when it is made.
        | LeaderStep::AskNode { .. }
        | LeaderStep::ReportFollowed(_)
        | LeaderStep::TellStorageLeft(_) => {
            unreachable!(
                "{step:?}: a registered Volume keeps its storage, and every call has somebody to make it"
            )
        }
    }
}

fn create(
    config: &Config,
    view: &LeaderView,
    of: &Name,
    (claim, lock, node): (u8, &str, &str),
) -> LeaderDoes {
    let mode = config.claims[usize::from(claim)].mode;
    let node = node_ids().find(|n| node_name(*n) == node).expect("a node of the model");
    assert_eq!(NAMES.of(mode, node), lock, "the lock's name");
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
        grown: false,
    })
}

/// Does the step. What live looks led to may be on its way for a while.
pub fn act(config: &Config, state: &mut State, who: Actor, step: LeaderDoes) {
    let LeaderDoes::Look(at) = step else {
        write(config, state, who, step);
        return;
    };
    let view = view(state, who);
    let name = volumes::names(config, &view.volumes).swap_remove(at);
    let Some(does) = looked(config, state, &view, &name) else { return };
    // What an old leader looks at in its caches says nothing of now.
    if let LeaderDoes::DeclareLost(att) = does
        && !state.machines[usize::from(att.node)].away
        && !state.habits.blind_loss
    {
        state.harmed(Harm::LostWhileHeard);
    }
    let pauses = match does {
        LeaderDoes::Assign { .. } | LeaderDoes::Writer(..) | LeaderDoes::FinishClosing(..) => true,
        LeaderDoes::MoveHandle(..) => state.habits.slow_move,
        LeaderDoes::DeclareLost(_) | LeaderDoes::FreeAttachment(_) => state.habits.slow_loss,
        _ => false,
    };
    if !pauses {
        write(config, state, who, does);
    } else if !state.pending.contains(&(who, does)) {
        state.pending.push((who, does));
    }
}

/// Makes the write.
fn write(config: &Config, state: &mut State, who: Actor, step: LeaderDoes) {
    match step {
        LeaderDoes::Look(_) => unreachable!("looks are over"),
        LeaderDoes::Volume(v, vol, handle, does) => volumes::act(config, state, who, (v, vol), &handle, does),
        LeaderDoes::Create(att) => {
            state.create(who, att);
        }
        LeaderDoes::Assign { claim, seen, uid, node } => {
            let new = Claim { held: true, assigned: Some((uid, node)), ..seen };
            state.update_claim(who, claim, &seen, new);
        }
        LeaderDoes::Writer(seen, lock) => {
            state.update_handle(who, &seen, Handle { writer: Some(lock), ..seen });
        }
        LeaderDoes::BeginClosing(seen, last) => {
            let last = last.then(|| seen.last.unwrap_or(!seen.closing));
            let epoch = seen.epoch + u8::from(!seen.closing);
            let new = Handle { closing: true, last, epoch, ..seen };
            state.update_handle(who, &seen, new);
        }
        LeaderDoes::FinishClosing(seen, mode) => {
            let new = Handle { mode, closing: false, last: None, writer: None, ..seen };
            state.update_handle(who, &seen, new);
        }
        LeaderDoes::MoveHandle(seen, to) => {
            state.update_handle(who, &seen, Handle { controller: to, ..seen });
        }
        LeaderDoes::MoveAttachment(seen, to) => {
            state.update_att(who, &seen, Att { controller: to, ..seen });
        }
        LeaderDoes::DeclareLost(seen) => {
            if state.update_att(who, &seen, Att { lost: true, ..seen })
                && !state.truth.cut.contains(&seen.uid)
            {
                state.truth.cut.push(seen.uid);
            }
        }
        LeaderDoes::EndClaim(c, seen) => {
            state.update_claim(who, c, &seen, Claim { state: ClaimState::Lost, ..seen });
        }
        LeaderDoes::Close(uid) => {
            state.delete_att(who, uid);
        }
        LeaderDoes::DeleteClaim(c, seen) => {
            if state.claims[usize::from(c)] == Some(seen) {
                state.delete_claim(c);
            }
        }
        LeaderDoes::FreeAttachment(seen) => {
            state.free_att(who, &seen);
        }
        LeaderDoes::FreeClaim(c, seen) => {
            state.release_claim(who, c, &seen);
        }
    }
}

/// The write that looks have allowed.
pub fn finish(config: &Config, state: &mut State, at: usize) {
    let (who, step) = state.pending.remove(at);
    write(config, state, who, step);
}

/// A write whose object has changed since will be refused.
pub fn drop_refused(state: &mut State) {
    let (claims, now, atts) = (state.claims, state.handle, state.atts.clone());
    state.pending.retain(|(_, step)| match step {
        LeaderDoes::Assign { claim, seen, .. } => claims[usize::from(*claim)].as_ref() == Some(seen),
        LeaderDoes::Writer(seen, _)
        | LeaderDoes::FinishClosing(seen, _)
        | LeaderDoes::MoveHandle(seen, _) => *seen == now,
        LeaderDoes::DeclareLost(seen) | LeaderDoes::FreeAttachment(seen) => atts.contains(seen),
        _ => true,
    });
}
