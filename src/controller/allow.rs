//! Observe: what a Volume and its claims ask for and their namespace may not.

use std::sync::Arc;

use super::known::Known;
use crate::api::{ClaimUid, Plugin, Volume, VolumeClaim};
use crate::plugin::allow::{self, NamespaceSeen, NotAllowed};

/// What a Volume and its claims ask for and an administrator has not allowed.
#[derive(Default)]
pub(crate) struct Refused {
    /// What the Volume asks for.
    pub(crate) volume: Option<NotAllowed>,
    /// What claims ask for that have not been granted before, by UID.
    pub(crate) claims: Vec<(ClaimUid, NotAllowed)>,
}

/// A namespace as far as it is known.
pub(crate) fn namespace_seen(known: &Known, name: &str) -> NamespaceSeen {
    // Without its labels as long as it has not been seen: then only its name counts, and its coming is an event.
    let seen = known.namespaces.get(name);
    let labels = seen.and_then(|n| n.metadata.labels.clone()).unwrap_or_default();
    NamespaceSeen { name: name.to_owned(), labels }
}

/// What a Volume and its claims may not. A Volume that moor keeps for PersistentVolumes (`is_kept`) says what administrators
/// have written there, and a Pod's claim what kubelet has read there, or what the Volume says that its Pod names. A Volume
/// that is provisioned was judged when it was made, by the namespace that asked for it.
pub(crate) fn refused(
    known: &Known,
    namespace: &str,
    plugin: Option<&Plugin>,
    volume: Option<&Volume>,
    claims: &[Arc<VolumeClaim>],
    is_kept: bool,
) -> Refused {
    let is_provisioned =
        namespace == known.namespace && volume.is_some_and(|v| v.spec.persistent_volume.is_some());
    let namespace = namespace_seen(known, namespace);
    let new = claims.iter().filter(|c| c.spec.assignment.is_none() && c.spec.pod.is_none());
    // Without its Volume nothing is granted.
    let name = volume.map(|v| v.spec.plugin_name.as_str());
    Refused {
        volume: volume
            .filter(|_| !is_kept && !is_provisioned)
            .and_then(|v| allow::volume(plugin, &namespace, v)),
        claims: new
            .filter_map(|c| Some((ClaimUid::of(&c.metadata), allow::claim(plugin, name?, &namespace, c)?)))
            .collect(),
    }
}
