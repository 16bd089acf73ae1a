//! The cells of the matrix, and what is expected of each.

use moor::csi::{Meaning, Rpc, meaning};
use tonic::Code;

use crate::rig::{Fault, is_whole};

/// The Volume of which others are copies.
pub const SOURCE: &str = "source";
/// The Snapshot of which Volumes are made.
pub const SNAPSHOT: &str = "kept";

/// What is done with a Volume or a Snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A volume is made that is empty.
    Create,
    /// A volume is made of a snapshot.
    Restore,
    /// A volume is made of another.
    Copy,
    /// A volume that exists is registered.
    Register,
    Delete,
    Expand,
    Modify,
    /// Capabilities and mount flags are edited.
    Edit,
    /// A snapshot is taken.
    Snapshot,
    DropSnapshot,
    /// A snapshot that exists is registered.
    RegisterSnapshot,
}

const ALL: [Operation; 11] = [
    Operation::Create,
    Operation::Restore,
    Operation::Copy,
    Operation::Register,
    Operation::Delete,
    Operation::Expand,
    Operation::Modify,
    Operation::Edit,
    Operation::Snapshot,
    Operation::DropSnapshot,
    Operation::RegisterSnapshot,
];

/// How its call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Fails(Fault),
    /// Nothing is done and the answer is OK, with nothing in it.
    Pretends,
}

/// What happens while the trouble lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ends, and what was begun is finished.
    Healed,
    /// What the operation is about is deleted, and the trouble goes on.
    Deleted,
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub operation: Operation,
    pub trouble: Trouble,
    pub end: End,
}

/// Every cell; without `MOOR_RIG=all` those of a code that leaves the outcome open, one that settles it for good, and one that
/// says "already gone" of an inverse and "failed" of the others.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for operation in ALL {
        for trouble in troubles(operation) {
            cells.push(Cell { operation, trouble, end: End::Healed });
            // An inverse fails while something is being deleted anyway.
            if !operation.rpc().is_inverse() {
                cells.push(Cell { operation, trouble, end: End::Deleted });
            }
        }
    }
    cells
}

fn troubles(operation: Operation) -> Vec<Trouble> {
    let some = [Code::Aborted, Code::InvalidArgument, Code::NotFound];
    let codes = (1..=16).map(Code::from_i32).filter(|code| is_whole() || some.contains(code));
    let mut faults: Vec<Fault> =
        codes.flat_map(|code| [Fault::CodeBefore(code), Fault::CodeAfter(code)]).collect();
    faults.extend([Fault::HangBefore, Fault::HangAfter]);
    // A driver that says OK to these has nothing else to say, and is believed.
    let is_believed = matches!(operation, Operation::Expand | Operation::Modify);
    faults.into_iter().map(Trouble::Fails).chain((!is_believed).then_some(Trouble::Pretends)).collect()
}

impl Operation {
    /// The call that it comes to.
    pub fn rpc(self) -> Rpc {
        match self {
            Self::Create | Self::Restore | Self::Copy => Rpc::CreateVolume,
            Self::Register | Self::Edit => Rpc::ValidateVolumeCapabilities,
            Self::Delete => Rpc::DeleteVolume,
            Self::Expand => Rpc::ControllerExpandVolume,
            Self::Modify => Rpc::ControllerModifyVolume,
            Self::Snapshot => Rpc::CreateSnapshot,
            Self::DropSnapshot => Rpc::DeleteSnapshot,
            Self::RegisterSnapshot => Rpc::ListSnapshots,
        }
    }
}

impl Cell {
    /// Names the Volume of the cell, and what the storage has of it.
    pub fn key(self) -> String {
        let trouble = match self.trouble {
            Trouble::Fails(Fault::CodeBefore(code)) => format!("{code:?}-before"),
            Trouble::Fails(Fault::CodeAfter(code)) => format!("{code:?}-after"),
            Trouble::Fails(Fault::HangBefore) => "hang-before".to_owned(),
            Trouble::Fails(Fault::HangAfter) => "hang-after".to_owned(),
            Trouble::Pretends => "pretends".to_owned(),
        };
        format!("{:?}-{trouble}-{:?}", self.operation, self.end).to_lowercase()
    }

