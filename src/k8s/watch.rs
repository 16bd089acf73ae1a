//! LIST, then WATCH, for ever: what feeds a cache.
//!
//! kube's own watcher hides bookmarks, which are the only sign of life of a quiet stream; the Lease of an agent
//! depends on them (trap B27). So the loop is written out here (docs/adr/0020-the-caches-are-our-own.md).

use std::{collections::HashSet, ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use futures::TryStreamExt;
use kube::{
    Api, Client,
    api::{ListParams, Resource, WatchEvent, WatchParams},
    core::{Request, request},
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rand::Rng;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, info, warn};

use super::{
    backoff::Backoff,
    cache::{Cache, Cached},
    demand::Demand,
    error::ApiError,
    list::{ListError, list},
    read,
    store::{Named, Origin, version},
    unreadable::Sent,
};
use crate::metrics::KindLabels;

/// Longest wait for more of a LIST, or for a stream to open.
const OPEN: Duration = Duration::from_secs(30);
/// A stream that is silent for longer is opened again from where it was. The API server sends a
/// bookmark about every minute, but none before the first event of a kind.
const SILENCE: Duration = Duration::from_secs(90);
/// Shortest life of a stream: one that ends earlier counts as failed.
const SHORT: Duration = Duration::from_secs(1);
/// A watch that has heard nothing for this long has stalled: the silence, and an attempt to reopen.
pub const STALLED: Duration = Duration::from_secs(150);

/// The API server's state is older than what it has told us before: etcd was restored from a backup.
/// Nothing cached can be trusted; the process has to start anew.
#[derive(Debug, Error)]
#[error(
    "{kind}: the API server lists version {listed}, older than {seen} which it sent before: etcd was restored"
)]
pub struct WentBack {
    kind: String,
    listed: u64,
    seen: u64,
}

