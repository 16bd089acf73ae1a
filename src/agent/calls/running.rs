//! On the disk: which processes of drivers are at controller calls, for the process of the agent that comes next. A call goes on in
//! the driver when its caller has ended.
//!
//! It is kept for [`super::tenures`], which has to know after a kill too, so that it is written before a process is called; what
//! [`super::unended`] leaves is written at an end in order alone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use parking_lot::Mutex;

use crate::api::names::{DriverOn, instance_name};
use crate::csi::Process;

/// In the place of a process of which nothing is known.
const UNKNOWN: &str = "?";

/// A file for each driver that is at a call, named as its PluginInstance. Its first line is the boot of the machine, and the others
/// are the processes that were called.
///
/// Nothing of it is flushed: with the machine the calls end too, and what a process has written stays when it is killed.
#[derive(Debug)]
pub(crate) struct Running {
    directory: PathBuf,
    node: String,
    boot_id: String,
    /// Held while a file is written or removed.
    writing: Mutex<()>,
}

/// Who may be at a call of the process before this one.
#[derive(Debug)]
pub(crate) enum Before {
    /// Any driver: the files cannot be read.
    All,
    /// These processes, by file. One of which nothing is known never ends.
    Of(HashMap<String, Vec<Option<Process>>>),
}

impl Running {
    /// Reads what the process before has left in `directory`, and goes on there.
    pub fn open(directory: &Path, node: &str, boot_id: &str) -> (Self, Before) {
        let before = read(directory, boot_id).unwrap_or_else(|error| {
            tracing::warn!("{}: {error}; every driver may be at a call", directory.display());
            Before::All
        });
        let (node, boot_id) = (node.to_owned(), boot_id.to_owned());
        (Self { directory: directory.to_owned(), node, boot_id, writing: Mutex::default() }, before)
    }

    /// Notes that these processes of a driver are at calls, which `processes` says when it is its turn. `noted` hears it when it is on
    /// the disk.
    pub fn note(
        &self,
        driver: &str,
        processes: impl FnOnce() -> Vec<Option<String>>,
        noted: impl FnOnce(Vec<Option<String>>),
    ) {
        let _writing = self.writing.lock();
        let file = self.directory.join(self.name(driver));
        let processes = processes();
        let done = if processes.is_empty() {
            match fs::remove_file(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            }
        } else {
            let lines = processes.iter().map(|process| process.as_deref().unwrap_or(UNKNOWN));
            let lines: Vec<_> = [self.boot_id.as_str()].into_iter().chain(lines).collect();
            fs::write(&file, lines.join("\n"))
        };
        match done {
            Ok(()) => noted(processes),
            // The call is made all the same: it is needed now, and the file only by who comes after a kill.
            Err(error) => tracing::warn!("{}: {error}", file.display()),
        }
    }

    fn name(&self, driver: &str) -> String {
        instance_name(DriverOn { driver, node: &self.node })
    }
}

impl Before {
    /// The processes of a driver that may be at a call of the process before. One of which nothing is known has no name.
    pub fn of(&self, running: &Running, driver: &str) -> Vec<Option<String>> {
        let Self::Of(files) = self else { return vec![None] };
        let processes = files.get(&running.name(driver)).into_iter().flatten();
        let is_left =
            |process: &&Option<Process>| process.as_ref().is_none_or(|process| !process.has_ended());
        processes.filter(is_left).map(|process| process.as_ref().and_then(Process::name)).collect()
    }
}

/// What is of another boot of the machine has ended with it, and a process that is not there any more has too.
fn read(directory: &Path, boot_id: &str) -> io::Result<Before> {
    fs::create_dir_all(directory)?;
    // A disk that takes no file now has perhaps taken none before.
    let probe = directory.join("probe");
    fs::write(&probe, boot_id)?;
    fs::remove_file(&probe)?;
    let mut files = HashMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())?;
        let mut lines = text.lines();
        let is_of_now = lines.next().is_none_or(|boot| boot == boot_id);
        let processes: Vec<_> = lines
            .map(|name| if name == UNKNOWN { Some(None) } else { Process::named(name).map(Some) })
            .collect();
        // One that was cut off while it was written says nothing of processes.
        let left = if processes.is_empty() { vec![None] } else { processes.into_iter().flatten().collect() };
        if is_of_now && !left.is_empty() {
            files.insert(entry.file_name().to_string_lossy().into_owned(), left);
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(Before::Of(files))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn open(directory: &Path, boot_id: &str) -> (Running, Before) {
        Running::open(directory, "node-1", boot_id)
    }

    fn has(directory: &Path, boot_id: &str) -> [bool; 2] {
        let (running, before) = open(directory, boot_id);
        ["a", "b"].map(|driver| !before.of(&running, driver).is_empty())
    }

    #[test]
    fn the_next_process_knows_who_is_at_a_call() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls");
        assert_eq!(has(&path, "boot"), [false, false], "nobody was there before");
        let running = open(&path, "boot").0;
        running.note("a", || vec![None], |_| {});
        running.note("b", || vec![None], |_| {});
        running.note("b", Vec::new, |_| {});
        assert_eq!(has(&path, "boot"), [true, false]);
        running.note("a", Vec::new, |_| {});
        running.note("a", Vec::new, |_| {});
        assert_eq!(has(&path, "boot"), [false, false]);
    }

    #[test]
    fn what_a_process_was_at_has_ended_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        let running = open(directory.path(), "boot").0;
        running.note("a", || vec![process.name()], |_| {});
        running.note("b", || vec![process.name(), None], |_| {});
        let (next, before) = open(directory.path(), "boot");
        let are_left = |driver| before.of(&next, driver).len();
        assert_eq!([are_left("a"), are_left("b")], [1, 2]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!([are_left("a"), are_left("b")], [0, 1]);
        assert_eq!(has(directory.path(), "boot"), [false, true]);
    }

    #[test]
    fn with_the_machine_its_calls_have_ended() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path(), "boot").0.note("a", || vec![None], |_| {});
        assert_eq!(has(directory.path(), "another boot"), [false, false]);
        let cut_off = directory.path().join("cut-off");
        for text in ["", "boot"] {
            fs::write(&cut_off, text).unwrap();
            assert!(
                matches!(open(directory.path(), "boot").1, Before::Of(files) if files.contains_key("cut-off"))
            );
        }
    }

    #[test]
    fn where_nothing_can_be_read_everybody_may_be_at_a_call() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(has(&file, "boot"), [true, true]);
    }
}
