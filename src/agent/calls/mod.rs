//! What every CSI call of the agent goes through, whichever worker makes it: its arguments, its turn at the driver, what a
//! failure means and when it is tried again, and how its result gets into a status.

pub(super) mod arguments;
pub(super) mod attempt;
pub(super) mod begun;
pub(super) mod budgets;
pub(super) mod failure;
pub(super) mod flights;
pub(super) mod not_found;
pub(super) mod not_made;
pub(super) mod retained;
pub(super) mod retry;
pub(super) mod running;
pub(super) mod status;
pub(super) mod tenures;
pub(super) mod unended;
pub(super) mod write;
