//! The undo of an attachment that nobody claims, beside an Attachment for the same node, explored to its end.
//!
//! One volume, one node on which the storage has it attached, two leaders of which one has caches as old as it likes,
//! the agent of the controller instance, which may stop waiting for a call or crash, the node, and a driver like many:
//! a detachment whose caller is gone goes on, an attachment that is asked for meanwhile is answered OK because the volume
//! is still attached, and only the OK of a further detachment says that all is over. More is allowed than admission
//! allows: any leader grants, closes and begins an undo whenever it likes, without a look at the Attachments. What must
//! keep the volume attached is what the agents and the order of writes do. The decisions of the agents and the closing
//! are the real ones.

use std::collections::BTreeMap;

use moor::api::AttachmentState;
use moor::api::AttachmentState::{Attached, ControllerDetached, NodeDetached, Taken};
use moor::api::attachment::SecretRefs;
use moor::attachment::closing::{self, ClosingStep};
use moor::attachment::controller_side::{self, ControllerStep, HandleRead};
use moor::attachment::node_side::{self, NodeStep};
use moor::attachment::record::{Done, Record};
use moor::attachment::{AttachmentSeen, undo_only};
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::rules;

const NODE: &str = "node-2";

/// A guard that is left out, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Who attaches does not wait for an open entry.
    TheWait,
    /// Who undoes does not look at the other Attachments.
    TheList,
    /// An entry is done as soon as its Attachment is not there.
    DoneAfterDetached,
    /// A token is used again.
    NewTokens,
}

/// An Attachment; `token` of one that only undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Att {
    uid: u8,
    token: Option<u8>,
    state: AttachmentState,
    deleted: bool,
}

/// The VolumeHandle: the last entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Handle {
    token: Option<u8>,
    done: bool,
    version: u8,
}

impl Handle {
    fn open(self) -> Option<u8> {
        self.token.filter(|_| !self.done)
    }
}

/// What is at the API server, or as a leader saw it some time ago. (How old its view of the lock is makes no difference:
/// its writes there are guarded by name or UID.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Objects {
    lock: Option<Att>,
    undo: Option<Att>,
    handle: Handle,
}

