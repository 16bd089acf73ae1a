//! What `moor loop-driver` is told at its start.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;

/// The command line of `moor loop-driver`.
#[derive(Debug, Clone, clap::Args)]
pub struct LoopDriverArgs {
    /// Socket to serve on.
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    pub endpoint: String,
    /// The id of the node that this process runs on.
    #[arg(long, env = "NODE_NAME")]
    pub node_id: String,
    /// Where volumes and all that has to outlive this process are kept.
    #[arg(long, env = "MOOR_LOOP_STATE_DIR", default_value = "/var/lib/moor-loop")]
    pub state_dir: PathBuf,
    /// The state directory is the same one on all nodes (which then share a kernel, as in the test cluster).
    #[arg(long, env = "MOOR_LOOP_SHARED", value_parser = BoolishValueParser::new())]
    pub shared: bool,
    /// The driver's CSI name.
    #[arg(long, env = "MOOR_LOOP_DRIVER_NAME", default_value = "loop.moor.dev")]
    pub driver_name: String,
    /// How many volumes the node takes; 0 is no limit.
    #[arg(long, env = "MOOR_LOOP_MAX_VOLUMES", default_value_t = 0)]
    pub max_volumes_per_node: i64,
    /// How many bytes of volumes and snapshots to make, all together; 0 is as many as the state directory's file system has room for.
    #[arg(long, env = "MOOR_LOOP_CAPACITY_BYTES", default_value_t = 0)]
    pub capacity_bytes: i64,
    /// Which services to offer.
    #[arg(long, env = "MOOR_LOOP_ROLES", value_enum, default_value_t = Roles::All)]
    pub roles: Roles,
    /// Append each call to calls.jsonl in the state directory.
    #[arg(long, env = "MOOR_LOOP_RECORD_CALLS", value_parser = BoolishValueParser::new())]
    pub record_calls: bool,
}

/// The services that a process offers, beside Identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Roles {
    /// Controller and Node.
    All,
    /// Controller only.
    Controller,
    /// Node only.
    Node,
}

impl Roles {
    pub(super) fn has_controller(self) -> bool {
        self != Self::Node
    }

    pub(super) fn has_node(self) -> bool {
        self != Self::Controller
    }
}
