//! Reads an object live after a write was refused because the cache is behind.

use kube::Api;

use super::context::Context;
use crate::k8s::cache::{Cache, Cached};
use crate::k8s::error::{ApiError, Request};
use crate::k8s::read::get_live;

/// Takes the object of a write that met a newer version into the cache, and no other: a Volume can have thousands of
/// claims, and of those nothing is known to be old.
pub(crate) async fn refresh(ctx: &Context, conflicted: &Request) -> Result<(), ApiError> {
    let (namespace, name) = conflicted.object.split_once('/').unwrap_or(("", &conflicted.object));
    match conflicted.kind.as_str() {
        "VolumeClaim" => read(&ctx.claims, &ctx.claim_api(namespace), namespace, name).await,
        "Attachment" => read(&ctx.attachments, &ctx.attachment_api(), namespace, name).await,
        "Volume" => read(&ctx.volumes, &ctx.volume_api(namespace), namespace, name).await,
        "VolumeHandle" => read(&ctx.handles, &ctx.handle_api(), namespace, name).await,
        // Of other kinds nothing is written in a pass over a Volume.
        _ => Err(ApiError::Conflict(conflicted.clone())),
    }
}

async fn read<K: Cached>(
    cache: &Cache<K>,
    api: &Api<K>,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    match get_live(api, name).await? {
        Some(live) => cache.apply(live),
        None => {
            if let Some(known) = cache.get(namespace, name) {
                cache.remove_confirmed(known.meta().uid.as_deref().unwrap_or_default());
            }
        }
    }
    Ok(())
}
