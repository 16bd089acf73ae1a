//! Whether a PersistentVolume stands for a volume, which the stock stack then has.
//!
//! There can be very many, and moor has to know of none but those that collide. So they are neither watched nor kept:
//! they are read when it matters, one by one, and one reading serves everybody who waits when it begins. One that had
//! begun before does not: that nothing stands for a volume is only true of a moment after the question (rule R1).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::k8s::ApiError;
use crate::k8s::read::{get_live, look_through};
use crate::volume::persistent_volume::{CsiSource, LeanPersistentVolume, Naming};

/// PersistentVolumes that are remembered to stand for a volume for certain. Each saves a LIST and decides nothing.
const REMEMBERED: usize = 4096;

/// What a reading found about one volume, or why it failed.
type Answer = Result<Option<Naming>, Arc<ApiError>>;

/// What is asked: which PersistentVolume stands for a volume, one excepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    source: CsiSource,
    except: Option<Except>,
}

/// A PersistentVolume that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Except {
    pub(crate) name: String,
    /// Its UID, where only this very one does not count.
    pub(crate) uid: Option<String>,
}

impl Except {
    /// Whichever has the name.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), uid: None }
    }

    fn is(&self, one: &LeanPersistentVolume) -> bool {
        let meta = &one.metadata;
        meta.name.as_ref() == Some(&self.name) && (self.uid.is_none() || self.uid == meta.uid)
    }
}

impl Question {
    fn answered_by(&self, one: &LeanPersistentVolume) -> Option<Naming> {
        let counts = !self.except.as_ref().is_some_and(|except| except.is(one));
        one.names(&self.source).filter(|_| counts)
    }
}

/// Reads the PersistentVolumes, one reading at a time.
pub(crate) struct PersistentVolumes {
    api: Api<LeanPersistentVolume>,
    asked: Mutex<Vec<(Question, oneshot::Sender<Answer>)>>,
    turn: tokio::sync::Mutex<()>,
    /// Names of those that certainly stood for a volume when they were last read. One that only may would hide another
    /// that certainly does and was made since.
    last: Mutex<HashMap<Question, String>>,
}

impl PersistentVolumes {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
            asked: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// The PersistentVolume that stands for this volume, one excepted, as etcd has it now. Where several do, one that certainly
    /// does.
    pub(crate) async fn naming(
        &self,
        wanted: &CsiSource,
        except: Option<&Except>,
    ) -> Result<Option<Naming>, ApiError> {
        self.answer(&Question { source: wanted.clone(), except: except.cloned() }).await
    }

    async fn answer(&self, wanted: &Question) -> Result<Option<Naming>, ApiError> {
        if let Some(naming) = self.still_naming(wanted).await? {
            return Ok(Some(naming));
        }
        let (tell, mut told) = oneshot::channel();
        self.asked.lock().push((wanted.clone(), tell));
        let _turn = self.turn.lock().await;
        // Somebody may have read for this one too. One that was interrupted has answered nobody.
        if let Ok(answer) = told.try_recv() {
            return answer.map_err(ApiError::Shared);
        }
        let asked = std::mem::take(&mut *self.asked.lock());
        let all: HashSet<&Question> = asked.iter().map(|(wanted, _)| wanted).chain([wanted]).collect();
        match self.read(&all).await {
            Ok(found) => {
                let answer = found.get(wanted).cloned();
                for wanted in all {
                    self.remember(wanted, found.get(wanted));
                }
                for (wanted, tell) in asked {
                    // Who has stopped waiting has been stopped.
                    let _ = tell.send(Ok(found.get(&wanted).cloned()));
                }
                Ok(answer)
            }
            Err(error) => {
                let error = Arc::new(error);
                for (_, tell) in asked {
                    let _ = tell.send(Err(Arc::clone(&error)));
                }
                Err(ApiError::Shared(error))
            }
        }
    }

    /// The PersistentVolume that certainly stood for the volume the last time, if it still does.
    async fn still_naming(&self, wanted: &Question) -> Result<Option<Naming>, ApiError> {
        let Some(name) = self.last.lock().get(wanted).cloned() else { return Ok(None) };
        let live = get_live(&self.api, &name).await?;
        Ok(live.and_then(|live| wanted.answered_by(&live)).filter(|naming| naming.certain))
    }

    fn remember(&self, wanted: &Question, naming: Option<&Naming>) {
        let mut last = self.last.lock();
        match naming.filter(|naming| naming.certain) {
            None => drop(last.remove(wanted)),
            Some(naming) => {
                if last.len() >= REMEMBERED {
                    last.clear();
                }
                last.insert(wanted.clone(), naming.name.clone());
            }
        }
    }

    async fn read(&self, all: &HashSet<&Question>) -> Result<HashMap<Question, Naming>, ApiError> {
        let mut found: HashMap<Question, Naming> = HashMap::new();
        look_through(&self.api, |one: LeanPersistentVolume| {
            for wanted in all {
                if found.get(*wanted).is_some_and(|naming| naming.certain) {
                    continue;
                }
                if let Some(naming) = wanted.answered_by(&one) {
                    found.insert((*wanted).clone(), naming);
                }
            }
            let done = all.iter().all(|wanted| found.get(*wanted).is_some_and(|naming| naming.certain));
            if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
        Ok(found)
    }
}

#[cfg(test)]
#[path = "persistent_volumes_tests.rs"]
mod tests;
