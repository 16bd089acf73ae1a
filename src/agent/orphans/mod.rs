//! Storage and objects that do not have each other: what the driver lists is compared with what there is, and reported. Nothing is
//! done about it (docs/adr/0041).

mod compare;
pub(super) mod known;
mod ledger;
pub(super) mod look;
mod said;
