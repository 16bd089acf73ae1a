//! One plugin process, and the one way in which every call is made.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tracing::{Instrument, Span, field};

use super::deadlines::Deadlines;
use super::error::{CallError, Origin};
use super::redact::Scrub;
use super::rpc::Rpc;

/// The longest answer taken, in bytes. A page of ListVolumes has as many volumes as the driver likes.
pub const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

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
    process: Option<i32>,
    deadlines: Deadlines,
}

impl Plugin {
    pub(super) fn new(channel: Channel, process: Option<i32>, deadlines: Deadlines) -> Self {
        Self { channel, peer: Arc::new(Peer { process, deadlines }) }
    }

    /// The process that listens on the socket, if it is one that this one can see.
    #[must_use]
    pub fn process(&self) -> Option<i32> {
        self.peer.process
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Makes one call. `handle` is the volume's id for the trace, or empty; arguments are never traced.
    ///
    /// The deadline holds here and is told to the driver: a driver that hangs does not hold the caller.
    pub(super) async fn call<Q, A, F>(
        &self,
        rpc: Rpc,
        handle: &str,
        scrub: &Scrub,
        message: Q,
        send: impl FnOnce(tonic::Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let span = tracing::debug_span!(
            "csi",
            rpc = rpc.name(),
            volume = handle,
            code = field::Empty,
            milliseconds = field::Empty
        );
        let started = Instant::now();
        let exchange = self.exchange(rpc, scrub, message, send).instrument(span.clone());
        let result = exchange.await;
        conclude(&span, &result, started.elapsed());
        result
    }

    async fn exchange<Q, A, F>(
        &self,
        rpc: Rpc,
        scrub: &Scrub,
        message: Q,
        send: impl FnOnce(tonic::Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let deadline = self.peer.deadlines.of(rpc);
        let mut request = tonic::Request::new(message);
        request.set_timeout(deadline);
        match tokio::time::timeout(deadline, send(request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                let error = CallError::from_status(rpc, &status, scrub);
                // The transport keeps the same deadline and may be a moment faster, with less to say.
                let late = error.origin == Origin::Deadline;
                Err(if late { CallError::deadline(rpc, deadline) } else { error })
            }
            Err(_) => Err(CallError::deadline(rpc, deadline)),
        }
    }
}

fn conclude<A>(span: &Span, result: &Result<A, CallError>, took: Duration) {
    let code = result.as_ref().map_or_else(|error| error.code, |_| tonic::Code::Ok);
    span.record("code", field::debug(code));
    span.record("milliseconds", u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    span.in_scope(|| match result {
        Ok(_) => tracing::debug!("answered"),
        Err(error) => tracing::debug!(origin = ?error.origin, message = %error.message, "failed"),
    });
}
