//! Watches: one by which it is seen when each object of a kind became Ready, or was gone, of which only names and states are
//! read; and those that moor's processes have, held by nobody who does anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, TryStreamExt as _};
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::rig::CONTROLLER;

/// How long nothing may happen while something is waited for: a hundred agents that are started at once beside 50,000 claims take two
/// minutes on a slow machine, as the API server goes through all of them for each LIST of what is one agent's.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a phase waits for with each of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Ready,
    Gone,
}

/// What is read of an object.
#[derive(Clone, Debug, Deserialize)]
struct Seen {
    metadata: Metadata,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    resource_version: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    state: Option<String>,
}

/// The objects of one kind in one namespace.
pub struct Observer {
    path: String,
    waits: Mutex<Waits>,
    changed: Notify,
}

struct Waits {
    goals: &'static [Goal],
    /// Each object that has not reached all goals.
    pending: HashMap<String, Pending>,
    latencies: Vec<Duration>,
    /// When the last one has reached it.
    last: Option<Instant>,
    /// The longest time between two that have.
    silence: Duration,
    /// Why nothing is heard any more.
    broken: Option<String>,
}

struct Pending {
    /// When the first request was made.
    since: Instant,
    /// How many goals it has reached.
    reached: usize,
}

impl Observer {
    /// Begins to watch; what changes from here on is seen.
    pub async fn start(client: &Client, path: &str) -> Arc<Self> {
        let waits = Waits {
            goals: &[],
            pending: HashMap::new(),
            latencies: Vec::new(),
            last: None,
            silence: Duration::ZERO,
            broken: None,
        };
        let observer =
            Arc::new(Self { path: path.to_owned(), waits: Mutex::new(waits), changed: Notify::new() });
        let version = version_of(client, path).await;
        tokio::spawn(follow(observer.clone(), client.clone(), version));
        observer
    }

    /// A phase begins, of which each object comes to these goals, one after the other.
    pub fn begin(&self, goals: &'static [Goal]) {
        let mut waits = self.waits.lock().unwrap();
        assert!(waits.pending.is_empty(), "the phase before has not ended");
        (waits.goals, waits.latencies) = (goals, Vec::new());
        (waits.last, waits.silence) = (None, Duration::ZERO);
    }

    /// The first request for this object is about to be made.
    pub fn sent(&self, name: &str) {
        let pending = Pending { since: Instant::now(), reached: 0 };
        self.waits.lock().unwrap().pending.insert(name.to_owned(), pending);
    }

    /// Waits until an object has reached so many goals.
    pub async fn until_reached(&self, name: &str, goals: usize) {
        self.until(|waits| waits.pending.get(name).is_none_or(|pending| pending.reached >= goals)).await;
    }

    /// Waits until nothing that was sent is pending.
    pub async fn until_all_are_there(&self) {
        self.until(|waits| waits.pending.is_empty()).await;
    }

    /// Waits until so many of the phase with this goal alone have reached it. Returns how many that were sent have not.
    pub async fn until_there_are(&self, goal: Goal, count: usize) -> usize {
        self.until(|waits| waits.goals == [goal] && waits.latencies.len() >= count).await;
        self.waits.lock().unwrap().pending.len()
    }

    async fn until(&self, is_so: impl Fn(&Waits) -> bool) {
        loop {
            // Asked for before the look, so that nothing is missed in between.
            let changed = self.changed.notified();
            let left = {
                let waits = self.waits.lock().unwrap();
                assert!(waits.broken.is_none(), "the watch of {} ended: {:?}", self.path, waits.broken);
                if is_so(&waits) {
                    return;
                }
                waits.pending.len()
            };
            let heard = tokio::time::timeout(PATIENCE, changed).await;
            assert!(heard.is_ok(), "{left} objects of {} never became {}", self.path, self.shown());
        }
    }

    fn shown(&self) -> String {
        let waits = self.waits.lock().unwrap();
        format!("{:?}, such as {:?}", waits.goals, waits.pending.keys().take(5).collect::<Vec<_>>())
    }

    /// From each object's first request until it was seen at the last goal.
    pub fn latencies(&self) -> Vec<Duration> {
        self.waits.lock().unwrap().latencies.clone()
    }

    /// The longest time of a phase, from the first object at its goal to the last one, in which none has come to it.
    pub fn silence(&self) -> Duration {
        self.waits.lock().unwrap().silence
    }

