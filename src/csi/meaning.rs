//! What an answer means for the one who called: the only place where gRPC codes are read.
//!
//! Sources: the CSI spec's general error scheme and the error table of each call, and, where the spec leaves a code
//! open, what the stock sidecars and kubelet do. For calls that change something:
//!
//! | code | meaning |
//! |---|---|
//! | OK | `Success` |
//! | CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE, ABORTED | `StillRunning` |
//! | RESOURCE_EXHAUSTED | `StillRunning`, but `Final` for CreateVolume |
//! | INVALID_ARGUMENT | `Infeasible` |
//! | ALREADY_EXISTS | `Infeasible` for calls that make something, else `Final`, as for ControllerModifyVolume |
//! | OUT_OF_RANGE | `Infeasible` for CreateVolume, ControllerExpandVolume and NodeExpandVolume, else `Final` |
//! | NOT_FOUND | `AlreadyGone` for inverse calls, `Infeasible` for ControllerExpandVolume, else `Final` |
//! | FAILED_PRECONDITION | `Blocked` where the spec says that something else holds the volume, else `Final` |
//! | UNIMPLEMENTED | `Unsupported` |
//! | UNKNOWN, INTERNAL, DATA_LOSS, PERMISSION_DENIED, UNAUTHENTICATED | `Final` |
//!
//! A question changes nothing, so no failure of it leaves anything running: `Final`, `Infeasible` or `Unsupported`.

use tonic::Code;

use super::rpc::Rpc;

/// What the caller knows after a call, and so what it may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meaning {
    /// Done.
    Success,
    /// The driver does not know what an inverse call was to undo. That is the wished state only if the caller has its
    /// own evidence: the plugin is the one that did it (rule R9), or the mount table is empty there (rule R8).
    /// The spec asks for OK in this case, and some drivers answer NOT_FOUND when they look at the wrong backend.
    AlreadyGone,
    /// This request never left this process; another plugin instance may be asked instead. An earlier attempt whose
    /// outcome was unknown stays unknown.
    NeverSent,
    /// The driver may be working on it, or may have finished. Repeat the identical call until it answers clearly, or
    /// make the inverse call; nothing else on this volume in between.
    StillRunning,
    /// The driver is not working on it. The request may be repeated, changed or given up without an inverse call.
    Final,
    /// As `Final`, and something else has to happen first: the volume is in use. Worth another look when that changes.
    Blocked,
    /// As `Final`, and the same arguments will not succeed. Repeat slowly, or once they change.
    Infeasible,
    /// As `Final`, and the driver does not have this call. Not to be repeated before its capabilities are read again.
    Unsupported,
}

impl Meaning {
    /// Whether the driver has said clearly that it is not working on the call, so that it may be given up without its
    /// inverse.
    ///
    /// Not so for `NeverSent`: it says nothing about an earlier attempt, whose outcome may still be unknown.
    #[must_use]
    pub fn is_settled_failure(self) -> bool {
        matches!(self, Self::Final | Self::Blocked | Self::Infeasible | Self::Unsupported)
    }
}

