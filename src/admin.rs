//! `/livez`, `/readyz` and `/metrics` for the kubelet and Prometheus.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use thiserror::Error;
use tokio::net::TcpListener;
use tracing::info;

use crate::shutdown::Shutdown;

/// OpenMetrics, as prometheus-client writes it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A health check: Ok, or what is wrong in one line.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the endpoints answer from.
pub struct Admin {
    /// Failing means that only a restart helps.
    pub live: Check,
    /// Failing means that this process cannot do its work now. A controller that waits for leadership
    /// is ready: it does what it should.
    pub ready: Check,
    /// What `/metrics` prints.
    pub registry: Registry,
}

/// Why the endpoints cannot be served.
#[derive(Debug, Error)]
pub enum AdminError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address} for /livez, /readyz and /metrics: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Serving failed.
    #[error("/livez, /readyz and /metrics: {0}")]
    Serve(#[source] io::Error),
}

/// Endpoints that are bound, but not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Binds the address; port 0 takes a free one. Done first, so that a wrong address ends the process with
/// a clear line before any work is started.
pub async fn bind(address: SocketAddr) -> Result<Bound, AdminError> {
    let listen = |source| AdminError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    Ok(Bound { listener, address })
}

impl Bound {
    /// Serves until `shutdown`.
    pub async fn serve(self, admin: Admin, shutdown: Shutdown) -> Result<(), AdminError> {
        info!(address = %self.address, "serving /livez, /readyz and /metrics");
        axum::serve(self.listener, router(admin))
            .with_graceful_shutdown(shutdown.begun())
            .await
            .map_err(AdminError::Serve)
    }
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(|State(admin): State<Arc<Admin>>| async move { answer((admin.live)()) }))
        .route("/readyz", get(|State(admin): State<Arc<Admin>>| async move { answer((admin.ready)()) }))
        .route("/metrics", get(|State(admin): State<Arc<Admin>>| async move { metrics(&admin.registry) }))
        .with_state(Arc::new(admin))
}

fn answer(check: Result<(), String>) -> Response {
    match check {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(wrong) => (StatusCode::SERVICE_UNAVAILABLE, format!("{wrong}\n")).into_response(),
    }
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::metrics::{Metrics, WriteLabels};

    async fn request(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn checks_and_metrics_are_served_until_shutdown() {
        let (metrics, registry) = Metrics::new();
        let labels = WriteLabels { verb: "patch", kind: "VolumeClaim".into(), subresource: "status" };
        metrics.api_writes.get_or_create(&labels).inc();
        let synced = Arc::new(AtomicBool::new(false));
        let asked = synced.clone();
        let ready =
            move || if asked.load(SeqCst) { Ok(()) } else { Err("claims are not listed yet".to_owned()) };
        let admin = Admin { live: Box::new(|| Ok(())), ready: Box::new(ready), registry };
        let bound = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = bound.address;
        let (trigger, shutdown) = Shutdown::manual();
        let serving = tokio::spawn(bound.serve(admin, shutdown));

        assert!(request(address, "/livez").await.starts_with("HTTP/1.1 200"));
        let waiting = request(address, "/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503") && waiting.ends_with("claims are not listed yet\n"));
        synced.store(true, SeqCst);
        assert!(request(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let text = request(address, "/metrics").await;
        assert!(
            text.contains(r#"moor_api_writes_total{verb="patch",kind="VolumeClaim",subresource="status"} 1"#),
            "{text}"
        );

        trigger.begin();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let bound = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let error = bind(bound.address).await.unwrap_err().to_string();
        assert!(error.contains(&bound.address.to_string()), "{error}");
    }
}
