//! Watches that stall on demand: their connection stays, and nothing comes over it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use tokio::sync::watch;

use super::Rig;

/// Which watches stall: process and plural name of the kind. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Stalls(Arc<watch::Sender<BTreeSet<(String, String)>>>);

impl Stalls {
    /// The same stream, of which nothing passes while the watch of this kind by this process stalls.
    pub fn hold<S>(&self, stream: S, actor: &str, kind: &str) -> impl Stream<Item = S::Item> + Send + 'static
    where
        S: Stream + Send + 'static,
        S::Item: Send + 'static,
    {
        let (stalled, watch) = (self.0.subscribe(), (actor.to_owned(), kind.to_owned()));
        stream.then(move |item| {
            let (mut stalled, watch) = (stalled.clone(), watch.clone());
            async move {
                // The sender lives as long as the rig; without a rig nothing has to stall.
                let _ = stalled.wait_for(|stalled| !stalled.contains(&watch)).await;
                item
            }
        })
    }
}

impl Rig {
    /// From now on this process sees nothing new of this kind, though it has a watch.
    pub fn stall(&self, actor: &str, kind: &str) {
        let watch = (actor.to_owned(), kind.to_owned());
        let _ = self.stalls.0.send_if_modified(|stalled| stalled.insert(watch));
    }

    /// The end of [`Self::stall`]: everything comes that came meanwhile.
    pub fn unstall(&self, actor: &str, kind: &str) {
        let watch = (actor.to_owned(), kind.to_owned());
        let _ = self.stalls.0.send_if_modified(|stalled| stalled.remove(&watch));
    }
}
