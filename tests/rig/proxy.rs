//! What stands between a process of moor and the API server: gives it the rights that the chart gives it, writes down
//! every write, and can stop it before or after one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt as _};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use super::NAMESPACE;
use super::api_faults::{ApiFaults, Meets};
use super::gate::{Gate, Side};
use super::journal::{Event, Journal, Outcome, Write};
use super::lag;
use super::stall::Stalls;

/// The kinds whose writes belong to a claim's path. Leases and reports about drivers have a time of their own.
pub const ON_THE_PATH: [&str; 7] = [
    "volumes",
    "snapshots",
    "volumeclaims",
    "volumehandles",
    "attachments",
    "persistentvolumes",
    "persistentvolumeclaims",
];

/// The door of one process to the API server.
struct Door {
    actor: String,
    /// Whose watches these are to [`lag`].
    who: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    upstream: watch::Receiver<Upstream>,
    journal: Journal,
    gate: Gate,
    stalls: Stalls,
}

/// The API server behind a door, and what the process has read there.
#[derive(Clone)]
pub struct Upstream {
    client: Client,
    reads: Arc<Mutex<Vec<String>>>,
    faults: ApiFaults,
}

impl Upstream {
    pub fn new(client: Client) -> Self {
        Self::with_faults(client, ApiFaults::default())
    }

    /// As [`Self::new`], with what is wrong there.
    pub fn with_faults(client: Client, faults: ApiFaults) -> Self {
        Self { client, reads: Arc::default(), faults }
    }

    /// The targets of all reads that were answered, in their order.
    pub fn reads(&self) -> Vec<String> {
        self.reads.lock().unwrap().clone()
    }
}

/// Who a process is to the API server.
pub enum Role<'a> {
    Controller,
    /// The agent of a node, with a token that kubelet would bind to its Pod there.
    Agent(&'a str),
}

/// Opens a door for `actor` and returns a kubeconfig file that leads to it. It stays open as long as the runtime runs.
pub async fn open(
    directory: &Path,
    actor: &str,
    role: &Role<'_>,
    upstream: watch::Receiver<Upstream>,
    journal: Journal,
    gate: Gate,
    stalls: Stalls,
) -> PathBuf {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let who = match role {
        Role::Controller => "controller",
        Role::Agent(_) => "agent",
    };
    let door = Door { actor: actor.to_owned(), who, headers: headers(role), upstream, journal, gate, stalls };
    let app = axum::Router::new().fallback(pass).with_state(Arc::new(door));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": actor, "user": {}}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": actor}}],
        "current-context": "rig",
    });
    let path = directory.join(format!("{actor}.kubeconfig"));
    // JSON is YAML.
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

