//! The world at one moment, and the objects that the decisions look at.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use moor::api::attachment::VolumeRef;
use moor::api::caller::ControllerRef;
use moor::api::capability::{MountOptions, VolumeUse};
use moor::api::conditions::CallFailure;
use moor::api::names::{DriverOn, instance_name};
use moor::api::volume::{
    DeletionPolicy, Edit, EditAnswer, GrantedUse, Modification, Rejected, VolumeAssignment, VolumeOperation,
};
use moor::api::{FINALIZER, Volume, VolumeHandle, VolumeState};
use moor::attachment::HandleSeen;
use moor::volume::InstanceSeen;
use moor::volume::calls::VolumeCall;

use super::super::fixtures::{self, DRIVER};
use super::leader::Late;

/// The agents, by number. Each has one controller instance beside it.
pub const AGENTS: usize = 2;
/// The one volume that the driver ever has.
const ID: &str = "vol-1";

/// How often each kind of trouble may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// An agent is cut off, until it comes back.
    pub away: u8,
    /// An agent's watch of Volumes falls behind, until it catches up.
    pub lag: u8,
    /// An agent's process ends, with what it remembers, and another one begins.
    pub restart: u8,
    /// The same of the leader's.
    pub old_leader: u8,
    /// A write of a leader that has looked is on its way, for as long as it likes.
    pub slow_leader: u8,
    /// The driver says that it is full, and does nothing.
    pub fail: u8,
    /// An answer is lost, with its call's effect or without.
    pub lost: u8,
    /// CreateVolume makes what nobody can use.
    pub wrong: u8,
    /// The owner decides to keep the storage, or not to.
    pub retain: u8,
    /// The status of number 0 is lost while its VolumeHandle says what it said.
    pub wiped: u8,
    /// The owner wants more room.
    pub grow: u8,
    /// The owner wants other parameters.
    pub modify: u8,
    /// The owner edits how claims get the volume.
    pub edit: u8,
}

/// A configuration.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub budget: Budget,
    /// Agents make this call on the word of their caches alone.
    pub blind: Option<VolumeCall>,
    /// Agents do not look, when they begin, for what the process before them may have called.
    pub forgets: bool,
}

/// A Volume. Number 0 is created, number 1 registers what number 0 has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vol {
    pub deleted: bool,
    pub retain: bool,
    pub held: bool,
    pub assigned: Option<(VolumeOperation, u8)>,
    pub state: VolumeState,
    pub rejected: bool,
    pub may_delete: bool,
    pub may_exist: Option<bool>,
    /// CreateVolume was another's to call before.
    pub created_before: bool,
    /// More room is asked for than at first.
    pub asked: bool,
    /// The status says that it is there.
    pub grown: bool,
    /// The mutable parameters that are asked for, one of two kinds; 0 is none.
    pub wants: u8,
    /// Those that the driver has taken, as the status says.
    pub has: u8,
    /// Those of a call whose outcome is not known, as the status says.
    pub open: u8,
    /// How claims are to get it, one of three ways.
    pub used: u8,
    /// How they get it.
    pub granted: Option<u8>,
    /// The last edit: its number and what was asked for.
    pub edit: Option<(u8, u8)>,
    /// What the status says of an edit of this number: whether the driver confirms it.
    pub said: Option<(u8, bool)>,
}

impl Vol {
    /// As its user made it.
    pub fn new(v: u8) -> Self {
        Self {
            deleted: false,
            retain: v == 1,
            held: false,
            assigned: None,
            state: VolumeState::Pending,
            rejected: false,
            may_delete: false,
            may_exist: None,
            created_before: false,
            asked: false,
            grown: false,
            wants: 0,
            has: 0,
            open: 0,
            used: 0,
            granted: None,
            edit: None,
            said: None,
        }
    }
}

/// The VolumeHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    pub owner: u8,
    pub closing: bool,
    /// Closed because its Volume was deleted: what becomes of the storage.
    pub last: Option<DeletionPolicy>,
    pub controller: u8,
}

/// What a call was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Ok,
    /// Made, and of no use.
    Wrong,
    /// RESOURCE_EXHAUSTED.
    Full,
    /// None came.
    Unknown,
}

