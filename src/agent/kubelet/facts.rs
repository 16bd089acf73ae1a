//! What is known of one driver name at kubelet, and kept beside its socket for the next process: the link by which kubelet
//! finds the socket outlives this one, and kubelet does not ask again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::csi::proto::csi::v1::{NodeGetInfoResponse, Topology};
use crate::disk;

/// Extension of the files.
pub(crate) const FACTS: &str = "json";
/// How long a refusal stands before kubelet is made to look again: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// What kubelet has made of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Registered {
    /// kubelet has not asked, or has not decided.
    #[default]
    NotYet,
    /// kubelet calls this socket for the driver's volumes.
    Yes,
    /// kubelet has refused, with these words: mostly because another socket has the name.
    Refused(String),
}

/// What kubelet was told of the node, which it has written into the CSINode object and onto the Node's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Told {
    node_id: String,
    max_volumes: i64,
    topology: BTreeMap<String, String>,
}

impl Told {
    pub fn of(info: &NodeGetInfoResponse) -> Self {
        let topology = info.accessible_topology.as_ref().map(|topology| topology.segments.clone());
        Self {
            node_id: info.node_id.clone(),
            max_volumes: info.max_volumes_per_node,
            topology: topology.unwrap_or_default(),
        }
    }

    /// The same as an answer.
    pub fn info(self) -> NodeGetInfoResponse {
        let Self { node_id, max_volumes, topology: segments } = self;
        let accessible_topology = (!segments.is_empty()).then_some(Topology { segments });
        NodeGetInfoResponse { node_id, max_volumes_per_node: max_volumes, accessible_topology }
    }
}

/// Refusals that this process has heard one after the other, or has had kubelet look again after.
#[derive(Debug, Default)]
struct Refusals {
    count: u32,
    /// The last one; nothing where an earlier process heard it.
    last: Option<Instant>,
}

impl Refusals {
    fn next(&mut self) {
        (self.count, self.last) = (self.count.saturating_add(1), Some(Instant::now()));
    }

    fn left(&self) -> Duration {
        let [first, longest] = PAUSES;
        let pause = first.saturating_mul(2_u32.saturating_pow(self.count.saturating_sub(1))).min(longest);
        self.last.map_or(Duration::ZERO, |last| pause.saturating_sub(last.elapsed()))
    }
}

/// The file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    /// The name by which kubelet knows the driver.
    name: String,
    /// The name that the driver gives itself.
    driver: String,
    #[serde(default)]
    registered: Registered,
    /// Nothing since kubelet has been made to forget it, or was never told.
    #[serde(default)]
    told: Option<Told>,
}

/// The facts of one driver name. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    name: String,
    driver: String,
    path: PathBuf,
    kept: Arc<Mutex<Kept>>,
    refusals: Arc<Mutex<Refusals>>,
    /// Held while the file is written, so that what is on disk is what was said last.
    writing: Arc<Mutex<()>>,
}

impl Facts {
    /// Of a name of which nothing is known yet.
    pub fn new(path: &Path, name: &str, driver: &str) -> Self {
        let kept = Kept { name: name.to_owned(), driver: driver.to_owned(), ..Kept::default() };
        Self::of(path, kept)
    }

    /// Those that an earlier process has kept; nothing of a file that cannot be read.
    pub fn read(path: &Path) -> Option<Self> {
        let text = fs::read(path).ok()?;
        Some(Self::of(path, serde_json::from_slice(&text).ok()?))
    }

    fn of(path: &Path, kept: Kept) -> Self {
        let (name, driver) = (kept.name.clone(), kept.driver.clone());
        Self {
            name,
            driver,
            path: path.to_owned(),
            kept: Arc::new(Mutex::new(kept)),
            refusals: Arc::default(),
            writing: Arc::default(),
        }
    }

