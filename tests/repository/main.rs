//! The repository as a whole: what is generated is current, the arrows between modules hold, documents name what exists.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod crds;
mod dashboard;
mod descriptors;
mod documents;
mod entries;
mod failures;
mod layering;
mod performance;
mod plugins;
mod proofs;
mod reference;
mod rules;
mod sources;
