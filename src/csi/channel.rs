//! One plugin process, and the one way in which every call is made.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tracing::{Instrument, Span, field};

use super::deadlines::Deadlines;
use super::error::{CallError, Origin};
use super::process::Process;
use super::redact::Scrub;
use super::rpc::CallRequest;
use crate::trace::{Begun, Running, Trace};

/// The longest answer taken, in bytes. A page of ListVolumes has as many volumes as the driver likes.
pub(super) const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// A connected plugin process. Cheap to clone; all clones share one connection.
///
/// The handle is good for one process: a connection that is lost is not made again ([`super::dial`]), and the owner has to
/// connect anew.
#[derive(Clone, Debug)]
pub struct Plugin {
    channel: Channel,
    peer: Arc<Peer>,
}

#[derive(Debug)]
struct Peer {
    process: Option<Arc<Process>>,
    deadlines: Deadlines,
    /// The driver, as it names itself, as soon as it has.
    driver: OnceLock<String>,
    /// Where its calls are kept for people.
    trace: Arc<Trace>,
}

impl Plugin {
    pub(super) fn new(
        channel: Channel,
        process: Option<Process>,
        deadlines: Deadlines,
        trace: Arc<Trace>,
    ) -> Self {
        let (process, driver) = (process.map(Arc::new), OnceLock::new());
        Self { channel, peer: Arc::new(Peer { process, deadlines, driver, trace }) }
    }

    /// Notes what the driver calls itself, which every process says once.
    pub(super) fn is_of(&self, driver: &str) {
        self.peer.driver.get_or_init(|| driver.to_owned());
    }

    /// The process that listens on the socket, if it is one that this one can see.
    #[must_use]
    pub fn process(&self) -> Option<&Arc<Process>> {
        self.peer.process.as_ref()
    }

    /// Asks something that concerns no volume and carries nothing secret.
    pub(super) async fn ask<Q: CallRequest>(&self, question: &Q) -> Result<Q::Answer, CallError> {
        self.call(&[], &Scrub::nothing(), question).await
    }

    /// Makes one call. `of` is whom it is about, for the trace: the volume's id, or the snapshot's, or the name of what is to be
    /// made. A call about nobody is not kept there.
    ///
    /// The deadline holds here and is told to the driver: a driver that hangs does not hold the caller.
    pub(super) async fn call<Q: CallRequest>(
        &self,
        of: &[&str],
        scrub: &Scrub,
        message: &Q,
    ) -> Result<Q::Answer, CallError> {
        let span = tracing::debug_span!(
            "csi",
            rpc = Q::RPC.name(),
            volume = of.first().copied().unwrap_or_default(),
            code = field::Empty,
            milliseconds = field::Empty
        );
        let traced = self.traced(of, scrub, message);
        let started = Instant::now();
        let result = self.exchange(scrub, message).instrument(span.clone()).await;
        conclude(&span, &result, started.elapsed());
        if let Some(traced) = traced {
            match &result {
                Ok(answer) => traced.end("Ok".into(), String::new(), scrub.print(answer), Q::made(answer)),
                Err(error) => {
                    traced.end(format!("{:?}", error.code), error.message.clone(), String::new(), None);
                }
            }
        }
        result
    }

    /// Has a call kept in the trace, as one that is running.
    fn traced<Q: CallRequest>(&self, of: &[&str], scrub: &Scrub, message: &Q) -> Option<Running> {
        let driver = self.peer.driver.get().map_or("", String::as_str);
        (!of.is_empty()).then(|| {
            let (rpc, is_question) = (Q::RPC.name(), Q::RPC.is_question());
            self.peer.trace.begin(Begun { rpc, is_question, driver, of, request: scrub.print(message) })
        })
    }

    async fn exchange<Q: CallRequest>(&self, scrub: &Scrub, message: &Q) -> Result<Q::Answer, CallError> {
        let deadline = self.peer.deadlines.of(Q::RPC);
        match tokio::time::timeout(deadline, self.send(message, deadline)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => {
                let error = CallError::from_status(Q::RPC, &status, scrub);
                // The transport keeps the same deadline and may be a moment faster, with less to say.
                let late = error.origin == Origin::Deadline;
                Err(if late { CallError::deadline(Q::RPC, deadline) } else { error })
            }
            Err(_) => Err(CallError::deadline(Q::RPC, deadline)),
        }
    }

    /// Sends a request, as tonic's generated clients do.
    async fn send<Q: CallRequest>(&self, message: &Q, deadline: Duration) -> Result<Q::Answer, Status> {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_LIMIT);
        let not_ready = |error| Status::unknown(format!("Service was not ready: {error}"));
        client.ready().await.map_err(not_ready)?;
        let mut request = Request::new(message.clone());
        request.set_timeout(deadline);
        let path = PathAndQuery::from_static(Q::RPC.path());
        client.unary(request, path, ProstCodec::default()).await.map(Response::into_inner)
    }
}

fn conclude<A>(span: &Span, result: &Result<A, CallError>, took: Duration) {
    let code = result.as_ref().map_or_else(|error| error.code, |_| Code::Ok);
    span.record("code", field::debug(code));
    span.record("milliseconds", u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    span.in_scope(|| match result {
        Ok(_) => tracing::debug!("answered"),
        Err(error) => tracing::debug!(origin = ?error.origin, message = %error.message, "failed"),
    });
}
