//! Writes of the objects that a role watches: each answer goes into the cache of its kind, so that the next pass sees it
//! before the watch delivers it.
//!
//! An object that is gone is taken out of the cache, and after a conflict the cache has the newer object: in both cases
//! whoever wrote looks at the caches again and decides anew.

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::Preconditions,
    core::{ClusterResourceScope, NamespaceResourceScope, object::HasStatus},
};
use serde::Serialize;

use super::cache::{Cache, Cached};
use super::error::ApiError;
use super::read::get_live;
use super::write::{Created, Deleted, Writer};

/// The scope of a kind, which says how its objects are addressed.
pub trait Scope<K> {
    /// The kind's objects, of a namespaced kind those of this namespace.
    fn api(client: &Client, namespace: &str) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scope<K> for NamespaceResourceScope {
    fn api(client: &Client, namespace: &str) -> Api<K> {
        Api::namespaced(client.clone(), namespace)
    }
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scope<K> for ClusterResourceScope {
    fn api(client: &Client, _: &str) -> Api<K> {
        Api::all(client.clone())
    }
}

/// An object type that is cached and written.
pub trait Written: Cached + Resource<Scope: Scope<Self>> + Serialize {}
impl<K: Cached + Resource<Scope: Scope<Self>> + Serialize> Written for K {}

impl Writer {
    /// The requests of a kind; `namespace` does not matter where the kind has none.
    pub fn api<K: Written>(&self, namespace: &str) -> Api<K> {
        K::Scope::api(&self.client, namespace)
    }

    fn api_of<K: Written>(&self, object: &K) -> Api<K> {
        self.api(object.meta().namespace.as_deref().unwrap_or_default())
    }

    /// Creates an object under its name. Returns whether this request did; if the name was taken, the cache has who has it.
    pub async fn create_in<K: Written>(&self, cache: &Cache<K>, object: &K) -> Result<bool, ApiError> {
        let api = self.api_of(object);
        let made = self.create(&api, object).await?;
        let is_new = matches!(made, Created::New(_));
        let found = match made {
            Created::New(made) => Some(made),
            Created::Exists => get_live(&api, &object.name_any()).await?,
        };
        if let Some(found) = found {
            cache.apply(found);
        }
        Ok(is_new)
    }

    /// Writes what `after` has otherwise than `before` in metadata and spec. Returns whether that was anything.
    pub async fn update<K: Written>(
        &self,
        cache: &Cache<K>,
        before: &K,
        after: &K,
    ) -> Result<bool, ApiError> {
        let api = self.api_of(before);
        let answer = self.merge(&api, before, after).await;
        answered(&api, cache, before, answer).await
    }

    /// Writes what `after` has otherwise than the object's status. Returns whether that was anything.
    pub async fn update_status<K>(
        &self,
        cache: &Cache<K>,
        object: &K,
        after: &K::Status,
    ) -> Result<bool, ApiError>
    where
        K: Written + HasStatus<Status: Default + Serialize>,
    {
        let api = self.api_of(object);
        let answer = self.merge_status(&api, object, after).await;
        answered(&api, cache, object, answer).await
    }

    /// Deletes the object with this UID, whatever its version. Returns whether its finalizers keep it.
    pub async fn delete_in<K: Written>(&self, cache: &Cache<K>, object: &K) -> Result<bool, ApiError> {
        let conditions = Preconditions { uid: object.uid(), resource_version: None };
        self.delete_if(cache, object, conditions).await
    }

    /// Deletes the object if nobody has written it since it was seen. Returns whether its finalizers keep it.
    pub async fn delete_as_seen<K: Written>(&self, cache: &Cache<K>, object: &K) -> Result<bool, ApiError> {
        let conditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        self.delete_if(cache, object, conditions).await
    }

    async fn delete_if<K: Written>(
        &self,
        cache: &Cache<K>,
        object: &K,
        conditions: Preconditions,
    ) -> Result<bool, ApiError> {
        let api = self.api_of(object);
        let answer = match self.delete(&api, &object.name_any(), conditions).await {
            Ok(Deleted::Gone) => {
                forget(cache, object);
                return Ok(false);
            }
            Ok(Deleted::Marked(marked)) => Ok(Some(*marked)),
            Err(error) => Err(error),
        };
        answered(&api, cache, object, answer).await
    }

    /// Takes `finalizer` off an object that is being deleted. Returns whether it had it.
    pub async fn free<K: Written>(
        &self,
        cache: &Cache<K>,
        object: &K,
        finalizer: &str,
    ) -> Result<bool, ApiError> {
        let api = self.api_of(object);
        let answer = self.remove_finalizer(&api, object, finalizer).await;
        answered(&api, cache, object, answer).await
    }
}

/// Takes an answer into the cache. Returns whether anything is otherwise than before.
async fn answered<K: Cached>(
    api: &Api<K>,
    cache: &Cache<K>,
    object: &K,
    answer: Result<Option<K>, ApiError>,
) -> Result<bool, ApiError> {
    match answer {
        Ok(None) => return Ok(false),
        Ok(Some(written)) => cache.apply(written),
        Err(ApiError::Gone(_)) => forget(cache, object),
        Err(ApiError::Conflict(request)) => {
            match get_live(api, &object.name_any()).await? {
                Some(newer) => cache.apply(newer),
                None => forget(cache, object),
            }
            return Err(ApiError::Conflict(request));
        }
        Err(other) => return Err(other),
    }
    Ok(true)
}

fn forget<K: Cached>(cache: &Cache<K>, object: &K) {
    cache.remove_confirmed(object.meta().uid.as_deref().unwrap_or_default());
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