#[derive(Debug, Error)]
enum Interrupted {
    #[error("LIST: {0}")]
    List(#[source] kube::Error),
    #[error("LIST: no answer in {0:?}")]
    ListTimedOut(Duration),
    #[error("LIST: the API server gave no resourceVersion")]
    NoVersion,
    #[error("WATCH: {0}")]
    Open(#[source] kube::Error),
    #[error("WATCH: no answer in {OPEN:?}")]
    OpenTimedOut,
    #[error("WATCH: stream broke: {0}")]
    Stream(#[source] kube::Error),
    #[error("WATCH: the API server ended it: {0}")]
    Status(Box<kube::core::Status>),
    #[error(transparent)]
    Revision(Box<ApiError>),
    #[error("request: {0}")]
    Build(#[source] request::Error),
    #[error(transparent)]
    WentBack(#[from] WentBack),
}

impl From<ListError> for Interrupted {
    fn from(error: ListError) -> Self {
        match error {
            ListError::TimedOut(longest) => Self::ListTimedOut(longest),
            ListError::Client(error) => Self::List(error),
        }
    }
}

impl Interrupted {
    /// Whether the API server no longer keeps the version to continue from: then the watch lists again, at once.
    fn expired(&self) -> bool {
        match self {
            Self::Open(kube::Error::Api(status))
            | Self::List(kube::Error::Api(status))
            | Self::Status(status) => status.code == 410,
            _ => false,
        }
    }

    /// Whether the API server knows no such kind. Of a kind that it knows a collection is always there.
    fn is_undefined(&self) -> bool {
        match self {
            Self::Open(kube::Error::Api(status))
            | Self::List(kube::Error::Api(status))
            | Self::Status(status) => status.code == 404,
            Self::Revision(error) => error.is_undefined(),
            _ => false,
        }
    }

    /// Whether the stream can be taken up from the last version seen.
    fn resumable(&self) -> bool {
        match self {
            // An event whose metadata cannot be read is lost: only a LIST makes up for it.
            Self::Stream(kube::Error::SerdeError(_)) | Self::Status(_) => false,
            Self::Open(_) | Self::OpenTimedOut | Self::Stream(_) | Self::Revision(_) => !self.expired(),
            _ => false,
        }
    }
}

/// How often watches were interrupted and begun anew, by kind.
pub type Restarts = Family<KindLabels, Counter>;

/// Feeds source number `source` of `cache` with the objects of `api` that match the field selector `fields`, for example
/// `spec.nodeName=worker-1`; without one, with all. Retries for ever; returns only if the API server's history went back.
pub async fn watch<K: Cached>(
    api: Api<K>,
    fields: Option<String>,
    cache: Arc<Cache<K>>,
    source: u8,
    restarts: Restarts,
) -> WentBack {
    Watch::new(api, fields, cache, source).run(restarts).await
}

pub(super) struct Watch<K> {
    api: Api<K>,
    url: Request,
    client: Client,
    fields: Option<String>,
    cache: Arc<Cache<K>>,
    source: u8,
    kind: String,
    /// Time between looks where the cluster may not have the kind.
    pub(super) undefined: Option<Duration>,
    /// Where there is one, nothing is watched before it rises, or something is listed.
    pub(super) demand: Option<Demand>,
}

impl<K: Cached> Watch<K> {
    pub(super) fn new(api: Api<K>, fields: Option<String>, cache: Arc<Cache<K>>, source: u8) -> Self {
        Self {
            url: Request::new(api.resource_url()),
            client: api.clone().into_client(),
            api,
            fields,
            cache,
            source,
            kind: K::kind(&()).into_owned(),
            undefined: None,
            demand: None,
        }
    }

    pub(super) async fn run(self, restarts: Restarts) -> WentBack {
        let mut failures = 0;
        let mut resume = None;
        let mut broken = false;
        let mut is_defined = true;
        loop {
            let started = Instant::now();
            let (version, outcome) = self.round(resume, broken).await;
            let advanced = version > resume;
            let Err(interrupted) = outcome else {
                (resume, broken, is_defined) = (version, false, true);
                // A stream that ends as soon as it opens must not become a storm of requests.
                failures = if started.elapsed() < SHORT { failures + 1 } else { 0 };
                if failures > 0 {
                    sleep(Backoff::WATCH.delay(failures)).await;
                }
                continue;
            };
            if let Some(pause) = self.undefined.filter(|_| interrupted.is_undefined()) {
                if std::mem::replace(&mut is_defined, false) {
                    info!(kind = self.kind, "the cluster has no such kind; it is looked for again");
                }
                // Its objects are gone with it.
                self.cache.progressed(self.source);
                self.cache.finish_list(&HashSet::new(), self.cache.highest(), self.source);
                (resume, broken, failures) = (None, true, 0);
                sleep(pause).await;
                continue;
            }
            restarts.get_or_create(&KindLabels { kind: self.kind.clone() }).inc();
            resume = version.filter(|_| interrupted.resumable());
            broken = true;
            failures = if advanced { 1 } else { failures + 1 };
            match interrupted {
                Interrupted::WentBack(went_back) => {
                    error!(source = self.name(), "{went_back}");
                    return went_back;
                }
                expired if expired.expired() && failures < 2 => {
                    debug!(kind = self.kind, "{expired}; listing again");
                }
                other => {
                    warn!(kind = self.kind, source = self.name(), failures, "{other}");
                    sleep(Backoff::WATCH.delay(failures)).await;
                }
            }
        }
    }

    fn name(&self) -> &'static str {
        self.cache.source_name(self.source)
    }

    /// Lists unless there is a version to resume from, then watches until the stream ends. Returns the
    /// last version seen, which is none before all has been listed.
    async fn round(&self, resume: Option<u64>, broken: bool) -> (Option<u64>, Result<(), Interrupted>) {
        let mut version = match resume {
            Some(version) => {
                // A server that was restored in the meantime would let us wait for a version that lies in its future.
                if broken && let Err(interrupted) = self.went_on(version).await {
                    return (resume, Err(interrupted));
                }
                version
            }
            None => match self.listed().await {
                Ok(version) => version,
                Err(interrupted) => return (None, Err(interrupted)),
            },
        };
        let outcome = self.stream(&mut version).await;
        self.cache.delivered(self.source, None);
        (Some(version), outcome)
    }

    /// Fails if etcd is at an older revision than `seen`, which it had before: it was restored.
    async fn went_on(&self, seen: u64) -> Result<(), Interrupted> {
        let now = read::revision(&self.api).await.map_err(|error| Interrupted::Revision(Box::new(error)))?;
        if now < seen {
            return Err(WentBack { kind: self.kind.clone(), listed: now, seen }.into());
        }
        Ok(())
    }

    /// The version of a LIST behind which there is something to watch for. Where there is nothing, and nobody wants it watched, the
    /// LIST is made again when somebody does.
    async fn listed(&self) -> Result<u64, Interrupted> {
        loop {
            let (version, is_any) = self.list().await?;
            let Some(demand) = &self.demand else { return Ok(version) };
            if is_any {
                demand.rise();
            }
            if demand.is_there() {
                return Ok(version);
            }
            self.cache.rests(self.source);
            demand.risen().await;
            self.cache.progressed(self.source);
        }
    }

    /// A LIST of the most recent state. Returns its version, and whether there is anything.
    async fn list(&self) -> Result<(u64, bool), Interrupted> {
        // Read before the request: a LIST by quorum cannot be older than anything seen before it.
        let seen = self.cache.highest();
        // What is listed is taken in while it arrives, and says of which version it is at its end.
        if seen > 0 {
            self.went_on(seen).await?;
        }
        let mut listed = HashSet::new();
        let params = ListParams { field_selector: self.fields.clone(), ..ListParams::default() };
        let request = self.url.list(&params).map_err(Interrupted::Build)?;
        let take = |object: Sent<K>| {
            self.cache.progressed(self.source);
            listed.extend(object.meta().uid.clone());
            self.take_in(object);
            ControlFlow::Continue(())
        };
        let metadata = list(&self.client, request, OPEN, take).await?;
        let version = metadata.and_then(|metadata| metadata.resource_version?.parse().ok());
        let version: u64 = version.ok_or(Interrupted::NoVersion)?;
        if version < seen {
            return Err(WentBack { kind: self.kind.clone(), listed: version, seen }.into());
        }
        self.cache.progressed(self.source);
        self.cache.finish_list(&listed, version, self.source);
        Ok((version, !listed.is_empty()))
    }

    /// One WATCH request. Ok when the API server or silence ended it.
    async fn stream(&self, last: &mut u64) -> Result<(), Interrupted> {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            // Random, so that the streams of all agents do not reopen together.
            timeout: Some(rand::rng().random_range(200..290)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = self.url.watch(&params, &last.to_string()).map_err(Interrupted::Build)?;
        let events = timeout(OPEN, self.client.request_events::<Sent<K>>(request)).await;
        let mut events = pin!(events.map_err(|_| Interrupted::OpenTimedOut)?.map_err(Interrupted::Open)?);
        self.cache.progressed(self.source);
        self.cache.delivered(self.source, Some(*last));
        while let Ok(event) = timeout(SILENCE, events.try_next()).await {
            let Some(event) = event.map_err(Interrupted::Stream)? else { break };
            self.cache.progressed(self.source);
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *last = (*last).max(version(object.meta()));
                    self.take_in(object);
                }
                WatchEvent::Deleted(object) => {
                    *last = (*last).max(version(object.meta()));
                    match object.0 {
                        Ok(object) => self.cache.delete(object, self.source),
                        Err(unreadable) => self.cache.leave(&unreadable.metadata, self.source),
                    }
                }
                WatchEvent::Bookmark(bookmark) => {
                    let version = bookmark.metadata.resource_version.parse().unwrap_or(0);
                    if version < *last {
                        // From a server that lags, or from one that was restored.
                        self.went_on(*last).await?;
                    }
                    *last = (*last).max(version);
                }
                WatchEvent::Error(status) => return Err(Interrupted::Status(status)),
            }
            self.cache.delivered(self.source, Some(*last));
        }
        Ok(())
    }

    fn take_in(&self, Sent(object): Sent<K>) {
        match object {
            Ok(object) => self.cache.put(object, Origin::Stream(self.source)),
            Err(unreadable) => {
                let Named { namespace, name } = Named::of(&unreadable.metadata);
                warn!(
                    kind = self.kind,
                    namespace, name, "object cannot be read and is skipped: {}", unreadable.why
                );
                self.cache.put_unreadable(unreadable, self.source);
            }
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
