//! Dialling a plugin's socket, once for each connection.
//!
//! The kernel looks up the path of a socket when it is dialled. Something may have been mounted over it that never
//! answers, and then whoever dials hangs, so that is done on a thread of its own, and not again while it hangs.
//!
//! A connection that is lost is not dialled again underneath, as tonic would: behind the path there may be another process
//! by then, and capabilities and node id have to be read before anything else (CSI).

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustix::fs::{Mode, OFlags, open};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tonic::codegen::Service;
use tonic::transport::{Endpoint, Uri};

use super::channel::Plugin;
use super::deadlines::Deadlines;
use super::process::Process;
use crate::trace::Trace;

/// The longest list of headers taken, in bytes as HTTP/2 counts. A driver's message comes as one of them, and with more
/// than the 16 KiB of the default its code would be lost too.
const HEADERS_LIMIT: u32 = 1024 * 1024;

/// What the kernel takes as the address of a unix socket, in bytes without the closing NUL.
const SOCKET_PATH_LIMIT: usize = 107;

/// Connecting to a plugin failed, so nothing was asked of it.
#[derive(Debug, thiserror::Error)]
#[error("connect to {path}: {reason}")]
pub struct DialError {
    path: String,
    reason: String,
    /// There is no plugin at this path: no such file, or nobody listens, as after a plugin that ended without removing it.
    pub gone: bool,
}

impl DialError {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.display().to_string(), reason: reason.into(), gone: false }
    }

    /// For what the kernel or the transport says.
    fn of(path: &Path, error: &(dyn std::error::Error + 'static)) -> Self {
        let gone = |reason: &str| Self { gone: true, ..Self::new(path, reason) };
        let mut source = Some(error);
        let mut reason = error.to_string();
        while let Some(error) = source {
            reason = error.to_string();
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::NotFound) => return gone("there is no such socket"),
                Some(io::ErrorKind::ConnectionRefused) => return gone("nobody listens"),
                _ => source = error.source(),
            }
        }
        Self::new(path, reason)
    }
}

/// Dials one socket.
#[derive(Debug)]
pub struct Dial {
    path: PathBuf,
    trace: Arc<Trace>,
    /// The attempt that has not come back.
    hanging: Option<JoinHandle<io::Result<StdStream>>>,
}

impl Dial {
    /// Of the plugin that listens at `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), trace: Arc::default(), hanging: None }
    }

    /// Has the calls of the plugin kept there.
    #[must_use]
    pub fn traced(self, trace: Arc<Trace>) -> Self {
        Self { trace, ..self }
    }

    /// Connects to the plugin, for at most the deadline of identity calls.
    ///
    /// # Errors
    /// Nobody was reached, so nothing was asked of anybody.
    pub async fn connect(&mut self, deadlines: Deadlines) -> Result<(Plugin, Ended), DialError> {
        let failed = |error: &(dyn std::error::Error + 'static)| DialError::of(&self.path, error);
        let bad = || DialError::new(&self.path, "not an absolute path in UTF-8");
        let text = self.path.to_str().filter(|_| self.path.is_absolute());
        // Go servers refuse an :authority that is no valid host, and a socket path is none.
        let endpoint = Endpoint::from_shared(format!("unix://{}", text.ok_or_else(bad)?))
            .map_err(|_| bad())?
            .origin(Uri::from_static("http://localhost"))
            .http2_max_header_list_size(HEADERS_LIMIT);
        let path = self.path.clone();
        let mut dialled = self.hanging.take().unwrap_or_else(|| spawn_blocking(move || reach(&path)));
        let Ok(stream) = tokio::time::timeout(deadlines.identity, &mut dialled).await else {
            self.hanging = Some(dialled);
            let after = deadlines.identity;
            return Err(DialError::new(&self.path, format!("not accepted within {after:?}")));
        };
        let stream =
            stream.unwrap_or_else(|ended| Err(io::Error::other(ended))).map_err(|error| failed(&error))?;
        let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        let stream = stream.map_err(|error| failed(&error))?;
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(Process::of);
        let (end, ended) = oneshot::channel();
        let once = Once(Some(TokioIo::new(Connection { stream, _end: end })));
        let channel = endpoint.connect_with_connector(once).await.map_err(|error| failed(&error))?;
        Ok((Plugin::new(channel, process, deadlines, self.trace.clone()), Ended(ended)))
    }
}

/// Connects to a socket, also to one whose path is longer than an address may be: by the folder that it is in.
fn reach(path: &Path) -> io::Result<StdStream> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return StdStream::connect(path);
    };
    if path.as_os_str().len() <= SOCKET_PATH_LIMIT {
        return StdStream::connect(path);
    }
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    StdStream::connect(Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// The end of a connection, however it comes: the process has ended, or is told to end in order (GOAWAY) and takes no
/// more calls, or nobody here has the plugin any more.
#[derive(Debug)]
pub struct Ended(oneshot::Receiver<Infallible>);

impl Future for Ended {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

/// Hands its connection to the transport, the first time that it is asked for one.
struct Once(Option<TokioIo<Connection>>);

impl Service<Uri> for Once {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::Error::other("the connection to the plugin was lost")))
    }
}

/// A connection. That the transport drops it is what tells of its end.
struct Connection {
    stream: UnixStream,
    _end: oneshot::Sender<Infallible>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A plugin whose end does not matter.
#[cfg(test)]
pub(super) async fn connect(path: &Path, deadlines: Deadlines) -> Result<Plugin, DialError> {
    Ok(Dial::of(path).connect(deadlines).await?.0)
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
