//! The plugin processes of this node: found by their sockets, known by the name they give themselves.
//!
//! The plugin directory is looked through twice a second. That costs less than it sounds (a handful of stat calls),
//! sees a socket that was replaced under the same name, and cannot miss an event.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::endpoint::{Endpoint, Health, Said, Seen};
use super::folders::{Folders, Scan, SocketFile};
use super::place::Where;
use super::watcher::Watcher;
use crate::csi::{Deadlines, Service};
use crate::heartbeat::{Answer, Socket, Sockets};
use crate::trace::Trace;

/// Time between two looks through the plugin directory.
const SCAN: Duration = Duration::from_millis(500);
/// After this long a socket that has not been asked with success or failure is no longer waited for.
const SETTLED: Duration = Duration::from_secs(20);

struct Watched {
    file: SocketFile,
    endpoint: Endpoint,
    /// Whether the socket's watcher has reported at least once.
    reported: bool,
    poke: Arc<Notify>,
    task: AbortHandle,
}

/// What the registry asks of and tells the rest of the agent.
pub trait Surroundings: Send + Sync + 'static {
    /// Sockets that Plugins name or that are in Pods which moor runs, beside those in the directory.
    fn named_sockets(&self) -> Vec<PathBuf>;
    /// A socket's path as objects tell it.
    fn place_of(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
    /// How long a process of this driver may take to become healthy.
    fn health_timeout(&self, driver: &str) -> Duration;
    /// Tells how many folders of the plugin directory do not answer: what is in them is not known.
    fn unanswered(&self, _folders: usize) {}
    /// Tells that the watch of a socket has panicked.
    fn panicked(&self) {}
    /// Something about this driver's processes has changed. `serving`: one answers that did not before.
    fn changed(&self, driver: &str, serving: bool);
}

/// The sockets of this node.
pub struct Registry {
    directory: PathBuf,
    deadlines: Deadlines,
    surroundings: Arc<dyn Surroundings>,
    trace: Arc<Trace>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sockets: HashMap<PathBuf, Watched>,
    /// What is no socket where one is looked for, and folders that do not answer.
    others: BTreeMap<PathBuf, Answer>,
    serial: u64,
    /// When the directory was looked through for the first time.
    scanned: Option<Instant>,
}

impl State {
    fn is_settled(&self) -> bool {
        let waited = self.scanned.map(|scanned| scanned.elapsed());
        waited.is_some_and(|waited| waited > SETTLED || self.sockets.values().all(|w| w.reported))
    }

    /// Whether moor's own process for a driver, at this socket, comes before one that somebody else runs: when it has said all
    /// of itself, and has not ended. Right after a start it is not known yet whether it will.
    fn has_own(&self, socket: &Path, driver: &str) -> bool {
        let is_own = |own: &Watched| {
            let said_all = matches!(&own.endpoint.said, Said::All(said) if said.driver == driver);
            let has_said = said_all && !own.endpoint.health.gone;
            if own.reported { has_said } else { !self.is_settled() }
        };
        self.sockets.get(socket).is_some_and(is_own)
    }
}

impl Registry {
    /// A registry of the sockets below `directory`.
    #[must_use]
    pub fn new(directory: PathBuf, deadlines: Deadlines, surroundings: Arc<dyn Surroundings>) -> Arc<Self> {
        let trace = Arc::default();
        Arc::new(Self { directory, deadlines, surroundings, trace, state: Mutex::default() })
    }

