//! Decisions about Attachments: when one closes, and what each agent does next about one.
//!
//! Pure: data in, data out. At every moment exactly one actor may advance an Attachment; the functions
//! here are the three actors' halves of that table (ARCHITECTURE.md shows it whole).
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod closing;
pub mod controller_side;
pub mod drift;
pub mod health;
pub mod loss;
pub mod node_side;
pub mod observed;
pub mod record;
pub mod same_node_id;

pub use observed::{AttachmentSeen, HandleSeen, NodeGrowth, StagedAs};
