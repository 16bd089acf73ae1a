//! What a node knows of the API server's history, over restarts of the agent.
//!
//! A restored etcd continues from an older revision and soon passes the one it had before, so a revision alone does not
//! tell for long. The agent's own Lease does: nobody else writes it, so a version older than the last that the agent
//! wrote can only come from a backup. It is compared with nothing else: Leases may have an etcd of their own, with
//! revisions of their own. There the Lease tells of a restore of that etcd alone, and a process that starts after a
//! restore of the other one has nothing to tell it by but the revisions in its records.

use std::{
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::{sync::watch, task::spawn_blocking};
use tracing::warn;

use super::Restored;
use crate::k8s::ApiError;
use crate::k8s::lease::{Leases, revision};

/// The last version of the agent's Lease that the API server has confirmed, and whether it was ever set back.
#[derive(Debug, Default)]
pub struct History {
    known: watch::Sender<Known>,
    file: Option<PathBuf>,
    /// Held while the files are written.
    writing: Mutex<()>,
}

/// Later than every version: of a node that begins anew.
const FORGOTTEN: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Known {
    lease: u64,
    restored: Option<Restored>,
}

impl History {
    /// The history that is kept in `file`. A file that cannot be read counts as none: nothing is known yet.
    #[must_use]
    pub fn kept_in(file: &Path) -> Self {
        let known = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
        let restored = match fs::read_to_string(beside(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            text => Some(Restored::read(&text.unwrap_or_default())),
        };
        let known = Known { lease: known.unwrap_or(0), restored };
        Self { known: watch::Sender::new(known), file: Some(file.to_owned()), writing: Mutex::default() }
    }

    /// Writes into a Lease that etcd was restored, if this node has ever found that out.
    pub fn say_in(&self, lease: &mut Lease) {
        let restored = self.known.borrow().restored;
        if let Some(restored) = restored {
            restored.say_in(lease);
        }
    }

    /// A revision that the API server had reached.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.known.borrow().lease
    }

    /// Whether this Lease, as the API server just gave it, is older than what it had confirmed before.
    #[must_use]
    pub fn is_behind(&self, lease: &Lease) -> bool {
        revision(lease) < self.revision()
    }

    /// As [`Self::is_behind`], of the Lease as it is now, while renewals go on: what is confirmed after the request was
    /// sent says nothing about its answer.
    pub async fn went_back(&self, leases: &impl Leases, name: &str) -> Result<bool, ApiError> {
        let confirmed = self.revision();
        let lease = leases.get(name).await?;
        Ok(lease.is_some_and(|lease| revision(&lease) < confirmed))
    }

    /// Takes in the API server's answer to a renewal. [`Self::keep`] brings it to the disk.
    pub fn saw(&self, lease: &Lease) {
        self.known.send_if_modified(|known| {
            let before = *known;
            known.lease = known.lease.max(revision(lease));
            if known.restored == Some(Restored::Now) {
                known.restored = Restored::said_in(lease).map(Restored::At).or(known.restored);
            }
            *known != before
        });
    }

    /// Writes down what was seen, for ever, on a thread of its own: a disk that hangs holds up no renewal. What it has not
    /// taken when the process ends lets the next one notice a restore later, and nothing else.
    pub async fn keep(self: Arc<Self>) -> Infallible {
        let mut seen = self.known.subscribe();
        let mut kept = None;
        loop {
            // The sender lives as long as this runs.
            let _ = seen.changed().await;
            let me = self.clone();
            kept = spawn_blocking(move || me.write(kept)).await.unwrap_or(None);
        }
    }

    /// Not flushed to the disk: what a crash of the machine loses is of no use after a reboot, when nothing is mounted.
    /// Returns what is on the disk now about a restore.
    fn write(&self, kept: Option<Restored>) -> Option<Restored> {
        let file = self.file.as_ref()?;
        let _writing = self.writing.lock();
        let Known { lease, restored } = *self.known.borrow();
        if lease == FORGOTTEN {
            return None;
        }
        replace(file, &lease.to_string()).unwrap_or_else(|error| {
            warn!(file = %file.display(), "the Lease's version is not kept: {error}");
        });
        let Some(said) = restored.filter(|_| restored != kept) else { return kept };
        match replace(&beside(file), &said.text()) {
            Ok(()) => Some(said),
            Err(error) => {
                warn!("when it was said that etcd was restored is not kept, and is said anew: {error}");
                kept
            }
        }
    }

    /// The API server's history went back. To this process every Lease is one of a backup from here on: it ends without
    /// another renewal, which would pass for the report that the next one makes of what is mounted. Waits for nothing.
    pub fn end(&self) {
        self.known.send_modify(|known| known.lease = FORGOTTEN);
    }

    /// Lets the next process begin anew with the history that there is now, and say so on its Lease. Ends this one too.
    pub fn restart(&self) -> io::Result<()> {
        self.end();
        let _writing = self.writing.lock();
        self.known.send_modify(|known| known.restored = Some(Restored::Now));
        self.file.as_ref().map_or(Ok(()), |file| replace(&beside(file), &Restored::Now.text()))?;
        match self.file.as_ref().map(fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The file beside `file` in which it is kept that etcd was restored.
fn beside(file: &Path) -> PathBuf {
    file.with_extension("went-back")
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut aside = file.as_os_str().to_owned();
    aside.push(".new");
    fs::write(&aside, text)?;
    fs::rename(&aside, file)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn lease(version: &str) -> Lease {
        let metadata = ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() };
        Lease { metadata, ..Lease::default() }
    }

    fn saw(history: &History, lease: &Lease) {
        history.saw(lease);
        history.write(None);
    }

    #[test]
    fn a_lease_older_than_the_last_renewal_is_noticed_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease");
        let history = History::kept_in(&file);
        assert!(!history.is_behind(&lease("1")));
        saw(&history, &lease("20"));
        saw(&history, &lease("30"));

        let history = History::kept_in(&file);
        assert_eq!(history.revision(), 30);
        assert!(history.is_behind(&lease("29")));
        assert!(!history.is_behind(&lease("30")) && !history.is_behind(&lease("31")));
        history.restart().unwrap();
        history.restart().unwrap();
        assert!(!History::kept_in(&file).is_behind(&lease("29")));
    }

    /// An API server whose answer to a GET is overtaken by that to a renewal.
    struct Overtaken<'a>(&'a History);

    impl Leases for Overtaken<'_> {
        async fn get(&self, _: &str) -> Result<Option<Lease>, ApiError> {
            let answer = lease("30");
            self.0.saw(&lease("40"));
            Ok(Some(answer))
        }

        async fn create(&self, lease: &Lease) -> Result<crate::k8s::Created<Lease>, ApiError> {
            Ok(crate::k8s::Created::New(lease.clone()))
        }

        async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
            Ok(lease.clone())
        }
    }

    #[tokio::test]
    async fn a_renewal_that_overtakes_the_look_is_no_step_back() {
        let history = History::default();
        history.saw(&lease("30"));
        assert!(!history.went_back(&Overtaken(&history), "n").await.unwrap());
        assert!(history.went_back(&Overtaken(&history), "n").await.unwrap(), "30 after 40 was confirmed");
    }

    /// It may take long to write down what is in doubt, and a Lease of a node that has not reported yet counts as heard.
    #[test]
    fn from_the_moment_that_a_restore_is_noticed_no_renewal_passes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease");
        let history = History::kept_in(&file);
        saw(&history, &lease("20"));
        history.end();
        assert!(history.is_behind(&lease("9000")));
        // Nothing is on the disk of it: if the process ends here the next one finds the restore out again.
        assert_eq!(History::kept_in(&file).revision(), 20);
    }

    /// Else a leader that comes later takes a node that is silent for one that has nothing mounted.
    #[test]
    fn that_etcd_was_restored_is_said_with_one_revision_by_all_later_processes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease");
        let said = |history: &History, version: &str| {
            let mut lease = lease(version);
            history.say_in(&mut lease);
            Restored::said_in(&lease)
        };
        let history = History::kept_in(&file);
        saw(&history, &lease("20"));
        assert_eq!(said(&history, "20"), None);
        history.restart().unwrap();

        // Its first answer is lost.
        let history = History::kept_in(&file);
        assert_eq!(said(&history, "7"), Some(7));
        let history = History::kept_in(&file);
        let mut written = lease("8");
        history.say_in(&mut written);
        saw(&history, &written);
        assert_eq!(said(&history, "9"), Some(8));
        assert_eq!(said(&History::kept_in(&file), "90"), Some(8));
        History::kept_in(&file).restart().unwrap();
        assert_eq!(said(&History::kept_in(&file), "50"), Some(50), "once more");
    }

    /// Else the Lease of a node expires whose state disk hangs, and with it whatever else that thread has to do.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_disk_that_hangs_holds_up_no_renewal() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease");
        let history = Arc::new(History::kept_in(&file));
        let keeping = tokio::spawn(history.clone().keep());
        while history.known.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        let disk = history.writing.lock();
        let (done, ended) = std::sync::mpsc::channel();
        let renewing = history.clone();
        std::thread::spawn(move || {
            for version in ["20", "30"] {
                renewing.saw(&lease(version));
            }
            let _ = done.send(renewing.revision());
        });
        assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(10)), Ok(30));
        assert_eq!(History::kept_in(&file).revision(), 0);
        drop(disk);
        while History::kept_in(&file).revision() != 30 {
            tokio::task::yield_now().await;
        }
        keeping.abort();
    }

    #[test]
    fn a_file_that_cannot_be_read_knows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lease");
        fs::write(&file, "twelve").unwrap();
        assert_eq!(History::kept_in(&file).revision(), 0);
    }
}
