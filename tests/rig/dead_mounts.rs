//! A file system that never answers, as that of a server that is gone.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A mount of FUSE without anybody behind it. Whoever looks into it hangs, until it is dropped.
pub struct DeadMount {
    point: PathBuf,
    /// The end at which a server would answer.
    server: Option<File>,
}

impl DeadMount {
    pub fn at(point: &Path) -> Self {
        fs::create_dir_all(point).unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        mount("none", point, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        Self { point: point.to_owned(), server: Some(server) }
    }

    /// The server has ended: whoever looks is told so at once.
    pub fn end_server(&mut self) {
        self.server = None;
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        unmount(&self.point, UnmountFlags::DETACH).unwrap();
    }
}
