//! Looks for Volumes whose PersistentVolume is gone without that a watch has told of it.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::imports::{is_left, says_gone, source_of};
use super::key::{Key, VolumeKey};
use crate::k8s::ApiError;
use crate::k8s::read::look_through;
use crate::volume::persistent_volume::{CsiSource, LeanPersistentVolume};

/// Time between attempts to read all PersistentVolumes.
const RETRY: Duration = Duration::from_secs(5);
/// Time between looks. A watch that was interrupted does not tell of what nobody keeps and has gone meanwhile.
const PAUSE: Duration = Duration::from_secs(600);

/// Looks when this process begins to lead, and from time to time.
pub(crate) async fn look(ctx: Arc<Context>) {
    for volume in ctx.volumes.all().iter().filter(|volume| says_gone(volume)) {
        let made = volume.status.as_ref().and_then(|status| status.persistent_volume.clone());
        let import = volume.metadata.name.clone().filter(|_| source_of(&ctx, volume).is_some());
        let key = made.map(Key::PersistentVolume).or_else(|| import.map(Key::Import));
        if let Some(key) = key {
            ctx.queue.sweep(key);
        }
    }
    for volume in ctx.volumes.all().iter().filter(|volume| is_left(&ctx, volume)) {
        ctx.queue.sweep(Key::Import(volume.name_any()));
    }
    loop {
        let pause = match once(&ctx).await {
            Ok(()) => PAUSE,
            Err(error) => {
                tracing::warn!(%error, "PersistentVolumes cannot be read");
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reads all PersistentVolumes, if there are Volumes that were made into one or of one, or are exported by one.
async fn once(ctx: &Context) -> Result<(), ApiError> {
    let mut made: HashSet<String> = HashSet::new();
    let mut imports: HashMap<CsiSource, String> = HashMap::new();
    let mut exports: HashMap<String, VolumeKey> = HashMap::new();
    for volume in ctx.volumes.all() {
        made.extend(volume.status.as_ref().and_then(|status| status.persistent_volume.clone()));
        if let (Some(source), Some(name)) = (source_of(ctx, &volume), &volume.metadata.name) {
            imports.insert(source, name.clone());
        }
        if let Some(export) = volume.status.as_ref().and_then(|status| status.export.as_ref()) {
            exports.insert(export.persistent_volume.clone(), VolumeKey::of_owner(&volume.reference()));
        }
    }
    if made.is_empty() && imports.is_empty() && exports.is_empty() {
        return Ok(());
    }
    let all: Api<LeanPersistentVolume> = Api::all(ctx.client.clone());
    look_through(&all, |one: LeanPersistentVolume| {
        if let Some(name) = &one.metadata.name {
            made.remove(name);
            exports.remove(name);
        }
        one.csi().map(|source| imports.remove(source));
        ControlFlow::Continue(())
    })
    .await?;
    for name in made {
        ctx.queue.sweep(Key::PersistentVolume(name));
    }
    for name in imports.into_values() {
        ctx.queue.sweep(Key::Import(name));
    }
    for volume in exports.into_values() {
        ctx.queue.sweep(Key::Export(volume));
    }
    Ok(())
}
