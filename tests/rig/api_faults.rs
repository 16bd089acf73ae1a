//! What is wrong with the API server, as moor's processes meet it: it is slow, or refuses and breaks now and then, or is not there.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use futures::{Stream, StreamExt as _};
use http::{StatusCode, header};
use serde_json::json;
use tokio::sync::watch;

use super::Rig;
use super::proxy::is_list;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiFault {
    /// Nothing.
    #[default]
    None,
    /// Every request takes so much longer.
    Slow(Duration),
    /// Every few requests one is refused, or its answer is lost; watches break after a few events, and of some the version from
    /// which they would go on is too old.
    Flaky,
    /// Nobody answers, and what was open is broken.
    Absent,
    /// Writes of this label are forbidden.
    Forbids(&'static str),
}

/// Of so many requests the first is refused before it has any effect, and the third loses its answer.
const OF: usize = 12;
/// Of so many watches the first is refused because its version is too old.
const OF_WATCHES: usize = 3;
/// After so many pieces of a stream a flaky API server breaks it.
const PIECES: usize = 20;

/// What is wrong, for all doors of a rig. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct ApiFaults {
    now: Arc<watch::Sender<ApiFault>>,
    requests: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
    met: Arc<Met>,
    delayed: Arc<Mutex<BTreeMap<String, Delayed>>>,
}

/// How often each thing was met that a flaky API server does.
type Met = Mutex<BTreeMap<&'static str, usize>>;

fn count(met: &Met, what: &'static str) {
    *met.lock().unwrap().entry(what).or_default() += 1;
}

/// Requests of a process that a slow API server has not answered yet.
#[derive(Clone, Copy, Default)]
struct Delayed {
    now: usize,
    most: usize,
}

/// What becomes of one request.
pub(super) enum Meets {
    /// It passes.
    Nothing,
    /// It is answered so, and has no effect.
    Refused(Response),
    /// It has its effect, and nobody hears of it.
    LostAnswer,
}

impl ApiFaults {
    /// What a request of a process meets, which makes a write of this label, if any.
    pub(super) async fn meet(&self, actor: &str, write: Option<&str>, is_watch: bool) -> Meets {
        let now = *self.now.borrow();
        match now {
            ApiFault::None => Meets::Nothing,
            ApiFault::Slow(delay) => {
                self.delay(actor, delay).await;
                Meets::Nothing
            }
            ApiFault::Absent => Meets::Refused(StatusCode::BAD_GATEWAY.into_response()),
            ApiFault::Forbids(label) if write == Some(label) => {
                Meets::Refused(refusal(StatusCode::FORBIDDEN, "Forbidden"))
            }
            ApiFault::Forbids(_) => Meets::Nothing,
            ApiFault::Flaky if is_watch => {
                if self.watches.fetch_add(1, Ordering::Relaxed).is_multiple_of(OF_WATCHES) {
                    return self.refused(StatusCode::GONE, "Expired");
                }
                Meets::Nothing
            }
            ApiFault::Flaky => {
                let number = self.requests.fetch_add(1, Ordering::Relaxed);
                match (number % OF, number / OF % 3) {
                    (0, 0) => self.refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
                    (0, 1) => self.refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
                    (0, _) => self.refused(StatusCode::GATEWAY_TIMEOUT, "Timeout"),
                    (2, _) => {
                        count(&self.met, "lost answer");
                        Meets::LostAnswer
                    }
                    _ => Meets::Nothing,
                }
            }
        }
    }

    fn refused(&self, code: StatusCode, reason: &'static str) -> Meets {
        count(&self.met, reason);
        Meets::Refused(refusal(code, reason))
    }

    async fn delay(&self, actor: &str, delay: Duration) {
        let change =
            |by: fn(&mut Delayed)| by(self.delayed.lock().unwrap().entry(actor.to_owned()).or_default());
        change(|delayed| {
            delayed.now += 1;
            delayed.most = delayed.most.max(delayed.now);
        });
        tokio::time::sleep(delay).await;
        change(|delayed| delayed.now -= 1);
    }

    /// The same stream of a watch, which breaks as a lost connection does.
    pub(super) fn breaking<S>(
        &self,
        stream: S,
    ) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static
    where
        S: Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
    {
        let lost = || Some((Err(axum::Error::new(io::Error::from(io::ErrorKind::ConnectionReset))), None));
        let open = (Box::pin(stream), self.now.subscribe(), self.met.clone(), 0_usize);
        futures::stream::unfold(Some(open), move |open| async move {
            let (mut stream, mut now, met, pieces) = open?;
            let item = tokio::select! {
                biased;
                // First, so that nobody hears of what is later. The sender lives as long as any door.
                _ = now.wait_for(|now| *now == ApiFault::Absent) => return lost(),
                item = stream.next() => item?,
            };
            if pieces >= PIECES && *now.borrow() == ApiFault::Flaky {
                count(&met, "broken watch");
                return lost();
            }
            Some((item, Some((stream, now, met, pieces + 1))))
        })
    }
}

/// What an API server says that does not do what it was asked to.
fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": format!("the rig has the API server say {reason}"),
    });
    let type_of_it = [(header::CONTENT_TYPE, "application/json"), (header::RETRY_AFTER, "1")];
    (code, type_of_it, status.to_string()).into_response()
}

impl Rig {
    /// From now on this is wrong with the API server, for moor's processes and nobody else.
    pub fn set_api_fault(&self, fault: ApiFault) {
        self.api_faults.now.send_replace(fault);
    }

    /// What a flaky API server has done: the reasons of its refusals, and "lost answer" and "broken watch".
    pub fn api_faults_met(&self) -> Vec<&'static str> {
        self.api_faults.met.lock().unwrap().keys().copied().collect()
    }

    /// How many requests of a process a slow API server had to answer at once, at most.
    pub fn most_delayed(&self, actor: &str) -> usize {
        self.api_faults.delayed.lock().unwrap().get(actor).map_or(0, |delayed| delayed.most)
    }

    /// The LISTs of a process that were answered, in their order.
    pub fn lists(&self, actor: &str) -> Vec<String> {
        self.reads(actor).into_iter().filter(|read| is_list(read)).collect()
    }
}
