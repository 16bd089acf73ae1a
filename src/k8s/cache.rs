//! A cache of one kind: fed by watches and by the responses to our own writes, read by every decision.
//!
//! What is in it may be old, what is not in it may exist: presence may be acted on, because every write
//! carries a resourceVersion; absence is confirmed by [`super::read`], or as of a moment that the watch has come to (rule R1).

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::ClusterResourceScope};
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, time::Instant};

use super::index::{Index, IndexFn};
use super::read::Readable;
use super::store::{Change, Named, Origin, Store, version};
use super::unreadable::{Unreadable, UnreadableSet};

/// kubectl's copy of the object inside the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object type that can be cached.
pub trait Cached: Readable + Send + Sync + 'static {}
impl<K: Readable + Send + Sync + 'static> Cached for K {}

type OnChange<K> = Arc<dyn Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync>;

/// Says whether an object has this value in one of the fields by which the feeding watches select.
type HasValue<K> = fn(&K, &str) -> bool;

/// Objects of one kind, by name, UID and index.
pub struct Cache<K> {
    store: RwLock<Store<K>>,
    on_change: RwLock<Vec<OnChange<K>>>,
    changes: AtomicU64,
    unreadable: Mutex<UnreadableSet>,
    sources: Vec<Source>,
    selection: Option<(String, HasValue<K>)>,
    listed: watch::Sender<usize>,
    keeps_annotations: bool,
    keeps: fn(&K) -> bool,
}

struct Source {
    name: &'static str,
    state: Mutex<SourceState>,
}

struct SourceState {
    listed: bool,
    progress: Instant,
    /// The version of this kind up to which everything has been delivered; none while no stream is open.
    delivered: Option<u64>,
    /// Nothing is watched: there is nothing, and nobody wants it.
    rests: bool,
}

impl<K: Cached> Cache<K> {
    /// An empty cache, to be fed by one [`super::watch::watch`] per name (at most 8; more are ignored).
    #[must_use]
    pub fn new(sources: &[&'static str]) -> Self {
        let now = Instant::now();
        let sources: Vec<Source> = sources
            .iter()
            .take(8)
            .map(|name| Source {
                name,
                state: Mutex::new(SourceState {
                    listed: false,
                    progress: now,
                    delivered: None,
                    rests: false,
                }),
            })
            .collect();
        Self {
            store: RwLock::new(Store::new(u8::try_from(sources.len()).unwrap_or(8))),
            on_change: RwLock::default(),
            changes: AtomicU64::new(0),
            unreadable: Mutex::default(),
            sources,
            selection: None,
            listed: watch::Sender::new(0),
            keeps_annotations: true,
            keeps: |_| true,
        }
    }

    /// Says what the feeding watches select, where they select by fields that have this value.
    #[must_use]
    pub fn with_selection(self, value: &str, has_value: HasValue<K>) -> Self {
        Self { selection: Some((value.to_owned(), has_value)), ..self }
    }

    /// Drops the annotations of its objects, for readers that read none. What others may write there, and how much of it,
    /// is then no part of this process's memory.
    #[must_use]
    pub fn without_annotations(self) -> Self {
        Self { keeps_annotations: false, ..self }
    }

    /// Keeps only objects that are so, of a kind of which there are very many that nobody asks about. One that becomes
    /// otherwise leaves. The watches deliver all of them, and the end of every one is told: nothing else may be concluded
    /// from an absence here.
    #[must_use]
    pub fn that_keeps(self, keeps: fn(&K) -> bool) -> Self {
        Self { keeps, ..self }
    }

    /// Adds an index. `keys` says under which keys an object is found.
    #[must_use]
    pub fn with_index(self, index: Index, keys: IndexFn<K>) -> Self {
        self.store.write().add_index(index, keys);
        self
    }

    /// Calls `f` with (before, after) whenever an object changes, arrives or leaves, without any lock
    /// held; it should only put keys into queues. Equal before and after mean: one stream says that it
    /// has left, another still has it; look live. Register before the watches start.
    pub fn on_change(&self, f: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync + 'static) {
        self.on_change.write().push(Arc::new(f));
    }

    /// The objects that cannot be read. They are skipped (what was known of them before stays), so one malformed object
    /// never stalls the others.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.unreadable.lock().all()
    }

