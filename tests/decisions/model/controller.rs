//! The agent beside a controller instance: one call in flight for the handle, one live read at a time.

use moor::api::AttachmentState;
use moor::attachment::controller_side::{self, ControllerStep, HandleRead};

use super::config::{Config, instance_name};
use super::seen::{att_seen, handle_seen};
use super::state::{Actor, Att, Call, Handle, Rpc, State};

/// What the decision looks at.
pub type ControllerView = (u8, Att, Option<Handle>);

/// Asks [`controller_side::plan`].
pub fn plan(config: &Config, (i, att, handle): &ControllerView) -> ControllerStep {
    let handle = handle.as_ref().map(|h| handle_seen(config, h));
    let read = match &handle {
        None => HandleRead::Unread,
        Some(handle) => HandleRead::Read(handle.as_ref()),
    };
    controller_side::plan(&att_seen(config, att), instance_name(*i), &read)
}

/// Does the step that was planned for `att`.
pub fn act(config: &Config, state: &mut State, i: u8, att: Att, step: ControllerStep) {
    let who = Actor::Controller(i);
    let handle = state.handle;
    let me = &mut state.controllers[usize::from(i)];
    me.dirty &= !(1 << att.uid);
    match step {
        ControllerStep::Idle => me.read = None,
        ControllerStep::ReadHandle => me.read = Some((att.uid, handle)),
        ControllerStep::Publish | ControllerStep::Unpublish => {
            me.call = Some(att);
            let rpc = match step {
                ControllerStep::Publish => Rpc::ControllerPublish,
                _ => Rpc::ControllerUnpublish,
            };
            let call =
                Call { by: who, rpc, node: att.node, uid: att.uid, mode: att.mode, claim: 0, waiting: true };
            state.calls.push(call);
        }
        ControllerStep::ReportDetached => undone(config, state, i, &att),
    }
}

/// The call that the agent waits for has ended: `Some(true)` OK, `Some(false)` a final error, `None` unknown.
pub fn ended(config: &Config, state: &mut State, i: u8, rpc: Rpc, outcome: Option<bool>) {
    let me = &mut state.controllers[usize::from(i)];
    let att = me.call.take().expect("an agent that waits knows for what");
    match (rpc, outcome) {
        (Rpc::ControllerPublish, Some(true)) => write(state, i, &att, AttachmentState::Attached),
        (_, Some(true)) => undone(config, state, i, &att),
        (_, Some(false) | None) => {
            me.read = None;
            me.dirty |= 1 << att.uid;
        }
    }
}

/// Ends an Attachment of which nothing is left, or writes that.
fn undone(config: &Config, state: &mut State, i: u8, seen: &Att) {
    let who = Actor::Controller(i);
    let is_where_it_was =
        |now: &&Att| (now.uid, now.state, now.controller) == (seen.uid, seen.state, seen.controller);
    let newest = state.atts_of(who).iter().find(is_where_it_was).copied();
    let ends = |newest: &Att| controller_side::ends_undone(&att_seen(config, newest));
    if newest.is_some_and(|newest| ends(&newest) && state.free_att(who, &newest)) {
        state.controllers[usize::from(i)].read = None;
    } else {
        write(state, i, seen, AttachmentState::ControllerDetached);
    }
}

fn write(state: &mut State, i: u8, seen: &Att, new: AttachmentState) {
    let written = state.update_att(Actor::Controller(i), seen, Att { state: new, ..*seen });
    let me = &mut state.controllers[usize::from(i)];
    me.read = None;
    if !written {
        me.dirty |= 1 << seen.uid;
    }
}
