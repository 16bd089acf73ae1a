//! What kubelet is served on this node: registration, and CSI's Identity and Node services under each driver's own name.

pub(crate) mod answer;
pub(crate) mod asked;
pub(crate) mod driver;
mod expand;
mod facts;
pub(crate) mod inline;
mod mounted;
mod publish;
mod registration;
pub(crate) mod releases;
mod republish;
pub(crate) mod serve;
pub(crate) mod served;
mod service;
mod stats;
pub(crate) mod sweep;
pub(crate) mod target;
mod unpublish;
mod volume_data;
