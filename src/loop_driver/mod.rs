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
//! - A snapshot is a copy of the volume's data file, which takes time and room, and outlives the volume.
//! - A volume in use is copied as its disk would be after a power failure, at a moment at which nothing is written to it; one
//!   that is written to without a pause is refused. As nobody can replay its journal, the copy of an xfs volume in use that is
//!   mounted read-only first shows what had reached the file system itself.
//! - A read-only block target has a loop device of its own, which refuses writes. It shares the data file but not the
//!   writable device's block cache: a reader sees what a writer has flushed, and what the reader has cached may be old.
//! - A fenced node that still runs gets I/O errors, because its data file is frozen and replaced by a copy. That needs a
//!   state directory whose file system heeds the immutable flag for files that are open (ext4 does). What the node had
//!   not flushed is lost, as with any fence.
//! - Where several nodes share a volume, a fenced one that still has it open is only barred from new use; the volume then
//!   takes no new writer until that node has let go.

mod args;
mod attach;
mod attachments;
mod calls;
mod capacity;
mod condition;
mod controller;
mod copy;
mod device;
mod driver;
mod error;
mod expand;
mod faults;
mod fence;
mod filesystem;
mod group;
mod group_controller;
mod holding;
mod identity;
mod ids;
mod lock;
mod modify;
mod mounts;
mod node;
mod program;
mod publish;
mod record;
mod room;
mod serve;
mod snapshot;
mod snapshot_record;
mod stage;
mod state;
mod stats;
mod topology;
mod usage;
mod volume;

pub use self::args::{LoopDriverArgs, Roles};
pub use self::error::Error;
pub use self::serve::run;
