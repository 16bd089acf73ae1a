//! The node's own mount namespace, where what moor mounts is used.
//!
//! The agent's Pod has a namespace of its own. Mounts are copied between the two, but not what becomes of a mount later:
//! the flags of a mount, and what lies hidden below another one, are known only where it is (mount_namespaces(7)).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use nix::sched::{CloneFlags, setns, unshare};

use super::error::HostError;
use crate::agent::failed_at::failed_at;

/// A mount namespace, by the file that stands for it; nothing is the agent's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountNamespace(Option<PathBuf>);

impl MountNamespace {
    /// The mount namespace that a file such as /proc/1/ns/mnt stands for; without a file the agent's own.
    pub(crate) fn of(file: Option<PathBuf>) -> Self {
        Self(file)
    }

    /// Whether this is another mount namespace than the agent's own, for which the node's processes have to be
    /// visible.
    pub(crate) fn is_named(&self) -> bool {
        self.0.is_some()
    }

    /// Does `work` in this mount namespace. It blocks, and runs on a thread that ends with it: one that has been
    /// elsewhere is of no use to anybody else.
    pub(crate) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, HostError> + Send,
    ) -> Result<T, HostError> {
        let Some(file) = &self.0 else { return work() };
        let failed = failed_at(file, HostError::Enter);
        let thread = || {
            enter(file).map_err(&failed)?;
            work()
        };
        let ended = |_| failed(io::Error::other("the thread that enters it has ended"));
        thread::scope(|scope| {
            let started = thread::Builder::new().name("node-mounts".to_owned()).spawn_scoped(scope, thread);
            started.map_err(&failed)?.join().map_err(ended)?
        })
    }

    /// The kernel's name of this mount namespace, as the links in /proc have it.
    pub(crate) fn name(&self) -> Result<PathBuf, HostError> {
        let link = Path::new("/proc/thread-self/ns/mnt");
        self.run(|| fs::read_link(link).map_err(failed_at(link, HostError::Look)))
    }
}

/// Moves the calling thread.
fn enter(file: &Path) -> io::Result<()> {
    let namespace = File::open(file)?;
    // The threads of a process share root and working directory, and one that shares them cannot be moved (setns(2)).
    unshare(CloneFlags::CLONE_FS)?;
    setns(namespace, CloneFlags::CLONE_NEWNS)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_work_is_done_where_it_is() {
        let here = thread::current().id();
        assert_eq!(MountNamespace::default().run(|| Ok(thread::current().id())).unwrap(), here);
    }

    #[test]
    fn one_that_is_not_there_is_named() {
        let missing = MountNamespace::of(Some("/proc/none/ns/mnt".into()));
        let error = missing.run(|| Ok(())).unwrap_err().to_string();
        assert!(error.contains("/proc/none/ns/mnt") && error.contains("hostPID"), "{error}");
    }

    #[test]
    fn only_the_thread_of_the_work_is_moved() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let namespace = || fs::read_link("/proc/thread-self/ns/mnt").unwrap();
        let here = namespace();
        // A thread in another namespace stands in for the node, until both have been compared.
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let node = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let file = fs::read_link("/proc/thread-self").unwrap();
            ready.send((Path::new("/proc").join(file).join("ns/mnt"), namespace())).unwrap();
            let _ = is_done.recv();
        });
        let (file, there) = is_ready.recv().unwrap();
        assert_ne!(here, there);
        assert_eq!(MountNamespace::of(Some(file)).run(|| Ok(namespace())).unwrap(), there);
        assert_eq!(namespace(), here);
        drop(done);
        node.join().unwrap();
    }
}
