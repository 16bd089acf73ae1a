//! Leases: reads and writes of them, and the election of a leader by one. What the agents say with theirs is in
//! [`crate::heartbeat`].
//!
//! Nobody compares clocks of two machines. A Lease has expired when it was watched without a change for
//! its whole duration, on the watcher's own monotonic clock; renewTime in it is for people.

pub(crate) mod election;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::Api;

use super::{ApiError, Created, Writer, read, store};

pub(crate) use election::{Candidate, Election, ElectionEnd, Handover, Leadership};

/// The requests that Leases need; a trait, so that tests can lose, delay and reorder them.
pub trait Leases: Send + Sync {
    /// The Lease as it is now.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Lease>, ApiError>> + Send;
    /// Creates a Lease.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Created<Lease>, ApiError>> + Send;
    /// Replaces a Lease whose resourceVersion is still the given one. Never an unconditional write.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
}

/// Leases of one namespace on the API server.
#[derive(Clone)]
pub struct ApiLeases {
    api: Api<Lease>,
    writer: Writer,
}

impl ApiLeases {
    /// Leases behind a namespaced `api`.
    #[must_use]
    pub fn new(api: Api<Lease>, writer: Writer) -> Self {
        Self { api, writer }
    }
}

impl Leases for ApiLeases {
    async fn get(&self, name: &str) -> Result<Option<Lease>, ApiError> {
        read::get_live(&self.api, name).await
    }

    async fn create(&self, lease: &Lease) -> Result<Created<Lease>, ApiError> {
        self.writer.create(&self.api, lease).await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.writer.replace(&self.api, lease).await
    }
}

/// The revision with which a Lease was last written.
#[must_use]
pub fn revision(lease: &Lease) -> u64 {
    store::version(&lease.metadata)
}

/// Who holds a Lease; empty if it was released or never held.
pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The time for people.
pub(crate) fn wall_clock() -> MicroTime {
    MicroTime(Timestamp::now())
}

#[cfg(test)]
pub(crate) mod fake;
