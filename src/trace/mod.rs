//! The last CSI calls that an agent has made, kept in its memory for people who look after a volume (ADR 43).
//!
//! [`Trace`] is bounded and keeps nothing that is secret: what is told to it is redacted before. The agent gives it out at a
//! socket that only root on its node can open; [`of`] picks the calls about one volume, or one snapshot.

mod call;
mod ring;

pub use call::{Call, End, Told, of, printed};
pub(crate) use ring::{Begun, Running, Trace};
