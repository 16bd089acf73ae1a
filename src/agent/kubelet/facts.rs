//! What is known of one driver name at kubelet, and kept beside its socket for the next process: the link by which kubelet
//! finds the socket outlives this one, and kubelet does not ask again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::{fs, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::csi::proto::csi::v1::NodeGetInfoResponse;
use crate::disk;

/// Extension of the files.
pub(crate) const FACTS: &str = "json";

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
        self.change(move |kept| kept.registered = registered).await
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

    #[test]
    fn a_file_that_is_none_of_ours_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "{").unwrap();
        assert!(Facts::read(&path).is_none());
    }
}
