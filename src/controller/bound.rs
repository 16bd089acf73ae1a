//! A PersistentVolumeClaim with the PersistentVolume that it is bound to and the Volume that has the storage; and what the
//! passes that change the Volume for the claim have in common.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;

use super::context::Context;
use super::key::Key;
use super::reclaim::{Found, Whose, found, source};
use super::{imports, served};
use crate::api::Volume;
use crate::api::provision::ProvisionedFor;
use crate::k8s::events::EventReason;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Next};

/// A claim and its volume, as they are now: of a cache that is behind it would be concluded that the driver has followed.
pub(crate) struct Bound {
    pub(crate) live: PersistentVolumeClaim,
    pub(crate) persistent: PersistentVolume,
    pub(crate) volume: Volume,
}

/// How a claim has its volume changed, and in which words people are told.
pub(crate) struct Change {
    /// The pass, which is run again when the Volume changes.
    pub(crate) key: Key,
    /// What the Events say is being done.
    pub(crate) action: &'static str,
    /// The reason of those that say why it does not get on.
    pub(crate) failed: EventReason,
    /// The field of a Volume that says the same, with what is to be done there.
    pub(crate) field: &'static str,
    /// Time between looks at what no watch tells.
    pub(crate) recheck: Duration,
}

impl Change {
    /// Looks at a claim. Without one of which anything is to be decided: when the next look is due; None at once.
    pub(crate) async fn look(
        &self,
        ctx: &Context,
        claim: &ProvisionedFor,
    ) -> Result<Result<Box<Bound>, Option<Next>>, ApiError> {
        Ok(Err(match bound(ctx, claim, &self.key).await? {
            Looked::Bound(bound) => return Ok(Ok(bound)),
            Looked::OfUsers(live, volume) => {
                let words = format!("Volume {volume} has the storage, and its own {}", self.field);
                return self.fails(ctx, &live, &words).await.map(Err);
            }
            Looked::Later => Some(Next::After(self.recheck)),
            Looked::Changed => None,
            Looked::Nothing => {
                ctx.provisioning.forget(&self.key);
                Some(Next::Done)
            }
        }))
    }

    /// Writes what the Volume is to be, or what is noted there. A refusal is told on the claim.
    pub(crate) async fn write(
        &self,
        ctx: &Context,
        bound: &Bound,
        after: &Volume,
    ) -> Result<Option<Next>, ApiError> {
        match ctx.writer.update(&ctx.volumes, &bound.volume, after).await {
            Ok(_) => {
                let capacity = after.spec.capacity.as_ref().map(|capacity| capacity.0.as_str());
                tracing::info!(volume = after.metadata.name, action = self.action, capacity, "is asked for");
                Ok(None)
            }
            Err(error) => match error.refusal() {
                Some(refusal) => self.fails(ctx, &bound.live, &format!("its Volume: {refusal}")).await,
                None => Err(error),
            },
        }
    }

    /// Says why it does not get on, and when it is looked at again.
    pub(crate) async fn fails(
        &self,
        ctx: &Context,
        live: &PersistentVolumeClaim,
        words: &str,
    ) -> Result<Option<Next>, ApiError> {
        self.tell(ctx, live, self.failed, words).await;
        Ok(Some(Next::After(self.recheck)))
    }

    /// Says on the claim what has not been said the last time.
    pub(crate) async fn tell(
        &self,
        ctx: &Context,
        live: &PersistentVolumeClaim,
        reason: EventReason,
        words: &str,
    ) {
        if ctx.provisioning.is_news(&self.key, words) {
            tracing::info!(claim = live.metadata.name, reason = reason.as_str(), "{words}");
            ctx.recorder.publish(live, reason, self.action, words).await;
        }
    }
}

/// What was found of a claim.
enum Looked {
    /// A volume that moor keeps.
    Bound(Box<Bound>),
    /// A volume of a user's Volume, which has this name.
    OfUsers(Box<PersistentVolumeClaim>, String),
    /// It is not to be said yet.
    Later,
    /// The Volume was made just now.
    Changed,
    /// It is gone, not bound, or somebody else's.
    Nothing,
}

async fn bound(ctx: &Context, claim: &ProvisionedFor, key: &Key) -> Result<Looked, ApiError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &claim.namespace);
    let live = get_live(&claims, &claim.name).await?;
    let live = live.filter(|live| live.metadata.uid.as_deref() == Some(&claim.uid));
    let name = live.as_ref().and_then(|live| live.spec.as_ref()?.volume_name.clone());
    let (Some(live), Some(name)) = (live, name.filter(|name| !name.is_empty())) else {
        return Ok(Looked::Nothing);
    };
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let Some(persistent) = get_live(&volumes, &name).await? else { return Ok(Looked::Nothing) };
    let Some(source) = source(&persistent).filter(|s| served::plugin_of(ctx, &s.driver).is_some()) else {
        return Ok(Looked::Nothing);
    };
    let volume = match found(ctx, &name, &source).await? {
        Found::There(volume, Whose::Kept(_)) => volume,
        Found::There(volume, Whose::Users) => {
            let owner = volume.reference();
            return Ok(Looked::OfUsers(Box::new(live), format!("{}/{}", owner.namespace, owner.name)));
        }
        Found::There(_, Whose::BeingMade) | Found::Removed => return Ok(Looked::Later),
        // One that no Pod has asked for yet is nobody's so far.
        Found::Gone if imports::take_up(ctx, &persistent).await? => return Ok(Looked::Changed),
        Found::Gone => return Ok(Looked::Nothing),
    };
    // Before it is looked at, so that no change is missed.
    let uid = volume.metadata.uid.clone().unwrap_or_default();
    ctx.provisioning.wait(&uid, key.clone());
    let at = volume.reference();
    let volume = get_live(&ctx.writer.api::<Volume>(&at.namespace), &at.name).await?;
    let Some(volume) = volume.filter(|volume| volume.metadata.uid.as_ref() == Some(&uid)) else {
        return Ok(Looked::Later);
    };
    ctx.volumes.apply(volume.clone());
    Ok(Looked::Bound(Box::new(Bound { live, persistent, volume })))
}
