//! What a failed call that makes something proves about what was made.

use crate::csi::{CallError, Origin};

/// Whether a failed CreateVolume or CreateSnapshot says that there is nothing of that name. `known` is whether one had been called before it without
/// such an answer: then no failure says so. Drivers look at who asks, at arguments, and at the room that is left before they
/// look for a volume of that name, and what was never sent says nothing about an earlier call. That the name is taken says
/// that there is one.
pub(crate) fn says_not_made(error: &CallError, known: bool) -> bool {
    let is_clear = match (error.origin, error.code) {
        (Origin::Argument, _) => true,
        (Origin::Driver, tonic::Code::AlreadyExists) => false,
        (Origin::Driver, _) => error.meaning().is_settled_failure(),
        (Origin::Dial | Origin::Connection | Origin::Deadline | Origin::Reply, _) => false,
    };
    is_clear && !known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::Rpc;

    #[test]
    fn only_a_clear_answer_says_that_nothing_was_made() {
        use tonic::Code;
        let of = |code, origin| CallError { rpc: Rpc::CreateVolume, code, message: String::new(), origin };
        for (code, origin, first, later) in [
            (Code::OutOfRange, Origin::Driver, true, false),
            (Code::InvalidArgument, Origin::Driver, true, false),
            (Code::Unauthenticated, Origin::Driver, true, false),
            (Code::Unimplemented, Origin::Driver, true, false),
            (Code::ResourceExhausted, Origin::Driver, true, false),
            (Code::AlreadyExists, Origin::Driver, false, false),
            (Code::InvalidArgument, Origin::Argument, true, false),
            (Code::DeadlineExceeded, Origin::Deadline, false, false),
            (Code::Unavailable, Origin::Dial, false, false),
            (Code::Internal, Origin::Reply, false, false),
            (Code::Aborted, Origin::Driver, false, false),
        ] {
            let said = [false, true].map(|known| says_not_made(&of(code, origin), known));
            assert_eq!(said, [first, later], "{code:?} {origin:?}");
        }
    }
}
