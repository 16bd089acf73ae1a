//! Which controller calls may be running here, so that the agent can say of an instance that was relieved that none of those is
//! that it was given before (rule R2, docs/adr/0037).
//!
//! This is not [`super::unended`], which knows by volume what an agent leaves running that ends in order: here calls count by
//! driver and tenure, also those whose caller has given up, and who is at them is on the disk before they are made
//! ([`Running`]), for a process that is killed leaves no word at its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use super::running::{Before, Running};
use crate::agent::queues::Parked;
use crate::csi::{CallError, Meaning, Process};

/// The controller calls of this node's instances.
pub(crate) struct Tenures(Arc<Inner>);

struct Inner {
    /// Time after which no call is running, whatever is known of it.
    longest_call: Duration,
    /// Who may be at a call that the process of the agent before this one has made, and until when.
    before: (Before, Instant),
    /// What the process after this one is told.
    running: Running,
    drivers: Mutex<HashMap<String, OfDriver>>,
}

#[derive(Default)]
struct OfDriver {
    /// What was given in an earlier tenure is not called any more.
    tenure: i64,
    /// Passes that may make a call. Each began before it read what it goes by.
    passes: usize,
    serial: u64,
    /// Calls that are running, and those of which that is not known.
    calls: HashMap<u64, Call>,
    /// The processes that the passes may call.
    meant: Vec<Option<String>>,
    /// The processes that are or may be at calls, as it is on the disk.
    noted: Vec<Option<String>>,
    /// Whether the disk has something else perhaps: it was written to, and has not said that it is done.
    is_unsure: bool,
}

struct Call {
    about: Parked,
    process: Option<Arc<Process>>,
    until: Instant,
}

/// The right of one pass to make controller calls for what was given in one tenure, for as long as it lives.
pub(crate) struct Entered<'a> {
    tenures: &'a Tenures,
    driver: String,
}

/// A call that is being made. One that is dropped may be running on.
pub(crate) struct Made<'a> {
    tenures: &'a Tenures,
    driver: &'a str,
    serial: u64,
}

impl Tenures {
    /// Nothing was called by this process, which begins now, after one that has left word.
    pub fn new(longest_call: Duration, (running, before): (Running, Before)) -> Self {
        let before = (before, Instant::now() + longest_call);
        Self(Arc::new(Inner { longest_call, before, running, drivers: Mutex::default() }))
    }

    /// Takes in the tenure that an instance of the driver is in.
    pub fn begin(&self, driver: &str, tenure: i64) {
        let mut drivers = self.0.drivers.lock();
        match drivers.get_mut(driver) {
            Some(known) => known.tenure = known.tenure.max(tenure),
            None if tenure > 0 => drivers.entry(driver.to_owned()).or_default().tenure = tenure,
            None => {}
        }
    }

    /// The tenure that the driver's instance is in, as far as this process knows.
    pub fn of(&self, driver: &str) -> i64 {
        self.0.drivers.lock().get(driver).map_or(0, |known| known.tenure)
    }

    /// Enters a pass that makes calls which were given in this tenure; None if that is over.
    pub fn enter(&self, driver: &str, tenure: i64) -> Option<Entered<'_>> {
        let mut drivers = self.0.drivers.lock();
        let known = drivers.entry(driver.to_owned()).or_default();
        if tenure < known.tenure {
            return None;
        }
        known.passes += 1;
        Some(Entered { tenures: self, driver: driver.to_owned() })
    }

    /// A pass is going to call this process of the driver: that is on the disk before it looks whether it still may.
    pub async fn mean(&self, driver: &str, process: Option<&Arc<Process>>) {
        let name = name(process);
        let is_noted = {
            let mut drivers = self.0.drivers.lock();
            let known = drivers.entry(driver.to_owned()).or_default();
            if !known.meant.contains(&name) {
                known.meant.push(name.clone());
            }
            known.noted.contains(&name)
        };
        if !is_noted && let Err(ended) = self.note(driver).await {
            tracing::warn!("{ended}");
        }
    }

    /// A call to the driver's process is made.
    pub fn call<'a>(&'a self, driver: &'a str, process: Option<&Arc<Process>>, about: &Parked) -> Made<'a> {
        let mut drivers = self.0.drivers.lock();
        let known = drivers.entry(driver.to_owned()).or_default();
        known.serial += 1;
        let until = Instant::now() + self.0.longest_call;
        let call = Call { about: about.clone(), process: process.cloned(), until };
        known.calls.insert(known.serial, call);
        Made { tenures: self, driver, serial: known.serial }
    }

    /// Brings to the disk who is at a call of the driver.
    fn note(&self, driver: &str) -> JoinHandle<()> {
        let (inner, driver) = (self.0.clone(), driver.to_owned());
        spawn_blocking(move || {
            inner.running.note(&driver, || inner.processes(&driver), |noted| inner.noted(&driver, noted));
        })
    }

    /// Whether a call about this may be running, of this process or of the one before, which has not said what its calls are about.
    pub fn may_be_at(&self, driver: &str, about: &Parked) -> bool {
        let is_at_it =
            |known: &OfDriver| known.calls.values().any(|call| call.about == *about && call.may_run());
        !self.0.inherited(driver).is_empty() || self.0.drivers.lock().values().any(is_at_it)
    }

    /// Whether none of the calls is running that the driver's instance was given in earlier tenures than its present one.
    pub fn are_over(&self, driver: &str) -> bool {
        let inherits = !self.0.inherited(driver).is_empty();
        let mut drivers = self.0.drivers.lock();
        let is_over = |known: &mut OfDriver| known.passes == 0 && known.processes().is_empty();
        !inherits && drivers.get_mut(driver).is_none_or(is_over)
    }
}

