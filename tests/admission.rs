//! Who may use a volume together, and who waits for whom: the whole table of modes, and fairness over time.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "admission/fairness.rs"]
mod fairness;
#[path = "admission/forgotten.rs"]
mod forgotten;
#[path = "admission/guards.rs"]
mod guards;
#[path = "admission/scene.rs"]
mod scene;
#[path = "admission/table.rs"]
mod table;
#[path = "admission/without_lock.rs"]
mod without_lock;
