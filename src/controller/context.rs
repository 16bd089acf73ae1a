//! What every pass of the controller needs.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use kube::{Api, Client};

use super::known::Known;
use super::persistent_volumes::PersistentVolumes;
use crate::k8s::Writer;
use crate::k8s::events::Recorder;
use crate::k8s::lease::{ApiLeases, Leadership};
use crate::k8s::node::LeanNode;
use crate::metrics::Metrics;

/// What is known, which can be read as if it stood here, and what makes requests. Whoever is given only [`Known`] makes
/// none.
pub(crate) struct Context {
    pub(crate) known: Arc<Known>,
    pub(crate) client: Client,
    pub(crate) writer: Writer,
    pub(crate) persistent_volumes: PersistentVolumes,
    pub(crate) lease_api: ApiLeases,
    pub(crate) leadership: Leadership,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: Recorder,
    /// When this process began to lead.
    pub(crate) led_since: OnceLock<Timestamp>,
}

impl Deref for Context {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.known
    }
}

impl Context {
    /// When this process began to lead, or now if it does not.
    pub(crate) fn leads_since(&self) -> Timestamp {
        self.led_since.get().copied().unwrap_or_else(Timestamp::now)
    }

    pub(crate) fn node_api(&self) -> Api<LeanNode> {
        Api::all(self.client.clone())
    }
}
