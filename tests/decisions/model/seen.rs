//! The bridge to the real decisions: the model's compact world in their words, their answers back.
//!
//! Decisions are pure, so each distinct view is asked about once and the answer kept.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex};

use moor::api::ClaimUid;
use moor::api::caller::ControllerRef;
use moor::api::claim::Assignment;
use moor::api::handle::{Writer, WriterRef};
use moor::api::volume::DeletionPolicy;
use moor::attachment::node_side::{self, LiveAttachment, NodeStep};
use moor::attachment::record::{Done, Forgotten, Lapse, Record, TargetRecord};
use moor::attachment::{AttachmentSeen, HandleSeen, NodeGrowth};
use moor::claim::ClaimSeen;
use moor::claim::admission::is_exclusive;

use super::config::{CLAIMS, Config, Names, claim_ids, claim_name, instance_name, node_ids, node_name};
use super::pods::Asked;
use super::state::{Att, Claim, Given, Handle, Lock, Pass, Rec, Uid};
use crate::fixtures::{self, NAMESPACE};
use crate::hashing::HashMap;

/// The Volume's UID and name.
pub const VOLUME: &str = "volume";

pub static NAMES: LazyLock<Names> = LazyLock::new(Names::new);

/// Answers by question.
#[derive(Debug)]
pub struct Memo<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::default()))
    }
}

impl<K: Hash + Eq, V: Clone> Memo<K, V> {
    pub fn get(&self, key: K, ask: impl FnOnce(&K) -> V) -> V {
        let mut all = self.0.lock().expect("no decision panics");
        if let Some(known) = all.get(&key) {
            return known.clone();
        }
        let answer = ask(&key);
        all.insert(key, answer.clone());
        answer
    }

    /// Everything that was ever answered.
    pub fn answers(&self) -> Vec<V> {
        self.0.lock().expect("no decision panics").values().cloned().collect()
    }
}

pub fn uid_name(uid: Uid) -> String {
    format!("u{uid}")
}

pub fn uid_of(name: &str) -> Uid {
    name.trim_start_matches('u').parse().expect("a UID of the model")
}

pub fn claim_of(uid: &str) -> u8 {
    claim_ids().find(|c| claim_name(*c) == uid).expect("a claim of the model")
}

/// UID of the `uid`th Node of this name.
pub fn node_uid(node: u8, uid: u8) -> String {
    format!("{}-{uid}", node_name(node))
}

pub fn controller_ref(given: Given) -> ControllerRef {
    let Given { instance, tenure } = given;
    let (name, agent) = (instance_name(instance), node_name(instance));
    ControllerRef::new(name, agent, tenure.into())
}

pub fn given(to: &ControllerRef) -> Given {
    let instance = node_ids().find(|i| instance_name(*i) == to.instance).expect("an instance of the model");
    Given { instance, tenure: u8::try_from(to.tenure).expect("a small tenure") }
}

pub fn claim_seen(config: &Config, c: u8, claim: &Claim) -> ClaimSeen {
    let spec = &config.claims[usize::from(c)];
    ClaimSeen {
        name: claim_name(if config.budget.again > 0 { 0 } else { c }).into(),
        created: i64::from(c),
        deleted: claim.deleted,
        held: claim.held,
        force: claim.force,
        node: spec.node.map(|n| node_name(n).into()),
        read_only: spec.read_only,
        mode: spec.mode,
        state: claim.state,
        assignment: claim.assigned.map(|(uid, node)| Assignment {
            attachment: NAMES.of(spec.mode, node).into(),
            attachment_uid: uid_name(uid).into(),
            handle_name: "handle".into(),
            node_name: node_name(node).into(),
            node_uid: node_name(node).into(),
        }),
        yielded: claim.yielded.map(|uid| uid_name(uid).into()),
        of_pod: config.pods,
        ..fixtures::claim(claim_name(c))
    }
}

