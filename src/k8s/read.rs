//! Live reads: the only ones from which absence may be concluded (rule R1).

use std::{any::TypeId, fmt::Debug, ops::ControlFlow, time::Duration};

use kube::{
    Api, Resource,
    api::{GetParams, ListParams},
    core::NamespaceResourceScope,
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

/// The revision at which etcd is now, by a LIST of one object at most.
pub async fn revision<K: Readable>(api: &Api<K>) -> Result<u64, ApiError> {
    let request = request(api, "list", "");
    let params = ListParams::default().limit(1).fields(&nothing_of(api));
    let listed = within(&request, api.list_metadata(&params)).await?;
    let version = listed.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    version.ok_or(ApiError::Invalid { request, message: "the list has no resourceVersion".into() })
}

/// A selector by the name of no object. For one by a name the API server looks nowhere else; for any other LIST, also one with a
/// limit, it gathers all objects of the kind first, and after its restart each watch of each process asks.
fn nothing_of<K: Readable>(api: &Api<K>) -> String {
    let is_in_namespaces = TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>();
    if is_in_namespaces && api.namespace().is_none() {
        return "metadata.namespace=default,metadata.name=none".to_owned();
    }
    "metadata.name=none".to_owned()
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde_json::json;

    use super::super::scripted_tests::{Answer, Scripted};
    use super::*;

    /// The API server finds it by its key then, in the cache of the kind.
    #[tokio::test]
    async fn a_revision_is_asked_by_one_name() {
        let answer = || Answer::Json(json!({"metadata": {"resourceVersion": "7"}, "items": []}));
        let (server, client) = Scripted::start(vec![answer(), answer(), answer()]).await;
        assert_eq!(revision(&Api::<Node>::all(client.clone())).await.unwrap(), 7);
        assert_eq!(revision(&Api::<ConfigMap>::namespaced(client.clone(), "ns")).await.unwrap(), 7);
        assert_eq!(revision(&Api::<ConfigMap>::all(client)).await.unwrap(), 7);
        let asked: Vec<_> = server.asked().into_iter().map(|asked| asked.uri).collect();
        let by_name = "fieldSelector=metadata.name%3Dnone&limit=1";
        assert_eq!(asked[0], format!("/api/v1/nodes?&{by_name}"));
        assert_eq!(asked[1], format!("/api/v1/namespaces/ns/configmaps?&{by_name}"));
        let of_all = "fieldSelector=metadata.namespace%3Ddefault%2Cmetadata.name%3Dnone&limit=1";
        assert_eq!(asked[2], format!("/api/v1/configmaps?&{of_all}"));
    }
}
