//! The world at one moment.

use moor::api::volume::DeletionPolicy;
use moor::api::{SnapshotState, VolumeState};

/// How often each kind of trouble may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The agent's watches fall behind, until they catch up.
    pub lag: u8,
    /// The second leader keeps an old view, until it catches up.
    pub old_leader: u8,
    /// A leader waits between its looks and its write.
    pub slow_leader: u8,
    /// An answer is lost, with its call's effect or without.
    pub lost: u8,
    /// The driver says for certain that it has done nothing.
    pub fail: u8,
    /// The agent dies between its look and its call.
    pub crash: u8,
}

/// A configuration.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub budget: Budget,
    /// Of the Volume that the snapshot is taken of.
    pub volume: DeletionPolicy,
    pub snapshot: DeletionPolicy,
    /// The agent takes the source to be there without a look.
    pub bold: bool,
    /// The first Volume is deleted at some moment.
    pub origin_goes: bool,
    /// A Volume is made of the Snapshot.
    pub copies: bool,
    /// The Snapshot is a group, of which the Volume is made that has its first member.
    pub group: bool,
}

/// What a Snapshot, or a Volume that is made of it, was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    None,
    Make,
    Delete,
}

/// The Volume that the snapshot is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub deleted: bool,
    pub ordered: bool,
    pub state: VolumeState,
}

/// The Snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    pub deleted: bool,
    pub held: bool,
    pub order: Order,
    /// Its assignment says the handle.
    pub confirmed: bool,
    pub state: SnapshotState,
    pub may_exist: bool,
    pub source_gone: bool,
}

/// The Volume that is made of the Snapshot. What becomes of it later is in `volume_model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copied {
    pub deleted: bool,
    pub held: bool,
    pub order: Order,
    pub state: VolumeState,
    pub may_exist: bool,
    pub source_gone: bool,
}

/// All objects, as etcd has them or somebody remembers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Objects {
    pub origin: Option<Origin>,
    /// The VolumeHandle of the first Volume, and whether it is closing.
    pub lock: Option<bool>,
    pub kept: Option<Kept>,
    pub copied: Option<Copied>,
}

/// A call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Take,
    Drop,
    DeleteOrigin,
    Make,
}

/// What a call was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Ok,
    /// For certain nothing was done.
    Failed,
    Unknown,
}

/// A call, until its answer is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flying {
    pub call: Call,
    /// What `mayExist` said before it.
    pub known: bool,
    pub answer: Option<Answer>,
}

/// What the agent has looked at, and does next about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prepared {
    /// The source was there: it writes that it begins, onto this version, and then calls.
    Begins(Call, Objects),
    /// It has written that: it calls.
    Calls(Call, bool),
}

/// What a leader writes, decided on these objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    AssignKept { order: Order, confirmed: bool },
    FreeKept,
    Close,
    OrderDeletion,
    RemoveLock,
    FreeOrigin,
    AssignCopied,
}

/// What must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Harm {
    DeletedUnderItsSnapshot,
    UnlockedUnderItsSnapshot,
    DroppedUnderItsCopy,
    TakenOfNothing,
    MadeOfNothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: Objects,
    /// The driver has them.
    pub stored: [bool; 3],
    pub calls: Vec<Flying>,
    pub prepared: Option<Prepared>,
    /// What the agent's watches have, if they are behind.
    pub behind: Option<Objects>,
    /// What the second leader believes, if it is old.
    pub old: Option<Objects>,
    /// What a leader has decided on what it saw, and not written yet.
    pub decided: [Option<(Write, Objects)>; 2],
    pub budget: Budget,
    pub harm: Option<Harm>,
}

/// Places in [`State::stored`].
pub const ORIGIN: usize = 0;
pub const KEPT: usize = 1;
pub const COPIED: usize = 2;

impl State {
    /// A Volume that is Ready, a Snapshot of it and a Volume of that which nobody has taken up yet.
    pub fn first(config: &Config) -> Self {
        let origin = Origin { deleted: false, ordered: false, state: VolumeState::Ready };
        let kept = Kept {
            deleted: false,
            held: false,
            order: Order::None,
            confirmed: false,
            state: SnapshotState::Pending,
            may_exist: false,
            source_gone: false,
        };
        let copied = Copied {
            deleted: false,
            held: false,
            order: Order::None,
            state: VolumeState::Pending,
            may_exist: false,
            source_gone: false,
        };
        Self {
            now: Objects {
                origin: Some(origin),
                lock: Some(false),
                kept: Some(kept),
                copied: config.copies.then_some(copied),
            },
            stored: [true, false, false],
            calls: Vec::new(),
            prepared: None,
            behind: None,
            old: None,
            decided: [None; 2],
            budget: config.budget,
            harm: None,
        }
    }

    pub fn flies(&self, call: Call) -> bool {
        self.calls.iter().any(|flying| flying.call == call && flying.answer.is_none())
    }

    /// A call arrives at the driver.
    pub fn start(&mut self, call: Call, known: bool) {
        let harm = match call {
            Call::Take if !self.stored[ORIGIN] => Some(Harm::TakenOfNothing),
            Call::Take if self.flies(Call::DeleteOrigin) => Some(Harm::DeletedUnderItsSnapshot),
            Call::Take if self.now.lock.is_none() => Some(Harm::UnlockedUnderItsSnapshot),
            Call::DeleteOrigin if self.flies(Call::Take) => Some(Harm::DeletedUnderItsSnapshot),
            Call::Drop if self.flies(Call::Make) => Some(Harm::DroppedUnderItsCopy),
            Call::Make if self.flies(Call::Drop) => Some(Harm::DroppedUnderItsCopy),
            Call::Make if !self.stored[KEPT] => Some(Harm::MadeOfNothing),
            Call::Take | Call::Drop | Call::DeleteOrigin | Call::Make => None,
        };
        self.harm = self.harm.or(harm);
        self.calls.push(Flying { call, known, answer: None });
        self.calls.sort_by_key(|flying| flying.call);
    }

    /// The driver ends a call.
    pub fn end(&mut self, at: usize, answer: Answer, done: bool) {
        let call = self.calls[at].call;
        if done {
            match call {
                Call::Take => self.stored[KEPT] = true,
                Call::Drop => self.stored[KEPT] = false,
                Call::DeleteOrigin => self.stored[ORIGIN] = false,
                Call::Make => self.stored[COPIED] = true,
            }
        }
        self.calls[at].answer = Some(answer);
    }
}
