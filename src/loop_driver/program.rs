//! Runs the system's own tools: losetup, blkid, mkfs, mount. Using them instead of ioctls keeps the crate free of unsafe
//! code.

use std::ffi::OsStr;
use std::process::{Command, ExitStatus};

use super::error::Error;
use super::lock::Lock;

/// The most characters of a program's output that are kept: it ends up in a status message.
const STDERR_MAX: usize = 600;

/// How a program ended.
#[derive(Debug)]
pub(super) struct Outcome {
    program: &'static str,
    status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Outcome {
    /// The exit code; absent when a signal ended the program.
    pub(super) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Makes every exit but 0 an error.
    pub(super) fn success(self) -> Result<Self, Error> {
        if self.status.success() { Ok(self) } else { Err(self.into_error()) }
    }

    pub(super) fn into_error(self) -> Error {
        Error::Program { program: self.program, status: self.status.to_string(), stderr: self.stderr }
    }

    /// The error without the program's words, for when those may repeat a secret.
    pub(super) fn into_silent_error(self) -> Error {
        let stderr = "its message is withheld, as it may repeat mount flags".to_owned();
        Error::Program { program: self.program, status: self.status.to_string(), stderr }
    }
}

/// Runs a program to its end. The child holds `lock` too, so that its work stays guarded when this process is killed.
pub(super) fn run<A: AsRef<OsStr>>(
    lock: &Lock,
    program: &'static str,
    arguments: &[A],
) -> Result<Outcome, Error> {
    let cannot = |source| Error::Io { action: "run", path: program.into(), source };
    let output = Command::new(program)
        .args(arguments)
        // Messages are looked at in one place (a busy loop device), and read by people who need to search for them.
        .env("LC_ALL", "C")
        .stdin(lock.for_child().map_err(cannot)?)
        .output()
        .map_err(cannot)?;
    let mut stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    if let Some((end, _)) = stderr.char_indices().nth(STDERR_MAX) {
        stderr.truncate(end);
    }
    Ok(Outcome {
        program,
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr,
    })
}
