//! What `moor agent` is told at its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::csi::CallArgs;
use crate::plugin::workload::Directories;

/// Flags of `moor agent`. Each can be given by the environment, as the chart's DaemonSet does.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    /// Name of the Node on which this agent runs.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: String,
    /// Namespace of the agent's Lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "moor-system")]
    pub namespace: String,
    /// UID of the agent's Pod, written beside what it reports. Empty outside a Pod.
    #[arg(long, env = "POD_UID")]
    pub pod_uid: Option<String>,
    /// kubelet's directory. Volumes are staged and mounted below its plugins directory.
    #[arg(long, env = "MOOR_KUBELET_DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Directory in which the drivers' sockets are looked for, as <plugin>/<name>.sock.
    /// [default: plugins below the kubelet directory]
    #[arg(long, env = "MOOR_PLUGIN_DIR")]
    pub plugin_dir: Option<PathBuf>,
    /// Directory of the node's own records and of the agent's lock. It has to survive the Pod.
    #[arg(long, env = "MOOR_STATE_DIR", default_value = "/var/lib/moor")]
    pub state_dir: PathBuf,
    /// File with the id of this boot of the node. In a Pod /proc may be another one than the node's, so the
    /// chart mounts the node's own.
    #[arg(long, env = "MOOR_BOOT_ID_FILE", default_value = "/proc/sys/kernel/random/boot_id")]
    pub boot_id_file: PathBuf,
    /// File of the node's own mount namespace, such as /proc/1/ns/mnt where the agent's Pod has hostPID. What a claim's
    /// mount allows is judged and set there. [default: the agent's own]
    #[arg(long, env = "MOOR_NODE_MOUNT_NAMESPACE")]
    pub node_mount_namespace: Option<PathBuf>,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "MOOR_ADMIN_ADDRESS", default_value = "0.0.0.0:9810")]
    pub admin_address: SocketAddr,
    /// Seconds from the request to end to the kill. For two thirds of them calls that are running may end; after that the process
    /// leaves word of them for the next one.
    #[arg(long, env = "MOOR_TERMINATION_GRACE", default_value = "30")]
    pub termination_grace: u64,
    /// How long each CSI call may take.
    #[command(flatten)]
    pub calls: CallArgs,
    /// Seconds between two audits of what a driver lists, its volumes, its snapshots and what is attached, at the shortest; up to 16
    /// times as long while nothing is found. 0: no audits.
    #[arg(long, env = "MOOR_AUDIT_INTERVAL", default_value = "300")]
    pub audit_interval: u64,
    /// Seconds between two times that a driver is asked how much room it has, for the scheduler. It is asked after each
    /// volume that moor has had it make, enlarge or delete in any case. 0: then only.
    #[arg(long, env = "MOOR_CAPACITY_INTERVAL", default_value = "60")]
    pub capacity_interval: u64,
    /// Seconds between two looks at how a volume is that is in use on this node; what a driver's Controller service says of
    /// its volumes is asked for a fifth as often. 0: not at all.
    #[arg(long, env = "MOOR_HEALTH_INTERVAL", default_value = "60")]
    pub health_interval: u64,
    /// Serve kubelet the driver moor.dev, by which Pods use Volumes of their namespace that they name in spec.volumes[].csi.
    /// The CSIDriver object of that name is the chart's.
    #[arg(long, env = "MOOR_INLINE_VOLUMES")]
    pub inline_volumes: bool,
}

impl AgentArgs {
    /// For how long calls that are running may end when the agent is to.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.termination_grace) * 2 / 3
    }

    /// kubelet's directory, and where sockets are looked for.
    #[must_use]
    pub fn directories(&self) -> Directories {
        Directories::new(self.kubelet_dir.clone(), self.plugin_dir.clone())
    }
}