    /// The last calls of all processes, for people.
    pub(crate) fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// What is known of this driver's service here: the endpoint that serves it, else the last that did. Of those that
    /// answer, a healthy one comes before another, and the newest before others; unhealthy alone stops no call: that is for
    /// whoever assigns (rule R2). Where the Plugin names a socket, that process comes first for all that it offers, and
    /// without it there is none.
    #[must_use]
    pub(crate) fn best(&self, driver: &str, service: Service, at: &Where) -> Option<Endpoint> {
        let state = self.state.lock();
        let all = || state.sockets.values().map(|w| &w.endpoint).filter(|e| e.driver() == Some(driver));
        if let Where::At(socket) = at {
            let named = all().find(|e| e.path == *socket)?;
            // One that has not said what it serves may serve this.
            if named.offers(service) || named.is_unread() {
                return Some(named.clone()).filter(|e| e.offers(service));
            }
        }
        let counts = |e: &&Endpoint| match at {
            Where::Only(sockets) => sockets.contains(&e.path),
            Where::First(own) if state.has_own(own, driver) => e.path == *own,
            Where::First(_) | Where::At(_) | Where::Directory => !e.is_in_pod(),
        };
        all()
            .filter(counts)
            .filter(|e| e.offers(service))
            .max_by_key(|e| (e.serving.is_some(), e.health.healthy, e.serial))
            .cloned()
    }

    /// The newest process at this place, if it says this name and does not say what it serves.
    #[must_use]
    pub fn unread(&self, driver: &str, place: &Path) -> Option<Endpoint> {
        let state = self.state.lock();
        let of_driver = state.sockets.values().map(|w| &w.endpoint).filter(|e| e.driver() == Some(driver));
        let newest = of_driver.filter(|e| e.place == place).max_by_key(|e| e.serial);
        newest.filter(|e| e.is_unread()).cloned()
    }

    /// The drivers that answer.
    #[must_use]
    pub fn drivers(&self) -> Vec<String> {
        let state = self.state.lock();
        let serving = state.sockets.values().filter(|w| w.endpoint.serving.is_some());
        serving.filter_map(|w| w.endpoint.driver().map(str::to_owned)).collect()
    }

    /// What was found, for people; None before the directory was looked through. A socket of which nothing is known yet is
    /// left out.
    #[must_use]
    pub fn sockets(&self) -> Option<Sockets> {
        let state = self.state.lock();
        state.scanned?;
        let asked = state.sockets.values().filter(|w| w.reported).map(|w| &w.endpoint);
        let asked = asked.map(|endpoint| (&endpoint.path, endpoint.answer()));
        let others = state.others.iter().map(|(path, other)| (path, other.clone()));
        let found = asked.chain(others).map(|(path, answer)| {
            let below = path.strip_prefix(&self.directory).ok().filter(|below| !below.as_os_str().is_empty());
            let path = below.unwrap_or(path);
            Socket { path: path.display().to_string(), answer }
        });
        Some(Sockets::of(&self.directory.display().to_string(), found.collect()))
    }

