//! The agent's last calls, given out at a socket that only root on its node can open (ADR 43).
//!
//! Nothing is read from whoever connects: all that is kept is written, and they choose from it (`moor trace`).

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::socket::listen;
use crate::trace::{Told, Trace};

/// Longest time for whoever has connected to take what is written.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time between attempts to have the socket.
const RETRY: Duration = Duration::from_secs(30);
/// The most that is read of an agent, in bytes. More than all that an agent keeps, as JSON escapes it.
pub const LONGEST: u64 = 64 << 20;

/// Where an agent with this state directory has its socket.
fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("trace").join("agent.sock")
}

/// Serves until the process ends. A disk that takes no socket costs nobody more than the trace.
pub(super) async fn serve(trace: Arc<Trace>, node: String, state_dir: PathBuf) {
    let path = path(&state_dir);
    let mut is_told = false;
    loop {
        match private(&path).and_then(|()| listen(&path)) {
            Ok((listener, _socket)) => give_out(&listener, &trace, &node, DEADLINE).await,
            Err(error) if is_told => tracing::debug!("{}: {error}", path.display()),
            Err(error) => tracing::warn!("{}: {error}; there is no trace of calls", path.display()),
        }
        is_told = true;
        sleep(RETRY).await;
    }
}

/// Makes the folder in which the socket is, for its owner alone.
fn private(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// One after the other, so that no more than one copy is in memory. Ends when nobody can connect any more.
async fn give_out(listener: &UnixListener, trace: &Trace, node: &str, patience: Duration) {
    loop {
        let mut stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return tracing::warn!("the socket of the trace: {error}"),
        };
        let Ok(text) = serde_json::to_vec(&trace.told(node)) else { continue };
        let written = async {
            stream.write_all(&text).await?;
            stream.shutdown().await
        };
        match timeout(patience, written).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("the trace was not taken: {error}"),
            Err(_) => tracing::debug!("the trace was not taken in {patience:?}"),
        }
    }
}

/// Why an agent's calls could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Nobody listens, or this process is not root.
    #[error("no agent gives out its calls at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The agent ended in the middle of it.
    #[error("the agent's calls: {0}")]
    Read(#[source] io::Error),
    /// It took too long.
    #[error("the agent's calls: nothing within {DEADLINE:?}")]
    Late,
    /// It is not what an agent of this version says.
    #[error("the agent's calls cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
}

/// What the agent with this state directory has kept.
pub async fn read(state_dir: &Path) -> Result<Told, TraceError> {
    let path = path(state_dir);
    let stream = UnixStream::connect(&path).await;
    let stream = stream.map_err(|source| TraceError::Connect { path, source })?;
    let mut text = Vec::new();
    let taken = timeout(DEADLINE, stream.take(LONGEST).read_to_end(&mut text)).await;
    taken.map_err(|_| TraceError::Late)?.map_err(TraceError::Read)?;
    serde_json::from_slice(&text).map_err(TraceError::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Begun;

    #[tokio::test]
    async fn what_is_kept_is_given_to_who_owns_the_folder() {
        let directory = tempfile::tempdir().unwrap();
        let state_dir = directory.path().to_owned();
        assert!(matches!(read(&state_dir).await, Err(TraceError::Connect { .. })));
        // As somebody else may have left it.
        std::fs::create_dir(state_dir.join("trace")).unwrap();
        let trace = Arc::new(Trace::default());
        let begun = Begun {
            rpc: "NodeStageVolume",
            is_question: false,
            driver: "d",
            of: &["vol"],
            request: "request".into(),
        };
        let _running = trace.begin(begun);
        let serving = tokio::spawn(serve(trace.clone(), "node-1".into(), state_dir.clone()));
        let told = loop {
            match read(&state_dir).await {
                Ok(told) => break told,
                Err(TraceError::Connect { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        // As JSON has it, which keeps microseconds.
        let kept = serde_json::to_string(&trace.told("node-1")).unwrap();
        assert_eq!(serde_json::to_string(&told).unwrap(), kept);
        assert!(told.calls.len() == 1 && told.calls[0].end.is_none());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state_dir.join("trace")), mode(&path(&state_dir))), (0o700, 0o600));
        serving.abort();
    }

    #[tokio::test]
    async fn who_takes_nothing_holds_nobody_up_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let state_dir = directory.path().to_owned();
        let path = path(&state_dir);
        private(&path).unwrap();
        let (listener, _socket) = listen(&path).unwrap();
        let trace = Arc::new(Trace::default());
        let request = "r".repeat(1 << 20);
        let begun = Begun { rpc: "NodeStageVolume", is_question: false, driver: "d", of: &["vol"], request };
        let _running = trace.begin(begun);
        // More than the kernel holds for somebody who does not read.
        let _stuck = UnixStream::connect(&path).await.unwrap();
        let patience = Duration::from_millis(200);
        let serving = tokio::spawn(async move { give_out(&listener, &trace, "node-1", patience).await });
        // On a busy machine the patience may end for this one too.
        while read(&state_dir).await.is_err() {}
        serving.abort();
    }
}
