//! Files that a crash of the machine leaves whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Extension of a file that is being written.
pub(crate) const ASIDE: &str = "new";

/// Replaces a file, which only its owner can read, as a whole; it is on disk when this returns.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = path.with_extension(ASIDE);
    let opened = File::options().write(true).create(true).truncate(true).mode(0o600).open(&aside);
    let written = opened.and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    });
    if let Err(error) = written {
        // It takes room where there may be none.
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    path.parent().map_or(Ok(()), sync)
}

/// Makes what was created, renamed or removed in a directory outlive a power cut.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