    /// The name by which kubelet knows the driver.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that the driver gives itself.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    pub fn registered(&self) -> Registered {
        self.kept.lock().registered.clone()
    }

    pub fn told(&self) -> Option<Told> {
        self.kept.lock().told.clone()
    }

    /// Has the next process know of the name. It is on disk when this returns.
    pub async fn keep(&self) -> io::Result<()> {
        self.change(|_| {}).await
    }

    /// Takes in what kubelet has decided. It is on disk when this returns.
    pub async fn decided(&self, registered: Registered) -> io::Result<()> {
        match &registered {
            Registered::Refused(_) => self.refusals.lock().next(),
            Registered::Yes | Registered::NotYet => *self.refusals.lock() = Refusals::default(),
        }
        self.change(move |kept| kept.registered = registered).await
    }

    /// How long kubelet's refusal is to stand yet; nothing if it has not refused. Then it has to be made to look again: it
    /// takes a plugin whose registration has failed at its end for one that it has.
    pub fn refused_for(&self) -> Option<Duration> {
        let refused = matches!(self.kept.lock().registered, Registered::Refused(_));
        refused.then(|| self.refusals.lock().left())
    }

    /// kubelet is made to look again after a refusal, of which it says more or nothing.
    pub fn asked_again(&self) {
        self.refusals.lock().next();
    }

    /// Takes in what kubelet is about to be told. It is on disk when this returns.
    pub async fn tell(&self, told: Told) -> io::Result<()> {
        self.change(move |kept| kept.told = Some(told)).await
    }

    /// kubelet is made to forget the driver.
    pub async fn forgotten(&self) -> io::Result<()> {
        self.change(|kept| (kept.registered, kept.told) = (Registered::NotYet, None)).await
    }

    async fn change(&self, change: impl FnOnce(&mut Kept) + Send + 'static) -> io::Result<()> {
        let me = self.clone();
        let work = move || {
            let _writing = me.writing.lock();
            let before = me.kept.lock().clone();
            let mut after = before.clone();
            change(&mut after);
            if after != before || !me.path.exists() {
                let text = serde_json::to_vec(&after)?;
                disk::replace(&me.path, &text)?;
            }
            *me.kept.lock() = after;
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|ended| Err(ended.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_process_knows_what_kubelet_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let facts = Facts::new(&path, "alias", "driver");
        let info = NodeGetInfoResponse { node_id: "n".to_owned(), ..NodeGetInfoResponse::default() };
        facts.tell(Told::of(&info)).await.unwrap();
        facts.decided(Registered::Yes).await.unwrap();
        let next = Facts::read(&path).unwrap();
        assert_eq!((next.name(), next.driver()), ("alias", "driver"));
        assert_eq!((next.registered(), next.told()), (Registered::Yes, Some(Told::of(&info))));
        next.forgotten().await.unwrap();
        let last = Facts::read(&path).unwrap();
        assert_eq!((last.registered(), last.told()), (Registered::NotYet, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_stands_for_a_while_and_longer_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let facts = Facts::new(&dir.path().join("a.json"), "alias", "driver");
        assert_eq!(facts.refused_for(), None);
        let refused = || Registered::Refused("taken".to_owned());
        for seconds in [2, 4, 8, 16, 30, 30] {
            facts.decided(refused()).await.unwrap();
            assert_eq!(facts.refused_for(), Some(Duration::from_secs(seconds)));
        }
        facts.asked_again();
        assert_eq!(facts.refused_for(), Some(Duration::from_secs(30)));
        // Another process has kubelet look at once.
        let next = Facts::read(&dir.path().join("a.json")).unwrap();
        assert_eq!(next.refused_for(), Some(Duration::ZERO));
        facts.decided(Registered::Yes).await.unwrap();
        assert_eq!(facts.refused_for(), None);
        facts.decided(refused()).await.unwrap();
        assert_eq!(facts.refused_for(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_kubelet_was_told_is_an_answer() {
        let segments = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        for accessible_topology in [None, Some(Topology { segments })] {
            let info =
                NodeGetInfoResponse { node_id: "n".into(), max_volumes_per_node: 3, accessible_topology };
            assert_eq!(Told::of(&info).info(), info);
        }
    }

    #[test]
    fn a_file_that_is_none_of_ours_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "{").unwrap();
        assert!(Facts::read(&path).is_none());
    }
}