    /// The object of this name, of a kind that has no namespaces.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>>
    where
        K: Resource<Scope = ClusterResourceScope>,
    {
        self.get_in(Named { namespace: "", name })
    }

    /// The object of this name in its namespace.
    #[must_use]
    pub fn get_in(&self, named: Named<'_>) -> Option<Arc<K>> {
        self.store.read().by_name(named)
    }

    /// The object with this UID.
    #[must_use]
    pub fn by_uid(&self, uid: &str) -> Option<Arc<K>> {
        self.store.read().by_uid(uid)
    }

    /// The objects that `index` files under `key`, in no order. An index that was never added finds nothing.
    #[must_use]
    pub fn by_index(&self, index: Index, key: &str) -> Vec<Arc<K>> {
        self.store.read().by_index(index, key)
    }

    /// The number of objects that `index` files under `key`.
    #[must_use]
    pub fn count(&self, index: Index, key: &str) -> usize {
        self.store.read().count(index, key)
    }

    /// Of each key of `index` one of the objects under it: what all of them have in common is asked of one.
    #[must_use]
    pub fn one_of_each(&self, index: Index) -> Vec<Arc<K>> {
        self.store.read().one_of_each(index)
    }

    /// A number that is another one after each change of an object in the cache.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Every object, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.read().all()
    }

    /// Whether a feeding watch selects this object, as it is here.
    #[must_use]
    pub fn selects(&self, object: &K) -> bool {
        self.selection.as_ref().is_none_or(|(value, has_value)| has_value(object, value))
    }

    /// Takes in the response to an own write or live read, so that the next pass sees it before the
    /// watch delivers it. A response that shows the end of the object (being deleted, no finalizers) removes it.
    ///
    /// One that no feeding watch selects is left out: no event would take it out again, and it would stay for ever. What is known
    /// of it leaves, if that is older: whoever was refused a write would plan the same on it until its watch told.
    pub fn apply(&self, object: K) {
        if self.selects(&object) {
            self.put(object, Origin::Own);
        } else {
            let change = self.store.write().outgrow(object.meta());
            self.notify(change);
        }
    }

    /// What is known by now of an object that was read live and taken in. Nothing if it has ended since, or has left what the watches
    /// select; one that they do not select is as it was read.
    #[must_use]
    pub fn newest(&self, read: &Arc<K>) -> Option<Arc<K>> {
        match self.by_uid(read.meta().uid.as_deref().unwrap_or_default()) {
            Some(known) if version(known.meta()) >= version(read.meta()) => Some(known),
            None if self.selects(read) => None,
            Some(_) | None => Some(read.clone()),
        }
    }

    /// Removes an object that a live GET did not find, or found under another UID. It never comes back.
    pub fn remove_confirmed(&self, uid: &str) {
        let change = self.store.write().bury(uid, u64::MAX);
        self.notify(change);
    }

    /// Waits until every feeding watch has finished its first LIST.
    pub async fn synced(&self) {
        let all = self.sources.len();
        // The sender lives in self, so waiting cannot fail.
        let _ = self.listed.subscribe().wait_for(|listed| *listed >= all).await;
    }

    /// Whether every feeding watch has finished its first LIST.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.listed.borrow() >= self.sources.len()
    }

    /// Time since the slowest feeding watch last heard from the API server: something of a LIST, an opened
    /// stream, an event or a bookmark (trap B27). One that rests has nothing to hear.
    #[must_use]
    pub fn stalled_for(&self) -> Duration {
        let silent = |source: &Source| {
            let state = source.state.lock();
            (!state.rests).then(|| state.progress.elapsed())
        };
        self.sources.iter().filter_map(silent).max().unwrap_or_default()
    }

    /// Whether all is in here that was written to objects that this cache selects and keeps before one of them got this version: a stream
    /// delivers in the order of the versions of its kind. False while no stream is open and while an object cannot be read. Whether
    /// etcd was restored it does not know.
    #[must_use]
    pub fn has_all_before(&self, object: &K) -> bool {
        let version = version(object.meta());
        version > 0 && self.has_all_up_to(version)
    }

    pub(super) fn has_all_up_to(&self, version: u64) -> bool {
        let has =
            |source: &Source| source.state.lock().delivered.is_some_and(|delivered| delivered >= version);
        self.sources.iter().all(has) && self.unreadable.lock().all().is_empty()
    }

    pub(super) fn put(&self, mut object: K, origin: Origin) {
        self.strip(object.meta_mut());
        self.unreadable.lock().read(object.meta());
        if !(self.keeps)(&object) {
            let is_known = object.meta().uid.as_deref().is_some_and(|uid| self.by_uid(uid).is_some());
            if let (true, Origin::Stream(stream)) = (is_known, origin) {
                self.leave(object.meta(), stream);
            }
            return;
        }
        let changes = self.store.write().put(object, origin);
        self.notify(changes);
    }

    pub(super) fn leave(&self, meta: &ObjectMeta, stream: u8) {
        self.unreadable.lock().remove(meta.uid.as_ref());
        let changes = self.store.write().leave(meta, stream);
        self.notify(changes);
    }

    /// As [`Self::leave`], with the object as it was in the end. Those who heed changes hear of its end also if it was none of
    /// those that are kept.
    pub(super) fn delete(&self, object: K, stream: u8) {
        self.leave(object.meta(), stream);
        if !(self.keeps)(&object) {
            self.notify([Change { old: Some(Arc::new(object)), new: None }]);
        }
    }

    /// A source has finished a LIST.
    pub(super) fn finish_list(&self, listed: &HashSet<String>, version: u64, stream: u8) {
        self.unreadable.lock().listed(listed, stream);
        let changes = self.store.write().listed(listed, version, stream);
        self.notify(changes);
        if let Some(source) = self.sources.get(usize::from(stream)) {
            let first = !std::mem::replace(&mut source.state.lock().listed, true);
            if first {
                self.listed.send_modify(|listed| *listed += 1);
            }
        }
    }

    pub(super) fn progressed(&self, stream: u8) {
        if let Some(source) = self.sources.get(usize::from(stream)) {
            let mut state = source.state.lock();
            (state.progress, state.rests) = (Instant::now(), false);
        }
    }

    /// The stream of a source has delivered everything up to this version, or is none any more.
    pub(super) fn delivered(&self, stream: u8, version: Option<u64>) {
        if let Some(source) = self.sources.get(usize::from(stream)) {
            source.state.lock().delivered = version;
        }
    }

    /// A source has listed nothing, and does not watch until somebody wants it.
    pub(super) fn rests(&self, stream: u8) {
        if let Some(source) = self.sources.get(usize::from(stream)) {
            source.state.lock().rests = true;
        }
    }

    /// The newest resourceVersion that has been seen of this kind.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.store.read().highest()
    }

    pub(super) fn source_name(&self, stream: u8) -> &'static str {
        self.sources.get(usize::from(stream)).map_or("unknown", |source| source.name)
    }

    /// Takes in an object that cannot be read. What a stream that lags has of it counts no more once a newer version of it
    /// was read.
    pub(super) fn put_unreadable(&self, mut unreadable: Unreadable, stream: u8) {
        self.strip(&mut unreadable.metadata);
        let known = unreadable.metadata.uid.as_deref().and_then(|uid| self.by_uid(uid));
        if known.is_some_and(|known| version(known.meta()) > version(&unreadable.metadata)) {
            return;
        }
        self.unreadable.lock().put(unreadable, stream);
    }

    /// Drops what no decision reads and what makes up half of an object's memory, and room for more.
    fn strip(&self, meta: &mut ObjectMeta) {
        meta.managed_fields = None;
        meta.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
        meta.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
        if !self.keeps_annotations {
            meta.annotations = None;
        } else if let Some(annotations) = &mut meta.annotations {
            annotations.remove(LAST_APPLIED);
        }
    }

    fn notify(&self, changes: impl IntoIterator<Item = Change<K>>) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        let hooks = self.on_change.read().clone();
        for change in changes {
            for hook in &hooks {
                hook(change.old.as_ref(), change.new.as_ref());
            }
        }
    }
}