    /// Whether every socket that was there at the start has been asked. Before that it says nothing that a driver was
    /// not seen.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state.lock().is_settled()
    }

    /// Has the processes of a driver probed now, because a call has found the connection broken.
    pub fn poke(&self, driver: &str) {
        for watched in self.state.lock().sockets.values() {
            if watched.endpoint.driver() == Some(driver) {
                watched.poke.notify_one();
            }
        }
    }

    /// Looks through the directory for ever.
    pub async fn run(self: Arc<Self>) {
        let mut folders = Folders::of(self.directory.clone());
        loop {
            let mut named = self.surroundings.named_sockets();
            // The Plugin that named one may be gone, and undo goes on (rule R9).
            named.extend(self.state.lock().sockets.keys().cloned());
            let scan = folders.look(named).await;
            self.surroundings.unanswered(scan.unanswered.len());
            self.reconcile(&scan);
            tokio::time::sleep(SCAN).await;
        }
    }

    fn reconcile(self: &Arc<Self>, scan: &Scan) {
        let found = &scan.found.sockets;
        let mut told = HashSet::new();
        {
            let mut state = self.state.lock();
            state.scanned.get_or_insert_with(Instant::now);
            let State { sockets, others, serial, .. } = &mut *state;
            others.retain(|path, _| scan.hides(path));
            others.extend(
                scan.found.others.iter().map(|(path, what)| (path.clone(), Answer::NoSocket((*what).into()))),
            );
            others.extend(scan.unanswered.iter().map(|folder| (folder.clone(), Answer::Hangs)));
            sockets.retain(|path, watched| {
                // Of a folder that does not answer nothing is known, least of all that a process has ended.
                let same = scan.hides(path) || found.get(path) == Some(&watched.file);
                // A watch ends by being aborted or by a panic. After a panic the socket is watched anew, as another process.
                let panicked = same && watched.task.is_finished();
                if panicked {
                    tracing::error!(socket = %path.display(), "the watch of the socket has panicked");
                    self.surroundings.panicked();
                    told.extend(watched.endpoint.driver().map(str::to_owned));
                }
                if !same {
                    watched.task.abort();
                    tracing::info!(socket = %path.display(), driver = watched.endpoint.driver(), "the socket is gone");
                    told.extend(watched.endpoint.driver().map(str::to_owned));
                }
                same && !panicked
            });
            for (path, file) in found {
                if !sockets.contains_key(path) {
                    *serial += 1;
                    let watched = self.watch(path, *file, *serial);
                    sockets.insert(path.clone(), watched);
                }
            }
        }
        for driver in told {
            self.surroundings.changed(&driver, false);
        }
    }

    fn watch(self: &Arc<Self>, path: &Path, file: SocketFile, serial: u64) -> Watched {
        tracing::info!(socket = %path.display(), "a socket appeared");
        let poke = Arc::new(Notify::new());
        let endpoint = Endpoint {
            path: path.to_owned(),
            place: self.surroundings.place_of(path),
            serial,
            said: Said::Nothing,
            serving: None,
            health: Health::default(),
        };
        let (me, surroundings, at) = (self.clone(), self.surroundings.clone(), path.to_owned());
        let watcher = Watcher {
            path: path.to_owned(),
            deadlines: self.deadlines(),
            trace: self.trace.clone(),
            poke: poke.clone(),
            health_timeout: Box::new(move |driver| surroundings.health_timeout(driver)),
            report: Box::new(move |seen, health| me.report(&at, serial, seen, health)),
        };
        let task = tokio::spawn(watcher.watch()).abort_handle();
        Watched { file, endpoint, reported: false, poke, task }
    }

    /// Takes in the report of a process's watcher.
    fn report(&self, path: &Path, serial: u64, seen: Seen, health: Health) {
        let (driver, before, arrived) = {
            let mut state = self.state.lock();
            // A watcher that was aborted in the middle of its report speaks of a socket that is gone.
            let Some(watched) = state.sockets.get_mut(path).filter(|w| w.endpoint.serial == serial) else {
                return;
            };
            watched.reported = true;
            let endpoint = &mut watched.endpoint;
            let before = endpoint.driver().map(str::to_owned);
            let old = endpoint.serving.take();
            endpoint.learn(seen);
            // Each connection has a fingerprint of its own.
            let arrived = match (&endpoint.serving, &old) {
                (Some(new), Some(old)) => !Arc::ptr_eq(&new.fingerprint, &old.fingerprint),
                (new, _) => new.is_some(),
            };
            let driver = endpoint.driver().map(str::to_owned);
            let same = !arrived
                && old.is_some() == endpoint.serving.is_some()
                && endpoint.health == health
                && driver == before;
            endpoint.health = health;
            if same {
                return;
            }
            (driver, before, arrived)
        };
        if let Some(before) = before.filter(|before| Some(before) != driver.as_ref()) {
            self.surroundings.changed(&before, false);
        }
        if let Some(driver) = driver {
            self.surroundings.changed(&driver, arrived);
        }
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        self.deadlines.clone()
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod start_tests;
#[cfg(test)]
#[path = "registry_tests.rs"]
pub(crate) mod tests;
