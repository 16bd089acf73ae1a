//! Tells on a Volume how far the last edit of its capabilities and mount options is.

use super::context::Context;
use super::observe::Observed;
use super::volumes;
use crate::api::VolumeStatus;
use crate::api::conditions::{APPLIED, Reason, find};
use crate::k8s::ApiError;
use crate::volume::edit;

/// Keeps the Volume's condition Applied as the edit is.
pub(crate) async fn report(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    let lack = seen.refused.volume.as_ref();
    let Some(desired) = edit::condition(volume, lack, &seen.claims_seen, &seen.locks_seen) else {
        return Ok(());
    };
    let status = volume.status.as_ref();
    let said = status.and_then(|status| find(&status.conditions, APPLIED));
    let is_said =
        said.is_some_and(|said| said.reason == desired.reason.as_str() && said.message == desired.message);
    // A failure of what is not asked any more is not waited for.
    let error = status.and_then(|status| status.last_error.as_ref());
    let is_waited_for =
        desired.reason != Reason::EditPending && error.is_some_and(|error| error.rpc == edit::CALL);
    if is_said && !is_waited_for {
        return Ok(());
    }
    let change = |status: &mut VolumeStatus| {
        if is_waited_for {
            volumes::forget_failure(status, edit::CALL);
        }
    };
    volumes::record(ctx, volume, &desired, change).await.map(drop)
}
