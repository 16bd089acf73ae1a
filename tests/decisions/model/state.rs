//! The world at one moment: API server, actors' memory, calls on their way, and the truth in the driver.
//!
//! An actor's cache is the present unless it is in `frozen`: a watch that fell behind at some write and
//! stays there until it catches up. So a run without lag has no caches at all, and a lag is arbitrary in
//! length. A leader keeps nothing in memory; leader 0 sees the present, leaders 1 and 2 are old ones (or
//! the same one before the echo of its own writes) and act on what they have.

use moor::api::{AccessMode, AttachmentState, ClaimState};
use moor::attachment::record::Done;

use super::config::{Budget, CLAIMS, Habits, NODES, Volumes};
use super::harm::Harm;
use super::leader::LeaderDoes;
use super::pods::{Asked, Kubelet};

/// UID of an Attachment. The smallest that nothing refers to is given next, so there is no end of them.
pub type Uid = u8;

/// Who acts, and whose cache it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    Leader(u8),
    Controller(u8),
    Node(u8),
    /// The storage, which goes on with the call of a dead plugin.
    Backend,
}

/// A kind of object with a watch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Claims,
    Attachments,
    Handle,
    Nodes,
}

/// A VolumeClaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub deleted: bool,
    pub held: bool,
    pub force: bool,
    pub state: ClaimState,
    /// Attachment and node.
    pub assigned: Option<(Uid, u8)>,
    pub yielded: Option<Uid>,
    /// Boot in which it became Ready.
    pub boot: u8,
}

impl Claim {
    /// As its user made it.
    pub const NEW: Self = Self {
        deleted: false,
        held: false,
        force: false,
        state: ClaimState::Pending,
        assigned: None,
        yielded: None,
        boot: 0,
    };
}

/// The controller instance that is given calls, and the tenure of it in which it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Given {
    pub instance: u8,
    pub tenure: u8,
}

/// An Attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Att {
    pub uid: Uid,
    pub volume: u8,
    pub node: u8,
    /// Which of the Nodes of that name it was made for.
    pub node_uid: u8,
    pub mode: AccessMode,
    pub epoch: u8,
    pub controller: Given,
    pub state: AttachmentState,
    pub deleted: bool,
    pub lost: bool,
    /// The volume has grown on its node.
    pub grown: bool,
}

/// A Volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vol {
    pub deleted: bool,
    /// It has our finalizer and its assignment.
    pub held: bool,
    pub ready: bool,
}

/// The VolumeHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Whether it exists.
    pub there: bool,
    /// The Volume that owns it.
    pub owner: u8,
    pub mode: AccessMode,
    pub epoch: u8,
    pub closing: bool,
    /// Closed because its Volume was deleted, whose storage stays: whether it was open until then.
    pub last: Option<bool>,
    pub controller: Given,
    pub writer: Option<Lock>,
}

/// The writer's lock: claims and their Attachments. Grants are not counted: guards compare contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    pub holder: (u8, Uid),
    pub released: bool,
    pub after: Option<(u8, Uid)>,
}

/// What an actor still believes about one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cached {
    Claims([Option<Claim>; CLAIMS]),
    Attachments(Vec<Att>),
    Handle(Handle),
    Nodes([Machine; NODES]),
}

/// A node's record of one Attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rec {
    pub uid: Uid,
    pub mode: AccessMode,
    pub boot: u8,
    pub staged: Done,
    pub targets: [Option<Done>; CLAIMS],
    /// Its Attachment is gone while a claim uses the mount; reported at once.
    pub forgotten: bool,
}

/// Live reads of a node agent that holds its mutex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pass {
    pub gone: [bool; CLAIMS],
    pub attachments: Vec<(Uid, Option<Att>)>,
    /// The VolumeHandle, and the claim for which it was read.
    pub handle: Option<(u8, Handle)>,
}

