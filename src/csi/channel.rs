//! The connection to one plugin process, and the one way in which every call is made.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint, Uri};
use tracing::{Instrument, Span, field};

use super::deadlines::Deadlines;
use super::error::{CallError, Origin};
use super::redact::Scrub;
use super::rpc::Rpc;

/// The longest answer taken, in bytes. A page of ListVolumes has as many volumes as the driver likes.
pub const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// The longest list of headers taken, in bytes as HTTP/2 counts. A driver's message comes as one of them, and with more
/// than the 16 KiB of the default its code would be lost too.
const HEADERS_LIMIT: u32 = 1024 * 1024;

/// What the kernel takes as the address of a unix socket, in bytes without the closing NUL.
const SOCKET_PATH_LIMIT: usize = 107;

/// Connecting to a plugin failed, so nothing was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The path cannot name a unix socket.
    #[error("connect to {path}: not an absolute path in UTF-8 of at most {SOCKET_PATH_LIMIT} bytes")]
    BadPath {
        /// The socket's path, as far as it can be shown.
        path: String,
    },
    /// There is no such file.
    #[error("connect to {path}: there is no such socket")]
    NotThere {
        /// The socket.
        path: PathBuf,
    },
    /// The file is there, and nobody listens: a plugin that ended without removing it.
    #[error("connect to {path}: nobody listens")]
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// Nobody took the connection in time.
    #[error("connect to {path}: not accepted within {after:?}")]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// Anything else that the kernel says.
    #[error("connect to {path}: {reason}")]
    Failed {
        /// The socket.
        path: PathBuf,
        /// The kernel's or the transport's words.
        reason: String,
    },
}

/// The socket file as it was when the connection was made. A driver that restarts binds a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketFile {
    device: u64,
    inode: u64,
    // Inode numbers are used again at once on some file systems. Not ctime: drivers chmod their socket after listening.
    modified: (i64, i64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { device: file.dev(), inode: file.ino(), modified: (file.mtime(), file.mtime_nsec()) })
    }
}

#[derive(Debug)]
struct Socket {
    path: PathBuf,
    file: SocketFile,
    deadlines: Deadlines,
}

/// A connected plugin process. Cheap to clone; all clones share one connection.
///
/// The handle is good for one process. Underneath, a lost connection is dialled again, but once the socket file is
/// another one every call fails as never sent, and the owner has to connect anew: after a restart capabilities and
/// node id have to be read before anything else (CSI).
#[derive(Clone, Debug)]
pub struct Plugin {
    channel: Channel,
    socket: Arc<Socket>,
}

impl Plugin {
    /// Connects to the plugin that listens at `path`, for at most the deadline of identity calls.
    pub async fn connect(path: &Path, deadlines: Deadlines) -> Result<Self, DialError> {
        let bad = || DialError::BadPath { path: path.display().to_string() };
        let text = path.to_str().filter(|text| path.is_absolute() && text.len() <= SOCKET_PATH_LIMIT);
        let endpoint = Endpoint::from_shared(format!("unix://{}", text.ok_or_else(bad)?))
            .map_err(|_| bad())?
            // Go servers refuse an :authority that is no valid host, and a socket path is none.
            .origin(Uri::from_static("http://localhost"))
            .http2_max_header_list_size(HEADERS_LIMIT);
        // Before the dial: if the socket is replaced in between, the first call finds out.
        let file = SocketFile::at(path).map_err(|error| dial_error(path, &error))?;
        let after = deadlines.identity;
        let channel = tokio::time::timeout(after, endpoint.connect())
            .await
            .map_err(|_| DialError::TimedOut { path: path.to_owned(), after })?
            .map_err(|error| dial_error(path, &error))?;
        Ok(Self { channel, socket: Arc::new(Socket { path: path.to_owned(), file, deadlines }) })
    }

    /// The socket that this was connected to.
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.socket.path
    }

    /// The socket file is still the one that this was connected to. Looks at the file only; a plugin that ended without
    /// removing it shows in the next call.
    #[must_use]
    pub fn is_same_socket(&self) -> bool {
        SocketFile::at(&self.socket.path).is_ok_and(|file| file == self.socket.file)
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
        if !self.is_same_socket() {
            return Err(CallError::replaced(rpc));
        }
        let deadline = self.socket.deadlines.of(rpc);
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

fn dial_error(path: &Path, error: &(dyn std::error::Error + 'static)) -> DialError {
    let path = path.to_owned();
    let mut source = Some(error);
    let mut reason = error.to_string();
    while let Some(error) = source {
        reason = error.to_string();
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => return DialError::NotThere { path },
            Some(io::ErrorKind::ConnectionRefused) => return DialError::Refused { path },
            _ => source = error.source(),
        }
    }
    DialError::Failed { path, reason }
}
