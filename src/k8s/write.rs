//! The only way to write (rule R6).
//!
//! Every write is guarded: a patch and a PUT by UID and resourceVersion, a deletion by UID, a creation by
//! its name. So each of them is safe to repeat: one that had been made turns the repetition into
//! [`ApiError::Conflict`], [`Created::Exists`] or [`Deleted::Gone`]. Still nothing is repeated here,
//! and [`super::client`] turns off the client's own repetition of 429, 503 and 504: that may go on for
//! minutes and would write what was decided long ago. The queue's backoff repeats the whole pass.
//!
//! A change is sent as the difference between the object that was seen and the one that is wanted (RFC 7386): only
//! own fields are written, and those of a newer version, which our types do not know, stay (trap B24).
//!
//! What the API server answers is returned here; [`super::update`] puts it into the cache of the kind.

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{Status, object::HasStatus},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    error::{ApiError, Request},
    read::{Readable, request, within},
};
use crate::metrics::{Metrics, WriteLabels};

/// The longest body that the API server reads, in bytes; no flag of it changes that. It answers a longer one before it has
/// read it whole and hangs up, so that its answer may be lost on the way: such a body is not sent.
const MOST: usize = 3 * 1024 * 1024;

/// The subresource that is written apart from the rest of an object.
const STATUS: &str = "status";

/// An object as it was read: what a write is guarded by.
struct Target {
    name: String,
    /// UID that the object must still have.
    uid: String,
    /// Version that the object must still have.
    resource_version: String,
}

impl Target {
    /// The guard for an object that was read from the API. Without a UID or version nothing is sent.
    fn of<K: Resource>(object: &K) -> Self {
        Self {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }

    fn guarded(&self) -> bool {
        !self.uid.is_empty() && !self.resource_version.is_empty()
    }
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq)]
pub enum Created<K> {
    /// Created by this request.
    New(K),
    /// The name was taken: by another, or by our own earlier request whose answer was lost. The caller
    /// reads it live and compares the fields.
    Exists,
}

/// What became of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleted<K> {
    /// The object with that UID does not exist any more.
    Gone,
    /// It is being deleted and waits for its finalizers or its grace period.
    Marked(Box<K>),
}

/// Sends and counts writes.
#[derive(Clone)]
pub struct Writer {
    pub(super) client: Client,
    metrics: Metrics,
}

