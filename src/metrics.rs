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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    /// create, patch, update or delete: Kubernetes' verbs, as in RBAC.
    pub verb: &'static str,
    /// Kind of the object.
    pub kind: String,
    /// status, or empty for the object itself.
    pub subresource: &'static str,
}

/// Labels of `moor_csi_calls_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// CSI call, for example NodeStageVolume.
    pub rpc: &'static str,
    /// gRPC code, for example Ok or DeadlineExceeded.
    pub code: String,
}

/// Labels of `moor_csi_call_seconds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RpcLabels {
    /// CSI call, for example NodeStageVolume.
    pub rpc: &'static str,
}

/// Labels of the queue metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabels {
    /// Name of the queue, for example claims.
    pub queue: &'static str,
}

/// Labels of `moor_passes_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PassLabels {
    /// What a pass is about: Volume, with all that hangs on it, or Plugin.
    pub about: &'static str,
}

/// Labels of `moor_unreadable_objects`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// Kind of the objects.
    pub kind: String,
}

/// Labels of the object metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    /// State of the object as its status prints it.
    pub state: String,
}

/// Buckets for CSI calls, in seconds: from a no-op driver to the longest deadline.
#[derive(Clone, Copy, Debug)]
pub struct CallBuckets;

impl MetricConstructor<Histogram> for CallBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new([0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 150.0, 300.0])
    }
}

/// Declares the metrics. Each is registered under the name of its field, with its doc sentence as help.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $new:expr,)+) => {
        /// Every metric of the process. Cheap to clone: all clones count into the same values.
        #[derive(Clone, Debug)]
        pub struct Metrics { $($(#[doc = $help])+ pub $name: $type,)+ }

        impl Metrics {
            /// Makes the metrics and registers them under the prefix `moor`.
            #[must_use]
            pub fn new() -> (Self, Registry) {
                let metrics = Self { $($name: $new,)+ };
                let mut registry = Registry::with_prefix("moor");
                $(
                    // The registry puts a full stop behind it.
                    let help = concat!($($help),+).trim().trim_end_matches('.');
                    registry.register(stringify!($name), help, metrics.$name.clone());
                )+
                (metrics, registry)
            }
        }
    };
}

metrics! {
    /// Write requests sent to the API server, failed ones included.
    api_writes: Family<WriteLabels, Counter> = Family::default(),
    /// CSI calls by their result.
    csi_calls: Family<CallLabels, Counter> = Family::default(),
    /// Duration of CSI calls in seconds.
    csi_call_seconds: Family<RpcLabels, Histogram, CallBuckets> = Family::new_with_constructor(CallBuckets),
    /// Keys that wait for a worker.
    queue_depth: Family<QueueLabels, Gauge> = Family::default(),
    /// Passes that the leader has begun: what its work is bounded in.
    passes: Family<PassLabels, Counter> = Family::default(),
    /// VolumeClaims by state, as the leader's cache has them.
    claims: Family<StateLabels, Gauge> = Family::default(),
    /// Objects that the leader cannot read; each has an Event.
    unreadable_objects: Family<KindLabels, Gauge> = Family::default(),
    /// Plugins whose volumes Pods cannot use, because of another's CSIDriver object or of another socket at a kubelet; the
    /// condition PodsServed says which.
    plugins_kept_from_pods: Gauge = Gauge::default(),
    /// Passes and watches of sockets that panicked; each is a bug.
    panics: Counter = Counter::default(),
    /// 1 on the controller that leads.
    leading: Gauge = Gauge::default(),
    /// Folders of drivers' sockets that do not answer the agent.
    folders_unanswered: Gauge = Gauge::default(),
    /// 1 on an agent whose state directory takes no writes.
    state_unwritable: Gauge = Gauge::default(),
}
