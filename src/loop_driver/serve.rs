//! The socket and the server on it.

use std::fs;
use std::future::Future;
use std::io;
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
use crate::csi::proto::csi::v1::controller_server::ControllerServer;
use crate::csi::proto::csi::v1::identity_server::IdentityServer;
use crate::csi::proto::csi::v1::node_server::NodeServer;

/// Serves until `shutdown` resolves and every call that has begun has ended.
pub async fn run(args: LoopDriverArgs, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    check_machine()?;
    let path = socket_path(&args.endpoint)?;
    let driver = Arc::new(Driver::open(&args)?);
    let (alive, mut all_gone) = mpsc::channel(1);
    let service = Service::new(driver.clone(), alive);
    let (listener, inode) = listen(&path)?;
    tracing::info!(
        socket = %path.display(), node = driver.node_id, driver = driver.name, shared = driver.shared, "serving"
    );
    let ending = async {
        shutdown.await;
        tracing::info!("ending: no new calls, and those that have begun go on to their end");
        driver.end();
    };
    let node = driver.roles.has_node().then(|| NodeServer::new(service.clone()));
    let served = Server::builder()
        .add_service(IdentityServer::new(service.clone()))
        // Without the controller role it answers ControllerGetCapabilities and refuses the rest.
        .add_service(ControllerServer::new(service))
        .add_optional_service(node)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ending)
        .await;
    // A call whose client has gone is still at work.
    all_gone.recv().await;
    // A successor may have put its own socket there.
    if Inode::of(&path).is_ok_and(|found| found == inode) {
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    served.map_err(Error::from)
}

fn socket_path(endpoint: &str) -> Result<PathBuf, Error> {
    let wrong = || Error::Argument {
        flag: "endpoint",
        reason: format!("{endpoint:?} is not an absolute path, with or without unix:// before it"),
    };
    let path =
        endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
    let path = Path::new(path);
    if path.is_absolute() && path.file_name().is_some() { Ok(path.to_owned()) } else { Err(wrong()) }
}

/// Listens under another name first and then renames, which also replaces what a killed predecessor has left: whoever
/// sees the socket can connect to it.
fn listen(path: &Path) -> Result<(UnixListener, Inode), Error> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Err(Error::Argument {
            flag: "endpoint",
            reason: format!("{} is a directory", path.display()),
        });
    }
    let fresh = path.with_extension(process::id().to_string());
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &fresh)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&fresh).map_err(Error::io("listen on", &fresh))?;
    // Whoever may call this driver may mount and delete: that is for root.
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
