//! What `moor controller` is told at its start.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::Args;

use crate::csi::CallArgs;

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
    /// The identity that was given, or a new random one: ask once.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| format!("moor-{:016x}", rand::random::<u64>()))
    }
}