/// What the driver's own answer `code` to `rpc` means. Total over all calls and all 17 codes.
///
/// This is for answers by the driver; [`super::CallError::meaning`] also knows failures of the connection.
#[must_use]
pub fn meaning(rpc: Rpc, code: Code) -> Meaning {
    if rpc.is_question() {
        return of_question(code);
    }
    match code {
        Code::Ok => Meaning::Success,
        // CSI "Timeouts": the outcome of a call that ended early is unknown. ABORTED: an earlier call of ours runs yet.
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => Meaning::StillRunning,
        // No room in this topology; the caller may try another one.
        Code::ResourceExhausted if rpc == Rpc::CreateVolume => Meaning::Final,
        // For ControllerPublishVolume the spec means that the node is full, but a gRPC stack sends the code on its own
        // account too; the safe side is to detach before giving up. The attacher, the resizer, the snapshotter and
        // kubelet all read it so.
        Code::ResourceExhausted => Meaning::StillRunning,
        Code::InvalidArgument => Meaning::Infeasible,
        // The name or target is taken with other arguments; the spec asks the caller to fix them.
        Code::AlreadyExists if rpc.is_change() && rpc != Rpc::ControllerModifyVolume => Meaning::Infeasible,
        // The size is impossible; the spec asks the caller to fix it.
        Code::OutOfRange
            if matches!(rpc, Rpc::CreateVolume | Rpc::ControllerExpandVolume | Rpc::NodeExpandVolume) =>
        {
            Meaning::Infeasible
        }
        // The resizer takes it so: no size that is asked for makes the volume known.
        Code::NotFound if rpc == Rpc::ControllerExpandVolume => Meaning::Infeasible,
        Code::NotFound if rpc.is_inverse() => Meaning::AlreadyGone,
        // Attached elsewhere, published at another target, has snapshots: somebody else has to let go.
        Code::FailedPrecondition
            if matches!(rpc, Rpc::DeleteVolume | Rpc::DeleteSnapshot | Rpc::DeleteVolumeGroupSnapshot) =>
        {
            Meaning::Blocked
        }
        // These wait for nobody who has the volume.
        Code::FailedPrecondition
            if rpc.is_change()
                && !matches!(
                    rpc,
                    Rpc::CreateVolume
                        | Rpc::CreateSnapshot
                        | Rpc::CreateVolumeGroupSnapshot
                        | Rpc::ControllerModifyVolume
                ) =>
        {
            Meaning::Blocked
        }
        // The caller checks and backs off.
        Code::AlreadyExists | Code::OutOfRange | Code::NotFound | Code::FailedPrecondition => Meaning::Final,
        // CSI "Error Scheme": the caller must not retry, and may read the capabilities again.
        Code::Unimplemented => Meaning::Unsupported,
        // The first three are not defined by CSI: a handler that failed and returned sends them, so it is not working
        // any more. For the last two an administrator must act; until then ordinary back-off.
        Code::Unknown | Code::Internal | Code::DataLoss | Code::PermissionDenied | Code::Unauthenticated => {
            Meaning::Final
        }
    }
}

