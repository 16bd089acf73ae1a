//! What moor counts. One registry per process, no globals; label sets are closed.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

/// Labels of `moor_api_writes_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    /// create, patch, update or delete: Kubernetes' verbs, as in RBAC.
    pub verb: &'static str,
    /// Kind of the object.
    pub kind: String,
    /// status, or empty for the object itself.
    pub subresource: &'static str,
}

/// Labels of `moor_csi_calls_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// CSI call, for example NodeStageVolume.
    pub rpc: &'static str,
    /// gRPC code, for example Ok or DeadlineExceeded.
    pub code: &'static str,
}

/// Labels of `moor_csi_call_seconds`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RpcLabels {
    /// CSI call, for example NodeStageVolume.
    pub rpc: &'static str,
}

/// Labels of the queue metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabels {
    /// Name of the queue, for example claims.
    pub queue: &'static str,
}

/// Labels of `moor_passes_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PassLabels {
    /// What a pass is about: Volume, with all that hangs on it, or Plugin.
    pub about: &'static str,
}

/// Labels of `moor_unreadable_objects`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// Kind of the objects.
    pub kind: String,
}

/// Labels of the object metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    /// State of the object as its status prints it.
    pub state: &'static str,
}

/// Buckets for CSI calls, in seconds: from a no-op driver to the longest deadline.
#[derive(Clone, Copy, Debug)]
pub struct CallBuckets;

impl MetricConstructor<Histogram> for CallBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new([0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 150.0, 300.0])
    }
}

/// Every metric of the process. Cheap to clone: all clones count into the same values.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Write requests sent to the API server, failed ones included: writes are the currency.
    pub api_writes: Family<WriteLabels, Counter>,
    /// CSI calls by their result.
    pub csi_calls: Family<CallLabels, Counter>,
    /// Duration of CSI calls in seconds.
    pub csi_call_seconds: Family<RpcLabels, Histogram, CallBuckets>,
    /// Keys that wait for a worker.
    pub queue_depth: Family<QueueLabels, Gauge>,
    /// Passes that the leader has begun: what its work is bounded in.
    pub passes: Family<PassLabels, Counter>,
    /// VolumeClaims by state, as the leader's cache has them.
    pub claims: Family<StateLabels, Gauge>,
    /// Objects that the leader cannot read; each has an Event.
    pub unreadable: Family<KindLabels, Gauge>,
    /// Passes that panicked; each is a bug.
    pub panics: Counter,
    /// 1 on the controller that leads.
    pub leading: Gauge,
    /// Folders of drivers' sockets that do not answer an agent.
    pub folders_unanswered: Gauge,
    /// 1 on an agent whose state directory takes no writes.
    pub state_unwritable: Gauge,
}

impl Metrics {
    /// Makes the metrics and registers them under the prefix `moor`.
    #[must_use]
    pub fn new() -> (Self, Registry) {
        let metrics = Self {
            api_writes: Family::default(),
            csi_calls: Family::default(),
            csi_call_seconds: Family::new_with_constructor(CallBuckets),
            queue_depth: Family::default(),
            passes: Family::default(),
            claims: Family::default(),
            unreadable: Family::default(),
            panics: Counter::default(),
            leading: Gauge::default(),
            folders_unanswered: Gauge::default(),
            state_unwritable: Gauge::default(),
        };
        let mut registry = Registry::with_prefix("moor");
        registry.register("api_writes", "Write requests sent to the API server", metrics.api_writes.clone());
        registry.register("csi_calls", "CSI calls by result", metrics.csi_calls.clone());
        registry.register("csi_call_seconds", "Duration of CSI calls", metrics.csi_call_seconds.clone());
        registry.register("queue_depth", "Keys that wait for a worker", metrics.queue_depth.clone());
        registry.register("passes", "Passes that the leader has begun", metrics.passes.clone());
        registry.register("claims", "VolumeClaims by state", metrics.claims.clone());
        let unreadable = metrics.unreadable.clone();
        registry.register("unreadable_objects", "Objects that the leader cannot read", unreadable);
        registry.register("panics", "Passes that panicked", metrics.panics.clone());
        registry.register("leading", "1 on the controller that leads", metrics.leading.clone());
        let help = "Folders of drivers' sockets that do not answer the agent";
        registry.register("folders_unanswered", help, metrics.folders_unanswered.clone());
        let help = "1 on an agent whose state directory takes no writes";
        registry.register("state_unwritable", help, metrics.state_unwritable.clone());
        (metrics, registry)
    }
}