    /// Names its Snapshot.
    pub fn snapshot(self) -> String {
        format!("s-{}", self.key())
    }

    /// What the driver says that the call is about: the volume also of CreateSnapshot.
    pub fn about(self) -> String {
        match self.operation {
            Operation::DropSnapshot | Operation::RegisterSnapshot => self.snapshot(),
            _ => self.key(),
        }
    }

    fn code(self) -> Option<Code> {
        match self.trouble {
            Trouble::Fails(Fault::CodeBefore(code) | Fault::CodeAfter(code)) => Some(code),
            Trouble::Fails(Fault::HangBefore | Fault::HangAfter) | Trouble::Pretends => None,
        }
    }

    /// The call has had its effect when it fails.
    fn has_effect(self) -> bool {
        matches!(self.trouble, Trouble::Fails(Fault::CodeAfter(_) | Fault::HangAfter))
    }

    /// What moor knows after the failure. A question leaves nothing running.
    fn meaning(self) -> Meaning {
        match self.code() {
            Some(code) => meaning(self.operation.rpc(), code),
            None if self.operation.rpc().is_question() => Meaning::Final,
            None => Meaning::StillRunning,
        }
    }

    /// There may be what the call should make. That a name is taken says that there is something.
    pub fn leaves_open(self) -> bool {
        let makes = matches!(self.operation.rpc(), Rpc::CreateVolume | Rpc::CreateSnapshot);
        makes && (self.code() == Some(Code::AlreadyExists) || self.meaning() == Meaning::StillRunning)
    }

    /// Tried again only after a minute: the same arguments will hardly succeed, or what a driver has said was no failure of
    /// its own.
    pub fn is_slow(self) -> bool {
        let is_refused = self.operation.rpc().is_question() && self.trouble == Trouble::Pretends;
        is_refused || matches!(self.meaning(), Meaning::Infeasible | Meaning::Unsupported)
    }

    /// Moor takes what the driver says for the end of the call.
    pub fn is_believed(self) -> bool {
        let inverse = self.operation.rpc().is_inverse();
        inverse && (self.trouble == Trouble::Pretends || self.meaning() == Meaning::AlreadyGone)
    }

    /// The driver says for good that something is otherwise than it is, and what it has is left: no orchestrator can know.
    pub fn is_left(self) -> bool {
        if self.operation.rpc().is_inverse() {
            return self.is_believed() && !self.has_effect();
        }
        let makes = matches!(self.operation.rpc(), Rpc::CreateVolume | Rpc::CreateSnapshot);
        makes && self.end == End::Deleted && self.has_effect() && !self.leaves_open()
    }

    /// Failures that a cell waits for, so that at least one repetition falls into the trouble. What waits long fails once.
    pub fn attempts(self) -> usize {
        if self.code().is_none() || self.is_slow() { 1 } else { 2 }
    }

    /// The calls about the volume in their order, each once, and those about the snapshot.
    pub fn calls(self) -> (Vec<Rpc>, Vec<Rpc>) {
        let goes = self.end == End::Healed || self.leaves_open();
        match self.operation {
            Operation::Create | Operation::Restore | Operation::Copy if !goes => {
                (vec![Rpc::CreateVolume], vec![])
            }
            Operation::Create | Operation::Restore | Operation::Copy | Operation::Delete => {
                (vec![Rpc::CreateVolume, Rpc::DeleteVolume], vec![])
            }
            Operation::Register => (vec![Rpc::ValidateVolumeCapabilities], vec![]),
            Operation::Expand | Operation::Modify | Operation::Edit => {
                (vec![Rpc::CreateVolume, self.operation.rpc(), Rpc::DeleteVolume], vec![])
            }
            Operation::Snapshot | Operation::DropSnapshot => {
                let of_volume = vec![Rpc::CreateVolume, Rpc::CreateSnapshot, Rpc::DeleteVolume];
                (of_volume, if goes { vec![Rpc::DeleteSnapshot] } else { vec![] })
            }
            Operation::RegisterSnapshot => (vec![], vec![Rpc::ListSnapshots]),
        }
    }
}
