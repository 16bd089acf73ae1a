//! How full a volume is, by the kernel.

use std::fs;
use std::path::Path;

use super::bounded::Bounded;
use super::error::HostError;
use super::mounts::{DEVICES, number_of};
use super::paths::HostPath;
use crate::agent::failed_at::failed_at;

/// Questions to file systems, whose servers may be dead. They stop no look at a mount.
static QUESTIONS: Bounded = Bounded::new(32);
/// Bytes of the unit in which the kernel gives the size of a disk, whatever the disk's own.
const SECTOR: u64 = 512;

/// What of something there is, and how much of it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    pub total: u64,
    pub used: u64,
    /// What others than root can still take.
    pub available: u64,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub bytes: Amount,
    pub inodes: Amount,
}

/// How full the file system is that is mounted at `path`.
pub(crate) async fn of_file_system(path: &HostPath) -> Result<Usage, HostError> {
    let ask = |path: &Path| {
        let found = rustix::fs::statvfs(path);
        let found = found.map_err(|errno| failed_at(path, HostError::Usage)(errno.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Usage {
            bytes: Amount {
                total: bytes(found.f_blocks),
                used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
                available: bytes(found.f_bavail),
            },
            inodes: Amount {
                total: found.f_files,
                used: found.f_files.saturating_sub(found.f_ffree),
                available: found.f_favail,
            },
        })
    };
    QUESTIONS.at(path, ask).await
}

/// Size of a raw device in bytes, by its number as [`super::mounts::look`] gives it.
pub(crate) async fn of_device(path: &HostPath, device: &str) -> Result<u64, HostError> {
    let number = device.split('#').next().and_then(number_of);
    let ask = move |path: &Path| {
        let fail = failed_at(path, HostError::Usage);
        let Some((major, minor)) = number else { return Err(fail(std::io::ErrorKind::InvalidData.into())) };
        let size = fs::read_to_string(Path::new(DEVICES).join(format!("{major}:{minor}/size")));
        let sectors = size.map_err(&fail)?.trim().parse::<u64>();
        sectors
            .map(|sectors| sectors.saturating_mul(SECTOR))
            .map_err(|error| fail(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
    };
    QUESTIONS.at(path, ask).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_system_says_how_full_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = HostPath::recorded(dir.path().to_str().unwrap());
        let Usage { bytes, inodes } = of_file_system(&path).await.unwrap();
        assert!(bytes.total > 0 && bytes.used <= bytes.total && bytes.available <= bytes.total, "{bytes:?}");
        assert!(inodes.used <= inodes.total, "{inodes:?}");
        let none = HostPath::recorded(dir.path().join("none").to_str().unwrap());
        assert!(matches!(of_file_system(&none).await, Err(HostError::Usage(_))));
    }

    #[tokio::test]
    async fn a_device_that_is_none_has_no_size() {
        let path = HostPath::recorded("/dev/null");
        for device in ["", "x", "0:0"] {
            assert!(matches!(of_device(&path, device).await, Err(HostError::Usage(_))), "{device}");
        }
    }
}
