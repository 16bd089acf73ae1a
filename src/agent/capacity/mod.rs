//! How much room drivers have (GetCapacity), as the leader has it asked.

pub(super) mod said;
pub(super) mod worker;
