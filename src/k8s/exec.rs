//! A command in a container of a Pod, by way of the API server and kubelet. What it prints is written by others.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, copy, sink};
use tokio::time::timeout;

use super::error::{ApiError, Request};
use super::store::Named;
use crate::api::conditions::shortened;

/// Longest time for all of it.
const DEADLINE: Duration = Duration::from_secs(30);
/// So much of what a command says of its failure is kept, in bytes.
const COMPLAINT: u64 = 4096;
/// So much of that is shown, in bytes.
const SHOWN: usize = 1024;

/// A command that is to be run.
#[derive(Clone, Debug)]
pub struct Command<'a> {
    /// Name of the Pod.
    pub pod: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The most that it may print, in bytes.
    pub limit: u64,
}

/// Why there is nothing that the command has printed.
#[derive(Debug, Error)]
pub enum ExecError {
    /// The API server did not let it be run, or could not reach kubelet.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Too late.
    #[error("no end of it within {} s", DEADLINE.as_secs())]
    TimedOut,
    /// The connection ended before the command.
    #[error("the connection broke before the command had ended")]
    Lost,
    /// It prints more than is taken.
    #[error("it prints more than {0} bytes")]
    TooLong(u64),
    /// The command could not be run, or has failed.
    #[error("{0}")]
    Failed(String),
}

/// Runs a command and returns what it has printed.
pub async fn exec(pods: &Api<Pod>, command: Command<'_>) -> Result<Vec<u8>, ExecError> {
    timeout(DEADLINE, run(pods, command)).await.unwrap_or(Err(ExecError::TimedOut))
}

async fn run(pods: &Api<Pod>, command: Command<'_>) -> Result<Vec<u8>, ExecError> {
    let Command { pod, container, words, limit } = command;
    let namespace = pods.namespace().unwrap_or_default();
    let object = Named { namespace, name: pod }.to_string();
    let request = Request { verb: "create", kind: "Pod".into(), subresource: "exec", object };
    let params = AttachParams::default().container(container);
    let mut process =
        pods.exec(pod, words, &params).await.map_err(|source| ApiError::sort(request, source))?;
    let (out, error, status) = (process.stdout(), process.stderr(), process.take_status());
    let status = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let (printed, complaint, status) =
        tokio::join!(beginning(out, limit), beginning(error, COMPLAINT), status);
    let status = status.ok_or(ExecError::Lost)?;
    if status.status.as_deref() != Some("Success") {
        let complaint = String::from_utf8_lossy(&complaint.0).trim().to_owned();
        let said = if complaint.is_empty() { status.message.unwrap_or_default() } else { complaint };
        return Err(ExecError::Failed(shortened(&said, SHOWN).to_owned()));
    }
    if printed.1 { Err(ExecError::TooLong(limit)) } else { Ok(printed.0) }
}

/// As much of a stream as is taken, and whether there was more. All of it is read, since the command does not end otherwise.
async fn beginning(stream: Option<impl AsyncRead + Unpin>, limit: u64) -> (Vec<u8>, bool) {
    let Some(stream) = stream else { return (Vec::new(), false) };
    let mut taken = Vec::new();
    let mut stream = stream.take(limit);
    // A stream that breaks ends; whether the command has ended its status says.
    let _ = stream.read_to_end(&mut taken).await;
    let rest = copy(&mut stream.into_inner(), &mut sink()).await;
    (taken, rest.is_ok_and(|rest| rest > 0))
}

#[cfg(test)]
#[path = "exec_tests.rs"]
pub(crate) mod tests;
