//! The socket and the server on it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::args::LoopDriverArgs;
use super::driver::{Driver, Service, check_machine};
use super::error::Error;
use crate::csi::proto::csi::v1::controller_server::ControllerServer;
use crate::csi::proto::csi::v1::group_controller_server::GroupControllerServer;
use crate::csi::proto::csi::v1::identity_server::IdentityServer;
use crate::csi::proto::csi::v1::node_server::NodeServer;
use crate::socket;

/// Serves the driver's socket until `shutdown` resolves and every call that has begun has ended.
pub async fn run(args: LoopDriverArgs, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    check_machine()?;
    let path = socket_path(&args.endpoint)?;
    let driver = Arc::new(Driver::open(args)?);
    let (alive, mut all_gone) = mpsc::channel(1);
    let service = Service::new(driver.clone(), alive);
    if path.is_dir() {
        let reason = format!("{} is a directory", path.display());
        return Err(Error::Argument { flag: "endpoint", reason });
    }
    let (listener, socket) = socket::listen(&path).map_err(Error::io("listen on", &path))?;
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
        // Without the controller role these two say what they can and refuse the rest.
        .add_service(ControllerServer::new(service.clone()))
        .add_service(GroupControllerServer::new(service))
        .add_optional_service(node)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ending)
        .await;
    // A call whose client has gone may still be at work.
    all_gone.recv().await;
    socket.remove().map_err(Error::io("remove", &path))?;
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
}
