//! What a run of the model is about: its claims, its driver, and how much may go wrong.

use std::sync::LazyLock;

use moor::api::{AccessMode, lock, names};

use super::state::{Actor, Kind};
use crate::fixtures::{DRIVER, DRIVER_VOLUME};

/// Most claims of a run.
pub const CLAIMS: usize = 3;
/// Number of nodes; controller instance `i` runs beside node `i`.
pub const NODES: usize = 2;

/// Every claim that a run may have.
pub fn claim_ids() -> impl Iterator<Item = u8> {
    (0..).zip(0..CLAIMS).map(|(c, _)| c)
}

/// Every node, and every controller instance.
pub fn node_ids() -> impl Iterator<Item = u8> {
    (0..).zip(0..NODES).map(|(n, _)| n)
}

/// What a claim's user wrote.
#[derive(Clone, Copy, Debug)]
pub struct ClaimSpec {
    /// The node it names.
    pub node: Option<u8>,
    /// Who else may use the volume.
    pub mode: AccessMode,
    /// It only reads.
    pub read_only: bool,
}

/// How often each kind of trouble may happen in one behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// An agent's process dies between two steps. (Leaders keep nothing in memory: any step of theirs may be the last.)
    pub crash: u8,
    /// A watch falls behind, for as long as it likes.
    pub lag: u8,
    /// A caller stops waiting; its call goes on, or had its effect and the reply was lost.
    pub late: u8,
    /// The driver answers with a final error.
    pub fail: u8,
    /// A controller plugin's process dies.
    pub kill: u8,
    /// And comes back under the same instance name.
    pub revive: u8,
    /// A controller instance is relieved, well or not.
    pub relieve: u8,
    /// A claim is removed by hand, finalizer and all.
    pub force: u8,
    /// A node boots again.
    pub reboot: u8,
    /// A node's agent reaches nobody any more, or its machine is off, until it comes back.
    pub away: u8,
    /// Somebody deletes the Node of a machine that is away, taints it, or forces the claims there.
    pub word: u8,
    /// Somebody deletes or taints the Node of a machine that lives and is heard.
    pub wrong: u8,
    /// A claim is made again under the name of one that is gone.
    pub again: u8,
    /// Steps of leaders with old caches.
    pub old_steps: u8,
}

impl Budget {
    /// As many steps as they like.
    pub const UNBOUNDED: u8 = u8::MAX;
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        crash: 0,
        lag: 0,
        late: 0,
        fail: 0,
        kill: 0,
        revive: 0,
        relieve: 0,
        force: 0,
        reboot: 0,
        away: 0,
        word: 0,
        wrong: 0,
        again: 0,
        old_steps: Self::UNBOUNDED,
    };
}

/// Habits of the actors that the decisions leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Habits {
    /// The answer to a write does not enter the writer's cache; only the watch brings it.
    pub deaf: bool,
    /// A leader can pause between finding that an instance makes no calls and naming its successor.
    pub slow_move: bool,
    /// A leader can pause between finding a node lost and writing it, and between looking again and freeing what was
    /// lost.
    pub slow_loss: bool,
    /// A leader declares a node lost, and frees what was lost, on the word of its caches.
    pub blind_loss: bool,
    /// An agent says that it is relieved of calls that are running.
    pub hasty_answer: bool,
    /// A node's agent goes on with its live reads after it wrote to the API.
    pub keeps_reads: bool,
}

/// Which Volumes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volumes {
    /// One that stays.
    Stays,
    /// One that may go, and is made again under its name.
    Again,
    /// Two that name one handle; each has one claim, the first two.
    Beside,
}

/// Whose finalizer is taken off by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    Handle,
    Attachment,
}

