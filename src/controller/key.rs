//! The key of a pass in the queue: what it is about.

use crate::api::Volume;

/// What a pass is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A Volume with all that hangs on it; it may not exist.
    Volume {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A Plugin's status.
    Plugin(String),
}

impl Key {
    /// The kind that the pass is about.
    pub(crate) fn about(&self) -> &'static str {
        match self {
            Self::Volume { .. } => "Volume",
            Self::Plugin(_) => "Plugin",
        }
    }
}

/// The key of the pass over the Volume of this name.
pub(crate) fn key_of(namespace: &str, name: &str) -> Key {
    Key::Volume { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// The key of the pass over this Volume.
pub(crate) fn key_of_volume(volume: &Volume) -> Key {
    let meta = &volume.metadata;
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
    key_of(namespace.unwrap_or_default(), name.unwrap_or_default())
}
