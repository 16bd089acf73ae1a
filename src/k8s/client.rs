//! The connection to the API server.

use kube::{Client, Config, config::InferConfigError};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account was found.
    #[error("no cluster to talk to: set KUBECONFIG, or run in a Pod with a service account ({0})")]
    NoConfig(#[source] InferConfigError),
    /// The configuration cannot be used.
    #[error("the cluster configuration cannot be used: {0}")]
    BadConfig(#[source] kube::Error),
}

/// A client from KUBECONFIG or, in a Pod, from its service account. Does not connect yet.
pub async fn connect() -> Result<Client, ConnectError> {
    let mut config = Config::infer().await.map_err(ConnectError::NoConfig)?;
    // See super::write: what is repeated, and when, is decided per pass and not per request.
    config.default_retry = false;
    Client::try_from(config).map_err(ConnectError::BadConfig)
}
