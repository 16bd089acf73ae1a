//! Reads the VolumeSnapshot of which a PersistentVolumeClaim's volume is to be made, with what it stands for.

use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::key::Key;
use crate::api::{Snapshot, names};
use crate::k8s::ApiError;
use crate::k8s::read::get_live;
use crate::provision::{RestoreNow, VolumeSnapshot, VolumeSnapshotContent};

/// What a claim names, as it is now.
#[derive(Default)]
pub(crate) struct Restore {
    is_defined: bool,
    snapshot: Option<VolumeSnapshot>,
    content: Option<VolumeSnapshotContent>,
    kept: Option<Snapshot>,
}

impl Restore {
    /// Reads it.
    pub(crate) async fn read(ctx: &Context, namespace: &str, name: &str) -> Result<Self, ApiError> {
        let api: Api<VolumeSnapshot> = Api::namespaced(ctx.client.clone(), namespace);
        let snapshot = match get_live(&api, name).await {
            Ok(snapshot) => snapshot,
            Err(error) if error.is_undefined() => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let status = snapshot.as_ref().and_then(|snapshot| snapshot.status.as_ref());
        let bound = status.and_then(|status| status.bound_volume_snapshot_content_name.clone());
        let content = match bound.filter(|name| names::is_object_name(name)) {
            Some(name) => get_live::<VolumeSnapshotContent>(&Api::all(ctx.client.clone()), &name).await?,
            None => None,
        };
        let kept = match content.as_ref().and_then(|content| content.metadata.uid.as_deref()) {
            Some(uid) => {
                let api = ctx.writer.api::<Snapshot>(&ctx.namespace);
                get_live(&api, &names::snapshot_of_content(uid)).await?
            }
            None => None,
        };
        if let (Some(content), None) = (&content, &kept) {
            ctx.queue.add(Key::Content(content.name_any()));
        }
        Ok(Self { is_defined: true, snapshot, content, kept })
    }

    /// As the decision sees it.
    pub(crate) fn seen(&self) -> RestoreNow<'_> {
        RestoreNow {
            is_defined: self.is_defined,
            snapshot: self.snapshot.as_ref(),
            content: self.content.as_ref(),
            kept: self.kept.as_ref(),
        }
    }
}