pub fn att_seen(config: &Config, att: &Att) -> AttachmentSeen {
    AttachmentSeen {
        name: NAMES.of(att.mode, att.node).into(),
        deleted: att.deleted,
        volume_uid: volume_uid(att.volume),
        node: node_name(att.node).into(),
        node_uid: node_uid(att.node, att.node_uid),
        node_id: node_name(att.node).into(),
        mode: att.mode,
        epoch: i64::from(att.epoch),
        controller: config.attach.then(|| controller_ref(att.controller)),
        attach: config.attach,
        stage: config.stage,
        exclusive: is_exclusive(att.mode, config.shares_node),
        lingers: config.lingers,
        state: att.state,
        lost: att.lost,
        growth: NodeGrowth { asked: config.grows.into(), reached: att.grown.into() },
        ..fixtures::attachment(&uid_name(att.uid))
    }
}

pub fn handle_seen(config: &Config, handle: &Handle) -> Option<HandleSeen> {
    handle.there.then(|| HandleSeen {
        owner: format!("{NAMESPACE}/{VOLUME}"),
        volume_uid: volume_uid(handle.owner),
        mode: handle.mode,
        epoch: i64::from(handle.epoch),
        closing: handle.closing,
        closed_for: handle.last.map(|_| DeletionPolicy::Retain),
        let_go: handle.last == Some(true),
        controller: config.attach.then(|| controller_ref(handle.controller)),
        writer: handle.writer.map(|w| Writer {
            holder: writer_ref(w.holder),
            grant: 1,
            released: w.released,
            after: w.after.map(writer_ref),
        }),
        ..fixtures::handle()
    })
}

/// UID of a Volume.
pub fn volume_uid(v: u8) -> String {
    format!("{VOLUME}-{v}")
}

pub fn writer_ref((claim, uid): (u8, Uid)) -> WriterRef {
    WriterRef {
        claim: format!("{NAMESPACE}/{}", claim_name(claim)),
        claim_uid: claim_name(claim).into(),
        // Its name is that of its node, which the model leaves out.
        attachment: uid_name(uid),
        attachment_uid: uid_name(uid).into(),
    }
}

/// A writer's lock in the model's words.
pub fn lock_of(writer: &Writer) -> Lock {
    let of = |w: &WriterRef| (claim_of(&w.claim_uid), uid_of(&w.attachment_uid));
    Lock { holder: of(&writer.holder), released: writer.released, after: writer.after.as_ref().map(of) }
}

fn record_seen(rec: &Rec, node: u8) -> Record {
    let name = NAMES.of(rec.mode, node);
    let target = |(c, done): (u8, Done)| {
        (claim_name(c).into(), TargetRecord { published: done, ..fixtures::target(claim_name(c)) })
    };
    Record {
        attachment_name: name.into(),
        boot_id: format!("boot-{}", rec.boot),
        staged: rec.staged,
        targets: (0..)
            .zip(rec.targets)
            .filter_map(|(c, t)| Some((c, t?)))
            .map(target)
            .collect::<BTreeMap<_, _>>(),
        forgotten: rec.forgotten.then_some(Forgotten { since: 0, why: Lapse::LockRemoved }),
        ..fixtures::record(&uid_name(rec.uid))
    }
}

/// A node agent's view of the handle on its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeView {
    pub node: u8,
    pub node_uid: u8,
    pub boot: u8,
    pub claims: [Option<Claim>; CLAIMS],
    pub atts: Vec<Att>,
    pub records: Vec<Rec>,
    pub pass: Pass,
    pub mounted: [bool; CLAIMS],
    pub claims_back_off: [bool; CLAIMS],
    pub att_backs_off: Option<Uid>,
    pub grows_later: Option<Uid>,
    pub kubelet: Asked,
}

/// A [`NodeStep`] in the model's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeDoes {
    Idle,
    ReadClaim(u8),
    ReadAttachment(Uid, usize),
    ReadHandle(u8),
    ReportNotReady(u8),
    Yield(u8, Uid),
    Stage(Uid),
    Publish(u8, Uid),
    Grow(u8, Uid),
    ReportReady(u8),
    Unpublish(u8, Uid),
    Unstage(Uid),
    ReportClaimDetached(u8),
    ReportDetached(Uid),
    Forget(Uid),
    MarkForgotten(Uid),
}

