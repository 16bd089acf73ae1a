//! What was made of what, where the names alone do not say it: an object may have the name of an earlier one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{Snapshot, Volume};

/// Whether a Snapshot may be of this Volume, which has the name that it names: not if the driver says that it is of another
/// volume. Who restores a Volume under its old name has one that no Snapshot is of.
pub(in super::super) fn may_be_of(snapshot: &Snapshot, volume: &Volume) -> bool {
    let Some(handle) = volume.status.as_ref().and_then(|status| status.volume_handle.as_ref()) else {
        return true;
    };
    if snapshot.is_group() {
        let volumes = snapshot.spec.assignment.as_ref().map(|assignment| &*assignment.volumes);
        let volumes = volumes.unwrap_or_default();
        return volumes.is_empty() || volumes.iter().any(|of| of.volume_handle == *handle);
    }
    let of = snapshot.status.as_ref().and_then(|status| status.source_volume_handle.as_ref());
    of.is_none_or(|of| of == handle)
}

/// Whether a Volume may have been made of the object that has this metadata, and that it names.
pub(super) fn may_be_made_of(volume: &Volume, of: &ObjectMeta) -> bool {
    let assignment = volume.spec.assignment.as_ref();
    let taken =
        assignment.and_then(|assignment| assignment.source.as_ref()).map(|source| source.uid.as_str());
    taken.is_none_or(|uid| of.uid.as_deref() == Some(uid))
}