fn headers(role: &Role<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let account = match role {
        Role::Controller => "moor-controller",
        Role::Agent(_) => "moor-agent",
    };
    let mut all = vec![
        ("impersonate-user", format!("system:serviceaccount:{NAMESPACE}:{account}")),
        ("impersonate-group", "system:serviceaccounts".to_owned()),
        ("impersonate-group", format!("system:serviceaccounts:{NAMESPACE}")),
        ("impersonate-group", "system:authenticated".to_owned()),
    ];
    if let Role::Agent(node) = role {
        all.push(("impersonate-extra-authentication.kubernetes.io%2fnode-name", (*node).to_owned()));
    }
    all.into_iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

async fn pass(State(door): State<Arc<Door>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let write = write_of(&parts.method, parts.uri.path(), &body);
    let label = write.as_ref().map(Write::label);
    let stop = label.as_ref().and_then(|label| door.gate.arrive(&door.actor, label));
    if parts.method == Method::GET {
        door.journal.read(&door.actor, parts.uri.path());
    }
    let open = write.map(|write| door.journal.begin(&door.actor, Event::Write(write)));
    door.gate.pass(stop, Side::Before).await;

    let watched = watched(&parts.uri);
    let mut upstream = door.upstream.clone();
    let server = upstream.borrow_and_update().clone();
    let meets = server.faults.meet(&door.actor, label.as_deref(), watched.is_some()).await;
    if let Meets::Refused(refusal) = meets {
        if let Some(open) = open {
            open.end(Outcome::Answered(refusal.status().as_u16()));
        }
        return refusal;
    }
    let read = (parts.method == Method::GET).then(|| parts.uri.to_string());
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut forwarded = http::Request::builder().method(parts.method).uri(target);
    for name in [header::CONTENT_TYPE, header::ACCEPT, header::USER_AGENT] {
        if let Some(value) = parts.headers.get(&name) {
            forwarded = forwarded.header(name, value);
        }
    }
    for (name, value) in &door.headers {
        forwarded = forwarded.header(name, value);
    }
    let forwarded = forwarded.body(kube::client::Body::from(body)).unwrap();
    let Ok(answer) = server.client.send(forwarded).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    if let Some(read) = read.filter(|_| answer.status().is_success()) {
        server.reads.lock().unwrap().push(read);
    }
    if let Some(open) = open {
        open.end(Outcome::Answered(answer.status().as_u16()));
    }
    if matches!(meets, Meets::LostAnswer) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    door.gate.pass(stop, Side::After).await;
    let (mut parts, body) = answer.into_parts();
    // Both are about the connection on the other side.
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.remove(header::CONNECTION);
    let body = Body::new(body);
    let Some(kind) = watched else { return Response::from_parts(parts, body) };
    let held = door.stalls.hold(body.into_data_stream(), &door.actor, &kind);
    let late = lag::behind(held, lag::of(door.who, &kind));
    let breaking = server.faults.breaking(until_led_elsewhere(late, upstream));
    Response::from_parts(parts, Body::from_stream(breaking))
}

/// The same stream, until its door leads to another API server: then it breaks, as one whose connection is lost.
fn until_led_elsewhere<S>(
    stream: S,
    upstream: watch::Receiver<Upstream>,
) -> impl Stream<Item = S::Item> + Send
where
    S: Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
{
    futures::stream::unfold(Some((Box::pin(stream), upstream)), |open| async {
        let (mut stream, mut upstream) = open?;
        tokio::select! {
            item = stream.next() => Some((item?, Some((stream, upstream)))),
            _ = upstream.changed() => {
                let lost = io::Error::from(io::ErrorKind::ConnectionReset);
                Some((Err(axum::Error::new(lost)), None))
            }
        }
    })
}

/// The plural name of the kind that a request watches.
fn watched(uri: &Uri) -> Option<String> {
    let is_watch = uri.query()?.split('&').any(|part| part == "watch=true");
    is_watch.then(|| uri.path().rsplit('/').next().unwrap_or_default().to_owned())
}

/// Whether this target of a read is a LIST: of a collection, and no watch of it.
pub fn is_list(target: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let groups = if words.first() == Some(&"apis") { 3 } else { 2 };
    let below = words.get(groups..).unwrap_or_default();
    let is_collection = matches!(below, ["namespaces", _, _] | [_]);
    is_collection && !query.split('&').any(|part| part == "watch=true")
}

/// What a request writes; nothing if it only reads.
fn write_of(method: &Method, path: &str, body: &[u8]) -> Option<Write> {
    if method == Method::GET {
        return None;
    }
    let mut words = path.trim_matches('/').split('/');
    // `api/v1` or `apis/GROUP/VERSION`.
    let groups = if words.next() == Some("apis") { 2 } else { 1 };
    let mut words = words.skip(groups).peekable();
    let mut namespace = "";
    if words.peek() == Some(&"namespaces") {
        words.next();
        namespace = words.next().unwrap_or_default();
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let kind = words.next().unwrap_or("namespaces").to_owned();
    let named = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let name = words.next().unwrap_or(named).to_owned();
    Some(Write {
        verb: method.to_string(),
        kind,
        namespace: namespace.to_owned(),
        name,
        subresource: words.next().unwrap_or_default().to_owned(),
        body,
    })
}
