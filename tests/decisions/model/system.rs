//! The model: which actions a state allows, and what each does.

use std::sync::Mutex;

use stateright::{Model, Property};

use moor::api::AttachmentState;
use moor::attachment::controller_side::ControllerStep;

use super::actions::{Action, End, What, acts, writes};
use super::config::{CLAIMS, Config, Removed, claim_ids, node_ids};
use super::controller::{self, ControllerView};
use super::leader::{self, LeaderDoes, LeaderView};
use super::seen::{Memo, NodeDoes, NodeView, node_plan};
use super::state::{Actor, Att, Cached, Handle, Kind, Machine, Rpc, State};
use super::steps::changed;
use super::{calm, node};
use crate::hashing::HashSet;

/// That none of the invariants in [`super::harm`] is broken; a report names the one that is.
pub const UNHARMED: &str = "what must never happen does not";

/// A configuration under check.
#[derive(Debug)]
pub struct System {
    pub config: Config,
    pub leaders: Memo<LeaderView, Vec<LeaderDoes>>,
    pub controllers: Memo<ControllerView, ControllerStep>,
    pub nodes: Memo<NodeView, NodeDoes>,
    /// States from which a run without trouble is known to end well.
    pub calm: Mutex<HashSet<u64>>,
}

impl System {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            leaders: Memo::default(),
            controllers: Memo::default(),
            nodes: Memo::default(),
            calm: Mutex::default(),
        }
    }

    pub fn leader_steps(&self, state: &State, l: u8) -> Vec<LeaderDoes> {
        self.planned(leader::view(state, Actor::Leader(l)))
    }

    /// The same of an old leader for which the time of every Attachment that it knows to be unused was over long ago: each
    /// leader counts for itself.
    fn impatient_steps(&self, state: &State, l: u8) -> Vec<LeaderDoes> {
        let mut view = leader::view(state, Actor::Leader(l));
        view.lingered = view.atts.iter().map(|a| a.uid).collect();
        if self.config.lingers { self.planned(view) } else { Vec::new() }
    }

    fn planned(&self, view: LeaderView) -> Vec<LeaderDoes> {
        self.leaders.get(view, |view| leader::plans(&self.config, view))
    }

    pub fn controller_step(&self, state: &State, i: u8, att: &Att, read: Option<Handle>) -> ControllerStep {
        let is_relieved = att.controller.tenure < state.controllers[usize::from(i)].relieved;
        if att.controller.instance == i && is_relieved {
            return ControllerStep::Idle;
        }
        self.controllers.get((i, *att, read), |view| controller::plan(&self.config, view))
    }

    pub fn node_step(&self, view: NodeView) -> NodeDoes {
        self.nodes.get(view, |view| node_plan(&self.config, view))
    }

    /// Steps of controller `i`: where something changed, or a live read waits to be used.
    pub fn controller_actions(&self, state: &State, i: u8, actions: &mut Vec<What>) {
        let (who, me) = (Actor::Controller(i), &state.controllers[usize::from(i)]);
        if state.waits(who) || !me.alive || state.machines[usize::from(i)].away {
            return;
        }
        for att in state.atts_of(who) {
            let reading = me.read.is_some_and(|(uid, _)| uid == att.uid);
            if me.read.is_some() && !reading {
                continue;
            }
            if me.dirty & (1 << att.uid) == 0 && !reading {
                continue;
            }
            let step =
                self.controller_step(state, i, att, me.read.filter(|_| reading).map(|(_, handle)| handle));
            let calls = matches!(step, ControllerStep::Publish | ControllerStep::Unpublish);
            if calls && self.config.serial && state.haunted(who) {
                if reading {
                    actions.push(What::Aborted(who));
                }
            } else if step != ControllerStep::Idle || reading {
                actions.push(What::Controller(i, *att, step));
            }
        }
    }

    /// The time for which an unused Attachment lingers ends, at any moment. It is asked about only while that decides
    /// something: it is attached.
    pub fn lingers_end(&self, s: &State) -> Vec<What> {
        let lingers = |a: &&Att| {
            self.config.lingers
                && a.state == AttachmentState::Attached
                && s.is_unused(a.uid)
                && !s.lingered.contains(&a.uid)
        };
        s.atts.iter().filter(lingers).map(|a| What::LingerEnds(a.uid)).collect()
    }

    /// The step of node `n`, and the retry of one that failed, if it holds its mutex or something changed.
    pub fn node_actions(&self, state: &State, n: u8, actions: &mut Vec<What>) {
        let (who, me) = (Actor::Node(n), &state.nodes[usize::from(n)]);
        let machine = &state.machines[usize::from(n)];
        if machine.away && (machine.off || me.kubelet.is_empty()) {
            return;
        }
        if me.att_backs_off.or(me.grows_later).is_some() || me.claims_back_off != [false; CLAIMS] {
            actions.push(What::RetryDue(n));
        }
        if state.waits(who) || (me.pass.is_none() && !me.dirty) {
            return;
        }
        let step = self.node_step(node::view(state, n));
        let is_let_go = matches!(step, NodeDoes::Unpublish(c, _) if me.kubelet.released[usize::from(c)]);
        if machine.away && !is_let_go && step != NodeDoes::Idle {
            return;
        }
        let calls = matches!(
            step,
            NodeDoes::Stage(_)
                | NodeDoes::Unstage(_)
                | NodeDoes::Publish(..)
                | NodeDoes::Unpublish(..)
                | NodeDoes::Grow(..)
        );
        if calls && self.config.serial && state.haunted(who) {
            if me.pass.is_some() {
                actions.push(What::Aborted(who));
            }
        } else if step != NodeDoes::Idle || me.pass.is_some() {
            actions.push(What::Node(n, step));
        }
    }

    /// Without ControllerPublish nothing fences a node, so Node deletion and taint are somebody's word that it is off. Of a
    /// machine that is heard they are wrong, and no word.
    fn nodes_go_and_come(&self, s: &State, actions: &mut Vec<What>) {
        for (n, machine) in (0..).zip(&s.machines) {
            if s.budget.away > 0 && !machine.away && self.config.leaves == Some(n) {
                actions.push(What::GoAway(n, true));
                // What was wrong of it would become somebody's word that is not true.
                if self.config.attach || !machine.is_wronged() {
                    actions.push(What::GoAway(n, false));
                }
            }
            if machine.away || machine.is_wronged() {
                actions.push(What::ComeBack(n));
            }
            if machine.away && machine.off && !s.nodes[usize::from(n)].records.is_empty() {
                actions.push(What::ComeAnother(n));
            }
            if s.budget.wrong > 0 && self.config.leaves == Some(n) && !machine.away && !machine.is_wronged() {
                actions.extend([What::DeleteNode(n), What::Taint(n)]);
            }
            if s.budget.word > 0 && machine.away && (self.config.attach || machine.off) {
                if !machine.unregistered {
                    actions.push(What::DeleteNode(n));
                }
                if machine.off && !machine.tainted && !machine.unregistered {
                    actions.push(What::Taint(n));
                }
            }
        }
        let forced = s.claims.iter().flatten().any(|c| c.force);
        if s.budget.word > 0 && !forced && s.claims.iter().flatten().any(|c| c.deleted) {
            actions.push(What::ForceDetach);
        }
    }

    fn trouble(&self, s: &State, actions: &mut Vec<What>) {
        let budget = &s.budget;
        for c in claim_ids() {
            if budget.force > 0
                && self.config.removed.is_none()
                && s.claims[usize::from(c)].is_some_and(|k| k.held)
            {
                actions.push(What::RemoveClaimByForce(c));
            }
        }
        self.nodes_go_and_come(s, actions);
        super::volumes::trouble(&self.config, s, actions);
        super::relief::trouble(&self.config, s, actions);
        match self.config.removed.filter(|_| budget.force > 0) {
            Some(Removed::Handle) if s.handle.there => actions.push(What::RemoveHandleByForce),
            Some(Removed::Attachment) => {
                actions.extend(s.atts.iter().map(|a| What::RemoveAttachmentByForce(a.uid)));
            }
            _ => {}
        }
        for (at, call) in s.calls.iter().enumerate().filter(|(_, c)| c.waiting) {
            let n = usize::from(call.node);
            let done = match call.rpc {
                Rpc::ControllerPublish => s.truth.attached[n].is_some(),
                Rpc::Stage => s.truth.staged[n].contains(&call.uid),
                Rpc::Publish => s.truth.published[n][usize::from(call.claim)].is_some(),
                _ => false,
            };
            if budget.fail > 0 && !done {
                actions.push(What::CallEnds(at, End::Refused));
            }
            if budget.late > 0 {
                actions.push(What::CallEnds(at, End::ReplyLost));
                actions.push(What::CallEnds(at, End::Deadline));
            }
        }
        for n in node_ids() {
            let (node, controller) = (Actor::Node(n), Actor::Controller(n));
            let me = &s.controllers[usize::from(n)];
            let remembers = |who| s.waits(who) || s.frozen.iter().any(|(w, ..)| *w == who);
            if budget.crash > 0 {
                let agent = &s.nodes[usize::from(n)];
                if agent.pass.is_some() || !agent.kubelet.is_empty() || remembers(node) {
                    actions.push(What::Crash(node));
                }
                if me.read.is_some() || remembers(controller) {
                    actions.push(What::Crash(controller));
                }
            }
            if budget.kill > 0 && me.alive {
                actions.push(What::KillPlugin(n, false));
                if !self.config.backend && s.calls.iter().any(|c| c.by == controller) {
                    actions.push(What::KillPlugin(n, true));
                }
            }
            if budget.revive > 0 && !me.alive {
                actions.push(What::RevivePlugin(n));
            }
            if budget.reboot > 0 {
                actions.push(What::Reboot(n));
            }
        }
    }
}

