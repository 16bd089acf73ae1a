//! An instance as its agent sees it, and whether that agent is still heard.

use crate::api::{PluginInstance, PluginInstanceStatus};

/// An instance with what its agent says of it.
pub(super) struct Seen<'a> {
    pub instance: &'a PluginInstance,
    pub status: &'a PluginInstanceStatus,
    /// The agent is not heard any more.
    pub silent: bool,
}

/// What one of the processes says that are not healthy, one that lives before one that is gone; always of the same one,
/// while it is not.
pub(super) fn failing<'a>(seen: impl Iterator<Item = &'a Seen<'a>>) -> Option<String> {
    let failing = seen.filter(|s| !s.silent && !s.status.healthy);
    let said =
        |s: &Seen<'_>| Some((s.status.gone, s.instance.spec.node_name.clone(), s.status.last_error.clone()?));
    failing.filter_map(said).min().map(|(_, node, error)| format!("on node {node}: {error}"))
}
