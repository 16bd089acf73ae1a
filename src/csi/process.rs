//! The process behind a driver's socket, as the kernel knows it.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that listens on a driver's socket.
#[derive(Debug)]
pub struct Process {
    id: i32,
    /// When it was started, as the kernel counts; None if it ended at once.
    started: Option<u64>,
    /// Tells of its end. None where the kernel gives none, and its end is not known then.
    end: Option<OwnedFd>,
}

impl Process {
    /// The process of this id, as the kernel names it for whoever listens on a socket.
    ///
    /// If it has ended by now and the id is another's, the other's end is taken for its own, which is later and as true.
    pub(crate) fn of(id: i32) -> Option<Self> {
        let pid = Pid::from_raw(id)?;
        let end = pidfd_open(pid, PidfdFlags::empty()).ok();
        Some(Self { id, started: started(id), end })
    }

    /// The process of which this is [`Self::name`], if it has not ended.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let found = Self::of(name.split_once(' ')?.0.parse().ok()?)?;
        (found.name()? == name).then_some(found)
    }

    /// What tells it from every other process of this boot of the machine; None if that was never known.
    #[must_use]
    pub(crate) fn name(&self) -> Option<String> {
        self.started.map(|started| format!("{} {started}", self.id))
    }

    /// Its id in this process's own PID namespace.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Whether it is known to have ended, with all that it was doing.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let Some(end) = &self.end else { return false };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&at_once)).is_ok_and(|ended| ended > 0)
    }
}

/// The 22nd field of `/proc/ID/stat`. The second one is the program's name, which may have anything in it.
fn started(id: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        let name = process.name().unwrap();
        assert!(!process.has_ended() && Process::named(&name).is_some_and(|found| !found.has_ended()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended() && Process::named(&name).is_none());
    }

    #[test]
    fn another_process_of_the_same_id_is_another_one() {
        let me = i32::try_from(std::process::id()).unwrap();
        let name = Process::of(me).unwrap().name().unwrap();
        assert!(Process::named(&name).is_some());
        for other in [format!("{name}0"), format!("{me}"), String::new(), "0 1".into()] {
            assert!(Process::named(&other).is_none(), "{other}");
        }
    }

    #[test]
    fn of_one_that_is_not_seen_no_end_is_known() {
        assert!(Process::of(0).is_none());
    }
}