fn of_question(code: Code) -> Meaning {
    match code {
        Code::Ok => Meaning::Success,
        Code::InvalidArgument | Code::OutOfRange => Meaning::Infeasible,
        Code::Unimplemented => Meaning::Unsupported,
        _ => Meaning::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes() -> impl Iterator<Item = Code> {
        (0..17).map(Code::from_i32)
    }

    fn changes() -> impl Iterator<Item = Rpc> {
        Rpc::ALL.into_iter().filter(|rpc| !rpc.is_question())
    }

    #[test]
    fn an_early_end_of_a_change_leaves_it_running() {
        for rpc in changes() {
            for code in [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::Aborted] {
                assert_eq!(meaning(rpc, code), Meaning::StillRunning, "{rpc} {code:?}");
            }
        }
    }

    #[test]
    fn only_ok_is_success() {
        for rpc in Rpc::ALL {
            for code in codes() {
                assert_eq!(meaning(rpc, code) == Meaning::Success, code == Code::Ok, "{rpc} {code:?}");
            }
        }
    }

    #[test]
    fn a_question_leaves_nothing_running() {
        for rpc in Rpc::ALL.into_iter().filter(|rpc| rpc.is_question()) {
            assert!(codes().all(|code| meaning(rpc, code) != Meaning::StillRunning), "{rpc}");
        }
    }

    #[test]
    fn not_found_is_already_gone_for_inverse_calls_and_for_no_other() {
        for rpc in Rpc::ALL {
            let gone = meaning(rpc, Code::NotFound) == Meaning::AlreadyGone;
            assert_eq!(gone, rpc.is_inverse(), "{rpc}");
        }
        assert_eq!(meaning(Rpc::ControllerUnpublishVolume, Code::NotFound), Meaning::AlreadyGone);
        assert_eq!(meaning(Rpc::ControllerPublishVolume, Code::NotFound), Meaning::Final);
        assert_eq!(meaning(Rpc::NodeStageVolume, Code::NotFound), Meaning::Final);
    }

    #[test]
    fn no_other_code_than_not_found_is_already_gone() {
        for rpc in Rpc::ALL {
            for code in codes().filter(|code| *code != Code::NotFound) {
                assert_ne!(meaning(rpc, code), Meaning::AlreadyGone, "{rpc} {code:?}");
            }
        }
    }

    #[test]
    fn a_full_node_is_detached_before_it_is_given_up() {
        assert_eq!(meaning(Rpc::ControllerPublishVolume, Code::ResourceExhausted), Meaning::StillRunning);
        assert_eq!(meaning(Rpc::NodeStageVolume, Code::ResourceExhausted), Meaning::StillRunning);
    }

    #[test]
    fn a_full_topology_settles_create_volume() {
        assert_eq!(meaning(Rpc::CreateVolume, Code::ResourceExhausted), Meaning::Final);
    }

    #[test]
    fn a_volume_attached_elsewhere_blocks() {
        assert_eq!(meaning(Rpc::ControllerPublishVolume, Code::FailedPrecondition), Meaning::Blocked);
        assert_eq!(meaning(Rpc::DeleteVolume, Code::FailedPrecondition), Meaning::Blocked);
        assert_eq!(meaning(Rpc::ControllerExpandVolume, Code::FailedPrecondition), Meaning::Blocked);
        assert_eq!(meaning(Rpc::NodeExpandVolume, Code::FailedPrecondition), Meaning::Blocked);
    }

    #[test]
    fn wrong_arguments_are_repeated_slowly() {
        for rpc in Rpc::ALL {
            assert_eq!(meaning(rpc, Code::InvalidArgument), Meaning::Infeasible, "{rpc}");
        }
        assert_eq!(meaning(Rpc::CreateVolume, Code::OutOfRange), Meaning::Infeasible);
        assert_eq!(meaning(Rpc::ControllerExpandVolume, Code::OutOfRange), Meaning::Infeasible);
        assert_eq!(meaning(Rpc::NodeExpandVolume, Code::OutOfRange), Meaning::Infeasible);
        assert_eq!(meaning(Rpc::ControllerExpandVolume, Code::NotFound), Meaning::Infeasible);
        assert_eq!(meaning(Rpc::CreateVolume, Code::AlreadyExists), Meaning::Infeasible);
        assert_eq!(meaning(Rpc::NodePublishVolume, Code::AlreadyExists), Meaning::Infeasible);
    }

    /// The resizer takes a VolumeAttributesClass for impossible on this word alone.
    #[test]
    fn only_invalid_argument_says_that_a_volume_is_never_modified_so() {
        for code in codes().filter(|code| *code != Code::InvalidArgument) {
            assert_ne!(meaning(Rpc::ControllerModifyVolume, code), Meaning::Infeasible, "{code:?}");
        }
        for code in [Code::NotFound, Code::OutOfRange, Code::AlreadyExists, Code::FailedPrecondition] {
            assert_eq!(meaning(Rpc::ControllerModifyVolume, code), Meaning::Final, "{code:?}");
        }
    }

    #[test]
    fn a_handler_that_failed_and_returned_is_not_working_any_more() {
        for rpc in changes() {
            for code in [Code::Unknown, Code::Internal, Code::DataLoss, Code::PermissionDenied] {
                assert_eq!(meaning(rpc, code), Meaning::Final, "{rpc} {code:?}");
            }
        }
    }

    #[test]
    fn an_unimplemented_call_is_unsupported_everywhere() {
        for rpc in Rpc::ALL {
            assert_eq!(meaning(rpc, Code::Unimplemented), Meaning::Unsupported, "{rpc}");
        }
    }
}
