//! Work at paths that may never come back, as a look at a mount whose server is dead.
//!
//! Each piece of work takes a thread and is given up after a while. Its thread stays until it comes back, so that there is
//! a bound to them; whatever may hang for a reason of its own has a bound of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Longest wait for the kernel.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Pieces of work at a time. One that hangs gives its place back when it is given up, so that others go on.
const AT_A_TIME: usize = 16;

/// Why work has no result.
#[derive(Debug)]
pub(super) enum GivenUp {
    /// It did not end in time, or earlier work at the same path has not come back.
    Hangs,
    /// Work at other paths hangs, as much as may.
    OthersHang,
    /// Its thread ended early.
    Ended(JoinError),
}

/// Bounds one kind of work.
#[derive(Debug)]
pub(super) struct Bounded {
    places: Semaphore,
    most: usize,
    next: AtomicU64,
    /// Paths of the work that was given up and has not come back, by number.
    given_up: Mutex<BTreeMap<u64, PathBuf>>,
}

impl Bounded {
    /// At most so many threads that hang. The runtime has 512 for all kinds of work, and records are written by them
    /// too.
    pub const fn new(most: usize) -> Self {
        Self {
            places: Semaphore::const_new(AT_A_TIME),
            most,
            next: AtomicU64::new(0),
            given_up: Mutex::new(BTreeMap::new()),
        }
    }

    /// Does `work` at `path` on a thread of its own, and gives up when it does not end.
    pub async fn run<T: Send + 'static>(
        &'static self,
        path: &Path,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, GivenUp> {
        // Never closed, so there is always a permit to wait for.
        let _place = self.places.acquire().await.ok();
        {
            let given_up = self.given_up.lock();
            if given_up.values().any(|hanging| hanging == path) {
                // No second thread goes where one has not come back from.
                return Err(GivenUp::Hangs);
            }
            if given_up.len() >= self.most {
                return Err(GivenUp::OthersHang);
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ended = Arc::new(AtomicBool::new(false));
        let (inner, end) = (path.to_owned(), ended.clone());
        let task = tokio::task::spawn_blocking(move || {
            let result = work(&inner);
            let mut given_up = self.given_up.lock();
            end.store(true, Ordering::Relaxed);
            given_up.remove(&number);
            result
        });
        if let Ok(done) = tokio::time::timeout(PATIENCE, task).await {
            return done.map_err(GivenUp::Ended);
        }
        let mut given_up = self.given_up.lock();
        // Under the lock: it may have come back in this moment.
        if !ended.load(Ordering::Relaxed) {
            given_up.insert(number, path.to_owned());
        }
        Err(GivenUp::Hangs)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Has work at `path` hang, and be given up. It ends when what is returned is dropped.
    pub async fn hang_at(bounded: &'static Bounded, path: &Path) -> std::sync::mpsc::Sender<()> {
        let (come_back, held) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = tokio::sync::oneshot::channel();
        let dead = path.to_owned();
        let first = tokio::spawn(async move {
            let hang = move |_: &Path| {
                let _ = begins.send(());
                let _ = held.recv();
            };
            bounded.run(&dead, hang).await
        });
        begun.await.unwrap();
        tokio::time::advance(PATIENCE * 2).await;
        assert!(matches!(first.await.unwrap(), Err(GivenUp::Hangs)));
        come_back
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_that_hangs_has_one_thread_and_no_more() {
        static BOUNDED: Bounded = Bounded::new(8);
        let path = Path::new("/a/file/system/that/is/dead");
        let come_back = hang_at(&BOUNDED, path).await;

        // Answered at once: nothing was begun that could be waited for.
        let again = BOUNDED.run(path, |_| ()).now_or_never();
        assert!(matches!(again, Some(Err(GivenUp::Hangs))), "{again:?}");
        BOUNDED.run(Path::new("/another/path"), |_| ()).await.unwrap();
        drop(come_back);
        while BOUNDED.run(path, |_| ()).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_threads_hang_than_may_and_one_kind_stops_no_other() {
        static ONE: Bounded = Bounded::new(2);
        static OTHER: Bounded = Bounded::new(2);
        let _hanging = [hang_at(&ONE, Path::new("/a")).await, hang_at(&ONE, Path::new("/b")).await];
        let third = ONE.run(Path::new("/c"), |_| ()).await;
        assert!(matches!(third, Err(GivenUp::OthersHang)), "{third:?}");
        let known = ONE.run(Path::new("/a"), |_| ()).await;
        assert!(matches!(known, Err(GivenUp::Hangs)), "what is known of a path says more: {known:?}");
        OTHER.run(Path::new("/a"), |_| ()).await.unwrap();
    }
}
