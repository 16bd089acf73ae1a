//! The connection to the API server.

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{ConfigExt as _, retry::RetryPolicy};
use kube::{Client, Config, config::InferConfigError};
use thiserror::Error;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

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
    client_of(config).map_err(ConnectError::BadConfig)
}

/// A client like that of the kube crate, but for this: what it has to send is sent at once
/// (docs/adr/0069-what-is-sent-to-the-api-server-is-sent-at-once.md).
pub fn client_of(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // It says what this build cannot do.
        return Client::try_from(config);
    }
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp())?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn nothing_is_kept_back_until_something_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stream = tcp().oneshot(at).await.unwrap();
        assert!(stream.inner().nodelay().unwrap());
    }

    #[tokio::test]
    async fn a_proxy_is_refused_and_not_passed_by() {
        let mut config = Config::new("https://10.0.0.1".parse().unwrap());
        config.proxy_url = Some("http://proxy.example:3128".parse().unwrap());
        assert!(matches!(client_of(config), Err(kube::Error::ProxyProtocolDisabled { .. })));
    }
}
