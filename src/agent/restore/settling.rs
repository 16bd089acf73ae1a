//! Holds back the Lease after the API server's history went back, until the node has said which volumes it has
//! mounted (rule R7): the leader waits for that, and takes none of them for free before.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The VolumeHandles whose records have yet to be compared with the API server. None where nothing went back, or
/// everything was said.
#[derive(Debug, Default)]
pub(crate) struct Settling(Mutex<Option<BTreeSet<String>>>);

impl Settling {
    /// Begins with these VolumeHandles to compare.
    pub fn begin(&self, handles: BTreeSet<String>) {
        *self.0.lock() = (!handles.is_empty()).then_some(handles);
    }

    /// Takes a VolumeHandle off the list after a pass over it that had nothing more to do, or nothing that it may do
    /// now.
    pub fn looked(&self, handle: &str) {
        if let Some(left) = self.0.lock().as_mut() {
            left.remove(handle);
        }
    }

    /// How many handles are left to look at; nothing if nothing went back, or all is said.
    pub fn left(&self) -> Option<usize> {
        self.0.lock().as_ref().map(BTreeSet::len)
    }

    /// All is said.
    pub fn end(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_is_looked_at() {
        let settling = Settling::default();
        settling.begin(BTreeSet::new());
        assert!(settling.0.lock().is_none());
        settling.begin(["a".to_owned(), "b".into()].into());
        settling.looked("a");
        assert_eq!(settling.0.lock().as_ref().map(BTreeSet::len), Some(1));
        settling.looked("b");
        settling.looked("c");
        assert_eq!(settling.0.lock().as_ref().map(BTreeSet::len), Some(0));
    }
}
