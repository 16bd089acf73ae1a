//! The socket and the server on it.

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::args::LoopDriverArgs;
use super::device::Inode;
use super::driver::{Driver, Service, check_machine};
use super::error::Error;
use super::state::remove_file;
use crate::csi::proto::csi::v1::controller_server::ControllerServer;
use crate::csi::proto::csi::v1::identity_server::IdentityServer;
use crate::csi::proto::csi::v1::node_server::NodeServer;

/// Serves the driver's socket until `shutdown` resolves and every call that has begun has ended.
pub async fn run(args: LoopDriverArgs, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    check_machine()?;
    let path = socket_path(&args.endpoint)?;
    let driver = Arc::new(Driver::open(args)?);
    let (alive, mut all_gone) = mpsc::channel(1);
    let service = Service::new(driver.clone(), alive);
    let (listener, inode) = listen(&path)?;
    let LoopDriverArgs { node_id, driver_name, shared, .. } = &driver.args;
    tracing::info!(socket = %path.display(), node = node_id, driver = driver_name, shared, "serving");
    let ending = async {
        shutdown.await;
        tracing::info!("ending: no new calls, and those that have begun go on to their end");
        driver.end();
    };
    let node = driver.args.roles.has_node().then(|| NodeServer::new(service.clone()));
    let served = Server::builder()
        .add_service(IdentityServer::new(service.clone()))
        // Without the controller role the service answers ControllerGetCapabilities and refuses the rest.
        .add_service(ControllerServer::new(service))
        .add_optional_service(node)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ending)
        .await;
    // A call whose client has gone may still be at work.
    all_gone.recv().await;
    // A successor may have put its own socket at the path, which is not this process's to remove.
    if Inode::of(&path).is_ok_and(|found| found == inode) {
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    served.map_err(Error::from)
}

fn socket_path(endpoint: &str) -> Result<PathBuf, Error> {
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    let path = Path::new(path.unwrap_or(endpoint));
    if path.is_absolute() && path.file_name().is_some() {
        return Ok(path.to_owned());
    }
    let reason = format!("{endpoint:?} is not an absolute path, with or without unix:// before it");
    Err(Error::Argument { flag: "endpoint", reason })
}

/// Listens on the socket. It is made under another name and then renamed, so that whoever sees it can connect to it, and
/// so that it replaces what a killed predecessor has left.
fn listen(path: &Path) -> Result<(UnixListener, Inode), Error> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        let reason = format!("{} is a directory", path.display());
        return Err(Error::Argument { flag: "endpoint", reason });
    }
    let fresh = path.with_extension(process::id().to_string());
    remove_file(&fresh)?;
    let listener = UnixListener::bind(&fresh).map_err(Error::io("listen on", &fresh))?;
    // Whoever can call this driver can mount and delete, which is for root alone.
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).map_err(Error::io("restrict", &fresh))?;
    let inode = Inode::of(&fresh)?;
    fs::rename(&fresh, path).map_err(Error::io("put in place", path))?;
    Ok((listener, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for endpoint in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(socket_path(endpoint).unwrap(), Path::new("/csi/csi.sock"));
        }
        for endpoint in ["", "unix://", "csi.sock", "tcp://127.0.0.1:1", "unix://csi.sock"] {
            assert!(socket_path(endpoint).is_err(), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (first, old) = listen(&path).unwrap();
        drop(first);
        let (_second, new) = listen(&path).unwrap();
        assert_eq!(Inode::of(&path).unwrap(), new);
        assert_ne!(old, new);
        tokio::net::UnixStream::connect(&path).await.unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
