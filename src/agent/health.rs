//! /livez, /readyz and /metrics of the agent, from before it has its node's lock.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;

use crate::admin::{self, Admin, AdminError, Check};
use crate::shutdown::{Shutdown, Trigger};

/// The endpoints.
pub(crate) struct Health {
    checks: Arc<OnceLock<Checks>>,
    metrics: Option<Registry>,
    shutdown: Shutdown,
    stop: Trigger,
    serving: Option<JoinHandle<Result<(), AdminError>>>,
}

struct Checks {
    live: Check,
    ready: Check,
}

impl Health {
    pub fn new(metrics: Registry) -> Self {
        let (stop, shutdown) = Shutdown::manual();
        Self { checks: Arc::default(), metrics: Some(metrics), shutdown, stop, serving: None }
    }

    /// Serves at `address`, unless it does already. Until [`Self::started`] the process is alive and not ready.
    pub async fn open(&mut self, address: SocketAddr) -> Result<(), AdminError> {
        if self.metrics.is_none() {
            return Ok(());
        }
        let bound = admin::bind(address).await?;
        let Some(registry) = self.metrics.take() else { return Ok(()) };
        let (live, ready) = (self.checks.clone(), self.checks.clone());
        let admin = Admin {
            live: Box::new(move || live.get().map_or(Ok(()), |checks| (checks.live)())),
            ready: Box::new(move || match ready.get() {
                Some(checks) => (checks.ready)(),
                None => Err("waits for the lock of the node, or for its Node object".into()),
            }),
            registry,
        };
        self.serving = Some(tokio::spawn(bound.serve(admin, self.shutdown.clone())));
        Ok(())
    }

    /// From now on these checks answer.
    pub fn started(&self, live: Check, ready: Check) {
        // Called once; a second call would change nothing.
        let _ = self.checks.set(Checks { live, ready });
    }

    /// Ends the endpoints in order.
    pub async fn close(self) {
        self.stop.begin();
        if let Some(serving) = self.serving
            && let Ok(Err(error)) = serving.await
        {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_address_can_be_tried_again() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut front = Health::new(Registry::default());
        assert!(front.open(address).await.is_err());
        drop(taken);
        front.open(address).await.unwrap();
        front.open(address).await.unwrap();
        front.close().await;
    }
}