impl Writer {
    /// A writer that counts into these metrics.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics }
    }

    /// Writes what `after` has otherwise than the object's status. None: there is no difference.
    pub async fn merge_status<K>(
        &self,
        api: &Api<K>,
        object: &K,
        after: &K::Status,
    ) -> Result<Option<K>, ApiError>
    where
        K: Readable + HasStatus<Status: Default + Serialize>,
    {
        let none = K::Status::default();
        let fields = difference(object.status().unwrap_or(&none), after);
        self.patch(api, object, fields.map(|fields| json!({ "status": fields })), STATUS).await
    }

    /// As [`Self::merge`], for the status of a kind whose type does not say that it has one. The two are alike elsewhere.
    pub async fn merge_status_of<K: Readable + Serialize>(
        &self,
        api: &Api<K>,
        before: &K,
        after: &K,
    ) -> Result<Option<K>, ApiError> {
        self.patch(api, before, difference(before, after), STATUS).await
    }

    /// Writes what `after` has otherwise than `before`, in metadata and spec; a list is replaced whole. None: there is no
    /// difference.
    pub async fn merge<K: Readable + Serialize>(
        &self,
        api: &Api<K>,
        before: &K,
        after: &K,
    ) -> Result<Option<K>, ApiError> {
        self.patch(api, before, difference(before, after), "").await
    }

    /// Writes these fields of an object, or of this subresource of it, if it is as it was read. None: there are none.
    async fn patch<K: Readable>(
        &self,
        api: &Api<K>,
        object: &K,
        fields: Option<Value>,
        subresource: &'static str,
    ) -> Result<Option<K>, ApiError> {
        let Some(fields) = fields else { return Ok(None) };
        let target = Target::of(object);
        let request = Request { subresource, ..request(api, "patch", &target.name) };
        let body = guard(&request, &target, fields)?;
        self.count(&request);
        let (params, patch) = (PatchParams::default(), Patch::Merge(body));
        let answer = if subresource == STATUS {
            within(&request, api.patch_status(&target.name, &params, &patch)).await
        } else {
            within(&request, api.patch(&target.name, &params, &patch)).await
        };
        answer.map(Some)
    }

    /// Creates an object under its name. The name is the guard, so it has to be one that says
    /// everything (an Attachment's is its lock); generated names are not for this.
    pub async fn create<K: Readable + Serialize>(
        &self,
        api: &Api<K>,
        object: &K,
    ) -> Result<Created<K>, ApiError> {
        let request = request(api, "create", &object.name_any());
        self.count(&request);
        match within(&request, api.create(&PostParams::default(), object)).await {
            Ok(created) => Ok(Created::New(created)),
            Err(other) if other.status().is_some_and(Status::is_already_exists) => Ok(Created::Exists),
            Err(other) => Err(other),
        }
    }

    /// Deletes the object under this name that meets the conditions: its UID, which must be given, and its version, if
    /// that is given.
    pub async fn delete<K: Readable>(
        &self,
        api: &Api<K>,
        name: &str,
        conditions: Preconditions,
    ) -> Result<Deleted<K>, ApiError> {
        let request = request(api, "delete", name);
        if conditions.uid.is_none() {
            return Err(ApiError::Unguarded(request));
        }
        // Background: a deletion that waits for dependants would put a finalizer on our objects.
        let params = DeleteParams { preconditions: Some(conditions), ..DeleteParams::background() };
        self.count(&request);
        match within(&request, api.delete(name, &params)).await {
            Ok(answer) => Ok(answer.left().map_or(Deleted::Gone, |object| Deleted::Marked(Box::new(object)))),
            Err(ApiError::Gone(_)) => Ok(Deleted::Gone),
            Err(other) => Err(other),
        }
    }

    /// Takes `finalizer` off an object that is being deleted. As the last one it goes by PUT, so that
    /// what the API server then removes is exactly what was read; beside foreign finalizers by patch,
    /// because the object lives on and a PUT would drop what our types do not know (trap B24). None: others hold it.
    pub async fn remove_finalizer<K: Readable + Serialize>(
        &self,
        api: &Api<K>,
        object: &K,
        finalizer: &str,
    ) -> Result<Option<K>, ApiError> {
        let mut left = object.clone();
        left.finalizers_mut().retain(|f| f != finalizer);
        if !left.finalizers().is_empty() {
            return self.merge(api, object, &left).await;
        }
        left.meta_mut().finalizers = None;
        let answer = match self.replace(api, &left).await {
            Err(ApiError::Invalid { .. }) => self.replace_as_stored(api, &Target::of(object)).await,
            answer => answer,
        };
        answer.map(Some)
    }

    /// Takes the finalizers off an object as the API server has it. Our types do not tell an empty list from none, nor
    /// know the fields of a later version, and a rule that a field stays as it is tells both.
    async fn replace_as_stored<K: Readable + Serialize>(
        &self,
        api: &Api<K>,
        target: &Target,
    ) -> Result<K, ApiError> {
        let kind = ApiResource::erase::<K>(&());
        let client = api.clone().into_client();
        let stored: Api<DynamicObject> = match api.namespace() {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind),
            None => Api::all_with(client, &kind),
        };
        let request = request(api, "update", &target.name);
        let mut object = within(&request, stored.get(&target.name)).await?;
        if object.metadata.uid.as_ref() != Some(&target.uid) {
            return Err(ApiError::Gone(request));
        }
        if object.metadata.resource_version.as_ref() != Some(&target.resource_version) {
            return Err(ApiError::Conflict(request));
        }
        object.metadata.finalizers = None;
        self.count(&request);
        let left = within(&request, stored.replace(&target.name, &PostParams::default(), &object)).await?;
        left.try_parse().map_err(|error| ApiError::Invalid { request, message: error.to_string() })
    }

    /// Replaces an object that is wholly ours (a Lease). The resourceVersion in it is the guard.
    pub async fn replace<K: Readable + Serialize>(&self, api: &Api<K>, object: &K) -> Result<K, ApiError> {
        let target = Target::of(object);
        let request = request(api, "update", &target.name);
        if !target.guarded() {
            return Err(ApiError::Unguarded(request));
        }
        self.count(&request);
        within(&request, api.replace(&target.name, &PostParams::default(), object)).await
    }

    fn count(&self, request: &Request) {
        let Request { verb, kind, subresource, object: _ } = request;
        let labels = WriteLabels { verb, kind: kind.clone(), subresource };
        self.metrics.api_writes.get_or_create(&labels).inc();
    }
}

/// What turns `before` into `after` as a JSON merge patch; nothing if they are equal.
#[must_use]
pub fn difference<S: Serialize>(before: &S, after: &S) -> Option<Value> {
    // Our own types always become JSON; if ever not, writing nothing is the safe answer.
    let (before, after) = (serde_json::to_value(before).ok()?, serde_json::to_value(after).ok()?);
    (before != after).then(|| between(&before, &after))
}

fn between(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for (key, value) in after {
        match before.get(key) {
            Some(known) if known == value => {}
            Some(known) => {
                patch.insert(key.clone(), between(known, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Puts UID and resourceVersion into a merge patch, which must be one that the API server reads.
fn guard(request: &Request, target: &Target, mut body: Value) -> Result<Value, ApiError> {
    if !target.guarded() {
        return Err(ApiError::Unguarded(request.clone()));
    }
    let metadata = body.as_object_mut().map(|body| body.entry("metadata").or_insert_with(|| json!({})));
    let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
        let message = "a merge patch must be an object".into();
        return Err(ApiError::Invalid { request: request.clone(), message });
    };
    metadata.insert("uid".into(), target.uid.clone().into());
    metadata.insert("resourceVersion".into(), target.resource_version.clone().into());
    let size = body.to_string().len();
    if size > MOST {
        let message = format!("it has {size} bytes, and the API server reads {MOST}");
        return Err(ApiError::Invalid { request: request.clone(), message });
    }
    Ok(body)
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
