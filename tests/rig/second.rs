//! A second API server on the same etcd, which can be made to fall behind.
//!
//! ```text
//! kube-apiserver ────────────────────> etcd
//! a second kube-apiserver ──> relay ──────^
//! ```
//!
//! Between it and etcd stands a relay that can hold back what etcd tells of changes, and nothing else. The server then is
//! what one is that a slow network, or too much work, has left behind: its watch cache stays as it was, and whoever
//! watches there hears of nothing; reads by quorum and writes go on, a LIST only after the server has waited 3 s for its
//! cache.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use http::StatusCode;
use http_body_util::{BodyStream, StreamBody};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::Service as _;
use tonic::transport::{Channel, Endpoint, Server};

use super::control_plane::Program;
use super::proxy::Upstream;
use super::{Cluster, LOOK, PATIENCE, Rig};

/// The call of etcd by which an API server hears of changes (etcd's rpc.proto).
const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// What etcd may send ahead on one connection while the relay holds it back, in bytes. The other calls share it.
const AHEAD: u32 = 1 << 30;

/// The second API server. Dropped it ends.
pub struct SecondServer {
    /// May do everything there.
    pub admin: Client,
    program: Program,
    hears: watch::Sender<bool>,
}

impl Cluster {
    /// Starts a second API server, which hears of everything, and waits until it serves.
    pub async fn second_server(&self) -> SecondServer {
        let control_plane = self.control_plane.lock().await;
        let hears = watch::Sender::new(true);
        let relay = relay(&control_plane.etcd(), hears.subscribe()).await;
        let (program, admin) = control_plane.another_api_server("second-kube-apiserver", relay);
        let second = SecondServer { admin, program, hears };
        second.until_answered("/readyz").await;
        second.hear_everything().await;
        second
    }
}

impl SecondServer {
    /// Makes it hear nothing from here on. What is there now it has in its cache.
    pub async fn fall_behind(&self) {
        self.hear_everything().await;
        self.hears.send_replace(false);
    }

    /// The end of [`Self::fall_behind`].
    pub fn catch_up(&self) {
        self.hears.send_replace(true);
    }

    /// The names of a kind's objects as it has them in its cache.
    pub async fn remembers<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let all = Api::<K>::all(self.admin.clone()).list(&ListParams::default().match_any()).await.unwrap();
        let mut names: Vec<String> = all.items.iter().map(kube::ResourceExt::name_any).collect();
        names.sort();
        names
    }

    /// Makes it fill its caches, and waits until each has all that is there now.
    async fn hear_everything(&self) {
        for kind in [
            "/apis/moor.dev/v1alpha1/plugins",
            "/apis/moor.dev/v1alpha1/plugininstances",
            "/apis/moor.dev/v1alpha1/volumes",
            "/apis/moor.dev/v1alpha1/volumeclaims",
            "/apis/moor.dev/v1alpha1/volumehandles",
            "/apis/moor.dev/v1alpha1/attachments",
            "/apis/coordination.k8s.io/v1/leases",
            "/api/v1/nodes",
            "/api/v1/secrets",
            "/api/v1/persistentvolumes",
        ] {
            // A LIST without a version is answered from the cache when that has the newest.
            self.until_answered(kind).await;
        }
    }

    /// Asks until there is an answer: a cache that is being filled refuses.
    async fn until_answered(&self, path: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            let Err(problem) = self.admin.request_text(request).await else { return };
            assert!(Instant::now() < end, "the second API server does not answer {path}: {problem}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for SecondServer {
    fn drop(&mut self) {
        self.program.end();
    }
}

impl Rig {
    /// Leads a process to another API server: what it watches breaks, and it has to connect again. Says what it watched.
    pub fn lead(&self, actor: &str, to: &Client) -> BTreeSet<String> {
        let upstreams = self.upstreams.lock().unwrap();
        watches(&upstreams[actor].send_replace(Upstream::new(to.clone())).reads())
    }

    /// Waits until a process watches all this where it was led to.
    pub async fn until_watching(&self, actor: &str, wanted: &BTreeSet<String>) {
        let watching = || wanted.is_subset(&watches(&self.reads(actor))).then_some(());
        let shown = || format!("wanted: {wanted:?}\nread: {:?}", self.reads(actor));
        self.cluster.until(&format!("{actor} watches where it was led to"), watching, shown).await;
    }

    /// As [`Self::lead`], of a process that runs, and waits until it watches there.
    pub async fn lead_and_wait(&self, actor: &str, to: &Client) {
        let watched = self.lead(actor, to);
        self.until_watching(actor, &watched).await;
    }

    /// All that a process has read from the API server since it was led there, in its order.
    pub fn reads(&self, actor: &str) -> Vec<String> {
        self.upstreams.lock().unwrap()[actor].borrow().reads()
    }
}

/// What is watched, of all that was read: kind and selector.
pub fn watches(reads: &[String]) -> BTreeSet<String> {
    reads.iter().filter(|read| read.contains("watch=true")).map(|read| selection(read)).collect()
}

/// What a LIST or a watch selects: kind and selector.
pub fn selection(read: &str) -> String {
    let (path, query) = read.split_once('?').unwrap_or((read, ""));
    let selector = query.split('&').find(|part| part.starts_with("fieldSelector="));
    format!("{path} {}", selector.unwrap_or_default())
}

/// From which version a watch begins, with what it selects.
pub fn begins(read: &str) -> Option<(String, u64)> {
    let mut parts = read.split(['?', '&']).filter(|_| read.contains("watch=true"));
    let version = parts.find_map(|part| part.strip_prefix("resourceVersion="))?;
    Some((selection(read), version.parse().ok()?))
}

#[derive(Clone)]
struct Relay {
    etcd: Channel,
    hears: watch::Receiver<bool>,
}

/// Starts a relay to etcd and says where it listens.
async fn relay(etcd: &str, hears: watch::Receiver<bool>) -> SocketAddr {
    let etcd = Endpoint::from_shared(etcd.to_owned())
        .unwrap()
        .initial_connection_window_size(AHEAD)
        .initial_stream_window_size(AHEAD)
        .connect_timeout(Duration::from_secs(5))
        .connect_lazy();
    let relay = Relay { etcd, hears };
    let calls = axum::Router::new().fallback(pass).with_state(relay);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Server::builder().add_routes(calls.into());
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

async fn pass(State(mut relay): State<Relay>, request: Request) -> Response {
    let tells_of_changes = request.uri().path() == WATCH;
    let request = request.map(tonic::body::Body::new);
    if std::future::poll_fn(|context| relay.etcd.poll_ready(context)).await.is_err() {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let Ok(answer) = relay.etcd.call(request).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    if !tells_of_changes {
        return answer.map(Body::new);
    }
    answer.map(|told| {
        let frames =
            futures::stream::unfold((BodyStream::new(told), relay.hears), |(mut frames, mut hears)| async {
                let frame = frames.next().await?;
                // Whoever could say more has gone with the server.
                let _ = hears.wait_for(|hears| *hears).await;
                Some((frame, (frames, hears)))
            });
        Body::new(StreamBody::new(frames))
    })
}
