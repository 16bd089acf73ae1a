//! Listens on unix sockets, for the agent and for the loop driver.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process;

use tokio::net::UnixListener;

/// A socket that this process listens on, at a path that another process may take.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Listens at a path. The socket is made under another name and then renamed, so that whoever sees it can connect to it, and
/// so that it replaces what a killed predecessor has left. It is for root alone: whoever calls it can mount.
///
/// # Errors
/// If something else is at the path, or the disk does not take the socket.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, Socket)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let fresh = path.with_extension(process::id().to_string());
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    let found = fs::metadata(&fresh)?;
    fs::rename(&fresh, path)?;
    Ok((listener, Socket { path: path.to_owned(), device: found.dev(), inode: found.ino() }))
}

impl Socket {
    /// Removes the socket, unless a successor has put its own at the path.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode)) {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_successors_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (first, old) = listen(&path).unwrap();
        drop(first);
        let (_second, new) = listen(&path).unwrap();
        old.remove().unwrap();
        tokio::net::UnixStream::connect(&path).await.unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        new.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
