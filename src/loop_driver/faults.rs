//! Faults that a test asks for.
//!
//! `faults/<node or "any">/<Rpc>` in the state directory holds one JSON object:
//! `{"when": "before", "do": "fail", "code": "Aborted", "times": 2}`. `when` is `before` (nothing has been done), `after`
//! (all has been done, and the answer is lost) or the name of a step inside the call (see `Call::step`). `do` is `fail`,
//! with `code`, or `hang`, which lasts until the file is gone, `secondsMax` have passed or the driver ends, and then lets
//! the call go on. `times` counts down in the file, and at 0 the fault does nothing; without it there is no end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tonic::Code;

use super::error::Error;
use super::lock::Lock;
use super::state::{NodeKey, StateDir, read_json, write_json};

const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deed {
    Fail,
    Hang,
}

/// The content of a fault's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fault {
    when: String,
    #[serde(rename = "do")]
    deed: Deed,
    /// A gRPC code by its CSI name (`FAILED_PRECONDITION`) or as tonic writes it (`FailedPrecondition`).
    code: Option<String>,
    times: Option<u32>,
    seconds_max: Option<f64>,
}

/// A moment of a call at which a test may want a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    /// The call.
    pub(super) rpc: &'a str,
    /// What the call has come to: `before`, `after` or a step of its own.
    pub(super) step: &'a str,
}

/// The folders in which faults are looked for, and whether the driver is ending.
#[derive(Debug)]
pub(super) struct Faults {
    folders: [PathBuf; 2],
    lock: PathBuf,
    ending: AtomicBool,
}

impl Faults {
    pub(super) fn new(state: &StateDir, node: &NodeKey) -> Self {
        let faults = state.root().join("faults");
        Self {
            folders: [faults.join(node.as_str()), faults.join("any")],
            lock: state.root().join("locks").join("faults"),
            ending: AtomicBool::new(false),
        }
    }

    /// Ends the calls that hang, because the driver ends.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Does what a test wants at this moment, which is nearly always nothing.
    pub(super) fn meet(&self, moment: Moment<'_>) -> Result<(), Error> {
        let mut paths = self.folders.iter().map(|folder| folder.join(moment.rpc));
        paths.try_for_each(|path| if path.exists() { self.meet_one(&path, moment.step) } else { Ok(()) })
    }

    fn meet_one(&self, path: &Path, step: &str) -> Result<(), Error> {
        let Some(fault) = self.take(path, step)? else { return Ok(()) };
        match fault.deed {
            Deed::Fail => Err(Error::Fault(fault.code.as_deref().map_or(Code::Internal, parse_code))),
            Deed::Hang => {
                let end = fault
                    .seconds_max
                    .map(|seconds| Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default());
                while path.exists() && end.is_none_or(|end| Instant::now() < end) {
                    if self.ending.load(Ordering::Relaxed) {
                        return Err(Error::Ending);
                    }
                    thread::sleep(POLL);
                }
                Ok(())
            }
        }
    }

    /// Takes the fault, if it is for this step, and counts it down. That is done under a lock, so that two calls never take
    /// the same turn of a fault.
    fn take(&self, path: &Path, step: &str) -> Result<Option<Fault>, Error> {
        let lock = Lock::take(&self.lock, PATIENCE).map_err(Error::io("lock", &self.lock))?;
        let _held = lock.ok_or_else(|| Error::Pending("faults".to_owned()))?;
        let Some(mut fault) = read_json::<Fault>(path)?.filter(|fault| fault.when == step) else {
            return Ok(None);
        };
        if let Some(times) = &mut fault.times {
            let Some(left) = times.checked_sub(1) else { return Ok(None) };
            *times = left;
            write_json(path, &fault)?;
        }
        Ok(Some(fault))
    }
}

/// The code of this name. An unknown name becomes UNKNOWN, which fails a call just as well.
fn parse_code(name: &str) -> Code {
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    (1..=16)
        .map(Code::from_i32)
        .find(|code| plain(&format!("{code:?}")) == plain(name))
        .unwrap_or(Code::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn faults() -> (tempfile::TempDir, Faults, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let faults = Faults::new(&state, &NodeKey::of("node-1"));
        for folder in &faults.folders {
            fs::create_dir_all(folder).unwrap();
        }
        let path = faults.folders[1].join("NodeStageVolume");
        (dir, faults, path)
    }

    #[test]
    fn fails_as_often_as_told() {
        let (_dir, faults, path) = faults();
        faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }).unwrap();
        fs::write(&path, r#"{"when": "before", "do": "fail", "code": "RESOURCE_EXHAUSTED", "times": 2}"#)
            .unwrap();
        faults.meet(Moment { rpc: "NodeStageVolume", step: "after" }).unwrap();
        faults.meet(Moment { rpc: "NodePublishVolume", step: "before" }).unwrap();
        for _ in 0..2 {
            let error = faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }).unwrap_err();
            assert_eq!(error.code(), Code::ResourceExhausted);
        }
        faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }).unwrap();
    }

    #[test]
    fn hangs_until_the_file_goes_or_time_is_up() {
        let (_dir, faults, path) = faults();
        fs::write(&path, r#"{"when": "before", "do": "hang", "secondsMax": 0.1}"#).unwrap();
        let start = Instant::now();
        faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(100));

        fs::write(&path, r#"{"when": "before", "do": "hang"}"#).unwrap();
        thread::scope(|scope| {
            let hanging = scope.spawn(|| faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }));
            thread::sleep(Duration::from_millis(60));
            assert!(!hanging.is_finished());
            fs::remove_file(&path).unwrap();
            hanging.join().unwrap().unwrap();
        });
    }

    #[test]
    fn ending_lets_go() {
        let (_dir, faults, path) = faults();
        fs::write(&path, r#"{"when": "before", "do": "hang"}"#).unwrap();
        faults.end();
        assert_eq!(
            faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }).unwrap_err().code(),
            Code::Unavailable
        );
    }

    #[test]
    fn a_damaged_fault_is_not_silently_none() {
        let (_dir, faults, path) = faults();
        fs::write(&path, r#"{"when": "before", "do": "explode"}"#).unwrap();
        assert!(matches!(
            faults.meet(Moment { rpc: "NodeStageVolume", step: "before" }),
            Err(Error::Damaged { .. })
        ));
    }
}
