//! The sockets that kubelet calls: one for each driver name, and the links by which kubelet finds them.
//!
//! kubelet takes a new file in its folder of plugins for a new registration, and a file that goes for the end of one, each
//! with a write of the CSINode (kubernetes `pkg/kubelet/pluginmanager`). So what stands there is a link, which outlives the
//! agent, and the socket that it leads to is made anew by each process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::Router;

use super::facts::{FACTS, Facts};
use crate::api::lock;
use crate::socket::{self, Socket};

/// kubelet's folder of links and sockets of plugins.
const REGISTRY: &str = "plugins_registry";
/// Where the sockets are: in the folder that is left to CSI, so that none is taken for a driver's.
const SOCKETS: &str = "plugins/kubernetes.io/csi/moor.dev/sockets";

/// The driver names under which kubelet is served on this node, or was by an earlier process.
#[derive(Debug)]
pub(crate) struct Served {
    kubelet_dir: PathBuf,
    names: Mutex<BTreeMap<String, One>>,
}

#[derive(Debug)]
struct One {
    facts: Facts,
    /// Nothing before this process serves it.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    socket: Socket,
    task: AbortHandle,
}

impl Served {
    /// What an earlier process has served below kubelet's directory. Nothing is served yet by this one.
    pub fn below(kubelet_dir: &Path) -> Self {
        let found = fs::read_dir(kubelet_dir.join(SOCKETS)).into_iter().flatten().flatten();
        let files =
            found.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == FACTS));
        let facts = files.filter_map(|path| Facts::read(&path));
        let names = facts.map(|facts| (facts.name().to_owned(), One { facts, running: None })).collect();
        Self { kubelet_dir: kubelet_dir.to_owned(), names: Mutex::new(names) }
    }

    /// What is known of a driver name, from now on too.
    pub fn facts(&self, name: &str, driver: &str) -> Facts {
        let mut names = self.names.lock();
        if let Some(one) = names.get(name).filter(|one| one.facts.driver() == driver) {
            return one.facts.clone();
        }
        let facts = Facts::new(&self.path_of(name, FACTS), name, driver);
        // Of another driver that had the name what was known is over.
        let running = names.remove(name).and_then(|before| before.running);
        if let Some(running) = running {
            running.task.abort();
        }
        names.insert(name.to_owned(), One { facts: facts.clone(), running: None });
        facts
    }

    /// Serves a driver name at its socket, unless this process does already.
    ///
    /// # Errors
    /// If the socket cannot be made, or nothing is known of the name.
    pub fn serve(&self, name: &str, router: Router) -> io::Result<()> {
        if self.is_running(name) {
            return Ok(());
        }
        // Not while the lock is held, which tasks of the runtime wait for. Nobody else serves the name meanwhile.
        let (listener, socket) = socket::listen(&self.path_of(name, "sock"))?;
        let mut names = self.names.lock();
        let one = names.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let of = name.to_owned();
        let serving = async move {
            if let Err(error) = router.serve_with_incoming(UnixListenerStream::new(listener)).await {
                tracing::error!(name = of, "kubelet is served no longer: {error}");
            }
        };
        one.running = Some(Running { socket, task: tokio::spawn(serving).abort_handle() });
        Ok(())
    }

    /// Whether this process serves a driver name.
    pub fn is_running(&self, name: &str) -> bool {
        self.names.lock().get(name).is_some_and(|one| one.running.is_some())
    }

    /// Whether there is a link by which kubelet finds the socket of a driver name.
    pub fn is_linked(&self, name: &str) -> bool {
        fs::read_link(self.link_of(name)).is_ok_and(|to| to == self.path_of(name, "sock"))
    }

    /// Has kubelet find the socket of a driver name. A link that is there is not touched, since kubelet would take it for
    /// another.
    ///
    /// # Errors
    /// If the link cannot be made, also because something else is there.
    pub fn link(&self, name: &str) -> io::Result<()> {
        if self.is_linked(name) {
            return Ok(());
        }
        let link = self.link_of(name);
        fs::create_dir_all(self.kubelet_dir.join(REGISTRY))?;
        if fs::symlink_metadata(&link).is_ok_and(|found| found.is_symlink()) {
            fs::remove_file(&link)?;
        }
        symlink(self.path_of(name, "sock"), link)
    }

    /// Has kubelet forget the driver.
    ///
    /// # Errors
    /// If the link cannot be removed.
    pub fn unlink(&self, name: &str) -> io::Result<()> {
        if self.is_linked(name) { fs::remove_file(self.link_of(name)) } else { Ok(()) }
    }

    /// Ends what is served under a name, by this process or by an earlier one.
    ///
    /// # Errors
    /// If the link or a file cannot be removed.
    pub fn end(&self, name: &str) -> io::Result<()> {
        self.unlink(name)?;
        let running = self.names.lock().get_mut(name).and_then(|one| one.running.take());
        if let Some(running) = running {
            running.task.abort();
            running.socket.remove()?;
        }
        for extension in ["sock", FACTS] {
            match fs::remove_file(self.path_of(name, extension)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.names.lock().remove(name);
        Ok(())
    }

    /// The driver that is, or was, served under a name.
    pub fn driver_of(&self, name: &str) -> Option<String> {
        self.names.lock().get(name).map(|one| one.facts.driver().to_owned())
    }

    /// All drivers that are, or were, served under any name.
    pub fn drivers(&self) -> Vec<String> {
        self.names.lock().values().map(|one| one.facts.driver().to_owned()).collect()
    }

    /// What is known of the names under which a driver is, or was, served.
    pub fn of(&self, driver: &str) -> Vec<Facts> {
        let names = self.names.lock();
        names.values().map(|one| &one.facts).filter(|facts| facts.driver() == driver).cloned().collect()
    }

    /// A socket's path has 107 bytes, and a driver's name up to 63.
    fn path_of(&self, name: &str, extension: &str) -> PathBuf {
        self.kubelet_dir.join(SOCKETS).join(format!("{}.{extension}", lock::socket_name(name)))
    }

    /// The `@` is for the HTTP server here. When kubelet registers a plugin it takes the path for the name of the host that
    /// it calls, with `%2F` for each slash (grpc-go, `encodeAuthority`), and the name of a host has no percent sign: the
    /// request would be refused before it is read. What stands before an `@` is no part of that name.
    fn link_of(&self, name: &str) -> PathBuf {
        self.kubelet_dir.join(REGISTRY).join(format!("moor@{name}.sock"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tonic::transport::Server;

    use super::*;
    use crate::csi::proto::csi::v1::identity_server::{Identity, IdentityServer};

    struct Nobody;
    #[tonic::async_trait]
    impl Identity for Nobody {}

    fn router() -> Router {
        Server::builder().add_service(IdentityServer::new(Nobody))
    }

    fn inode(served: &Served) -> u64 {
        fs::symlink_metadata(served.link_of("d")).unwrap().ino()
    }

    #[tokio::test]
    async fn the_link_outlives_the_process_and_ends_with_the_driver() {
        let dir = tempfile::tempdir().unwrap();
        let first = Served::below(dir.path());
        assert!(first.serve("d", router()).is_err(), "nothing is known of it");
        let facts = first.facts("d", "driver");
        first.serve("d", router()).unwrap();
        facts.keep().await.unwrap();
        first.link("d").unwrap();
        let before = inode(&first);
        drop(first);

        let next = Served::below(dir.path());
        assert!(next.is_linked("d") && !next.is_running("d"));
        assert_eq!(next.drivers(), ["driver"]);
        next.serve("d", router()).unwrap();
        next.link("d").unwrap();
        assert_eq!(inode(&next), before);
        tokio::net::UnixStream::connect(next.link_of("d")).await.unwrap();

        next.end("d").unwrap();
        assert!(next.of("driver").is_empty());
        for folder in [REGISTRY, SOCKETS] {
            assert_eq!(fs::read_dir(dir.path().join(folder)).unwrap().count(), 0, "{folder}");
        }
    }

    #[tokio::test]
    async fn what_is_not_ours_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let served = Served::below(dir.path());
        fs::create_dir_all(dir.path().join(REGISTRY)).unwrap();
        fs::write(served.link_of("d"), "").unwrap();
        assert!(served.link("d").is_err());
        served.unlink("d").unwrap();
        assert!(served.link_of("d").exists());
    }
}
