//! What the leader may cost: memory, writes and looks are bounded where a cluster is large. No case here measures time.

mod persistent_volumes;

use crate::cases;
use crate::rig::Case;

/// The cases of this module.
pub const CASES: &[Case] = cases![persistent_volumes::many_of_them_take_little_memory];
