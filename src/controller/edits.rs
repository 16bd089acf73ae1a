//! Tells on a Volume how far the last edit of its capabilities and mount options is.

use super::context::Context;
use super::observe::Observed;
use super::volumes;
use crate::api::conditions::{APPLIED, find};
use crate::k8s::ApiError;
use crate::volume::edit;

/// Keeps the Volume's condition Applied as the edit is.
pub(crate) async fn report(ctx: &Context, seen: &Observed) {
    if let Err(error) = record(ctx, seen).await {
        tracing::warn!(volume = %seen.key, %error, "cannot report how far an edit is");
    }
}

async fn record(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    let lack = seen.refused.volume.as_ref();
    let Some(desired) = edit::condition(volume, lack, &seen.claims_seen, &seen.locks_seen) else {
        return Ok(());
    };
    let said = volume.status.as_ref().and_then(|status| find(&status.conditions, APPLIED));
    if said.is_some_and(|said| said.reason == desired.reason.as_str() && said.message == desired.message) {
        return Ok(());
    }
    volumes::record(ctx, volume, &desired, |_| {}).await.map(drop)
}
