//! The leader's plan: one pass over one Volume, with all that hangs on it.
//!
//! Pure: data in, data out. [`plan`] is total, and what it cannot know from the caches it asks for: a [`LeaderStep::Look`]
//! is a live read whose answer comes back in [`Scene::looked`], and the same scene is planned again with it. So every answer
//! is younger than all that it is compared with (rule R1), and whoever reads this module reads every decision of the leader.
//!
//! ```text
//! observe (caches) -> plan -> Look --> plan -> ... -> one write, guarded by what was observed -> observe
//!                      |                                                       |
//!                      +-- the same scene until something is written ----------+
//! ```
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod closing;
mod expansion;
mod grants;
mod linger;
mod look;
mod lost;
mod plan;
mod pods;
mod release;
mod scene;
mod step;
mod storage;
mod takeover;
mod volume;

pub use look::{Look, Looked};
pub use plan::{Plan, plan};
pub use scene::Scene;
pub use step::LeaderStep;
