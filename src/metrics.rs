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
use tonic::Code;

use crate::process_metrics::Process;

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

/// Labels of `moor_csi_operations_seconds`: those that the sidecars of Kubernetes give to csi_sidecar_operations_seconds, so
/// that what was made for theirs can be pointed at ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// The driver's name, as GetPluginInfo gives it.
    pub driver_name: String,
    /// CSI call as gRPC names it, for example /csi.v1.Node/NodeStageVolume.
    pub method_name: &'static str,
    /// gRPC code as Go prints it, for example OK or DeadlineExceeded.
    pub grpc_status_code: String,
}

impl CallLabels {
    /// The labels of a call that was made and came to this code.
    #[must_use]
    pub fn of(driver: &str, method_name: &'static str, code: Code) -> Self {
        let grpc_status_code = match code {
            Code::Ok => "OK".to_owned(),
            Code::Cancelled => "Canceled".to_owned(),
            other => format!("{other:?}"),
        };
        Self { driver_name: driver.to_owned(), method_name, grpc_status_code }
    }
}

/// Labels of `moor_csi_retries_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RetryLabels {
    /// The driver's name.
    pub driver_name: String,
    /// CSI call as gRPC names it.
    pub method_name: &'static str,
}

/// Labels of `moor_csi_calls_waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BudgetLabels {
    /// The driver's name.
    pub driver_name: String,
    /// What the calls are about: node, attach or volume.
    pub service: &'static str,
    /// make or undo.
    pub direction: &'static str,
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

/// Labels of `moor_unreadable_objects`, `moor_watch_restarts_total` and `moor_objects_without_storage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// Kind of the objects.
    pub kind: String,
}

/// Labels of `moor_plugin_instances`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct InstanceLabels {
    /// Name of the Plugin.
    pub plugin: String,
    /// controller or node. Not called service: the label of that name is Prometheus' own for what it scrapes.
    pub part: &'static str,
    /// expected or healthy.
    pub state: &'static str,
}

/// Labels of `moor_orphans`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OrphanLabels {
    /// Name of the Plugin.
    pub plugin: String,
    /// Volume or Snapshot.
    pub kind: &'static str,
}

/// Labels of `moor_volume_stats_*`: a Volume that is in use on the node of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VolumeLabels {
    /// Namespace of the Volume.
    pub namespace: String,
    /// Name of the Volume.
    pub volume: String,
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
        // Those of the sidecars (kubernetes-csi/csi-lib-utils), and two for drivers that only keep books.
        Histogram::new([
            0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
        ])
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
                let mut root = Registry::default();
                root.register_collector(Box::new(Process::started_now()));
                let registry = root.sub_registry_with_prefix("moor");
                $(
                    // The registry puts a full stop behind it.
                    let help = concat!($($help),+).trim().trim_end_matches('.');
                    registry.register(stringify!($name), help, metrics.$name.clone());
                )+
                (metrics, root)
            }
        }
    };
}

metrics! {
    /// Write requests sent to the API server, failed ones included.
    api_writes: Family<WriteLabels, Counter> = Family::default(),
    /// Duration of CSI calls in seconds, with the labels of csi_sidecar_operations_seconds.
    csi_operations_seconds: Family<CallLabels, Histogram, CallBuckets> =
        Family::new_with_constructor(CallBuckets),
    /// CSI calls that have failed and are tried again, by what failed.
    csi_retries: Family<RetryLabels, Counter> = Family::default(),
    /// Passes that wait for a turn at their driver: as many calls of their kind are running as may.
    csi_calls_waiting: Family<BudgetLabels, Gauge> = Family::default(),
    /// Keys that wait for a worker.
    queue_depth: Family<QueueLabels, Gauge> = Family::default(),
    /// Watches of objects that were interrupted and begun anew.
    watch_restarts: Family<KindLabels, Counter> = Family::default(),
    /// Passes that the leader has begun: what its work is bounded in.
    passes: Family<PassLabels, Counter> = Family::default(),
    /// VolumeClaims by state, as the leader's cache has them.
    claims: Family<StateLabels, Gauge> = Family::default(),
    /// Volumes by state, as the leader's cache has them.
    volumes: Family<StateLabels, Gauge> = Family::default(),
    /// Snapshots by state, as the leader's cache has them.
    snapshots: Family<StateLabels, Gauge> = Family::default(),
    /// Attachments by state, as the leader's cache has them.
    attachments: Family<StateLabels, Gauge> = Family::default(),
    /// Age in seconds of the oldest VolumeClaim that is not granted yet and not deleted; 0 if there is none.
    oldest_waiting_claim_seconds: Gauge = Gauge::default(),
    /// Time in seconds since the VolumeClaim was deleted that has been leaving for the longest; 0 if there is none.
    oldest_leaving_claim_seconds: Gauge = Gauge::default(),
    /// Nodes whose agents the leader does not hear any more.
    silent_nodes: Gauge = Gauge::default(),
    /// Mounts on nodes that the API server does not account for; PluginInstances say which.
    forgotten_mounts: Gauge = Gauge::default(),
    /// Volumes about whose attachments the storage says otherwise than moor's objects; their condition Drifted says how.
    drifted_volumes: Gauge = Gauge::default(),
    /// Volumes and snapshots that moor has had made, that their driver lists, and that no object stands for, by Plugin; its status
    /// names them.
    orphans: Family<OrphanLabels, Gauge> = Family::default(),
    /// Volumes and Snapshots whose storage the driver does not list any more; their condition StorageFound says so.
    objects_without_storage: Family<KindLabels, Gauge> = Family::default(),
    /// Volumes with which something is wrong; their status.health says what, and where.
    unhealthy_volumes: Gauge = Gauge::default(),
    /// Size in bytes of a volume that is in use on the agent's node, by its driver's word or the kernel's.
    volume_stats_capacity_bytes: Family<VolumeLabels, Gauge> = Family::default(),
    /// Bytes that are used of a volume that is in use on the node.
    volume_stats_used_bytes: Family<VolumeLabels, Gauge> = Family::default(),
    /// Bytes that can still be used of a volume that is in use on the node.
    volume_stats_available_bytes: Family<VolumeLabels, Gauge> = Family::default(),
    /// Inodes of the file system of a volume that is in use on the agent's node; 0 where it makes them as they are needed.
    volume_stats_inodes: Family<VolumeLabels, Gauge> = Family::default(),
    /// Inodes that are used of the file system of a volume that is in use on the node.
    volume_stats_inodes_used: Family<VolumeLabels, Gauge> = Family::default(),
    /// Inodes that can still be used of the file system of a volume that is in use on the node.
    volume_stats_inodes_free: Family<VolumeLabels, Gauge> = Family::default(),
    /// Objects that the leader cannot read; each has an Event.
    unreadable_objects: Family<KindLabels, Gauge> = Family::default(),
    /// Instances of each Plugin, as its status counts them: expected and healthy, of its controllers and of its nodes.
    plugin_instances: Family<InstanceLabels, Gauge> = Family::default(),
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
