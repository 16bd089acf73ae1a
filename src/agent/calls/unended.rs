//! Calls that are running when the agent ends in order, for the process of the agent that comes next: it begins none about the same
//! volume before they have ended. A DaemonSet that is rolled does not wait for a driver that is slow, and a call goes on in the
//! driver when its caller has ended. One that is killed leaves no word, and what it was at is repeated.
//!
//! This is not [`super::tenures`], though each call of the Controller service is in both: that says of a driver as a whole whether
//! another instance may call, which must hold after a kill too, and this says of one volume whether a call of any service is
//! repeated, which a driver has to bear. So this goes by what a call is about, and is written at the end alone.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::agent::queues::Parked;
use crate::csi::Process;

/// In the place of a process of which nothing is known.
const UNKNOWN: &str = "?";

/// The calls of this process, and those that the one before has left.
pub(crate) struct Unended {
    file: PathBuf,
    boot_id: String,
    /// The processes of drivers that may be at a call, by what it is about. One of which nothing is known has no end.
    before: HashMap<String, Option<Process>>,
    /// Time after which none of those is running, whatever is known of it.
    until: Instant,
    now: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    serial: u64,
    /// What each call is about, and the process that it was made to.
    calls: HashMap<u64, (Parked, Option<String>)>,
}

/// A call that is running, for as long as this lives.
pub(crate) struct Begun<'a> {
    unended: &'a Unended,
    serial: u64,
}

impl Unended {
    /// Reads what the process before has left in `file`, of this boot of the machine. It is taken away: who ends without a word
    /// leaves none.
    pub fn open(file: &Path, boot_id: &str, longest_call: Duration) -> Self {
        let before = read(file, boot_id).unwrap_or_else(|error| {
            tracing::warn!(
                "{}: {error}; calls of the agent before may be made a second time",
                file.display()
            );
            HashMap::new()
        });
        for about in before.keys() {
            tracing::info!(about, "the agent before has left a call running; none is made beside it");
        }
        let until = Instant::now() + longest_call;
        Self { file: file.to_owned(), boot_id: boot_id.to_owned(), before, until, now: Mutex::default() }
    }

    /// Whether a call about this may be running that the process before has made.
    pub fn is_running(&self, about: &Parked) -> bool {
        !self.before.is_empty()
            && self.before.get(&text(about)).is_some_and(|process| self.may_run(process.as_ref()))
    }

    fn may_run(&self, process: Option<&Process>) -> bool {
        Instant::now() < self.until && process.is_none_or(|process| !process.has_ended())
    }

    /// A call about this is made to this process.
    pub fn begin(&self, about: &Parked, process: Option<String>) -> Begun<'_> {
        let mut now = self.now.lock();
        now.serial += 1;
        let serial = now.serial;
        now.calls.insert(serial, (about.clone(), process));
        Begun { unended: self, serial }
    }

    /// Leaves word of what is running, with the VolumeHandles that workers make controller calls for.
    pub fn leave(&self, handles: impl IntoIterator<Item = String>) {
        let left = self.before.iter().filter(|(_, process)| self.may_run(process.as_ref()));
        let left =
            left.map(|(about, process)| line(about, process.as_ref().and_then(Process::name).as_deref()));
        let now = self.now.lock();
        let own: Vec<_> = now.calls.values().map(|(about, process)| (text(about), process.clone())).collect();
        let handles = handles.into_iter().map(|handle| text(&Parked::Handle(handle)));
        let others = handles.filter(|about| own.iter().all(|(own, _)| own != about));
        let others = others.map(|about| line(&about, None)).collect::<Vec<_>>();
        let own = own.iter().map(|(about, process)| line(about, process.as_deref()));
        let lines: BTreeSet<String> = left.chain(own).chain(others).collect();
        if lines.is_empty() {
            return;
        }
        let lines: Vec<_> = std::iter::once(self.boot_id.clone()).chain(lines).collect();
        if let Err(error) = fs::write(&self.file, lines.join("\n")) {
            tracing::warn!(
                "{}: {error}; the next agent does not know of calls that run",
                self.file.display()
            );
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.unended.now.lock().calls.remove(&self.serial);
    }
}

fn text(about: &Parked) -> String {
    match about {
        Parked::Node(handle) => format!("node/{handle}"),
        Parked::Handle(handle) => format!("handle/{handle}"),
        Parked::Volume(uid) => format!("volume/{uid}"),
        Parked::Snapshot(uid) => format!("snapshot/{uid}"),
    }
}

fn line(about: &str, process: Option<&str>) -> String {
    format!("{about} {}", process.unwrap_or(UNKNOWN))
}

/// What is of another boot of the machine has ended with it, and a process that is not there any more has too. Of two lines about
/// one thing that of which less is known counts.
fn read(file: &Path, boot_id: &str) -> io::Result<HashMap<String, Option<Process>>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(error),
    };
    fs::remove_file(file)?;
    let mut lines = text.lines();
    let mut before = HashMap::new();
    if lines.next() != Some(boot_id) {
        return Ok(before);
    }
    for (about, process) in lines.filter_map(|line| line.split_once(' ')) {
        let process = if process == UNKNOWN { Some(None) } else { Process::named(process).map(Some) };
        match process {
            Some(None) => drop(before.insert(about.to_owned(), None)),
            Some(process) => drop(before.entry(about.to_owned()).or_insert(process)),
            None => {}
        }
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tempfile::TempDir;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(300);

    fn open(directory: &TempDir) -> Unended {
        Unended::open(&directory.path().join("unended"), "boot", LONGEST)
    }

    fn none() -> [String; 0] {
        []
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_at_the_end_is_not_made_a_second_time_by_the_next() {
        let directory = TempDir::new().unwrap();
        let [node, handle, volume] =
            [Parked::Node("h".into()), Parked::Handle("h".into()), Parked::Volume("uid".into())];
        let first = open(&directory);
        let running = first.begin(&node, None);
        drop(first.begin(&volume, None));
        first.leave(["h".to_owned()]);
        drop(running);
        let second = open(&directory);
        assert!(second.is_running(&node) && second.is_running(&handle) && !second.is_running(&volume));
        assert!(!second.is_running(&Parked::Node("other".into())));
        // Whoever is rolled again passes it on, and who is killed does not.
        second.leave(none());
        let third = open(&directory);
        assert!(third.is_running(&node));
        assert!(!open(&directory).is_running(&node));
        tokio::time::advance(LONGEST).await;
        assert!(!third.is_running(&node), "no call takes that long");
        third.leave(none());
        assert!(!directory.path().join("unended").exists());
    }

    #[tokio::test]
    async fn a_call_ends_with_the_process_that_is_at_it_and_with_the_machine() {
        let directory = TempDir::new().unwrap();
        let about = Parked::Node("h".into());
        let mut driver = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let process = Process::of(i32::try_from(driver.id()).unwrap()).unwrap();
        let first = open(&directory);
        let _running = first.begin(&about, process.name());
        first.leave(none());
        let second = open(&directory);
        assert!(second.is_running(&about));
        driver.kill().unwrap();
        driver.wait().unwrap();
        assert!(!second.is_running(&about));
        first.leave(none());
        assert!(!open(&directory).is_running(&about), "it is not there any more");
        let _unknown = first.begin(&about, None);
        first.leave(none());
        let later = Unended::open(&directory.path().join("unended"), "another boot", LONGEST);
        assert!(!later.is_running(&about));
    }
}