/// One configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The claims, oldest first: two or three.
    pub claims: Vec<ClaimSpec>,
    /// Mode of the VolumeHandle at the start.
    pub mode: AccessMode,
    /// The driver has ControllerPublishVolume.
    pub attach: bool,
    /// The driver has NodeStageVolume.
    pub stage: bool,
    /// The driver takes a second target on one node.
    pub shares_node: bool,
    /// What may go wrong.
    pub budget: Budget,
    /// Whose watch of what may fall behind.
    pub lagging: &'static [(Actor, Kind)],
    /// The run begins when the youngest claim is served, and this watch has seen nothing of it.
    pub missed_all: Option<(Actor, Kind)>,
    /// The driver finishes one call for a volume before it answers another (or answers ABORTED).
    pub serial: bool,
    /// What an instance was given moves when its agent says that it is relieved of it; else when its process is dead.
    pub relief: bool,
    /// The storage behind the driver goes on with a call whose plugin process died.
    pub backend: bool,
    /// How the actors are written.
    pub habits: Habits,
    /// The node whose plugin is not healthy at first.
    pub sick: Option<u8>,
    /// Epochs beyond this one are not looked at.
    pub max_epoch: u8,
    /// A lock that is removed by hand instead of a claim or a Volume.
    pub removed: Option<Removed>,
    /// Which Volumes there are.
    pub volumes: Volumes,
    /// The node that may go away.
    pub leaves: Option<u8>,
    /// Claims that their users never delete.
    pub kept: &'static [u8],
    /// An Attachment that nobody uses stays attached for a while.
    pub lingers: bool,
    /// The volume has grown, and its nodes have to follow.
    pub grows: bool,
    /// The claims are Pods'.
    pub pods: bool,
    /// Nobody deletes a claim but who answers kubelet.
    pub by_kubelet_alone: bool,
}

impl Config {
    /// Claims of this mode on these nodes; a driver with attach and stage; nothing goes wrong.
    pub fn new<const N: usize>(mode: AccessMode, nodes: [u8; N]) -> Self {
        const { assert!(N == 2 || N == CLAIMS) };
        let read_only = mode.is_reader_only();
        Self {
            claims: nodes.map(|n| ClaimSpec { node: Some(n), mode, read_only }).to_vec(),
            mode,
            attach: true,
            stage: true,
            shares_node: true,
            budget: Budget::NONE,
            lagging: &[],
            missed_all: None,
            serial: true,
            relief: false,
            backend: false,
            habits: Habits::default(),
            sick: None,
            max_epoch: 3,
            removed: None,
            volumes: Volumes::Stays,
            leaves: None,
            kept: &[],
            lingers: false,
            grows: false,
            pods: false,
            by_kubelet_alone: false,
        }
    }

    /// Two claims can be Ready at once.
    pub fn compatible(&self, one: usize, other: usize) -> bool {
        let (a, b) = (&self.claims[one], &self.claims[other]);
        let same_node = a.node.is_none() || b.node.is_none() || a.node == b.node;
        let single = moor::claim::admission::is_exclusive(a.mode, self.shares_node);
        let two_writers = a.mode == AccessMode::MultiNodeSingleWriter && !a.read_only && !b.read_only;
        a.mode == b.mode && !two_writers && if same_node { !single } else { a.mode.is_multi_node() }
    }
}

/// Names of Attachments, as the lock makes them: for all nodes, for node 0, for node 1.
#[derive(Debug)]
pub struct Names(pub [String; 1 + NODES]);

impl Names {
    pub fn new() -> Self {
        let of = |mode, node| lock::attachment_name(DRIVER_VOLUME, mode, node);
        Self([
            of(AccessMode::SingleNodeWriter, node_name(0)),
            of(AccessMode::MultiNodeReader, node_name(0)),
            of(AccessMode::MultiNodeReader, node_name(1)),
        ])
    }

    pub fn of(&self, mode: AccessMode, node: u8) -> &str {
        &self.0[name_index(mode, node)]
    }

    pub fn index(&self, name: &str) -> usize {
        self.0.iter().position(|n| n == name).expect("a name that the lock does not make")
    }
}

/// Which of [`Names`] an Attachment has.
pub fn name_index(mode: AccessMode, node: u8) -> usize {
    if mode.is_multi_node() { 1 + usize::from(node) } else { 0 }
}

/// Name of node `n`.
pub fn node_name(n: u8) -> &'static str {
    ["node-1", "node-2"][usize::from(n)]
}

/// The name of a PluginInstance, which is made of its driver's.
pub fn instance_name(i: u8) -> &'static str {
    static NAMES: LazyLock<[String; NODES]> = LazyLock::new(|| {
        [0, 1].map(|i| names::instance_name(names::DriverOn { driver: DRIVER, node: node_name(i) }))
    });
    &NAMES[usize::from(i)]
}

/// UID of claim `c`; its name too, unless it is one made again.
pub fn claim_name(c: u8) -> &'static str {
    ["a", "b", "c"][usize::from(c)]
}