impl Inner {
    /// The processes that may be at a call of the process of the agent before this one.
    fn inherited(&self, driver: &str) -> Vec<Option<String>> {
        let (before, until) = &self.before;
        if Instant::now() < *until { before.of(&self.running, driver) } else { Vec::new() }
    }

    /// The processes that may be at a call, which are to be on the disk. Those that are no longer are not taken to be there any more.
    fn processes(&self, driver: &str) -> Vec<Option<String>> {
        let mut all = self.inherited(driver);
        let mut drivers = self.drivers.lock();
        let known = drivers.entry(driver.to_owned()).or_default();
        all.extend(known.processes());
        all.sort();
        all.dedup();
        known.noted.retain(|process| all.contains(process));
        known.is_unsure = true;
        all
    }

    /// These are on the disk.
    fn noted(&self, driver: &str, processes: Vec<Option<String>>) {
        let mut drivers = self.drivers.lock();
        let known = drivers.entry(driver.to_owned()).or_default();
        (known.noted, known.is_unsure) = (processes, false);
    }
}

impl OfDriver {
    /// Those that may be at a call of this process.
    fn processes(&mut self) -> Vec<Option<String>> {
        self.calls.retain(|_, call| call.may_run());
        let called = self.calls.values().map(|call| name(call.process.as_ref()));
        called.chain(self.meant.iter().cloned()).collect()
    }
}

impl Call {
    /// With a process all that it was doing has ended.
    fn may_run(&self) -> bool {
        Instant::now() < self.until && self.process.as_ref().is_none_or(|process| !process.has_ended())
    }
}

/// What a process is called on the disk.
fn name(process: Option<&Arc<Process>>) -> Option<String> {
    process.and_then(|process| process.name())
}

