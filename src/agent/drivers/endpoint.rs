//! One socket of a driver and the process behind it, as far as it has been asked.

use std::path::PathBuf;
use std::sync::Arc;

use super::fingerprint::Fingerprint;
use crate::csi::{Plugin, Service};
use crate::heartbeat::Answer;

/// How a plugin process is doing, as its watcher last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// It answers Probe.
    pub healthy: bool,
    /// There is no socket, or nobody accepts on it: the process is proven dead (rule R2).
    pub gone: bool,
    /// Why it is not healthy.
    pub error: Option<String>,
}

/// A process that answers, for making calls.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The connection.
    pub plugin: Plugin,
    /// What it says about itself.
    pub fingerprint: Arc<Fingerprint>,
}

/// What a watcher knows of the process behind its socket.
#[derive(Debug)]
pub(crate) enum Seen {
    /// There is no process, or it has not said who it is.
    Nothing,
    /// The process has said its driver's name, and has not answered what else it was asked.
    Name(String),
    /// All that is needed for calls.
    Serving(Serving),
}

/// What a process said about itself.
#[derive(Clone, Debug)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// Its driver's name, and not what it serves.
    Name(String),
    /// Everything.
    All(Arc<Fingerprint>),
}

/// A socket, and what is known of the process behind it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Path of the socket.
    pub path: PathBuf,
    /// The path as objects tell it: without the Pod that it is in, if moor runs it.
    pub place: PathBuf,
    /// Order of appearance: of two that answer, the newer serves.
    pub serial: u64,
    /// What its process said about itself, also after it ended.
    pub said: Said,
    /// The process, while it is connected.
    pub serving: Option<Serving>,
    /// The health of the process.
    pub health: Health,
}

impl Endpoint {
    /// The name its process gave itself, also after it ended.
    #[must_use]
    pub fn driver(&self) -> Option<&str> {
        match &self.said {
            Said::Nothing => None,
            Said::Name(name) => Some(name),
            Said::All(said) => Some(&said.driver),
        }
    }

    /// Whether the process is in a Pod that moor runs for the Controller service.
    #[must_use]
    pub fn is_in_pod(&self) -> bool {
        self.place != self.path
    }

    /// Who is there, for people.
    pub fn answer(&self) -> Answer {
        match self.driver() {
            _ if self.health.gone => Answer::NobodyListens,
            Some(driver) => Answer::Driver(driver.to_owned()),
            None => Answer::Nameless(self.health.error.clone().unwrap_or_default()),
        }
    }

    pub fn offers(&self, service: Service) -> bool {
        match &self.said {
            Said::Nothing => false,
            Said::Name(_) => service == Service::Identity,
            Said::All(said) => said.has(service),
        }
    }

    /// Whether the process says its name and did not say what it serves.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        matches!(self.said, Said::Name(_))
    }

    pub fn learn(&mut self, seen: Seen) {
        self.serving = None;
        match seen {
            Seen::Nothing => {}
            // What a process of this name said before still counts.
            Seen::Name(name) if self.driver() == Some(name.as_str()) => {}
            Seen::Name(name) => self.said = Said::Name(name),
            Seen::Serving(serving) => {
                self.said = Said::All(serving.fingerprint.clone());
                self.serving = Some(serving);
            }
        }
    }
}