/// A call, until its answer is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub by: u8,
    pub v: u8,
    pub call: VolumeCall,
    /// The Volume as the call was made for it: what the write is guarded by.
    pub seen: Vol,
    /// There may have been a volume before.
    pub known: bool,
    pub answer: Option<Answer>,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Harm {
    DeletedWithoutLock,
    DeletedAnothers,
    MadeForNobody,
    CalledBeside,
    GrantedUnasked,
    AskedBeforeOutcome,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub volumes: [Option<Vol>; 2],
    pub handle: Option<Handle>,
    /// The storage has the volume.
    pub stored: bool,
    /// The mutable parameters that it has there.
    pub attributes: u8,
    /// Those of a call to which the driver has not said what came of it.
    pub unsettled: u8,
    /// The numbers of the edits that the driver has confirmed, as bits.
    pub confirmed: u8,
    /// Number 0 is gone, and its owner has kept the storage, if there was any.
    pub kept: bool,
    pub registered: bool,
    pub away: [bool; AGENTS],
    /// Agents that remember a CreateVolume for number 0, or have found that it may have been called.
    pub remembers: [bool; AGENTS],
    /// What an agent whose watch is behind believes of number 0.
    pub caches: [Option<Option<Vol>>; AGENTS],
    /// What a leader whose watch is behind believes of both.
    pub old: Option<[Option<Vol>; 2]>,
    pub late: Option<Late>,
    pub calls: Vec<Call>,
    pub budget: Budget,
    pub harm: Option<Harm>,
}

impl State {
    pub fn first(config: &Config) -> Self {
        Self {
            volumes: [Some(Vol::new(0)), None],
            handle: None,
            stored: false,
            attributes: 0,
            unsettled: 0,
            confirmed: 0,
            kept: false,
            registered: false,
            away: [false; AGENTS],
            remembers: [false; AGENTS],
            caches: [None; AGENTS],
            old: None,
            late: None,
            calls: Vec::new(),
            budget: config.budget,
            harm: None,
        }
    }

    /// Writes a Volume, if it is still what the writer saw.
    pub fn write(&mut self, v: u8, seen: Vol, new: Vol) -> bool {
        let slot = &mut self.volumes[usize::from(v)];
        let same = *slot == Some(seen);
        if same {
            *slot = Some(new);
        }
        same
    }

    /// What an agent believes of a Volume.
    pub fn cached(&self, agent: u8, v: u8) -> Option<Vol> {
        match self.caches[usize::from(agent)] {
            Some(cached) if v == 0 => cached,
            _ => self.volumes[usize::from(v)],
        }
    }

    /// Long silent, so no call of it runs (rule R2).
    pub fn is_dead(&self, agent: u8) -> bool {
        self.away[usize::from(agent)] && !self.calls.iter().any(|c| c.by == agent && c.answer.is_none())
    }

    pub fn instances(&self) -> Vec<InstanceSeen> {
        let seen = |agent: u8| InstanceSeen {
            healthy: !self.away[usize::from(agent)],
            serving: !self.away[usize::from(agent)],
            dead: self.is_dead(agent),
            ..fixtures::instance(&reference(agent))
        };
        [0, 1].map(seen).to_vec()
    }

    pub fn harmed(&mut self, harm: Harm) {
        self.harm.get_or_insert(harm);
    }
}

pub fn node(agent: u8) -> &'static str {
    ["node-1", "node-2"][usize::from(agent)]
}

/// The name of a PluginInstance, which is made of its driver's.
pub fn instance(agent: u8) -> &'static str {
    static NAMES: LazyLock<[String; AGENTS]> =
        LazyLock::new(|| [0, 1].map(|agent| instance_name(DriverOn { driver: DRIVER, node: node(agent) })));
    &NAMES[usize::from(agent)]
}

pub fn agent_of(controller: &ControllerRef) -> u8 {
    u8::from(controller.instance == instance(1))
}

pub fn uid(v: u8) -> &'static str {
    ["first", "second"][usize::from(v)]
}

pub fn reference(agent: u8) -> ControllerRef {
    ControllerRef::new(instance(agent), node(agent), 0)
}