/// A write that a leader decided on by a live read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Intent {
    Done { version: u8 },
    FreeUndo { uid: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pass {
    Idle,
    Read { it: Att, handle: Handle },
    Listed { it: Att, handle: Handle, lock: Option<Att> },
    Calling { it: Att, publish: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    api: Objects,
    /// The caches of the old leader.
    old: Objects,
    intents: [Option<Intent>; 2],
    pass: Pass,
    /// A call whose caller is gone, and whether it attaches.
    late: Option<bool>,
    attached: bool,
    staged: Option<u8>,
    created: u8,
    grants: u8,
    begun: u8,
    trouble: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Grant(usize),
    Close(usize),
    Free(usize),
    Begin(usize),
    Make(usize),
    CloseUndo(usize),
    End(usize),
    Absent(usize),
    Write(usize),
    SeeUndo,
    SeeHandle,
    Look(bool),
    Go,
    CallEnds,
    CallerGoes,
    LateCall(bool),
    Stage,
    Unstage,
    HandOn,
    HandOnUndo,
}

struct System {
    without: Without,
    /// Undos that are begun, at most.
    begun: u8,
    /// Attachments of both kinds that are made, at most.
    created: u8,
}

fn seen(att: Att) -> AttachmentSeen {
    let uid = format!("u{}", att.uid);
    let base = match att.token {
        Some(token) => rules::undo(&uid, NODE, &format!("t{token}")),
        None => rules::lock(&uid, NODE),
    };
    AttachmentSeen { state: att.state, deleted: att.deleted, ..base }
}

/// A record of an Attachment without targets.
pub fn record(uid: &str, staged: Done) -> Record {
    Record {
        attachment_uid: uid.into(),
        attachment_name: uid.into(),
        handle_name: "handle".into(),
        driver_name: "driver".into(),
        plugin_name: "driver".into(),
        volume_handle: "volume".into(),
        namespace: "default".into(),
        secrets: SecretRefs::default(),
        boot_id: "boot".into(),
        stage: true,
        staging_path: "staging".into(),
        staged,
        targets: BTreeMap::new(),
        left: BTreeMap::new(),
        revision: 0,
        forgotten: None,
    }
}

impl System {
    /// What the agent does, with what it has read.
    #[allow(clippy::option_option, reason = "not listed, and listed and not there")]
    fn plan(&self, it: Att, handle: Option<Handle>, lock: Option<Option<Att>>) -> ControllerStep {
        let read = handle.map(|h| {
            let token = h.open().map(|t| format!("t{t}"));
            rules::handle(token.as_ref().map(|t| (NODE, t.as_str())))
        });
        let read = read.as_ref().map_or(HandleRead::Unread, |h| HandleRead::Read(Some(h)));
        let locks = lock.map(|lock| lock.into_iter().map(seen).collect::<Vec<_>>());
        let step = match &locks {
            Some(locks) => undo_only::plan(&seen(it), "c1", &read, Some(locks)),
            None => controller_side::plan(&seen(it), "c1", &read),
        };
        match step {
            ControllerStep::WaitForUndo if self.without == Without::TheWait => ControllerStep::Publish,
            ControllerStep::ListLocks if self.without == Without::TheList => {
                self.plan(it, handle, Some(None))
            }
            other => other,
        }
    }

    fn hands_on(s: &State, undo: Att) -> bool {
        let staged = s.staged.map(|uid| record(&format!("u{uid}"), Done::Yes));
        let seen = node_side::Seen {
            node_uid: NODE.into(),
            boot_id: "boot".into(),
            attachments: vec![seen(undo)],
            backing_off: staged.iter().map(|r| r.attachment_uid.clone()).collect(),
            records: staged.into_iter().collect(),
            ..node_side::Seen::default()
        };
        matches!(node_side::plan(&seen), NodeStep::ReportDetached { .. })
    }

    fn leader(&self, s: &State, l: usize, actions: &mut Vec<Action>) {
        let view = view(s, l);
        let closing = |att: Option<Att>| att.and_then(|a| closing::plan(&seen(a), &[], false));
        if s.intents[l].is_some() {
            actions.push(Action::Write(l));
            return;
        }
        if view.lock.is_none() && s.grants > 0 {
            actions.push(Action::Grant(l));
        }
        match closing(view.lock) {
            Some(ClosingStep::Close | ClosingStep::CloseIfUnused) => actions.push(Action::Close(l)),
            Some(ClosingStep::Free) => actions.push(Action::Free(l)),
            Some(ClosingStep::FreeIfStillOut) | None => {}
        }
        match closing(view.undo) {
            Some(ClosingStep::Close) => actions.push(Action::CloseUndo(l)),
            Some(ClosingStep::Free) => actions.push(Action::End(l)),
            Some(ClosingStep::CloseIfUnused | ClosingStep::FreeIfStillOut) | None => {}
        }
        match view.handle.open() {
            None if s.begun < self.begun => actions.push(Action::Begin(l)),
            Some(token) if view.undo.is_none_or(|u| u.token != Some(token)) && s.created < self.created => {
                actions.push(Action::Make(l));
                if self.without == Without::DoneAfterDetached {
                    actions.push(Action::Absent(l));
                }
            }
            _ => {}
        }
    }

    fn lead(&self, s: &mut State, action: Action) {
        match action {
            Action::Grant(_) if s.api.lock.is_none() => {
                s.created += 1;
                s.grants -= 1;
                s.api.lock = Some(Att { uid: s.created, token: None, state: Taken, deleted: false });
            }
            Action::Close(l) => delete(view(s, l).lock, &mut s.api.lock),
            Action::CloseUndo(l) => delete(view(s, l).undo, &mut s.api.undo),
            Action::Free(l) => free(view(s, l).lock.map(|a| a.uid), &mut s.api.lock),
            Action::Begin(l) if view(s, l).handle.version == s.api.handle.version => {
                s.begun += 1;
                let token = if self.without == Without::NewTokens { 1 } else { s.begun };
                s.api.handle = Handle { token: Some(token), done: false, version: s.api.handle.version + 1 };
            }
            Action::Make(l) if s.api.undo.is_none() => {
                s.created += 1;
                let token = view(s, l).handle.open();
                s.api.undo = Some(Att { uid: s.created, token, state: Taken, deleted: false });
            }
            Action::End(l) => {
                let undo = view(s, l).undo.expect("an undo that is over");
                let live = s.api.handle;
                let over = live.open() != undo.token;
                let done = Intent::Done { version: live.version };
                s.intents[l] = Some(if over { Intent::FreeUndo { uid: undo.uid } } else { done });
            }
            Action::Absent(l) if s.api.undo.is_none() => {
                s.intents[l] = Some(Intent::Done { version: view(s, l).handle.version });
            }
            Action::Write(l) => match s.intents[l].take() {
                Some(Intent::Done { version }) if version == s.api.handle.version => {
                    s.api.handle.done = true;
                    s.api.handle.version += 1;
                }
                Some(Intent::FreeUndo { uid }) => free(Some(uid), &mut s.api.undo),
                _ => {}
            },
            _ => {}
        }
    }

    fn agent(&self, s: &mut State, action: Action) {
        match action {
            Action::Look(undo) => {
                let it = if undo { s.api.undo } else { s.api.lock }.expect("something to look at");
                s.pass = Pass::Read { it, handle: s.api.handle };
            }
            Action::Go => {
                let (it, step) = match s.pass {
                    Pass::Read { it, handle } => (it, self.plan(it, Some(handle), None)),
                    Pass::Listed { it, handle, lock } => (it, self.plan(it, Some(handle), Some(lock))),
                    Pass::Idle | Pass::Calling { .. } => return,
                };
                let handle = match s.pass {
                    Pass::Read { handle, .. } => handle,
                    _ => s.api.handle,
                };
                s.pass = Pass::Idle;
                match step {
                    ControllerStep::ListLocks => s.pass = Pass::Listed { it, handle, lock: s.api.lock },
                    ControllerStep::Publish | ControllerStep::Unpublish => {
                        let publish = step == ControllerStep::Publish;
                        s.pass = Pass::Calling { it, publish };
                    }
                    ControllerStep::ReportDetached => wrote(s, it, ControllerDetached),
                    _ => {}
                }
            }
            Action::CallEnds => {
                let Pass::Calling { it, publish } = s.pass else { return };
                s.attached = publish;
                s.pass = Pass::Idle;
                s.late = s.late.filter(|late| publish && !late);
                wrote(s, it, if publish { Attached } else { ControllerDetached });
            }
            Action::CallerGoes => {
                let Pass::Calling { publish, .. } = s.pass else { return };
                s.trouble -= 1;
                s.late = Some(publish);
                s.pass = Pass::Idle;
            }
            Action::LateCall(effect) => {
                let publish = s.late.take().expect("a call");
                s.attached = if effect { publish } else { s.attached };
            }
            _ => {}
        }
    }
}

/// What a leader sees.
fn view(s: &State, leader: usize) -> Objects {
    if leader == 0 { s.api } else { Objects { lock: s.api.lock, ..s.old } }
}

fn delete(seen: Option<Att>, live: &mut Option<Att>) {
    if let (Some(seen), Some(live)) = (seen, live) {
        live.deleted |= live.uid == seen.uid;
    }
}

fn free(uid: Option<u8>, live: &mut Option<Att>) {
    if live.map(|a| a.uid) == uid {
        *live = None;
    }
}

/// An agent writes a state, onto the object that it planned for.
fn wrote(s: &mut State, it: Att, state: AttachmentState) {
    let live = if it.token.is_some() { &mut s.api.undo } else { &mut s.api.lock };
    let same = |a: &&mut Att| {
        a.uid == it.uid && a.state == it.state && (state == ControllerDetached || a.deleted == it.deleted)
    };
    if let Some(live) = live.as_mut().filter(same) {
        live.state = state;
    }
}

impl Model for System {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = State {
            api: Objects::default(),
            old: Objects::default(),
            intents: [None; 2],
            pass: Pass::Idle,
            late: None,
            attached: true,
            staged: None,
            created: 0,
            grants: 1,
            begun: 0,
            trouble: 1,
        };
        vec![state]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        self.leader(s, 0, actions);
        self.leader(s, 1, actions);
        let behind =
            [(s.old.undo != s.api.undo, Action::SeeUndo), (s.old.handle != s.api.handle, Action::SeeHandle)];
        actions.extend(behind.iter().filter(|(behind, _)| *behind).map(|(_, see)| *see));
        match s.pass {
            Pass::Idle => {
                for (it, undo) in [(s.api.lock, false), (s.api.undo, true)] {
                    if it.is_some_and(|it| self.plan(it, None, None) == ControllerStep::ReadHandle) {
                        actions.push(Action::Look(undo));
                    }
                }
            }
            Pass::Read { .. } | Pass::Listed { .. } => {
                actions.push(Action::Go);
            }
            Pass::Calling { .. } => {
                actions.push(Action::CallEnds);
                if s.trouble > 0 {
                    actions.push(Action::CallerGoes);
                }
            }
        }
        if s.late.is_some() {
            actions.extend([Action::LateCall(true), Action::LateCall(false)]);
        }
        let usable = s.api.lock.filter(|a| seen(*a).is_usable());
        if usable.is_some() && s.staged.is_none() {
            actions.push(Action::Stage);
        }
        if s.staged.is_some() && s.api.lock.is_none_or(|a| a.deleted) {
            actions.push(Action::Unstage);
        }
        if s.staged.is_none() && s.api.lock.is_some_and(|a| a.deleted && a.state == Attached) {
            actions.push(Action::HandOn);
        }
        if s.api.undo.is_some_and(|u| Self::hands_on(s, u)) {
            actions.push(Action::HandOnUndo);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut s = *before;
        match action {
            Action::SeeUndo => s.old.undo = s.api.undo,
            Action::SeeHandle => s.old.handle = s.api.handle,
            Action::Stage => s.staged = s.api.lock.map(|a| a.uid),
            Action::Unstage => s.staged = None,
            Action::HandOn => s.api.lock.as_mut()?.state = NodeDetached,
            Action::HandOnUndo => s.api.undo.as_mut()?.state = NodeDetached,
            Action::Look(_) | Action::Go | Action::CallEnds | Action::CallerGoes | Action::LateCall(_) => {
                self.agent(&mut s, action);
            }
            _ => self.lead(&mut s, action),
        }
        (s != *before).then_some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is Attached is attached", |_, s: &State| {
                s.attached || s.api.lock.is_none_or(|a| a.state != Attached)
            }),
            Property::always("what a node uses is attached", |_, s: &State| s.attached || s.staged.is_none()),
            Property::sometimes("nobody's attachment is undone", |_, s: &State| {
                !s.attached && s.api.undo.is_none() && s.api.handle.done && s.grants == 1
            }),
            Property::sometimes("a claim that came during an undo is attached after it", |_, s: &State| {
                s.attached && s.api.handle.done && s.api.lock.is_some_and(|a| a.state == Attached)
            }),
            Property::sometimes("an undo gives way to an Attachment in use", |_, s: &State| {
                let undone = s.api.undo.is_some_and(|u| u.state == ControllerDetached);
                undone && s.api.lock.is_some_and(|a| a.state == Attached && a.uid < 2)
            }),
        ]
    }
}

const SAFETY: [&str; 2] = ["what is Attached is attached", "what a node uses is attached"];

#[test]
fn an_undo_never_takes_the_volume_from_a_node_that_uses_it() {
    let checker = System { without: Without::Nothing, begun: 2, created: 3 }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Each guard is needed: without it the model finds a way to detach under a workload.
#[test]
fn without_any_one_guard_it_would() {
    let guards = [
        (Without::TheWait, 1),
        (Without::TheList, 1),
        (Without::DoneAfterDetached, 1),
        (Without::NewTokens, 2),
    ];
    for (without, begun) in guards {
        let system = System { without, begun, created: begun + 2 };
        let checker = system.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let broken = SAFETY.iter().find_map(|name| checker.discovery(name));
        println!("without {without:?}: {} states", checker.unique_state_count());
        assert!(broken.is_some(), "nothing breaks without {without:?}");
    }
}