impl Made<'_> {
    /// The call has come to this. It goes on counting unless the driver has said clearly that it is not at it.
    pub fn ended<T>(self, result: &Result<T, CallError>) {
        let is_over = result.as_ref().err().is_none_or(|error| {
            let meaning = error.meaning();
            meaning.is_settled_failure() || matches!(meaning, Meaning::AlreadyGone | Meaning::NeverSent)
        });
        if is_over && let Some(known) = self.tenures.0.drivers.lock().get_mut(self.driver) {
            known.calls.remove(&self.serial);
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let is_idle = |known: &mut OfDriver| {
            known.passes -= 1;
            if known.passes == 0 {
                known.meant.clear();
            }
            known.passes == 0 && known.calls.is_empty() && (known.is_unsure || !known.noted.is_empty())
        };
        let is_idle = self.tenures.0.drivers.lock().get_mut(&self.driver).is_some_and(is_idle);
        if is_idle && Handle::try_current().is_ok() {
            // Nobody waits for that: what is not taken off the disk makes the next process wait for nothing.
            drop(self.tenures.note(&self.driver));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tempfile::TempDir;

    use super::*;
    use crate::api::names::{DriverOn, instance_name};
    use crate::csi::{Origin, Rpc};

    const LONGEST: Duration = Duration::from_secs(60);
    const ANSWER: Result<(), CallError> = Ok(());

    fn about() -> Parked {
        Parked::Volume("v".into())
    }

    /// Of an agent that comes after one which has said that its drivers were at no call.
    fn tenures(directory: &TempDir) -> Tenures {
        let open = || Running::open(directory.path(), "node-1", "boot");
        Tenures::new(LONGEST, open())
    }

    fn error(code: tonic::Code, origin: Origin) -> Result<(), CallError> {
        Err(CallError { rpc: Rpc::CreateVolume, code, message: String::new(), origin })
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_the_process_before_may_be_running_at_first() {
        let directory = TempDir::new().unwrap();
        let before = tenures(&directory);
        let passes = ["d", "another"].map(|driver| before.enter(driver, 0));
        for driver in ["d", "another"] {
            before.mean(driver, None).await;
        }
        let is_noted = |driver: &str| !tenures(&directory).are_over(driver);
        assert!(is_noted("d") && is_noted("another"));
        before.call("d", None, &about()).ended(&error(tonic::Code::Unavailable, Origin::Connection));
        before.call("another", None, &about()).ended(&ANSWER);
        drop(passes);
        while is_noted("another") {
            tokio::task::yield_now().await;
        }
        let tenures = tenures(&directory);
        tenures.begin("d", 1);
        assert!(!tenures.are_over("d") && tenures.are_over("another"));
        assert!(tenures.may_be_at("d", &about()) && !tenures.may_be_at("another", &about()));
        tokio::time::advance(LONGEST).await;
        assert!(tenures.are_over("d") && !tenures.may_be_at("d", &about()));
    }

    /// A disk that was full for a moment: the next call is not taken for noted.
    #[tokio::test(start_paused = true)]
    async fn what_the_disk_did_not_take_is_written_before_the_next_call() {
        let directory = TempDir::new().unwrap();
        let calls = directory.path().join("calls");
        let open = || Running::open(&calls, "node-1", "boot");
        let before = Tenures::new(LONGEST, open());
        let _pass = before.enter("d", 0);
        std::fs::remove_dir_all(&calls).unwrap();
        before.mean("d", None).await;
        std::fs::create_dir(&calls).unwrap();
        before.mean("d", None).await;
        assert!(!Tenures::new(LONGEST, open()).are_over("d"));
    }

    /// It would say to the next process that somebody unknown is at a call.
    #[tokio::test(start_paused = true)]
    async fn what_the_disk_took_half_is_taken_off_when_nobody_is_at_a_call() {
        let directory = TempDir::new().unwrap();
        let tenures = tenures(&directory);
        let half = directory.path().join(instance_name(DriverOn { driver: "d", node: "node-1" }));
        std::os::unix::fs::symlink("/dev/full", &half).unwrap();
        let pass = tenures.enter("d", 0);
        tenures.mean("d", None).await;
        assert!(half.is_symlink());
        drop(pass);
        let end = std::time::Instant::now() + LONGEST;
        while half.is_symlink() {
            assert!(std::time::Instant::now() < end, "it stays");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_before_is_not_begun_any_more() {
        let directory = TempDir::new().unwrap();
        let tenures = tenures(&directory);
        let pass = tenures.enter("d", 0);
        assert!(pass.is_some());
        tenures.begin("d", 5);
        tenures.begin("d", 4);
        assert!(
            tenures.enter("d", 4).is_none() && !tenures.are_over("d"),
            "a pass goes on that began before"
        );
        assert!(tenures.enter("another", 0).is_some());
        drop(pass);
        assert!(tenures.are_over("d"));
        assert!(tenures.enter("d", 5).is_some() && tenures.enter("d", 6).is_some());
        assert_eq!((tenures.of("d"), tenures.of("another")), (5, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_over_when_the_driver_says_so() {
        use tonic::Code::{DeadlineExceeded, Internal, Unavailable};
        let directory = TempDir::new().unwrap();
        let tenures = tenures(&directory);
        for (result, is_over) in [
            (ANSWER, true),
            (error(Internal, Origin::Driver), true),
            (error(Unavailable, Origin::Dial), true),
            (error(DeadlineExceeded, Origin::Deadline), false),
            (error(Unavailable, Origin::Connection), false),
        ] {
            let call = tenures.call("d", None, &about());
            assert!(!tenures.are_over("d"));
            call.ended(&result);
            assert_eq!(tenures.are_over("d"), is_over, "{result:?}");
            assert_eq!(tenures.may_be_at("d", &about()), !is_over, "{result:?}");
            assert!(!tenures.may_be_at("d", &Parked::Volume("another".into())));
            // No call takes longer.
            tokio::time::advance(LONGEST).await;
            assert!(tenures.are_over("d"));
        }
        tenures.call("d", None, &about());
        assert!(!tenures.are_over("d"), "who waits no longer has not ended it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_the_process_that_is_at_it() {
        let directory = TempDir::new().unwrap();
        let tenures = tenures(&directory);
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).map(Arc::new);
        tenures
            .call("d", process.as_ref(), &about())
            .ended(&error(tonic::Code::Unavailable, Origin::Connection));
        assert!(!tenures.are_over("d"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tenures.are_over("d"));
    }
}