/// The object that the decisions look at. Its generation is made of all that raises it.
pub fn object(v: u8, vol: &Vol) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.name = Some("data".into());
    volume.metadata.uid = Some(uid(v).into());
    let assigned = vol.assigned.map_or(0, |(operation, agent)| {
        let order = match operation {
            VolumeOperation::Create | VolumeOperation::Validate | VolumeOperation::Adopt => 0,
            VolumeOperation::Delete => 2,
            VolumeOperation::Expand => 4,
            VolumeOperation::Modify => 6,
            VolumeOperation::Revalidate => 8,
        };
        10 + i64::from(agent) + order
    });
    volume.metadata.generation = Some(
        1 + i64::from(vol.deleted)
            + 2 * i64::from(vol.retain)
            + 10 * assigned
            + 1000 * i64::from(vol.asked)
            + 10_000 * i64::from(vol.wants)
            + 100_000 * i64::from(vol.used)
            + 1_000_000 * vol.granted.map_or(0, |granted| 1 + i64::from(granted))
            + 10_000_000
                * vol.edit.map_or(0, |(number, asked)| 1 + i64::from(asked) + 10 * i64::from(number)),
    );
    let size = |large: bool| if large { 2 } else { 1 };
    volume.spec.capacity = (v == 0).then(|| Quantity(size(vol.asked).to_string()));
    if vol.deleted {
        volume.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    }
    volume.metadata.finalizers = vol.held.then(|| vec![FINALIZER.into()]);
    volume.spec.volume_handle = (v == 1).then(|| ID.into());
    volume.spec.deletion_policy =
        Some(if vol.retain { DeletionPolicy::Retain } else { DeletionPolicy::Delete });
    volume.spec.assignment = vol.assigned.map(|(operation, agent)| VolumeAssignment {
        operation,
        controller: Some(reference(agent)),
        granted: vol.granted.map(usage),
        edit: vol.edit.map(|(number, asked)| Box::new(Edit { number: number.into(), asked: usage(asked) })),
        created_before: vol.created_before,
        ..VolumeAssignment::default()
    });
    let asked = usage(vol.used);
    volume.spec.capabilities = asked.capabilities;
    volume.spec.mount_options =
        Some(Box::new(MountOptions { mount_flags: asked.mount_flags, ..MountOptions::default() }));
    let status = volume.status.get_or_insert_default();
    status.state = vol.state;
    status.volume_handle =
        matches!(vol.state, VolumeState::Created | VolumeState::Ready).then(|| ID.to_owned());
    let (reason, may_delete) = ("small".to_owned(), vol.may_delete);
    status.rejected = vol.rejected.then(|| Rejected { volume_handle: ID.into(), reason, may_delete }.into());
    status.may_exist = vol.may_exist;
    volume.spec.mutable_parameters = parameters(vol.wants);
    status.mutable_parameters = parameters(vol.has);
    status.modification = (vol.open != 0).then(|| {
        Modification { parameters: parameters(vol.open), outcome_unknown: true, error: None }.into()
    });
    status.edit = vol.said.map(|(number, confirms)| {
        EditAnswer { number: number.into(), error: (!confirms).then(CallFailure::default) }.into()
    });
    status.capacity_bytes = status.volume_handle.as_ref().map(|_| size(vol.grown));
    volume
}

/// One of the ways in which claims get the volume: with other flags, so that each is asked about.
fn usage(kind: u8) -> GrantedUse {
    GrantedUse { capabilities: vec![VolumeUse::default()], mount_flags: vec![kind.to_string()] }
}

/// Which of them it is.
pub fn kind_of(usage: &GrantedUse) -> u8 {
    usage.mount_flags[0].parse().expect("a number")
}

/// The mutable parameters of one of the two kinds.
fn parameters(kind: u8) -> BTreeMap<String, String> {
    (kind != 0).then(|| ("kind".to_owned(), kind.to_string())).into_iter().collect()
}

pub fn lock(handle: Handle) -> VolumeHandle {
    let mut lock = VolumeHandle::default();
    lock.spec.volume = VolumeRef { uid: uid(handle.owner).into(), ..VolumeRef::default() };
    lock.metadata.name = Some("handle".into());
    lock.spec.volume_handle = ID.into();
    (lock.spec.closing, lock.spec.closed_for) = (handle.closing, handle.last);
    lock.metadata.finalizers = handle.last.is_none().then(|| vec![FINALIZER.into()]);
    lock.spec.controller = Some(reference(handle.controller));
    lock
}

pub fn handle_seen(handle: Handle) -> HandleSeen {
    HandleSeen::of(&lock(handle))
}
