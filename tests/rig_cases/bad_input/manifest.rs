//! Manifests of one line, and requests with them.

use kube::core::{Status, response::StatusCause};
use kube::{Client, Error};
use serde_json::{Map, Value, json};

use crate::rig::SPACE;

/// What the API server adds to a refusal when it has not looked at everything.
const NOT_ALL: &str = "some validation rules were not checked because the object was invalid";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The tests' own client, whom the policies let through.
    BreakGlass,
    /// Somebody who may do everything but what the policies keep for moor. Such a group needs no binding, which would be heeded
    /// some time after it was made.
    User,
}

/// An object that is to be made.
pub struct Manifest {
    /// Where objects of its kind are, in its namespace.
    collection: String,
    pub name: String,
    pub body: Value,
}

impl Manifest {
    /// Of this kind, as a line of YAML says it. It gets this name if it says none.
    pub fn new(kind: &str, text: &str, name: &str) -> Self {
        let crds = moor::api::all_crds();
        let crd =
            crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap_or_else(|| panic!("no kind {kind}"));
        let mut body = json!({ "apiVersion": "moor.dev/v1alpha1", "kind": kind, "metadata": {} });
        body.as_object_mut().unwrap().extend(parsed(text));
        let metadata = body["metadata"].as_object_mut().unwrap();
        let name = metadata.entry("name").or_insert_with(|| name.into()).as_str().unwrap().to_owned();
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or(SPACE);
        let space =
            if crd.spec.scope == "Namespaced" { format!("/namespaces/{namespace}") } else { String::new() };
        let collection = format!("/apis/moor.dev/v1alpha1{space}/{}", crd.spec.names.plural);
        Self { collection, name, body }
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }

    /// Asks for it to be made.
    pub async fn make(&self, client: &Client, who: Who) -> Result<Value, Status> {
        ask(client, who, "POST", &self.collection, &self.body).await
    }

    /// Makes it as moor would leave it: an assignment and a status come later than the object.
    pub async fn make_as_moor(&self, client: &Client) {
        let mut first = self.body.clone();
        let object = first.as_object_mut().unwrap();
        let status = object.remove("status");
        let assignment = object.get_mut("spec").and_then(|spec| spec.as_object_mut()?.remove("assignment"));
        ask(client, Who::BreakGlass, "POST", &self.collection, &first).await.unwrap();
        if let Some(assignment) = assignment {
            let patch = json!({ "spec": { "assignment": assignment } });
            ask(client, Who::BreakGlass, "PATCH", &self.path(), &patch).await.unwrap();
        }
        if let Some(status) = status {
            let path = format!("{}/status", self.path());
            ask(client, Who::BreakGlass, "PATCH", &path, &json!({ "status": status })).await.unwrap();
        }
    }

    /// Asks for a change of it, in a line of YAML, or for its deletion.
    pub async fn change(&self, client: &Client, change: &str) -> Result<Value, Status> {
        if change == "delete" {
            return ask(client, Who::User, "DELETE", &self.path(), &Value::Null).await;
        }
        let patch = parsed(change);
        let below = if patch.contains_key("status") { "/status" } else { "" };
        ask(client, Who::User, "PATCH", &format!("{}{below}", self.path()), &patch.into()).await
    }

    /// The object as it is now.
    pub async fn read(&self, client: &Client) -> Value {
        ask(client, Who::BreakGlass, "GET", &self.path(), &Value::Null).await.unwrap()
    }
}

/// One request; the answer, or the refusal.
pub async fn ask(client: &Client, who: Who, method: &str, path: &str, body: &Value) -> Result<Value, Status> {
    let strict = if body.is_null() { "" } else { "?fieldValidation=Strict" };
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{path}{strict}"))
        .header("content-type", content);
    if who == Who::User {
        request =
            request.header("impersonate-user", "somebody").header("impersonate-group", "system:masters");
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match client.request::<Value>(request.body(body).unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(Error::Api(status)) => Err(*status),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

/// What a refusal says beside what varies: each fault with its field, or the words of the policy.
pub fn said(refusal: &Status) -> String {
    assert!([400, 403, 422].contains(&refusal.code), "{refusal:?}");
    let whole = &refusal.message;
    let is_fault = |cause: &&StatusCause| !cause.message.contains(NOT_ALL);
    let causes = refusal.details.iter().flat_map(|details| &details.causes).filter(is_fault);
    let faults: Vec<_> = causes.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    if refusal.code == 422 && !faults.is_empty() {
        assert!(faults.iter().all(|fault| whole.contains(fault)), "{faults:?} are not all in {whole}");
        return faults.join("; ");
    }
    let after = ["denied request: ", " is forbidden: ", " is invalid: "];
    after.iter().find_map(|mark| whole.split_once(mark)).map_or(whole.as_str(), |(_, words)| words).to_owned()
}

/// A line of YAML, with everything that stands for something long.
fn parsed(text: &str) -> Map<String, Value> {
    let read: Value =
        serde_saphyr::from_str(&format!("{{ {text} }}")).unwrap_or_else(|e| panic!("{text}: {e}"));
    match spread(read) {
        Value::Object(object) => object,
        other => panic!("{text} is {other}"),
    }
}

fn spread(value: Value) -> Value {
    match value {
        Value::String(text) => long(&text).into(),
        Value::Array(items) => items.into_iter().flat_map(items_of).collect(),
        Value::Object(entries) => Value::Object(entries.into_iter().flat_map(entries_of).collect()),
        other => other,
    }
}

fn items_of(item: Value) -> Vec<Value> {
    match item.as_str().and_then(several) {
        Some(all) => all.into_iter().map(Value::from).collect(),
        None => vec![spread(item)],
    }
}

fn entries_of((key, value): (String, Value)) -> Vec<(String, Value)> {
    let value = spread(value);
    match several(&key) {
        Some(all) => all.into_iter().map(|key| (key, value.clone())).collect(),
        None => vec![(long(&key), value)],
    }
}

/// What `<65 of>k` stands for: k1, k2 and so on.
fn several(text: &str) -> Option<Vec<String>> {
    let (number, rest) = text.strip_prefix('<')?.split_once(" of>")?;
    let number: usize = number.parse().ok()?;
    let rest = long(rest);
    Some((1..=number).map(|i| format!("{rest}{i}")).collect())
}

/// A text in which `<1025*x>` is x so many times.
fn long(text: &str) -> String {
    let (mut whole, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('<') {
        whole += before;
        let (next, left) = repeated(after).unwrap_or_else(|| ("<".to_owned(), after));
        (whole, rest) = (whole + &next, left);
    }
    whole + rest
}

fn repeated(text: &str) -> Option<(String, &str)> {
    let (inside, left) = text.split_once('>')?;
    let (number, text) = inside.split_once('*')?;
    Some((text.repeat(number.parse().ok()?), left))
}
