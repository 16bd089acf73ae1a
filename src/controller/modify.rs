//! One pass over a PersistentVolumeClaim that names another VolumeAttributesClass than its volume has.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;

use super::bound::{Bound, Change};
use super::context::Context;
use super::key::Key;
use super::served;
use super::steps;
use crate::api::conditions::whole_second;
use crate::api::provision::ProvisionedFor;
use crate::k8s::events::EventReason;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Next};
use crate::provision::{
    Claimed, ClassSaid as Said, LEFT_AT, MODIFIED_FOR, Modify, class_status, modify, target,
};

/// Time between looks at a claim that waits for what no watch tells. Classes are not watched: an API server before 1.34 has
/// none of this version, and a watch that cannot begin would hold up everything.
const RECHECK: Duration = Duration::from_secs(10);

/// Settles one claim.
pub(crate) async fn run(ctx: &Context, claim: &ProvisionedFor) -> Next {
    steps::run(ctx, "modifying", claim, || step(ctx, claim)).await
}

/// One step; None: something has changed, and it is looked at again.
async fn step(ctx: &Context, claim: &ProvisionedFor) -> Result<Option<Next>, ApiError> {
    let change = Change {
        key: Key::Modify(claim.clone()),
        action: "Modify",
        failed: EventReason::VolumeModifyFailed,
        field: "spec.mutableParameters says how that is to be; change them there",
        recheck: RECHECK,
    };
    let bound = match change.look(ctx, claim).await? {
        Ok(bound) => bound,
        Err(next) => return Ok(next),
    };
    let Bound { live, persistent, volume } = &*bound;
    let driver = persistent.spec.as_ref().and_then(|spec| Some(spec.csi.as_ref()?.driver.as_str()));
    let driver = driver.unwrap_or_default();
    let class = match target(live, volume) {
        Some(name) => get_live::<VolumeAttributesClass>(&Api::all(ctx.client.clone()), name).await?,
        None => None,
    };
    let modifies = served::driver(ctx, driver).is_some_and(|served| served.seen().modifies);
    let seen = Claimed { claim: live, persistent, volume, driver, modifies };
    match modify(&seen, class.as_ref()) {
        Modify::Nothing => {
            ctx.provisioning.forget(&change.key);
            Ok(Some(Next::Done))
        }
        Modify::Say(said) => {
            say(ctx, claim, live, &said).await?;
            announce(ctx, &change, live, &said).await;
            Ok(None)
        }
        Modify::Ask(parameters) => ask(ctx, &change, &bound, parameters).await,
        Modify::Leave(at) => {
            let mut after = volume.clone();
            after.metadata.annotations.get_or_insert_default().insert(LEFT_AT.to_owned(), at);
            change.write(ctx, &bound, &after).await
        }
        Modify::Name(class) => {
            let mut after = persistent.clone();
            after.spec.get_or_insert_default().volume_attributes_class_name = Some(class.clone());
            let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
            ctx.writer.merge(&volumes, persistent, &after).await?;
            tracing::info!(persistent_volume = persistent.metadata.name, class, "has another class");
            Ok(None)
        }
        Modify::Wait(Some(words)) => change.fails(ctx, live, &words).await,
        Modify::Wait(None) => Ok(Some(Next::After(RECHECK))),
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
    after.status = class_status(live, said, Some(&whole_second(Timestamp::now())));
    ctx.writer.merge_status_of(&claims, live, &after).await.map(drop)
}

/// Writes what the Volume is to be like.
async fn ask(
    ctx: &Context,
    change: &Change,
    bound: &Bound,
    parameters: BTreeMap<String, String>,
) -> Result<Option<Next>, ApiError> {
    let (live, mut after) = (&bound.live, bound.volume.clone());
    after.spec.mutable_parameters = parameters;
    let uid = live.metadata.uid.clone().unwrap_or_default();
    after.metadata.annotations.get_or_insert_default().insert(MODIFIED_FOR.to_owned(), uid);
    // Whoever finds that the claim has left the class writes the Volume: what is read now is of before that, or the claim is
    // not any more as it was.
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(ctx.client.clone(), live.metadata.namespace.as_deref().unwrap_or_default());
    let now = get_live(&claims, live.metadata.name.as_deref().unwrap_or_default()).await?;
    if now.is_none_or(|now| now.metadata.resource_version != live.metadata.resource_version) {
        return Ok(None);
    }
    change.write(ctx, bound, &after).await
}

async fn announce(ctx: &Context, change: &Change, live: &PersistentVolumeClaim, said: &Said) {
    let (reason, words) = match said {
        Said::Pending(_, words) | Said::Failing(words) | Said::Infeasible(_, words) => {
            (change.failed, words.clone())
        }
        Said::InProgress(class) => (
            EventReason::VolumeModify,
            format!("the driver is asked for what VolumeAttributesClass {class} says"),
        ),
        Said::Done(class) => (
            EventReason::VolumeModifySuccessful,
            format!("the volume is as VolumeAttributesClass {class} says"),
        ),
        Said::Cancelled => (
            EventReason::VolumeModifyCancelled,
            "the driver is not asked for another class any more".to_owned(),
        ),
    };
    change.tell(ctx, live, reason, &words).await;
}
