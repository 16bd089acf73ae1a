//! One pass over a PersistentVolumeClaim that asks for more than it has.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;

use super::bound::{Bound, Change};
use super::context::Context;
use super::key::Key;
use super::steps;
use crate::api::conditions::whole_second;
use crate::api::provision::ProvisionedFor;
use crate::api::quantity;
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
    let change = Change {
        key: Key::Resize(claim.clone()),
        action: "Resize",
        failed: EventReason::VolumeResizeFailed,
        field: "spec.capacity says how large that is; raise it there",
        recheck: RECHECK,
    };
    let bound = match change.look(ctx, claim).await? {
        Ok(bound) => bound,
        Err(next) => return Ok(next),
    };
    let Bound { live, persistent, volume } = &*bound;
    match resize(live, persistent, volume) {
        Resize::Nothing => {
            ctx.provisioning.forget(&change.key);
            Ok(Some(Next::Done))
        }
        Resize::Say(said) => {
            say(ctx, claim, live, &said).await?;
            announce(ctx, &change, live, &said).await;
            Ok(None)
        }
        Resize::Ask(size) => {
            let mut after = volume.clone();
            after.spec.capacity = Some(Quantity(quantity::human(size)));
            change.write(ctx, &bound, &after).await
        }
        Resize::Enlarge(size) => {
            let mut after = persistent.clone();
            let capacity = after.spec.get_or_insert_default().capacity.get_or_insert_default();
            capacity.insert("storage".to_owned(), Quantity(quantity::human(size)));
            let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
            ctx.writer.merge(&volumes, persistent, &after).await?;
            tracing::info!(persistent_volume = persistent.metadata.name, size, "larger");
            Ok(None)
        }
        Resize::Wait(Some(words)) => change.fails(ctx, live, &words).await,
        Resize::Wait(None) => Ok(Some(Next::After(RECHECK))),
    }
}

async fn say(
    ctx: &Context,
    claim: &ProvisionedFor,
    live: &PersistentVolumeClaim,
    said: &Said,
) -> Result<(), ApiError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &claim.namespace);
    let mut after = live.clone();
    after.status = claim_status(live, said, Some(&whole_second(Timestamp::now())));
    ctx.writer.merge_status_of(&claims, live, &after).await.map(drop)
}

async fn announce(ctx: &Context, change: &Change, live: &PersistentVolumeClaim, said: &Said) {
    match said {
        Said::InProgress(_) => {}
        Said::Failing(words) | Said::Infeasible(words) => {
            change.tell(ctx, live, change.failed, words).await;
        }
        Said::OnNode => {
            let words = "the volume is larger; its file system follows when a Pod has it on a node";
            change.tell(ctx, live, EventReason::FileSystemResizeRequired, words).await;
        }
        Said::Done(size) => {
            let words = format!("the volume has {}", quantity::human(*size));
            change.tell(ctx, live, EventReason::VolumeResizeSuccessful, &words).await;
        }
    }
}
