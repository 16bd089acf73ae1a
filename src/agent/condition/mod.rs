//! How volumes are: what is looked at on this node, and what drivers are asked, again and again. It is told and nothing is done
//! about it (docs/adr/0042).

mod controller;
pub(super) mod known;
mod node;
pub(super) mod rounds;
