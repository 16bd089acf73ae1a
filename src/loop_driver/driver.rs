//! What all calls share: configuration, state, faults and the call record.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;
use tonic::{Code, Response, Status};

use super::args::{LoopDriverArgs, Roles};
use super::calls::{CallRecord, Facts};
use super::error::Error;
use super::faults::Faults;
use super::state::{NodeKey, NodeRecord, StateDir, VolumeId, make_dir, write_json};
use crate::csi::sizes;

/// One serving process.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) node_id: String,
    pub(super) node: NodeKey,
    pub(super) shared: bool,
    pub(super) max_volumes: i64,
    pub(super) roles: Roles,
    pub(super) state: StateDir,
    faults: Faults,
    record: CallRecord,
}

impl Driver {
    /// Opens the state directory and registers the node.
    pub(super) fn open(args: &LoopDriverArgs) -> Result<Self, Error> {
        check_arguments(args)?;
        let root = std::path::absolute(&args.state_dir).map_err(Error::io("use", &args.state_dir))?;
        let state = StateDir::open(&root)?;
        let node = NodeKey::of(&args.node_id);
        let driver = Self {
            name: args.driver_name.clone(),
            node_id: args.node_id.clone(),
            shared: args.shared,
            max_volumes: args.max_volumes_per_node,
            roles: args.roles,
            faults: Faults::new(&state, &node),
            record: CallRecord::new(&state, &args.node_id, args.record_calls),
            state,
            node,
        };
        if driver.roles.has_node() {
            driver.register()?;
        }
        Ok(driver)
    }

    fn register(&self) -> Result<(), Error> {
        let _held = self.state.lock_node(&self.node)?;
        let path = self.state.node_file(&self.node);
        make_dir(&path.with_file_name("volumes"))?;
        write_json(&path, &NodeRecord { node_id: self.node_id.clone(), max_volumes: self.max_volumes })
    }

    /// Ends what only waits.
    pub(super) fn end(&self) {
        self.faults.end();
    }
}

fn check_arguments(args: &LoopDriverArgs) -> Result<(), Error> {
    let wrong = |flag, reason: &str| Err(Error::Argument { flag, reason: reason.to_owned() });
    if args.node_id.is_empty() || args.node_id.len() > sizes::NODE_ID_LIMIT {
        return wrong("node-id", "must have 1 to 256 bytes");
    }
    if sizes::plugin_name(&args.driver_name).is_err() {
        return wrong("driver-name", "must be a domain name of at most 63 characters");
    }
    if args.max_volumes_per_node < 0 {
        return wrong("max-volumes-per-node", "must not be negative");
    }
    Ok(())
}

/// The driver as the gRPC services hold it.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) driver: Arc<Driver>,
    /// Never sent on: the other end sees when the last service and the last call are gone.
    alive: mpsc::Sender<Infallible>,
}

impl Service {
    pub(super) fn new(driver: Arc<Driver>, alive: mpsc::Sender<Infallible>) -> Self {
        Self { driver, alive }
    }

    /// Runs one call: on a thread of its own, since all of it is files and programs, and to its end even if the client
    /// has gone, since a call cut short is worth nothing to anybody.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        facts: Facts,
        work: impl FnOnce(&Call<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let Self { driver, alive } = self.clone();
        let work = move || {
            let answer = driver.answer(&facts, work);
            drop(alive);
            answer
        };
        let answer = tokio::task::spawn_blocking(work).await;
        answer.unwrap_or(Err(Error::Vanished)).map(Response::new).map_err(Status::from)
    }
}

impl Driver {
    fn answer<T>(&self, facts: &Facts, work: impl FnOnce(&Call<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let begun = self.record.begin(facts);
        let call = Call { driver: self, rpc: facts.rpc };
        let answer = call
            .step("before")
            .and_then(|()| work(&call))
            .and_then(|answer| call.step("after").map(|()| answer));
        let code = answer.as_ref().map_or_else(Error::code, |_| Code::Ok);
        match &answer {
            Ok(_) => tracing::debug!(rpc = facts.rpc, volume = facts.volume, "done"),
            Err(error) => {
                tracing::info!(rpc = facts.rpc, volume = facts.volume, ?code, %error, "refused or failed");
            }
        }
        self.record.end(&begun, facts, code);
        answer
    }
}

/// One call in progress.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) driver: &'a Driver,
    rpc: &'static str,
}

impl Call<'_> {
    /// A moment at which a test may want the call to fail or hang, or the process to be killed.
    pub(super) fn step(&self, name: &str) -> Result<(), Error> {
        self.driver.faults.meet(self.rpc, name)
    }

    pub(super) fn state(&self) -> &StateDir {
        &self.driver.state
    }
}

/// A required string within CSI's bound.
pub(super) fn require(field: &'static str, value: &str) -> Result<(), Error> {
    require_within(field, value, sizes::STRING_LIMIT)
}

/// A required node id.
pub(super) fn require_node_id(value: &str) -> Result<(), Error> {
    require_within("node_id", value, sizes::NODE_ID_LIMIT)
}

fn require_within(field: &'static str, value: &str, max: usize) -> Result<(), Error> {
    if value.is_empty() {
        return Err(Error::Missing(field));
    }
    if value.len() > max {
        return Err(Error::invalid(field, format!("has {} bytes, and CSI allows {max}", value.len())));
    }
    Ok(())
}

/// A required volume id; one that this driver cannot have given out is of no volume.
pub(super) fn require_volume_id(value: &str) -> Result<VolumeId, Error> {
    require("volume_id", value)?;
    VolumeId::parse(value).ok_or_else(|| Error::NoVolume(value.to_owned()))
}

/// A required path. Only the operating system bounds its length.
pub(super) fn require_path(field: &'static str, value: &str) -> Result<std::path::PathBuf, Error> {
    if value.is_empty() {
        return Err(Error::Missing(field));
    }
    super::mounts::resolve(field, value)
}

/// What CSI calls a context: keys and values that only this driver reads.
pub(super) type Context = BTreeMap<String, String>;

/// Whether the machine has what every call needs.
pub(super) fn check_machine() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Lacking("root: loop devices and mounts are for root only".to_owned()));
    }
    let control = Path::new("/dev/loop-control");
    if !control.exists() {
        return Err(Error::Lacking(format!(
            "{}: load the kernel's loop module, and give a container the host's /dev",
            control.display()
        )));
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    for program in ["losetup", "blkid", "mount", "mkfs.ext4", "e2fsck", "cp"] {
        if !std::env::split_paths(&paths).any(|dir| dir.join(program).exists()) {
            return Err(Error::Lacking(format!("the program {program}")));
        }
    }
    Ok(())
}
