//! Decisions about claims: who is granted, who waits, and for whom.
//!
//! Pure: data in, data out. No client, no clock, no async.
//!
//! ```text
//! Pending --Assign--> Taken --stage, publish--> Ready --deleted--> NodeDetached --> gone
//!    ^                  |
//!    +---- yielded -----+        (node lost: Lost, final)
//! ```
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod admission;
pub mod ended;
pub mod entitled;
pub mod leaving;
pub mod line;
pub mod loss;
pub mod observed;
mod placement;
pub mod reason;
pub mod release;
mod without_lock;
pub mod writer;

pub use admission::{Grant, Verdict, admit};
pub use entitled::Entitled;
pub use observed::{ClaimSeen, ForgottenSeen, Mount, NodeSeen, VolumeSeen, not_entitled};
pub use reason::{Holder, Waiting};
