//! Which Secret a Snapshot's calls take along if it names none itself.

use super::reason::SnapshotWaiting;
use super::seen::Seen;
use crate::api::Volume;
use crate::api::names;
use crate::api::secrets::{SecretFor, SecretName};
use crate::plugin::secrets::{Subject, resolve};

/// The Secret of whoever wrote the Volume, and that of the Plugin.
#[derive(Default, PartialEq)]
pub(super) struct Named {
    pub of_volume: Option<String>,
    pub of_plugin: Option<String>,
}

/// The Secret of one that is taken is its Volume's, which may be gone when the snapshot is deleted; of a group it is the one that
/// all its Volumes have. For one that is registered the Plugin names it, as it is named now.
pub(super) fn of(seen: &Seen<'_>) -> Result<Named, SnapshotWaiting> {
    let spec = &seen.snapshot.spec;
    // For a VolumeSnapshotContent its class says with which Secret, or with none.
    if spec.volume_snapshot_content.is_some() {
        return Ok(Named::default());
    }
    let mut all = seen.volumes.iter().filter_map(|of| Some((of.name, of.volume?)));
    if let Some((first, volume)) = all.next() {
        let named = of_volume(volume);
        let other = all.find(|(_, other)| of_volume(other) != named && spec.secret_name.is_none());
        return match other {
            Some((other, _)) => Err(SnapshotWaiting::SecretsDiffer(first.to_owned(), other.to_owned())),
            None => Ok(named),
        };
    }
    let Some(templates) = seen.plugin.secrets else { return Ok(Named::default()) };
    let (meta, uid) = (&seen.snapshot.metadata, seen.snapshot.metadata.uid.as_deref().unwrap_or_default());
    let subject = Subject {
        namespace: meta.namespace.as_deref().unwrap_or_default(),
        name: meta.name.as_deref().unwrap_or_default(),
        persistent_volume: &names::export(uid),
    };
    let refs = resolve(seen.plugin_name, templates, subject).map_err(SnapshotWaiting::Secret)?;
    Ok(Named { of_volume: None, of_plugin: refs.of(SecretFor::Snapshot).map(str::to_owned) })
}

fn of_volume(volume: &Volume) -> Named {
    match volume.secret(SecretFor::Snapshot) {
        Some(SecretName::OfUser(name)) => Named { of_volume: Some(name.to_owned()), of_plugin: None },
        Some(SecretName::OfPlugin(name)) => Named { of_volume: None, of_plugin: Some(name.to_owned()) },
        None => Named::default(),
    }
}
