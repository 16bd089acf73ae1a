//! The processes of CSI drivers on this node: found by their sockets, watched, asked what they can do, and shown as
//! PluginInstances.
//!
//! `registry` knows them all, each as an `endpoint`; `place` says where a driver's sockets may be, `folders` looks for them, `watcher` follows one process,
//! `fingerprint` is what it says about itself, `services` says which process serves what, `plugin_instance` writes the object.

pub(super) mod endpoint;
pub(super) mod fingerprint;
pub(super) mod folders;
pub(super) mod place;
pub(super) mod plugin_instance;
pub(super) mod registry;
pub(super) mod services;
pub(super) mod watcher;