impl Model for System {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = State::first(&self.config);
        let Some((who, Kind::Claims)) = self.config.missed_all else { return vec![first] };
        let mut later = calm::younger_first(self, first.clone());
        later.frozen.push((who, Kind::Claims, Cached::Claims(first.claims)));
        vec![later]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        if s.harm.is_some() {
            return;
        }
        let mut all = Vec::new();
        for c in claim_ids() {
            let is_kept = self.config.kept.contains(&c) || self.config.by_kubelet_alone;
            if s.claims[usize::from(c)].is_some_and(|k| !k.deleted) && !is_kept {
                all.push(What::DeleteClaim(c));
            }
        }
        super::pods::actions(&self.config, s, true, &mut all);
        super::volumes::users(&self.config, s, &mut all);
        let fresh = self.leader_steps(s, 0);
        for l in [1, 2] {
            if s.budget.old_steps > 0 && s.frozen.iter().any(|(who, ..)| *who == Actor::Leader(l)) {
                // What looks lead to goes by all that is seen.
                let differs =
                    |step: &LeaderDoes| matches!(step, LeaderDoes::Look(_)) || !fresh.contains(step);
                let mut old = self.leader_steps(s, l);
                let impatient = self.impatient_steps(s, l).into_iter();
                let also: Vec<_> = impatient.filter(|step| !old.contains(step)).collect();
                old.extend(also);
                all.extend(old.into_iter().filter(differs).map(|step| What::Leader(l, step)));
            }
        }
        all.extend(fresh.into_iter().map(|step| What::Leader(0, step)));
        all.extend(self.lingers_end(s));
        if s.budget.again > 0 && s.claims == [None; CLAIMS] {
            all.push(What::MakeAgain);
        }
        all.extend((0..s.pending.len()).map(What::Finish));
        if let Some(n) = s.sick {
            all.push(What::Heal(n));
        }
        super::relief::answers(&self.config, s, &mut all);
        for n in node_ids() {
            self.controller_actions(s, n, &mut all);
            self.node_actions(s, n, &mut all);
        }
        for (at, call) in s.calls.iter().enumerate() {
            if call.waiting {
                all.push(What::CallEnds(at, End::Ok));
            } else {
                all.push(What::LateCall(at, true));
                all.push(What::LateCall(at, false));
            }
        }
        for (who, kind, _) in &s.frozen {
            if !matches!(who, Actor::Leader(_)) {
                all.push(What::CatchUp(*who, *kind));
                all.push(What::LookAgain(*who));
            }
        }
        self.trouble(s, &mut all);
        for what in all {
            if s.budget.lag > 0 && writes(&what) {
                for (who, kind) in self.config.lagging {
                    let own = !self.config.habits.deaf && acts(&what) == Some(*who);
                    if s.cached(*who, *kind).is_none() && !own {
                        actions.push(Action { what: what.clone(), missed: Some((*who, *kind)) });
                    }
                }
            }
            actions.push(Action { what, missed: None });
        }
    }

    fn next_state(&self, old: &State, action: Action) -> Option<State> {
        let mut new = old.clone();
        self.step(&mut new, &action.what);
        if let Some((who, kind)) = action.missed {
            if !changed(old, &new, who, kind) {
                return None;
            }
            let cached = match kind {
                Kind::Claims => Cached::Claims(old.claims),
                Kind::Attachments => Cached::Attachments(old.atts.clone()),
                Kind::Handle => Cached::Handle(old.handle),
                Kind::Nodes => Cached::Nodes(old.machines.map(Machine::node)),
            };
            new.budget.lag -= 1;
            new.frozen.push((who, kind, cached));
        }
        self.settle(old, &mut new);
        (new != *old).then_some(new)
    }

    /// Two leaders of which one has an old cache can switch modes against each other as long as it stays old.
    fn within_boundary(&self, state: &State) -> bool {
        state.handle.epoch <= self.config.max_epoch
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![Property::always(UNHARMED, |_: &Self, s: &State| s.harm.is_none())];
        all.push(Property::always("once trouble ends, every run ends well", calm::ends_well));
        all.push(Property::sometimes("the youngest claim is Ready", |model: &Self, s: &State| {
            s.claims[model.config.claims.len() - 1].is_some_and(|k| k.state == moor::api::ClaimState::Ready)
        }));
        if self.config.kept.is_empty() {
            all.push(Property::sometimes("everything is gone again", |_: &Self, s: &State| {
                s.claims == [None; CLAIMS] && s.atts.is_empty()
            }));
        }
        all
    }
}
