//! What all calls share: configuration, state, faults and the call record.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status};

use super::args::LoopDriverArgs;
use super::calls::{CallRecord, Facts, Recorded};
use super::error::Error;
use super::faults::{Faults, Moment};
use super::ids::VolumeId;
use super::state::{LockedVolume, NodeKey, NodeRecord, StateDir, make_dir, write_json};
use crate::csi::sizes;

/// The driver of one serving process.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) args: LoopDriverArgs,
    /// The node of the process, in its file-name form.
    pub(super) node: NodeKey,
    pub(super) state: StateDir,
    faults: Faults,
    record: CallRecord,
}

impl Driver {
    /// Opens the state directory and registers the node.
    pub(super) fn open(args: LoopDriverArgs) -> Result<Self, Error> {
        check_arguments(&args)?;
        let root = std::path::absolute(&args.state_dir).map_err(Error::io("use", &args.state_dir))?;
        let state = StateDir::open(&root)?;
        let node = NodeKey::of(&args.node_id);
        let faults = Faults::new(&state, &node);
        let record = CallRecord::new(&state, &args.node_id, args.record_calls);
        let driver = Self { args, node, state, faults, record };
        if driver.args.roles.has_node() {
            driver.register()?;
        }
        Ok(driver)
    }

    fn register(&self) -> Result<(), Error> {
        let _held = self.state.lock_node(&self.node)?;
        make_dir(&self.state.node_dir(&self.node).join("volumes"))?;
        let LoopDriverArgs { node_id, max_volumes_per_node: max_volumes, .. } = self.args.clone();
        write_json(&self.state.node_file(&self.node), &NodeRecord { node_id, max_volumes })
    }

    /// Ends the calls that only wait because of a fault.
    pub(super) fn end(&self) {
        self.faults.end();
    }

    /// Makes one call from its start to its end, with the faults and the lines of the record that belong to it.
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

fn check_arguments(args: &LoopDriverArgs) -> Result<(), Error> {
    let wrong = |flag, reason: &str| Err(Error::Argument { flag, reason: reason.to_owned() });
    if sizes::node_id(&args.node_id).is_err() {
        return wrong("node-id", "must have 1 to 256 bytes");
    }
    if sizes::plugin_name(&args.driver_name).is_err() {
        return wrong("driver-name", "must be a domain name of at most 63 characters");
    }
    if args.max_volumes_per_node < 0 {
        return wrong("max-volumes-per-node", "must not be negative");
    }
    if args.capacity_bytes < 0 {
        return wrong("capacity-bytes", "must not be negative");
    }
    Ok(())
}

/// What a call of a gRPC service returns.
pub(super) type Answer<T> = Result<Response<T>, Status>;

/// The driver as the gRPC services hold it.
#[derive(Debug, Clone)]
pub(super) struct Service {
    driver: Arc<Driver>,
    /// A sender on which nothing is ever sent: the other end sees when the last service and the last call are gone.
    alive: mpsc::Sender<Infallible>,
}

impl Service {
    pub(super) fn new(driver: Arc<Driver>, alive: mpsc::Sender<Infallible>) -> Self {
        Self { driver, alive }
    }

    /// Runs one call: on a thread of its own, since all of it is files and programs, and to its end even if the client
    /// has gone, since a call cut short is worth nothing to anybody.
    pub(super) async fn call<Q: Recorded + Send + 'static, A: Send + 'static>(
        &self,
        request: Request<Q>,
        work: impl FnOnce(&Call<'_>, &Q) -> Result<A, Error> + Send + 'static,
    ) -> Answer<A> {
        let Self { driver, alive } = self.clone();
        let work = move || {
            let request = request.into_inner();
            let answer = driver.answer(&request.facts(), |call| work(call, &request));
            drop(alive);
            answer
        };
        let answer = tokio::task::spawn_blocking(work).await;
        answer.unwrap_or(Err(Error::Vanished)).map(Response::new).map_err(Status::from)
    }
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) driver: &'a Driver,
    pub(super) rpc: &'static str,
}

impl Call<'_> {
    /// Reaches a moment at which a test may want the call to fail or hang, or the process to be killed.
    pub(super) fn step(&self, step: &str) -> Result<(), Error> {
        self.driver.faults.meet(Moment { rpc: self.rpc, step })
    }

    pub(super) fn state(&self) -> &StateDir {
        &self.driver.state
    }

    pub(super) fn node_id(&self) -> &str {
        &self.driver.args.node_id
    }

    /// Takes the lock of the volume that the call is about; an id that this driver cannot have given out is NOT_FOUND.
    pub(super) fn lock(&self, volume_id: &str) -> Result<LockedVolume, Error> {
        self.lock_if_known(volume_id)?.ok_or_else(|| Error::NoVolume(volume_id.to_owned()))
    }

    /// Takes the lock of the volume that the call undoes something for; there is none, and nothing to undo, for an id that
    /// this driver cannot have given out.
    pub(super) fn lock_if_known(&self, volume_id: &str) -> Result<Option<LockedVolume>, Error> {
        VolumeId::parse(volume_id).map(|id| self.state().lock_volume(id)).transpose()
    }
}

/// Checks that an id is there and no longer than CSI allows, before anything is looked for under it: a call that is wrong
/// in itself is INVALID_ARGUMENT whether or not there is what it names.
pub(super) fn check_id(field: &'static str, value: &str) -> Result<(), Error> {
    sizes::id(field, value)?;
    Ok(sizes::text(field, value)?)
}

/// Checks the id of the volume that the call is about.
pub(super) fn check_volume_id(value: &str) -> Result<(), Error> {
    check_id("volume_id", value)
}

/// What CSI calls a context: keys and values that only this driver reads.
pub(super) type Context = BTreeMap<String, String>;

/// Checks that the machine has what every call needs.
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
    for program in ["losetup", "blockdev", "blkid", "mount", "mkfs.ext4", "e2fsck", "resize2fs", "cp"] {
        if !std::env::split_paths(&paths).any(|dir| dir.join(program).exists()) {
            return Err(Error::Lacking(format!("the program {program}")));
        }
    }
    Ok(())
}
