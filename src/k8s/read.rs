//! Live reads: the only ones from which absence may be concluded (rule R1).

use std::{fmt::Debug, ops::ControlFlow, time::Duration};

use kube::{
    Api, Resource,
    api::{GetParams, ListParams},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::error::{ApiError, Request};
use super::store::Named;

/// Longest wait for one answer.
pub const DEADLINE: Duration = Duration::from_secs(15);
/// Objects per LIST page.
const PAGE: u32 = 500;
/// How often a LIST starts over because its continue token expired.
const RESTARTS: u32 = 3;

/// An object type that can be read.
pub trait Readable: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {}
impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned> Readable for K {}

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
    pages(api, fields, |page, is_first| {
        if is_first {
            items.clear();
        }
        items.extend(page);
        ControlFlow::Continue(())
    })
    .await?;
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

/// Shows all objects to `look`, as etcd has them now and page by page, until it breaks. No more than a page is in memory.
/// What was shown may be shown again: a LIST whose continue token has expired starts anew.
pub async fn look_through<K: Readable>(
    api: &Api<K>,
    mut look: impl FnMut(Vec<K>) -> ControlFlow<()>,
) -> Result<(), ApiError> {
    pages(api, None, |page, _| look(page)).await
}

/// The pages of a LIST, each with whether it is the first.
async fn pages<K: Readable>(
    api: &Api<K>,
    fields: Option<&str>,
    mut look: impl FnMut(Vec<K>, bool) -> ControlFlow<()>,
) -> Result<(), ApiError> {
    let request = request(api, "list", fields.unwrap_or_default());
    // No resourceVersion: the API server asks etcd for the newest.
    let first =
        ListParams { field_selector: fields.map(Into::into), limit: Some(PAGE), ..ListParams::default() };
    let (mut params, mut restarts) = (first.clone(), 0);
    loop {
        let page = match within(&request, api.list(&params)).await {
            Err(expired) if restarts < RESTARTS && expired.status().is_some_and(|s| s.code == 410) => {
                restarts += 1;
                params = first.clone();
                continue;
            }
            page => page?,
        };
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        let is_first = params.continue_token.is_none();
        if look(page.items, is_first).is_break() || next.is_none() {
            return Ok(());
        }
        params.continue_token = next;
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