/// A node agent: its disk and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeAgent {
    pub boot: u8,
    pub records: Vec<Rec>,
    pub pass: Option<Pass>,
    /// Something it watches has changed since its last pass began.
    pub dirty: bool,
    /// Claims whose call failed and is not due yet.
    pub claims_back_off: [bool; CLAIMS],
    /// The Attachment whose call failed and is not due yet.
    pub att_backs_off: Option<Uid>,
    /// The Attachment whose growth failed and is not due yet.
    pub grows_later: Option<Uid>,
    /// kubelet's calls that it has taken in.
    pub kubelet: Asked,
}

/// A controller instance and the agent beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControllerAgent {
    /// The plugin's process runs.
    pub alive: bool,
    /// The live read of this pass, and for which Attachment it was made.
    pub read: Option<(Uid, Handle)>,
    /// The Attachment of the call it waits for, as it was when the call was planned.
    pub call: Option<Att>,
    /// Attachments (a bit per UID) that changed since their last pass began.
    pub dirty: u16,
    /// The tenure that the leader has put it in.
    pub tenure: u8,
    /// Of what it was given in an earlier tenure than this it calls nothing, as its agent has said.
    pub relieved: u8,
}

/// A CSI call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rpc {
    ControllerPublish,
    ControllerUnpublish,
    Stage,
    Unstage,
    Publish,
    Unpublish,
    Expand,
}

/// A call that has started and not ended. It outlives its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    pub by: Actor,
    pub rpc: Rpc,
    pub node: u8,
    pub uid: Uid,
    pub mode: AccessMode,
    pub claim: u8,
    /// The caller is still there for the reply.
    pub waiting: bool,
}

/// What the driver and the kernels know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    /// By node: for which Attachment the volume is attached.
    pub attached: [Option<(Uid, AccessMode)>; NODES],
    /// By node: staging paths that are mounted.
    pub staged: [Vec<Uid>; NODES],
    /// By node and claim: the Attachment for which the target is mounted.
    pub published: [[Option<Uid>; CLAIMS]; NODES],
    /// Attachments that were declared lost: what is left of them on their node is cut off, and cleaned later.
    pub cut: Vec<Uid>,
}

/// A machine and its Node object, as the cluster knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its agent's Lease is fresh. Without one it starts no call, and no write of its reaches the API.
    pub away: bool,
    /// The machine is off: nothing on it runs or writes.
    pub off: bool,
    /// The Node object is gone.
    pub unregistered: bool,
    /// The Node is marked out of service.
    pub tainted: bool,
    /// Counts the Nodes of this name.
    pub uid: u8,
}

impl Machine {
    /// Somebody has deleted or tainted the Node of a machine that lives and is heard.
    pub const fn is_wronged(self) -> bool {
        !self.away && (self.unregistered || self.tainted)
    }

