//! Whether the disk with this node's records takes writes.
//!
//! Nothing is staged or published without its record on disk, so on a disk that is full or read-only nothing can be. That
//! is said on the PluginInstances, so that nothing new is placed here. Undo goes on: see [`super::store`].

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::instance::{PluginInstanceStatus, Service, ServiceStatus};

/// Time between two tries while all is well.
const USUAL: Duration = Duration::from_secs(15);
/// Time between two tries after a failure.
const FAILING: Duration = Duration::from_secs(2);
/// Longest wait for the disk.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any record takes, so that the disk is found full a little before a record finds it so.
const SAMPLE: usize = 64 << 10;

/// The state of the disk with the node's records.
#[derive(Debug)]
pub struct StateDisk {
    directory: PathBuf,
    problem: Mutex<Option<String>>,
    changed: Notify,
}

impl StateDisk {
    /// The disk on which `directory` is, after one try.
    #[must_use]
    pub fn tried(directory: &Path) -> Self {
        let disk =
            Self { directory: directory.to_owned(), problem: Mutex::default(), changed: Notify::new() };
        try_write(directory).unwrap_or_else(|error| disk.failed(&error));
        disk
    }

    /// Why it takes no writes, if it does not.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Takes in that a write has failed.
    pub fn failed(&self, why: &dyn std::fmt::Display) {
        self.learn(Some(format!("the state directory {} takes no writes: {why}", self.directory.display())));
    }

    fn learn(&self, problem: Option<String>) {
        let mut known = self.problem.lock();
        if *known != problem {
            if let Some(problem) = &problem {
                tracing::error!("{problem}");
            } else {
                tracing::info!(directory = %self.directory.display(), "the disk takes writes again");
            }
            *known = problem;
            self.changed.notify_one();
        }
    }

    /// Keeps trying, for as long as the process lives, and tells whenever something else is known of it: whether it takes no
    /// writes.
    pub async fn attend(&self, tell: impl Fn(bool)) {
        let mut hanging = None;
        let mut told = None;
        let mut tried = Instant::now();
        loop {
            let problem = self.problem();
            let pause = if problem.is_some() { FAILING } else { USUAL };
            if problem != told {
                tell(problem.is_some());
                told = problem;
            }
            tokio::select! {
                () = sleep_until(tried + pause) => {
                    self.probe(&mut hanging).await;
                    tried = Instant::now();
                }
                () = self.changed.notified() => {}
            }
        }
    }

    /// Tries a write. One that hangs is waited for, and no second one is begun beside it.
    async fn probe(&self, hanging: &mut Option<JoinHandle<io::Result<()>>>) {
        let directory = self.directory.clone();
        let mut trial =
            hanging.take().unwrap_or_else(|| tokio::task::spawn_blocking(move || try_write(&directory)));
        match timeout(PATIENCE, &mut trial).await {
            Ok(Ok(Ok(()))) => self.learn(None),
            Ok(Ok(Err(error))) => self.failed(&error),
            Ok(Err(ended)) => self.failed(&ended),
            Err(_) => {
                self.failed(&format!("no answer in {} s", PATIENCE.as_secs()));
                *hanging = Some(trial);
            }
        }
    }
}

/// Writes as a record is written, into a file that nobody ever sees.
fn try_write(directory: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => fill(&mut File::from(file)),
        // Not every file system has files without names.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join("probe.new");
            let written = File::create(&path).and_then(|mut file| fill(&mut file));
            written.and(std::fs::remove_file(path))
        }
        Err(errno) => Err(errno.into()),
    }
}

fn fill(file: &mut File) -> io::Result<()> {
    file.write_all(&vec![0; SAMPLE])?;
    file.sync_all()
}

/// Writes into a PluginInstance's status that nothing new may be mounted on its node. `socket` is that of the instance.
pub(crate) fn report(status: &mut PluginInstanceStatus, socket: &str, problem: &str) {
    if !status.node {
        return;
    }
    if status.services.is_empty() && status.controller {
        // One process serves both, and can go on attaching.
        let (healthy, gone) = (status.healthy, status.gone);
        let row = |service| ServiceStatus { service, socket_path: socket.to_owned(), healthy, gone };
        status.services = vec![row(Service::Controller), row(Service::Node)];
    }
    let node = status.services.iter_mut().filter(|row| row.service == Service::Node);
    node.for_each(|row| row.healthy = false);
    status.healthy = false;
    let said = status.last_error.take();
    status.last_error = Some(said.map_or_else(|| problem.to_owned(), |said| format!("{problem}; {said}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(controller: bool, node: bool) -> PluginInstanceStatus {
        PluginInstanceStatus { healthy: true, controller, node, ..PluginInstanceStatus::default() }
    }

    #[test]
    fn a_node_without_records_gets_nothing_new_and_still_attaches() {
        let mut both = serving(true, true);
        report(&mut both, "s", "full");
        assert!(!both.healthy && !both.gone && !both.is_healthy_for(Service::Node));
        assert!(both.is_healthy_for(Service::Controller) && !both.is_gone_for(Service::Controller));
        assert_eq!(both.last_error.as_deref(), Some("full"));

        let mut node = serving(false, true);
        node.last_error = Some("starts".into());
        report(&mut node, "s", "full");
        assert!(!node.is_healthy_for(Service::Node) && node.services.is_empty());
        assert_eq!(node.last_error.as_deref(), Some("full; starts"));

        let mut controller = serving(true, false);
        report(&mut controller, "s", "full");
        assert_eq!(controller, serving(true, false));
    }

    #[tokio::test]
    async fn what_a_write_shows_is_known_until_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let disk = StateDisk::tried(&dir.path().join("records"));
        assert!(disk.problem().unwrap().contains("No such file"), "{:?}", disk.problem());
        std::fs::create_dir(&disk.directory).unwrap();
        disk.probe(&mut None).await;
        assert_eq!(disk.problem(), None);
        assert_eq!(std::fs::read_dir(&disk.directory).unwrap().count(), 0, "it leaves nothing");
        disk.failed(&"full");
        assert!(disk.problem().unwrap().ends_with("takes no writes: full"));
    }
}
