//! Everything that moor did, in one order: writes to the API server and calls to drivers.

use std::sync::{Arc, Mutex};

use moor::csi::Rpc;
use serde_json::Value;
use tonic::Code;

/// A write to the API server, as it passed the proxy.
#[derive(Clone, Debug)]
pub struct Write {
    /// POST, PUT, PATCH or DELETE.
    pub verb: String,
    /// Plural name of the kind.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
    pub body: Value,
}

/// A call to the fake driver.
#[derive(Clone, Debug)]
pub struct Call {
    pub rpc: Rpc,
    /// Node on which the driver's process serves.
    pub node: String,
    /// The volume: see [`super::fake`].
    pub key: String,
    /// The request as it was sent, to be compared.
    pub arguments: Vec<u8>,
}

#[derive(Clone, Debug)]
pub enum Event {
    Write(Write),
    Call(Call),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// HTTP status of a write.
    Answered(u16),
    /// gRPC code of a call.
    Code(Code),
    /// Who asked went away before there was an answer.
    Abandoned,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Process that did it: `controller` or a node's name.
    pub actor: String,
    pub event: Event,
    /// Place in the one order of all beginnings and ends.
    pub began: usize,
    /// Where it ended, and how.
    pub ended: Option<(usize, Outcome)>,
}

impl Write {
    /// Of what kind it is, without what it is about.
    pub fn label(&self) -> String {
        match self.subresource.as_str() {
            "" => format!("{} {}", self.verb, self.kind),
            subresource => format!("{} {}/{subresource}", self.verb, self.kind),
        }
    }

    /// The state that a write to /status sets; `freed` for what ends a deleted object.
    pub fn state(&self) -> Option<&str> {
        if self.frees() { Some("freed") } else { self.body.pointer("/status/state").and_then(Value::as_str) }
    }

    /// Whether it takes the last finalizer off: what else is put are Leases.
    fn frees(&self) -> bool {
        self.verb == "PUT" && self.kind != "leases"
    }
}

impl Entry {
    pub fn label(&self) -> String {
        match &self.event {
            Event::Write(write) => write.label(),
            Event::Call(call) => call.rpc.name().to_owned(),
        }
    }

    pub fn write(&self) -> Option<&Write> {
        if let Event::Write(write) = &self.event { Some(write) } else { None }
    }

    pub fn call(&self) -> Option<&Call> {
        if let Event::Call(call) = &self.event { Some(call) } else { None }
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.ended.map(|(_, outcome)| outcome)
    }

    /// A write that the API server took.
    pub fn is_taken(&self) -> bool {
        matches!(self.outcome(), Some(Outcome::Answered(200..=299)))
    }

    /// A call that the driver answered with OK.
    pub fn is_ok(&self) -> bool {
        self.outcome() == Some(Outcome::Code(Code::Ok))
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let about = match &self.event {
            Event::Write(write) => {
                format!("{}/{} {}", write.namespace, write.name, write.state().unwrap_or(""))
            }
            Event::Call(call) => call.key.clone(),
        };
        write!(f, "{:>5} {} {} {about} {:?}", self.began, self.actor, self.label(), self.ended)
    }
}

#[derive(Debug, Default)]
struct Inner {
    clock: usize,
    entries: Vec<Entry>,
    /// Who read what, and when.
    reads: Vec<(String, String, usize)>,
}

/// Cheap to clone; all clones share one order.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Inner>>);

/// An event that has begun. Dropped without an end it was abandoned.
pub struct Open {
    journal: Journal,
    number: usize,
    running: bool,
}

impl Journal {
    pub fn begin(&self, actor: &str, event: Event) -> Open {
        let mut inner = self.0.lock().unwrap();
        inner.clock += 1;
        let began = inner.clock;
        inner.entries.push(Entry { actor: actor.to_owned(), event, began, ended: None });
        Open { journal: self.clone(), number: inner.entries.len() - 1, running: true }
    }

    /// A process reads a path of the API server.
    pub(super) fn read(&self, actor: &str, path: &str) {
        let mut inner = self.0.lock().unwrap();
        inner.clock += 1;
        let now = inner.clock;
        inner.reads.push((actor.to_owned(), path.to_owned(), now));
    }

    /// Whether a process has read the object of this kind and name after `since`.
    pub fn has_read(&self, since: usize, actor: &str, kind: &str, name: &str) -> bool {
        let end = format!("/{kind}/{name}");
        let inner = self.0.lock().unwrap();
        inner.reads.iter().any(|(who, path, when)| who == actor && *when > since && path.ends_with(&end))
    }

    /// A moment to compare others with.
    pub fn now(&self) -> usize {
        self.0.lock().unwrap().clock
    }

    /// What began after `since`, that `wanted` picks.
    pub fn since(&self, since: usize, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let inner = self.0.lock().unwrap();
        inner.entries.iter().filter(|e| e.began > since && wanted(e)).cloned().collect()
    }

    /// The calls about one volume, in their order.
    pub fn calls_of(&self, key: &str) -> Vec<Entry> {
        self.since(0, |entry| entry.call().is_some_and(|call| call.key == key))
    }

    /// The names of the calls about one volume, in their order.
    pub fn trace_of(&self, key: &str) -> Vec<&'static str> {
        self.calls_of(key).iter().filter_map(|e| e.call().map(|c| c.rpc.name())).collect()
    }

    /// For the report of a failed test.
    pub fn text(entries: &[Entry]) -> String {
        entries.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

impl Open {
    pub fn end(mut self, outcome: Outcome) {
        self.close(outcome);
    }

    fn close(&mut self, outcome: Outcome) {
        if std::mem::take(&mut self.running) {
            let mut inner = self.journal.0.lock().unwrap();
            inner.clock += 1;
            let clock = inner.clock;
            inner.entries[self.number].ended = Some((clock, outcome));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close(Outcome::Abandoned);
    }
}
