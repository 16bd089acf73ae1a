//! What failed at which path.

use std::io;
use std::path::{Path, PathBuf};

/// The operating system refused something at a path. What was tried there says the error that holds this.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct FailedAt {
    /// The file or directory.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Makes errors of one kind out of what fails at `path`.
pub(crate) fn failed_at<E>(path: &Path, kind: fn(FailedAt) -> E) -> impl Fn(io::Error) -> E {
    move |source| kind(FailedAt { path: path.to_owned(), source })
}
