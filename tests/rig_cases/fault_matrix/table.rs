//! The cases of the matrix, and what is expected of each.

use moor::csi::{Meaning, Rpc, meaning};
use tonic::Code;

use crate::rig::{Fault, is_whole};

/// The calls that a claim and its Volume need.
pub const CALLS: [Rpc; 9] = [
    Rpc::CreateVolume,
    Rpc::ValidateVolumeCapabilities,
    Rpc::ControllerPublishVolume,
    Rpc::NodeStageVolume,
    Rpc::NodePublishVolume,
    Rpc::NodeUnpublishVolume,
    Rpc::NodeUnstageVolume,
    Rpc::ControllerUnpublishVolume,
    Rpc::DeleteVolume,
];

/// What happens while the fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ends, and what was begun is finished.
    Healed,
    /// Claim and Volume are deleted, and it goes on.
    Deleted,
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub rpc: Rpc,
    pub fault: Fault,
    pub end: End,
}

/// Every cell; without `MOOR_RIG=all` those of a code that leaves the outcome open, one that settles it for good, one that
/// says "already gone" of an inverse and "failed" of the others, and one that says "there is one" of CreateVolume.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for rpc in CALLS {
        for fault in faults(rpc) {
            cells.push(Cell { rpc, fault, end: End::Healed });
            // An inverse fails while something is being deleted anyway.
            if !rpc.is_inverse() {
                cells.push(Cell { rpc, fault, end: End::Deleted });
            }
        }
    }
    cells
}

fn faults(rpc: Rpc) -> Vec<Fault> {
    let some = [Code::Aborted, Code::InvalidArgument, Code::NotFound];
    // Who has no ValidateVolumeCapabilities is taken at his word.
    let is_answer = |code: Code| (rpc, code) == (Rpc::ValidateVolumeCapabilities, Code::Unimplemented);
    let is_asked = |code: &Code| {
        is_whole() || some.contains(code) || (rpc, *code) == (Rpc::CreateVolume, Code::AlreadyExists)
    };
    let codes = (1..=16).map(Code::from_i32).filter(is_asked).filter(|code| !is_answer(*code));
    let mut faults: Vec<Fault> =
        codes.flat_map(|code| [Fault::CodeBefore(code), Fault::CodeAfter(code)]).collect();
    faults.extend([Fault::HangBefore, Fault::HangAfter]);
    faults
}

impl Cell {
    /// Names the objects of the cell, and the volume.
    pub fn key(self) -> String {
        let fault = match self.fault {
            Fault::CodeBefore(code) => format!("{code:?}-before"),
            Fault::CodeAfter(code) => format!("{code:?}-after"),
            Fault::HangBefore => "hang-before".to_owned(),
            Fault::HangAfter => "hang-after".to_owned(),
        };
        format!("{}-{fault}-{:?}", self.rpc.name(), self.end).to_lowercase()
    }

    /// The code that the driver answers with; nothing if it hangs.
    pub fn code(self) -> Option<Code> {
        match self.fault {
            Fault::CodeBefore(code) | Fault::CodeAfter(code) => Some(code),
            Fault::HangBefore | Fault::HangAfter => None,
        }
    }

    /// The call has had its effect when it fails.
    pub fn has_effect(self) -> bool {
        matches!(self.fault, Fault::CodeAfter(_) | Fault::HangAfter)
    }

    /// What moor knows after the failure. A question that hangs leaves nothing running.
    pub fn meaning(self) -> Meaning {
        match self.code() {
            Some(code) => meaning(self.rpc, code),
            None if self.rpc.is_question() => Meaning::Final,
            None => Meaning::StillRunning,
        }
    }

    /// There may be what the call should make, also for all that the driver has said: that a volume's name is taken says
    /// that there is one.
    pub fn leaves_open(self) -> bool {
        let taken = self.rpc == Rpc::CreateVolume && self.code() == Some(Code::AlreadyExists);
        taken || self.meaning() == Meaning::StillRunning
    }

    /// The same arguments will hardly succeed: tried again only after a minute.
    pub fn is_slow(self) -> bool {
        matches!(self.meaning(), Meaning::Infeasible | Meaning::Unsupported)
    }

    /// The driver says that there is nothing to undo, and moor has no evidence against it: what a mount table shows it
    /// believes more (rule R9), so only an unmounted path or a call of the Controller service lets it pass.
    pub fn is_believed_gone(self) -> bool {
        let visible = matches!(self.rpc, Rpc::NodeUnpublishVolume | Rpc::NodeUnstageVolume);
        self.meaning() == Meaning::AlreadyGone && (self.has_effect() || !visible)
    }

    /// The driver says for good that it did not do what it did. No orchestrator can know; what can be seen is undone.
    pub fn is_lie(self) -> bool {
        self.has_effect() && self.meaning().is_settled_failure()
    }

    /// Word of the failure's code in a status.
    pub fn shown(self) -> String {
        format!("{:?}", self.code().unwrap_or(Code::DeadlineExceeded))
    }
}

/// The condition's reason when a call fails.
pub fn reason(rpc: Rpc) -> &'static str {
    match rpc {
        Rpc::CreateVolume => "CreateVolumeFailed",
        Rpc::ValidateVolumeCapabilities => "ValidateFailed",
        Rpc::ControllerPublishVolume => "ControllerPublishFailed",
        Rpc::NodeStageVolume => "NodeStageFailed",
        Rpc::NodePublishVolume => "NodePublishFailed",
        Rpc::NodeUnpublishVolume => "NodeUnpublishFailed",
        Rpc::NodeUnstageVolume => "NodeUnstageFailed",
        Rpc::ControllerUnpublishVolume => "ControllerUnpublishFailed",
        Rpc::DeleteVolume => "DeleteVolumeFailed",
        other => panic!("{other} is not in the matrix"),
    }
}

/// On which kind success is written, and as which state.
pub fn success(rpc: Rpc) -> (&'static str, &'static str) {
    match rpc {
        Rpc::CreateVolume | Rpc::ValidateVolumeCapabilities => ("volumes", "Created"),
        Rpc::ControllerPublishVolume => ("attachments", "Attached"),
        Rpc::NodeStageVolume | Rpc::NodePublishVolume => ("volumeclaims", "Ready"),
        Rpc::NodeUnpublishVolume | Rpc::NodeUnstageVolume => ("attachments", "NodeDetached"),
        Rpc::ControllerUnpublishVolume => ("attachments", "freed"),
        Rpc::DeleteVolume => ("volumes", "Deleted"),
        other => panic!("{other} is not in the matrix"),
    }
}
