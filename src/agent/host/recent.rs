//! Shares the result of a costly look among those who ask for it at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex;
use tokio::time::Instant;

/// A look whose result is shared. Whoever asks gets a result of a look that began after the question; a thousand who
/// ask at once cause two looks. What was seen is kept only while somebody waits for it.
pub(crate) struct Recent<T> {
    last: Mutex<Option<(Instant, Arc<T>)>>,
    waiting: AtomicUsize,
}

impl<T> Recent<T> {
    pub const fn new() -> Self {
        Self { last: Mutex::const_new(None), waiting: AtomicUsize::new(0) }
    }

    /// What `look` sees, or somebody else's look has seen since this was called.
    pub async fn get<E>(&self, look: impl AsyncFnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let asked = Instant::now();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let (began, seen) = match last.take() {
            Some((began, seen)) if began > asked => (began, seen),
            _ => (Instant::now(), Arc::new(look().await?)),
        };
        if self.waiting.load(Ordering::Relaxed) > 0 {
            *last = Some((began, seen.clone()));
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_share_a_look_and_who_asks_later_gets_a_new_one() {
        let (recent, looks) = (Recent::new(), Cell::new(0));
        let look = async || {
            looks.set(looks.get() + 1);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(looks.get())
        };
        let one = || async {
            let seen = recent.get(look).await.unwrap();
            *seen
        };
        let seen = futures::future::join_all((0..100).map(|_| one())).await;
        assert_eq!((seen[0], looks.get()), (1, 2));
        let before = looks.get();
        assert_eq!(one().await, before + 1, "it may have changed since");
    }
}