    /// What the Node object says; Leases and instances have watches of their own.
    pub const fn node(self) -> Self {
        Self { away: false, off: false, ..self }
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub claims: [Option<Claim>; CLAIMS],
    /// By UID, ascending.
    pub atts: Vec<Att>,
    pub handle: Handle,
    pub volumes: [Option<Vol>; 2],
    /// Live looks of leaders have allowed these writes: they are on their way.
    pub pending: Vec<(Actor, LeaderDoes)>,
    pub frozen: Vec<(Actor, Kind, Cached)>,
    pub machines: [Machine; NODES],
    pub nodes: [NodeAgent; NODES],
    pub controllers: [ControllerAgent; NODES],
    pub calls: Vec<Call>,
    pub truth: Truth,
    /// What kubelet is at, where the claims are Pods'.
    pub kubelet: [Kubelet; CLAIMS],
    /// The node whose plugin is not healthy.
    pub sick: Option<u8>,
    /// The same in every state of a run.
    pub habits: Habits,
    /// Attachments that nobody uses any more, and whose time to linger is over.
    pub lingered: Vec<Uid>,
    /// The second Volume of the name was made.
    pub made_again: bool,
    /// A claim was removed by hand.
    pub forced: bool,
    pub budget: Budget,
    pub harm: Option<Harm>,
}

impl State {
    pub fn first(config: &super::config::Config) -> Self {
        let claim = Claim::NEW;
        let controller =
            ControllerAgent { alive: true, read: None, call: None, dirty: 0, tenure: 0, relieved: 0 };
        Self {
            claims: std::array::from_fn(|c| {
                let is_there = c < config.claims.len() && (c == 0 || config.budget.again == 0);
                is_there.then_some(claim)
            }),
            atts: Vec::new(),
            handle: Handle {
                there: true,
                owner: 0,
                mode: config.mode,
                epoch: 1,
                closing: false,
                last: None,
                controller: Given::default(),
                writer: None,
            },
            volumes: [
                Some(Vol { deleted: false, held: true, ready: true }),
                (config.volumes == Volumes::Beside).then_some(Vol {
                    deleted: false,
                    held: false,
                    ready: false,
                }),
            ],
            pending: Vec::new(),
            machines: Default::default(),
            frozen: Vec::new(),
            nodes: Default::default(),
            controllers: [controller; NODES],
            calls: Vec::new(),
            truth: Truth::default(),
            kubelet: Default::default(),
            sick: config.sick,
            habits: config.habits,
            lingered: Vec::new(),
            made_again: false,
            forced: false,
            budget: config.budget,
            harm: None,
        }
    }

    pub fn cached(&self, who: Actor, kind: Kind) -> Option<&Cached> {
        self.frozen.iter().find(|(w, k, _)| (*w, *k) == (who, kind)).map(|(_, _, c)| c)
    }

    pub fn claims_of(&self, who: Actor) -> &[Option<Claim>; CLAIMS] {
        match self.cached(who, Kind::Claims) {
            Some(Cached::Claims(claims)) => claims,
            _ => &self.claims,
        }
    }

    pub fn atts_of(&self, who: Actor) -> &[Att] {
        match self.cached(who, Kind::Attachments) {
            Some(Cached::Attachments(atts)) => atts,
            _ => &self.atts,
        }
    }

    pub fn handle_of(&self, who: Actor) -> Handle {
        match self.cached(who, Kind::Handle) {
            Some(Cached::Handle(handle)) => *handle,
            _ => self.handle,
        }
    }

    pub fn nodes_of(&self, who: Actor) -> [Machine; NODES] {
        match self.cached(who, Kind::Nodes) {
            Some(Cached::Nodes(nodes)) => *nodes,
            _ => self.machines.map(Machine::node),
        }
    }

    pub fn att(&self, uid: Uid) -> Option<&Att> {
        self.atts.iter().find(|a| a.uid == uid)
    }

    /// Whether nobody has closed the Attachment, and no claim that stays uses it.
    pub fn is_unused(&self, uid: Uid) -> bool {
        let uses = |c: &Claim| {
            !c.deleted && c.yielded != Some(uid) && c.assigned.is_some_and(|(assigned, _)| assigned == uid)
        };
        self.att(uid).is_some_and(|a| !a.deleted) && !self.claims.iter().flatten().any(uses)
    }

    /// The call that an agent waits for.
    pub fn waits(&self, who: Actor) -> bool {
        self.calls.iter().any(|c| c.by == who && c.waiting)
    }

    /// What this Attachment has mounted on the node can still be written to the storage.
    pub fn reaches(&self, config: &super::config::Config, n: usize, uid: Uid) -> bool {
        if config.attach {
            self.truth.attached[n].is_some_and(|(u, _)| u == uid)
        } else {
            !self.machines[n].off
        }
    }

    /// A call without a caller still runs in this actor's driver.
    pub fn haunted(&self, who: Actor) -> bool {
        self.calls.iter().any(|c| c.by == who && !c.waiting)
    }

    pub fn harmed(&mut self, harm: Harm) {
        self.harm.get_or_insert(harm);
    }
}