/// Asks [`node_side::plan`].
pub fn node_plan(config: &Config, view: &NodeView) -> NodeDoes {
    let live = |(uid, att): &(Uid, Option<Att>)| {
        let live =
            att.as_ref().map_or(LiveAttachment::Gone, |a| LiveAttachment::Present(att_seen(config, a)));
        (uid_name(*uid).into(), live)
    };
    let named = |flags: &[bool; CLAIMS]| -> Vec<ClaimUid> {
        (0..).zip(flags).filter(|(_, f)| **f).map(|(c, _)| claim_name(c).into()).collect()
    };
    let here = |claim: &Claim| claim.assigned.is_some_and(|(_, node)| node == view.node);
    let seen = node_side::Seen {
        node_uid: node_uid(view.node, view.node_uid),
        boot_id: format!("boot-{}", view.boot),
        claims: (0..)
            .zip(&view.claims)
            .filter_map(|(c, claim)| claim.as_ref().filter(|k| here(k)).map(|k| claim_seen(config, c, k)))
            .collect(),
        attachments: view.atts.iter().filter(|a| a.node == view.node).map(|a| att_seen(config, a)).collect(),
        records: view.records.iter().map(|r| record_seen(r, view.node)).collect(),
        gone_claims: named(&view.pass.gone),
        live_attachments: view.pass.attachments.iter().map(live).collect(),
        live_handle: view.pass.handle.map(|(c, h)| (claim_name(c).into(), handle_seen(config, &h))),
        mounted: named(&view.mounted),
        // The API server of the model never goes back; records know no revision.
        doubted: Vec::new(),
        revision: None,
        orders: Vec::new(),
        unreadable: Vec::new(),
        unreadable_here: Vec::new(),
        asked: named(&view.kubelet.asked),
        released: named(&view.kubelet.released),
        backing_off: named(&view.claims_back_off)
            .into_iter()
            .map(|claim| claim.to_string())
            .chain(view.att_backs_off.map(uid_name))
            .collect(),
        grows_later: view.grows_later.map(|uid| uid_name(uid).into()).into_iter().collect(),
        grows_only_unused: false,
    };
    match node_side::plan(&seen) {
        NodeStep::Idle => NodeDoes::Idle,
        NodeStep::ReadClaim { claim } => NodeDoes::ReadClaim(claim_of(&claim)),
        NodeStep::ReadAttachment { attachment, name } => {
            NodeDoes::ReadAttachment(uid_of(&attachment), NAMES.index(&name))
        }
        NodeStep::ReadHandle { claim, attachment: _ } => NodeDoes::ReadHandle(claim_of(&claim)),
        NodeStep::ReportNotReady { claim } => NodeDoes::ReportNotReady(claim_of(&claim)),
        NodeStep::Yield { claim, attachment } => NodeDoes::Yield(claim_of(&claim), uid_of(&attachment)),
        NodeStep::Stage { attachment } => NodeDoes::Stage(uid_of(&attachment)),
        NodeStep::Publish { claim, attachment } => NodeDoes::Publish(claim_of(&claim), uid_of(&attachment)),
        NodeStep::Grow { claim, attachment } => NodeDoes::Grow(claim_of(&claim), uid_of(&attachment)),
        NodeStep::ReportReady { claim, attachment: _ } => NodeDoes::ReportReady(claim_of(&claim)),
        NodeStep::Unpublish { claim, attachment } => {
            NodeDoes::Unpublish(claim_of(&claim), uid_of(&attachment))
        }
        NodeStep::Unstage { attachment } => NodeDoes::Unstage(uid_of(&attachment)),
        NodeStep::ReportClaimDetached { claim } => NodeDoes::ReportClaimDetached(claim_of(&claim)),
        NodeStep::ReportDetached { attachment } => NodeDoes::ReportDetached(uid_of(&attachment)),
        NodeStep::Forget { attachment } => NodeDoes::Forget(uid_of(&attachment)),
        NodeStep::MarkForgotten { attachment, why: _ } => NodeDoes::MarkForgotten(uid_of(&attachment)),
        NodeStep::Presume { .. }
        | NodeStep::ReadRevision { .. }
        | NodeStep::Recall { .. }
        | NodeStep::FindUsersOfTarget { .. }
        | NodeStep::FindUsers { .. } => {
            unreachable!(
                "each record can be read, and none has a revision, is forgotten or has consumers that are not seen"
            )
        }
    }
}
