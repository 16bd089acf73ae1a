//! The objects that are in doubt: the node knew them when the API server's history went back, and has not seen them
//! since (rule R7, trap B2 and N15).
//!
//! A restored etcd soon passes the revision at which it was stopped, so it has to be written down at once which objects
//! it may have forgotten: all that records speak of. Whoever is seen again is believed again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::disk;

const FILE: &str = "went-back";

/// UIDs of Attachments and claims that have not been seen since.
#[derive(Debug)]
pub(crate) struct Doubts {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    uids: BTreeSet<String>,
    /// Whether the doubts were raised by this process: then what its caches hold is of the old history and proves
    /// nothing.
    fresh: bool,
}

impl Doubts {
    /// Reads what an earlier process wrote into `directory`.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let file = directory.join(FILE);
        let uids = match fs::read_to_string(&file) {
            Ok(text) => text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file, state: Mutex::new(State { uids, fresh: false }) })
    }

    /// Puts these objects in doubt too. They are on disk when this returns.
    pub fn raise(&self, uids: impl IntoIterator<Item = String>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.fresh = true;
        state.uids.extend(uids);
        let text = state.uids.iter().fold(String::new(), |text, uid| text + uid + "\n");
        if text.is_empty() {
            return Ok(());
        }
        disk::replace(&self.file, text.as_bytes())
    }

    /// The UIDs among these that are in doubt.
    pub fn among<'a>(&self, uids: impl Iterator<Item = &'a String>) -> Vec<String> {
        let state = self.state.lock();
        uids.filter(|uid| state.uids.contains(*uid)).cloned().collect()
    }

    /// Ends the doubt about an object that the API server has. The file stays until nothing is in doubt: what it says
    /// too much is found out again.
    pub fn settle(&self, uid: &str) {
        let mut state = self.state.lock();
        if !state.fresh && state.uids.remove(uid) && state.uids.is_empty() {
            let _ = fs::remove_file(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(doubts: &Doubts) -> Vec<String> {
        doubts.among(["a".to_owned(), "b".into(), "c".into()].iter())
    }

    #[test]
    fn doubts_outlive_the_process_until_the_object_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let doubts = Doubts::open(dir.path()).unwrap();
        assert!(all(&doubts).is_empty());
        doubts.raise(["a".into(), "b".into()]).unwrap();

        let doubts = Doubts::open(dir.path()).unwrap();
        assert_eq!(all(&doubts), ["a", "b"]);
        doubts.settle("a");
        assert_eq!(all(&doubts), ["b"]);
        doubts.settle("b");
        assert!(all(&doubts).is_empty() && !dir.path().join(FILE).exists());
    }

    #[test]
    fn what_the_old_history_showed_settles_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let doubts = Doubts::open(dir.path()).unwrap();
        doubts.raise(["a".into()]).unwrap();
        doubts.settle("a");
        assert_eq!(all(&doubts), ["a"]);
        assert_eq!(all(&Doubts::open(dir.path()).unwrap()), ["a"]);
    }
}