    fn heard(&self, name: &str, reached: Goal) {
        let mut waits = self.waits.lock().unwrap();
        let goals = waits.goals;
        let Some(pending) = waits.pending.get_mut(name) else { return };
        if goals.get(pending.reached) != Some(&reached) {
            return;
        }
        pending.reached += 1;
        if pending.reached < goals.len() {
            drop(waits);
            self.changed.notify_waiters();
            return;
        }
        let latency = pending.since.elapsed();
        waits.pending.remove(name);
        waits.latencies.push(latency);
        let now = Instant::now();
        let since = waits.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        waits.silence = waits.silence.max(since);
        drop(waits);
        self.changed.notify_waiters();
    }
}

/// The version at which a kind is.
async fn version_of(client: &Client, path: &str) -> String {
    let one = http::Request::get(format!("{path}?limit=1")).body(Vec::new()).unwrap();
    let listed: serde_json::Value = serde_json::from_str(&client.request_text(one).await.unwrap()).unwrap();
    listed.pointer("/metadata/resourceVersion").unwrap().as_str().unwrap().to_owned()
}

async fn follow(observer: Arc<Observer>, client: Client, mut version: String) {
    loop {
        // The server ends a watch after a while, and the next one goes on where it ended.
        if let Err(error) = watch(&observer, &client, &mut version).await {
            observer.waits.lock().unwrap().broken = Some(error);
            observer.changed.notify_waiters();
            return;
        }
    }
}

async fn watch(observer: &Observer, client: &Client, version: &mut String) -> Result<(), String> {
    let heard = |name: &str, reached| observer.heard(name, reached);
    let events = begin(client, &observer.path, "", version).await?;
    hear(events, version, heard).await
}

/// A watch from this version on, of what a selector selects.
async fn begin(
    client: &Client,
    path: &str,
    selector: &str,
    version: &str,
) -> Result<impl Stream<Item = kube::Result<WatchEvent<Seen>>> + use<>, String> {
    let uri = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}{selector}");
    let request = http::Request::get(uri).body(Vec::new()).unwrap();
    client.request_events::<Seen>(request).await.map_err(|error| error.to_string())
}

/// Hears a watch to its end.
async fn hear(
    events: impl Stream<Item = kube::Result<WatchEvent<Seen>>>,
    version: &mut String,
    heard: impl Fn(&str, Goal),
) -> Result<(), String> {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await.map_err(|error| error.to_string())? {
        match event {
            WatchEvent::Added(seen) | WatchEvent::Modified(seen) => {
                let is_ready = seen.status.and_then(|s| s.state).is_some_and(|state| state == "Ready");
                if is_ready {
                    heard(&seen.metadata.name, Goal::Ready);
                }
                *version = seen.metadata.resource_version;
            }
            WatchEvent::Deleted(seen) => {
                heard(&seen.metadata.name, Goal::Gone);
                *version = seen.metadata.resource_version;
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// The controller's watches of what there is of each object, and each agent's of what is on its node. They are held until what is
/// returned is dropped.
pub async fn as_moor_has(cluster: &Cluster) -> JoinSet<()> {
    let path = |kind: &str| format!("/apis/moor.dev/v1alpha1/{kind}");
    let mut held = JoinSet::new();
    let controller = &cluster.actors[CONTROLLER].client;
    for kind in ["volumes", "volumehandles", "volumeclaims", "attachments"] {
        hold(&mut held, controller, path(kind), String::new()).await;
    }
    // The agent that makes the calls of the driver's Controller service has more.
    let caller = &cluster.nodes[0];
    for (kind, field) in
        [("volumes", "spec.assignment.controller.agent"), ("attachments", "spec.controller.agent")]
    {
        let selector = format!("&fieldSelector={field}%3D{caller}");
        hold(&mut held, &cluster.actors[caller].client, path(kind), selector).await;
    }
    for node in &cluster.nodes {
        let agent = &cluster.actors[node].client;
        for (kind, field) in [("volumeclaims", "spec.assignment.nodeName"), ("attachments", "spec.nodeName")]
        {
            hold(&mut held, agent, path(kind), format!("&fieldSelector={field}%3D{node}")).await;
        }
    }
    held
}

/// One watch after the other, since the server ends each after a while. The first has begun when this returns.
async fn hold(held: &mut JoinSet<()>, client: &Client, path: String, selector: String) {
    let client = client.clone();
    let mut version = version_of(&client, &path).await;
    let mut events = begin(&client, &path, &selector, &version).await.unwrap();
    held.spawn(async move {
        loop {
            hear(events, &mut version, |_, _| {}).await.unwrap();
            events = begin(&client, &path, &selector, &version).await.unwrap();
        }
    });
}
