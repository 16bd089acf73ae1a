//! Live reads: the only ones from which absence may be concluded (rule R1).

use std::{fmt::Debug, ops::ControlFlow, time::Duration};

use kube::{
    Api, Resource,
    api::{GetParams, ListParams},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::error::{ApiError, Request};
use super::list::{ListError, list};
use super::store::Named;

/// Longest wait for one answer, or for more of a LIST.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// An object type that can be read.
pub trait Readable: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static {}
impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static> Readable for K {}

/// The object of this name as etcd has it now, or None if there is none. An answer that does not name
/// the object (missing CRD, a proxy's 404) is an error. An object that cannot be read is an error too.
pub async fn get_live<K: Readable>(api: &Api<K>, name: &str) -> Result<Option<K>, ApiError> {
    let request = request(api, "get", name);
    match within(&request, api.get_with(name, &GetParams::default())).await {
        Ok(object) => Ok(Some(object)),
        Err(ApiError::Gone(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// The objects that match a field selector, as etcd has them now. One object that cannot be read fails
/// the whole list: leaving it out would claim its absence.
pub async fn list_live<K: Readable>(api: &Api<K>, fields: Option<&str>) -> Result<Vec<K>, ApiError> {
    let mut items = Vec::new();
    let keep = |object| {
        items.push(object);
        ControlFlow::Continue(())
    };
    listed(api, fields, keep).await?;
    Ok(items)
}

/// The selector of objects that have this value in a field: what would end the value is escaped.
pub fn equals(path: &str, value: &str) -> String {
    let mut selector = format!("{path}=");
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            selector.push('\\');
        }
        selector.push(character);
    }
    selector
}

/// Shows each object to `look`, as etcd has them now, until it breaks. No more than a few are in memory.
pub async fn look_through<K: Readable>(
    api: &Api<K>,
    look: impl FnMut(K) -> ControlFlow<()>,
) -> Result<(), ApiError> {
    listed(api, None, look).await
}

async fn listed<K: Readable>(
    api: &Api<K>,
    fields: Option<&str>,
    look: impl FnMut(K) -> ControlFlow<()>,
) -> Result<(), ApiError> {
    let request = request(api, "list", fields.unwrap_or_default());
    // No resourceVersion: the API server asks etcd for the newest.
    let params = ListParams { field_selector: fields.map(Into::into), ..ListParams::default() };
    let url = kube::core::Request::new(api.resource_url()).list(&params);
    let url = url.map_err(|source| ApiError::sort(request.clone(), kube::Error::BuildRequest(source)))?;
    match list(&api.clone().into_client(), url, DEADLINE, look).await {
        Ok(_) => Ok(()),
        Err(ListError::TimedOut(longest)) => Err(ApiError::TimedOut { request, seconds: longest.as_secs() }),
        Err(ListError::Client(source)) => Err(ApiError::sort(request, source)),
    }
}

/// The revision at which etcd is now, by a LIST of one object.
pub async fn revision<K: Readable>(api: &Api<K>) -> Result<u64, ApiError> {
    let request = request(api, "list", "");
    let listed = within(&request, api.list_metadata(&ListParams::default().limit(1))).await?;
    let version = listed.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    version.ok_or(ApiError::Invalid { request, message: "the list has no resourceVersion".into() })
}

/// Names a request for its errors.
pub(crate) fn request<K: Readable>(api: &Api<K>, verb: &'static str, name: &str) -> Request {
    let object = match api.namespace() {
        Some(namespace) => Named { namespace, name }.to_string(),
        None => name.to_owned(),
    };
    Request { verb, kind: K::kind(&()).into_owned(), subresource: "", object }
}

/// Bounds a request by [`DEADLINE`] and sorts its error.
pub(crate) async fn within<T>(
    request: &Request,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    match timeout(DEADLINE, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ApiError::sort(request.clone(), source)),
        Err(_) => Err(ApiError::TimedOut { request: request.clone(), seconds: DEADLINE.as_secs() }),
    }
}
