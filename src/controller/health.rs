//! Tells on the Volume how it is, by what the agents report. Nothing is done about it (docs/adr/0042).

use std::sync::Arc;

use super::context::Context;
use super::observe::Observed;
use super::volumes;
use crate::api::Volume;
use crate::api::conditions::{self, HEALTHY};
use crate::api::health::VolumeFinding;
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;
use crate::volume::health::{self, Reported};

/// Keeps the Volume's status.health and its condition Healthy as they are reported, and publishes an Event when something new
/// is wrong, or nothing any more.
pub(crate) async fn report(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    let known = volume.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let before = volume.status.as_ref().map(|status| status.health.clone()).unwrap_or_default();
    let Some(now) = health::merged(reported(seen, volume)) else {
        // It may be that nothing was wrong when somebody last looked, and that stays said; nobody knows whether something still is.
        if !before.is_empty() || conditions::find(known, HEALTHY).is_some_and(|found| found.status == "False")
        {
            forget(ctx, volume).await?;
        }
        return Ok(());
    };
    let condition = health::condition(&now);
    let is_said =
        conditions::find(known, HEALTHY).is_some_and(|found| found.reason == condition.reason.as_str());
    if now == before && is_said {
        return Ok(());
    }
    volumes::record(ctx, volume, &condition, |status| status.health.clone_from(&now)).await?;
    tell(ctx, volume, &before, &now);
    Ok(())
}

fn tell(ctx: &Context, volume: &Arc<Volume>, before: &[VolumeFinding], now: &[VolumeFinding]) {
    let news = health::news(before, now);
    if !news.is_empty() {
        ctx.recorder.tell(volume, EventReason::VolumeConditionAbnormal, "Look", health::told(&news));
    } else if now.is_empty() && !before.is_empty() {
        let note = health::condition(now).message;
        ctx.recorder.tell(volume, EventReason::VolumeConditionNormal, "Look", note);
    }
}

/// What is reported of this Volume, where nothing is being undone, and by a driver that still says such things.
fn reported<'a>(seen: &'a Observed, volume: &Volume) -> impl Iterator<Item = Reported<'a>> {
    let uid = volume.metadata.uid.clone();
    let of_handle = seen.handle.as_ref().filter(|handle| uid.as_ref() == Some(&handle.spec.volume.uid));
    let by_driver = of_handle.and_then(|handle| {
        let caller = handle.spec.controller.as_ref()?;
        let status = seen.instances.named(&caller.instance)?.status.as_ref()?;
        let says = status.capabilities.controller_has("VOLUME_CONDITION");
        let findings = handle.status.as_ref()?.health.as_deref().filter(|_| says)?;
        Some(Reported { node: None, findings })
    });
    let on_nodes = seen.attachments.iter().filter_map(move |attachment| {
        let is_ours = uid.as_ref() == Some(&attachment.spec.volume.uid) && attachment.stands();
        let findings = attachment.status.as_ref()?.health.as_deref().filter(|_| is_ours)?;
        Some(Reported { node: Some(&attachment.spec.node_name), findings })
    });
    by_driver.into_iter().chain(on_nodes)
}

/// Takes back what is not known any more.
async fn forget(ctx: &Context, volume: &Volume) -> Result<(), ApiError> {
    let mut status = volume.status.clone().unwrap_or_default();
    status.health.clear();
    status.conditions.retain(|condition| condition.type_ != HEALTHY);
    ctx.writer.update_status(&ctx.volumes, volume, &status).await.map(drop)
}
