//! Leases in memory, which can be slow, fail and lose answers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::*;
use crate::k8s::error::Request;

/// What the next requests meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fine,
    /// Refused without effect.
    Down,
    /// Done, but the answer never comes.
    AnswerLost,
    /// 401.
    Unauthorized,
}

#[derive(Clone)]
pub struct FakeLeases {
    state: Arc<Mutex<State>>,
    /// Weather is per client, the Lease is shared.
    weather: Arc<Mutex<Weather>>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    writes: u64,
    changes: Vec<Arc<Notify>>,
}

impl FakeLeases {
    pub fn new() -> Self {
        Self { state: Arc::default(), weather: Arc::new(Mutex::new(Weather::Fine)) }
    }

    /// Another client of the same API server.
    pub fn other(&self) -> Self {
        Self { state: self.state.clone(), weather: Arc::new(Mutex::new(Weather::Fine)) }
    }

    pub fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    pub fn lease(&self) -> Option<Lease> {
        self.state.lock().unwrap().lease.clone()
    }

    pub fn holder(&self) -> String {
        self.lease().as_ref().map(holder).unwrap_or_default().to_owned()
    }

    pub fn writes(&self) -> u64 {
        self.state.lock().unwrap().writes
    }

    /// What tells a candidate that the Lease has changed.
    pub fn changes(&self) -> Arc<Notify> {
        let changed = Arc::<Notify>::default();
        self.state.lock().unwrap().changes.push(changed.clone());
        changed
    }

    /// Sets it back to what it was.
    pub fn restore(&self, lease: Lease) {
        self.state.lock().unwrap().lease = Some(lease);
    }

    pub fn remove(&self) {
        self.state.lock().unwrap().lease = None;
    }

    fn request(verb: &'static str) -> Request {
        Request { verb, kind: "Lease".into(), subresource: "", object: "x".into() }
    }

    async fn through<T>(
        &self,
        verb: &'static str,
        effect: impl FnOnce(&mut State) -> T + Send,
    ) -> Result<T, ApiError> {
        sleep(Duration::from_millis(20)).await;
        let weather = *self.weather.lock().unwrap();
        match weather {
            Weather::Fine => Ok(effect(&mut self.state.lock().unwrap())),
            Weather::Down => Err(ApiError::TimedOut { request: Self::request(verb), seconds: 0 }),
            Weather::Unauthorized => Err(ApiError::Unauthorized(Self::request(verb))),
            Weather::AnswerLost => {
                effect(&mut self.state.lock().unwrap());
                std::future::pending().await
            }
        }
    }
}

impl State {
    fn store(&mut self, lease: &Lease) -> Lease {
        self.version += 1;
        self.writes += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        lease.metadata.uid = Some("u".into());
        self.lease = Some(lease.clone());
        self.changes.iter().for_each(|changed| changed.notify_one());
        lease
    }
}

impl Leases for FakeLeases {
    async fn get(&self, _: &str) -> Result<Option<Lease>, ApiError> {
        self.through("get", |state| state.lease.clone()).await
    }

    async fn create(&self, lease: &Lease) -> Result<Created<Lease>, ApiError> {
        self.through("create", |state| match state.lease {
            Some(_) => Created::Exists,
            None => Created::New(state.store(lease)),
        })
        .await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.through("update", |state| {
            let current = state.lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
            match current {
                None => Err(ApiError::Gone(Self::request("update"))),
                Some(version) if version != lease.metadata.resource_version => {
                    Err(ApiError::Conflict(Self::request("update")))
                }
                Some(_) => Ok(state.store(lease)),
            }
        })
        .await?
    }
}
