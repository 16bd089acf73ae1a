//! Tells of a Volume whether claims could be served anew, by its condition Schedulable.

use std::time::Duration;

use jiff::Timestamp;

use super::context::Context;
use super::observe::Observed;
use super::volumes;
use crate::api::conditions::{Desired, Reason, SCHEDULABLE, find};
use crate::api::{Plugin, Volume, VolumeState};
use crate::k8s::ApiError;
use crate::volume::schedulable::{OfVolume, schedulable};

/// What a Plugin's Volumes say of it: another one is told by all.
pub(super) fn told(plugin: &Plugin) -> Result<Desired, Duration> {
    // As it is when it has lasted, with what only some of them say.
    let any =
        OfVolume { is_begun: false, is_denied: false, looked_since: Timestamp::MIN, turn: Duration::ZERO };
    schedulable("", Some(plugin), any, Timestamp::MAX)
}

/// Writes it where the Volume says something else. Returns after which time it has to be looked at again.
pub(super) async fn report(ctx: &Context, seen: &Observed) -> Result<Option<Duration>, ApiError> {
    let lives = |volume: &&std::sync::Arc<Volume>| volume.metadata.deletion_timestamp.is_none();
    let Some(volume) = seen.volume.as_ref().filter(lives) else { return Ok(None) };
    let desired = match volumes::schedulable(ctx, volume) {
        Ok(desired) => desired,
        Err(left) => return Ok(Some(left)),
    };
    let said = volume.status.as_ref().and_then(|status| find(&status.conditions, SCHEDULABLE));
    // With the next write about it, before which its agent writes too: two at a time are one too many.
    let comes = volume.spec.assignment.is_some() && volume.state() < VolumeState::Ready;
    if said.is_none() && comes && desired.reason == Reason::Schedulable {
        return Ok(None);
    }
    let is_told =
        said.is_some_and(|said| said.reason == desired.reason.as_str() && said.message == desired.message);
    if !is_told {
        volumes::record(ctx, volume, &desired, |_| {}).await?;
    }
    Ok(None)
}
