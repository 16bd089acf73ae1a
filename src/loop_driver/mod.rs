//! The loop driver: a CSI driver for sparse files on loop devices, as ext4, xfs or raw block.
//!
//! It is moor's embedded default storage and the real plugin of its cluster tests. As the latter it is strict: what comes
//! out of CSI's order is refused as far as the serving node can see it. Everything that it knows is in its state
//! directory, in the mount table and in the kernel's loop devices, so that a call repeated after a `kill -9` at any point
//! finds what the interrupted one has left and completes it.
//!
//! With `--shared`, one state directory serves several nodes; without, each node has its own and says so by topology.
//!
//! Limits, on purpose:
//! - A call without capacity_range makes a volume of 1 GiB, which as a sparse file costs nothing until it is written.
//! - A read-only block target has a loop device of its own, which refuses writes. It shares the data file but not the
//!   writable device's block cache: a reader sees what a writer has flushed, and what the reader has cached may be old.
//! - A fenced node that still runs gets I/O errors, because its data file is frozen and replaced by a copy. That needs a
//!   state directory whose file system heeds the immutable flag for files that are open (ext4 does). What the node had
//!   not flushed is lost, as with any fence.
//! - Where several nodes share a volume, a fenced one that still has it open is only barred from new use; the volume then
//!   takes no new writer until that node has let go.

mod attach;
mod calls;
mod capacity;
mod controller;
mod device;
mod driver;
mod error;
mod faults;
mod fence;
mod filesystem;
mod holding;
mod identity;
mod lock;
mod mounts;
mod node;
mod program;
mod publish;
mod serve;
mod stage;
mod state;
mod stats;
mod topology;
mod usage;
mod volume;

use std::future::Future;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;

pub use self::error::Error;

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
    fn has_controller(self) -> bool {
        self != Self::Node
    }

    fn has_node(self) -> bool {
        self != Self::Controller
    }
}

/// Serves until `shutdown` resolves and every call that has begun has ended.
pub async fn run(args: LoopDriverArgs, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    serve::run(args, shutdown).await
}
