//! A PersistentVolumeClaim with the PersistentVolume that it is bound to and the Volume that has the storage.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;

use super::context::Context;
use super::key::Key;
use super::reclaim::{Found, Whose, found, source};
use super::{imports, served};
use crate::api::Volume;
use crate::api::provision::ProvisionedFor;
use crate::k8s::ApiError;
use crate::k8s::read::get_live;

/// A claim and its volume: the first two as they are now, the Volume as the cache has it.
pub(crate) struct Bound {
    pub(crate) live: PersistentVolumeClaim,
    pub(crate) persistent: PersistentVolume,
    pub(crate) volume: Arc<Volume>,
}

/// What was found of a claim.
pub(crate) enum Looked {
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

/// Looks at a claim, and has the pass of `key` run again when its Volume changes.
pub(crate) async fn bound(ctx: &Context, claim: &ProvisionedFor, key: &Key) -> Result<Looked, ApiError> {
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
    let volume = ctx.volumes.by_uid(&uid).unwrap_or(volume);
    Ok(Looked::Bound(Box::new(Bound { live, persistent, volume })))
}
