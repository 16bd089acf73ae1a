//! Which Secrets of its Plugin a Volume is given when it is taken up.

use super::reason::VolumeWaiting;
use super::seen::{Seen, VolumeStep};
use crate::api::names;
use crate::api::secrets::SecretRefs;
use crate::api::sparse::Sparse;
use crate::api::volume::VolumeAssignment;
use crate::plugin::secrets::{NoSecretName, Subject, resolve};

/// The step that writes the first assignment, with the Secrets of the Plugin as they are named now. They stay when the Plugin
/// names others, or is gone: the volume is used and deleted with those that it was made with, whose content may change.
pub(super) fn assign(seen: &Seen<'_>, assignment: VolumeAssignment) -> VolumeStep {
    match of(seen) {
        Ok(secrets) => VolumeStep::Assign(VolumeAssignment { secrets, ..assignment }),
        Err(lack) => VolumeStep::Wait(VolumeWaiting::Secret(lack)),
    }
}

fn of(seen: &Seen<'_>) -> Result<Sparse<SecretRefs>, NoSecretName> {
    let spec = &seen.volume.spec;
    if let Some(taken_up) = &spec.assignment {
        return Ok(taken_up.secrets.clone());
    }
    // A PersistentVolume says itself with which Secrets it is used. One that moor makes has been given those of the Plugin.
    let is_of_kubernetes = seen.adopts || spec.persistent_volume.is_some();
    let Some(templates) = seen.plugin.secrets.filter(|_| !is_of_kubernetes) else {
        return Ok(Sparse::default());
    };
    let named = seen.volume.reference();
    let subject = Subject {
        namespace: &named.namespace,
        name: &named.name,
        persistent_volume: &names::export(&named.uid),
    };
    resolve(&spec.plugin_name, templates, subject).map(Into::into)
}
