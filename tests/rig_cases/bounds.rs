//! What the leader may cost: memory, writes and looks are bounded where a cluster is large. No case here measures time.

mod instances;
mod line;
mod persistent_volumes;

use crate::cases;
use crate::rig::Case;

/// The cases of this module.
pub const CASES: &[Case] = cases![
    instances::a_rollout_looks_at_few_volumes,
    line::a_hand_over_in_a_long_line_costs_few_writes,
    persistent_volumes::many_of_them_take_little_memory,
];
