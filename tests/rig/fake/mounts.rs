//! What the fake driver does on a node: stages, publishes and undoes it with real mounts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use tonic::Status;

use super::backend::{Backend, Medium};

impl Backend {
    /// The volume is attached, and the caller has what the attaching answered.
    pub(super) fn slot(
        &mut self,
        key: &str,
        node: &str,
        call: &str,
        context: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        if !self.attach {
            return self.known(key).map(drop);
        }
        if !self.known(key)?.attached.contains_key(node) {
            return Err(self.forbidden(key, format!("{call} of {key} on {node}, where it is not attached")));
        }
        if context.get("slot") != Some(&format!("{key} at {node}")) {
            return Err(self.forbidden(key, format!("{call} of {key} on {node} without its publish context")));
        }
        Ok(())
    }

    pub(super) fn stage(
        &mut self,
        key: &str,
        node: &str,
        path: &Path,
        arguments: &[u8],
    ) -> Result<(), Status> {
        let now = (path.to_owned(), arguments.to_vec());
        match self.known(key)?.staged.get(node) {
            Some(before) if *before == now => return Ok(()),
            Some(_) => {
                return Err(
                    self.forbidden(key, format!("NodeStageVolume of {key} again with other arguments"))
                );
            }
            None => {}
        }
        let elsewhere = self.known(key)?.staged.keys().find(|other| *other != node).cloned();
        if let Some(other) = elsewhere.filter(|_| !self.attach) {
            return Err(
                self.forbidden(key, format!("NodeStageVolume of {key} on {node} while {other} has it"))
            );
        }
        if !path.is_dir() {
            return Err(
                self.forbidden(key, format!("NodeStageVolume of {key} at a path that is no directory"))
            );
        }
        match self.media.get(key) {
            None => mount_bind(self.content(key), path),
            Some(Medium::FileSystem(device)) => mount(device, path, c"ext4", MountFlags::empty(), c""),
            Some(Medium::Device(_)) => Ok(()),
        }
        .map_err(failed)?;
        self.known(key)?.staged.insert(node.to_owned(), now);
        Ok(())
    }

    pub(super) fn unstage(&mut self, key: &str, node: &str, path: &Path) -> Result<(), Status> {
        let Some(volume) = self.volumes.get(key) else { return Ok(()) };
        if volume.published.keys().any(|(n, _)| n == node) {
            return Err(
                self.forbidden(key, format!("NodeUnstageVolume of {key} on {node} while it is published"))
            );
        }
        match volume.staged.get(node) {
            None => return Ok(()),
            Some((staged, _)) if staged != path => {
                return Err(self.forbidden(key, format!("NodeUnstageVolume of {key} at another path")));
            }
            Some(_) => {}
        }
        if !matches!(self.media.get(key), Some(Medium::Device(_))) {
            unmount(path, UnmountFlags::empty()).map_err(failed)?;
        }
        self.known(key)?.staged.remove(node);
        Ok(())
    }

    pub(super) fn publish(
        &mut self,
        key: &str,
        node: &str,
        staging: &Path,
        target: &Path,
        readonly: bool,
        arguments: &[u8],
    ) -> Result<(), Status> {
        let volume = self.known(key)?;
        if volume.staged.get(node).is_none_or(|(staged, _)| staged != staging) {
            return Err(
                self.forbidden(key, format!("NodePublishVolume of {key} on {node}, where it is not staged"))
            );
        }
        let place = (node.to_owned(), target.to_owned());
        match volume.published.get(&place) {
            Some(before) if before == arguments => return self.protect(key, target, readonly),
            Some(_) => {
                return Err(
                    self.forbidden(key, format!("NodePublishVolume of {key} again with other arguments"))
                );
            }
            None => {}
        }
        if !target.parent().is_some_and(Path::is_dir) {
            return Err(self.forbidden(key, format!("NodePublishVolume of {key} at a path without a parent")));
        }
        let made = match self.media.get(key) {
            Some(Medium::Device(_)) => fs::write(target, ""),
            _ if target.exists() => Ok(()),
            _ => fs::create_dir(target),
        };
        made.map_err(|error| Status::internal(error.to_string()))?;
        if self.unmountable.contains(key) {
            return Err(Status::internal(format!("{key} cannot be mounted")));
        }
        let source = match self.media.get(key) {
            Some(Medium::Device(device)) => device,
            _ => staging,
        };
        mount_bind(source, target).map_err(failed)?;
        self.known(key)?.published.insert(place, arguments.to_vec());
        self.protect(key, target, readonly)
    }

    fn protect(&self, key: &str, target: &Path, readonly: bool) -> Result<(), Status> {
        if !readonly || self.writable.contains(key) {
            return Ok(());
        }
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, c"").map_err(failed)
    }

    pub(super) fn unpublish(&mut self, key: &str, node: &str, target: &Path) -> Result<(), Status> {
        let place = (node.to_owned(), target.to_owned());
        if !self.volumes.get(key).is_some_and(|volume| volume.published.contains_key(&place)) {
            return Ok(());
        }
        match unmount(target, UnmountFlags::empty()) {
            // The caller may unmount by force what is in use.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(failed(errno)),
        }
        self.known(key)?.published.remove(&place);
        if self.untidy.contains(key) {
            return Ok(());
        }
        let gone = if target.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) };
        gone.map_err(|error| Status::internal(error.to_string()))
    }
}

fn failed(errno: Errno) -> Status {
    Status::internal(errno.to_string())
}
