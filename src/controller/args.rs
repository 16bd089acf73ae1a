//! What `moor controller` is told at its start.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::csi::CallArgs;
use crate::plugin::workload::Site;

/// Flags of `moor controller`. Each can be given by the environment, as the chart's Deployment does.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// Namespace of the controller's Lease and of the agents' Leases.
    #[arg(long, env = "POD_NAMESPACE", default_value = "moor-system")]
    pub namespace: String,
    /// Name under which this process leads, unique among those that run: the Pod's.
    /// [default: a random name]
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "MOOR_ADMIN_ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// Name of the Lease by which the controllers agree on a leader.
    #[arg(long, env = "MOOR_LEASE_NAME", default_value = "moor-controller")]
    pub lease_name: String,
    /// kubelet's directory on the nodes, as the agents are told it. Drivers that moor runs mount below it.
    #[arg(long, env = "MOOR_KUBELET_DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Directory in which the agents look for drivers' sockets, and in which those have them that moor runs.
    /// [default: plugins below the kubelet directory]
    #[arg(long, env = "MOOR_PLUGIN_DIR")]
    pub plugin_dir: Option<PathBuf>,
    /// How many Volumes and Plugins are worked on at once.
    #[arg(long, env = "MOOR_WORKERS", default_value = "32")]
    pub workers: NonZeroUsize,
    /// Seconds for which a volume that no claim uses any more stays attached to its node, so that a claim which comes back
    /// there finds it attached. Whoever wants the volume otherwise does not wait for it. 0: it is detached at once.
    #[arg(long, env = "MOOR_LINGER", default_value = "10")]
    pub linger: u32,
    /// How long each CSI call may take.
    #[command(flatten)]
    pub calls: CallArgs,
}

impl ControllerArgs {
    /// Where the drivers are that moor runs.
    #[must_use]
    pub fn site(&self) -> Site {
        Site::new(self.namespace.clone(), self.kubelet_dir.clone(), self.plugin_dir.clone())
    }

    /// The identity that was given, or a new random one: ask once.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| format!("moor-{:016x}", rand::random::<u64>()))
    }
}
