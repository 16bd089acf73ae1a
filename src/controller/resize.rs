//! One pass over a PersistentVolumeClaim that asks for more than it has.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;

use super::bound::{Bound, Looked, bound};
use super::context::Context;
use super::key::Key;
use super::steps;
use crate::api::conditions::whole_second;
use crate::api::provision::ProvisionedFor;
use crate::api::{Volume, quantity};
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Next};
use crate::provision::{Resize, Said, claim_status, resize};

/// Time between looks at a claim that waits for what no watch tells.
const RECHECK: Duration = Duration::from_secs(30);

/// Settles one claim.
pub(crate) async fn run(ctx: &Context, claim: &ProvisionedFor) -> Next {
    steps::run(ctx, "resizing", claim, || step(ctx, claim)).await
}

/// One step; None: something has changed, and it is looked at again.
async fn step(ctx: &Context, claim: &ProvisionedFor) -> Result<Option<Next>, ApiError> {
    let key = Key::Resize(claim.clone());
    let Bound { live, persistent, volume } = match bound(ctx, claim, &key).await? {
        Looked::Bound(bound) => *bound,
        Looked::OfUsers(live, volume) => {
            let words = format!(
                "Volume {volume} has the storage, and its own spec.capacity says how large that is; raise it there"
            );
            tell(ctx, &key, &live, EventReason::VolumeResizeFailed, &words).await;
            return Ok(Some(Next::After(RECHECK)));
        }
        Looked::Later => return Ok(Some(Next::After(RECHECK))),
        Looked::Changed => return Ok(None),
        Looked::Nothing => {
            ctx.provisioning.forget(&key);
            return Ok(Some(Next::Done));
        }
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &claim.namespace);
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    match resize(&live, &persistent, &volume) {
        Resize::Nothing => {
            ctx.provisioning.forget(&key);
            Ok(Some(Next::Done))
        }
        Resize::Say(said) => {
            say(ctx, &claims, &live, &said).await?;
            announce(ctx, &key, &live, &said).await;
            Ok(None)
        }
        Resize::Ask(size) => ask(ctx, &key, &live, &volume, size).await,
        Resize::Enlarge(size) => {
            let mut after = persistent.clone();
            let capacity = after.spec.get_or_insert_default().capacity.get_or_insert_default();
            capacity.insert("storage".to_owned(), Quantity(quantity::human(size)));
            ctx.writer.merge(&volumes, &persistent, &after).await?;
            tracing::info!(persistent_volume = persistent.metadata.name, size, "larger");
            Ok(None)
        }
        Resize::Wait(words) => {
            if let Some(words) = words {
                tell(ctx, &key, &live, EventReason::VolumeResizeFailed, &words).await;
            }
            Ok(Some(Next::After(RECHECK)))
        }
    }
}

async fn say(
    ctx: &Context,
    claims: &Api<PersistentVolumeClaim>,
    live: &PersistentVolumeClaim,
    said: &Said,
) -> Result<(), ApiError> {
    let mut after = live.clone();
    after.status = claim_status(live, said, Some(&whole_second(Timestamp::now())));
    ctx.writer.merge_status_of(claims, live, &after).await.map(drop)
}

/// Writes the size that the Volume is to have.
async fn ask(
    ctx: &Context,
    key: &Key,
    live: &PersistentVolumeClaim,
    volume: &Arc<Volume>,
    size: i64,
) -> Result<Option<Next>, ApiError> {
    let mut after = (**volume).clone();
    after.spec.capacity = Some(Quantity(quantity::human(size)));
    match ctx.writer.update(&ctx.volumes, volume, &after).await {
        Ok(_) => {
            tracing::info!(volume = volume.metadata.name, size, "is to be larger");
            Ok(None)
        }
        Err(error) => match error.refusal() {
            Some(refusal) => {
                let words = format!("its Volume: {refusal}");
                tell(ctx, key, live, EventReason::VolumeResizeFailed, &words).await;
                Ok(Some(Next::After(RECHECK)))
            }
            None => Err(error),
        },
    }
}

async fn announce(ctx: &Context, key: &Key, live: &PersistentVolumeClaim, said: &Said) {
    match said {
        Said::InProgress(_) => {}
        Said::Failing(words) | Said::Infeasible(words) => {
            tell(ctx, key, live, EventReason::VolumeResizeFailed, words).await;
        }
        Said::OnNode => {
            let words = "the volume is larger; its file system follows when a Pod has it on a node";
            tell(ctx, key, live, EventReason::FileSystemResizeRequired, words).await;
        }
        Said::Done(size) => {
            let words = format!("the volume has {}", quantity::human(*size));
            tell(ctx, key, live, EventReason::VolumeResizeSuccessful, &words).await;
        }
    }
}

async fn tell(ctx: &Context, key: &Key, live: &PersistentVolumeClaim, reason: EventReason, words: &str) {
    if ctx.provisioning.is_news(key, words) {
        tracing::info!(claim = live.metadata.name, reason = reason.as_str(), "{words}");
        ctx.recorder.publish(live, reason, "Resize", words).await;
    }
}
