//! This machine: its boot, the paths and directories of volumes, what is mounted there and with which flags, and who uses it.
//! Nothing here knows a driver or the API server.

mod bounded;
pub(super) mod condition;
pub(super) mod directories;
pub(super) mod error;
pub(super) mod imprint;
pub(super) mod machine;
pub(super) mod mount_flags;
pub(super) mod mount_namespace;
pub(super) mod mounts;
pub(super) mod old_read_only;
pub(super) mod paths;
pub(super) mod recent;
pub(super) mod targets;
pub(super) mod usage;
pub(super) mod users;
