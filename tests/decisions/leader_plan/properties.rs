//! What holds of the leader's plan, whatever it sees and whatever is answered.

use std::collections::BTreeMap;

use moor::api::lock::attachment_name;
use moor::api::{AccessMode, AttachmentState, ClaimState};
use moor::attachment::HandleSeen;
use moor::attachment::loss::{self, Heard, Machine, NodeFacts, NodeNow, Verdict};
use moor::leader::{LeaderStep, Look, Looked};
use moor::volume::CallerNow;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::fixtures::DRIVER_VOLUME;
use super::super::model::arbitrary::{Scene, attachments, claims, scene};
use super::{Observed, caller, instance, leaving, lock};
use moor::api::VolumeState;
use moor::api::caller::ControllerRef;
use moor::api::volume::{DeletionPolicy, VolumeOperation};
use moor::claim::{ClaimSeen, Entitled};

/// More looks than one step can need.
const MOST_LOOKS: usize = 16;

fn heard_as(node_id: Option<&str>) -> Heard {
    Heard { boot_id: String::new(), node_id: node_id.map(Into::into) }
}

/// Whether an agent is heard that may be the recorded one's.
fn is_heard(node: &NodeFacts) -> bool {
    !node.silent || node.heard.contains(&heard_as(None))
}

fn facts() -> impl Strategy<Value = NodeFacts> {
    let bools = (any::<bool>(), any::<bool>(), any::<bool>());
    (bools, prop::option::of(any::<bool>())).prop_map(|((gone, silent, tainted), heard)| {
        let node = NodeNow::There {
            uid: "node-1".into(),
            out_of_service: tainted && silent,
            boot_id: String::new(),
            node_id: None,
        };
        let now = if gone { NodeNow::Gone } else { node };
        NodeFacts {
            machine: Machine { node_uid: "node-1".into(), ..Machine::default() },
            now,
            silent,
            heard: heard.into_iter().map(|known| heard_as(known.then_some("another"))).collect(),
        }
    })
}

/// Every answer that could be asked for.
#[derive(Clone, Debug)]
struct Answers {
    node: NodeFacts,
    claims: Vec<ClaimSeen>,
    locks: Vec<moor::attachment::AttachmentSeen>,
    exists: bool,
    copied: bool,
    caller: CallerNow,
    entitled: Entitled,
}

prop_compose! {
    fn answers()(
        node in facts(),
        claims in claims().boxed(),
        locks in attachments().boxed(),
        exists in any::<bool>(),
        copied in any::<bool>(),
        caller in select(vec![CallerNow::MayCall, CallerNow::CutOff, CallerNow::Relieved]),
        entitled in select(vec![Entitled::Yes, Entitled::PodGone, Entitled::No("no".into())]),
    ) -> Answers {
        Answers { node, claims, locks, exists, copied, caller, entitled }
    }
}

prop_compose! {
    fn observed()(
        Scene { volume, handle, claims, attachments, nodes, forgotten } in scene().boxed(),
        node in facts(),
        operation in select(vec![
            VolumeOperation::Create, VolumeOperation::Validate, VolumeOperation::Expand, VolumeOperation::Delete
        ]),
        state in select(vec![VolumeState::Pending, VolumeState::Created, VolumeState::Ready, VolumeState::Deleted]),
        (stays, owns, locked, dead) in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        (ended_reports, cautious) in (any::<bool>(), prop::bool::weighted(0.1)),
    ) -> Observed {
        let mut object = leaving(operation, "node-1", state);
        object.metadata.uid = Some(if owns { "volume" } else { "other" }.into());
        if stays {
            object.metadata.deletion_timestamp = None;
        }
        let handle = handle.map(|seen| HandleSeen {
            name: "handle".into(),
            volume_handle: "vol-1".into(),
            controller: lock(false, "node-1").controller,
            ..seen
        });
        let nodes_of: BTreeMap<_, _> = attachments.iter().map(|a| (a.uid.clone(), node.clone())).collect();
        Observed {
            volume: volume.is_some().then_some(object),
            volume_seen: volume,
            instances: vec![instance("node-1", dead), instance("node-2", false)],
            handle: handle.filter(|_| locked),
            claims,
            locks: attachments.clone(),
            attachments,
            nodes_of,
            nodes,
            forgotten,
            ended_reports,
            cautious,
            ..Observed::default()
        }
    }
}

/// Answers once; a second time is a circle.
fn answer(answers: &Answers, observed: &Observed, look: Look, looked: &mut Looked) -> bool {
    match look {
        Look::Node { attachment } => looked.nodes.insert(attachment, answers.node.clone()).is_none(),
        Look::Users { attachment } => {
            let mut users = answers.claims.clone();
            users.retain(|claim| claim.uses() == Some(&attachment));
            looked.users.insert(attachment, users).is_none()
        }
        Look::Attachment { name } => {
            let live = answers.locks.first().map(|a| a.uid.clone());
            looked.attachments.insert(name, live).is_none()
        }
        Look::Locks => looked.locks.replace(answers.locks.clone()).is_none(),
        Look::Claim { key: _, uid } => {
            let live = answers.claims.iter().find(|c| c.uid == uid).cloned();
            looked.claims.insert(uid, live).is_none()
        }
        Look::Caller(controller) => looked.callers.insert(controller, answers.caller).is_none(),
        Look::Assigned => {
            let live = observed.volume.as_ref().filter(|_| answers.exists);
            looked.assigned.replace(live.and_then(|volume| volume.spec.assignment.clone())).is_none()
        }
        Look::Owner => looked.owner_exists.replace(answers.exists).is_none(),
        Look::Copies { .. } => {
            let by = answers.copied.then(|| "Snapshot s".to_owned());
            looked.copied_by.replace(by).is_none()
        }
        Look::Holders { .. } => {
            let by = answers.copied.then(|| "Snapshot s".to_owned());
            looked.shared_with.replace(by).is_none()
        }
        Look::PersistentVolumes(_) => looked.named_by.replace(None).is_none(),
        Look::EndedReports => looked.reports_have_ended.replace(answers.exists).is_none(),
        Look::Pod { claim } => looked.pods.insert(claim, answers.entitled.clone()).is_none(),
        Look::Handle { name } => {
            let live = observed.handle.clone().filter(|_| answers.exists);
            looked.handles.insert(name, live).is_none()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// It comes to a write or to rest, asks nothing twice, and what it writes is allowed by what was read live.
    #[test]
    fn every_write_follows_from_what_was_read(
        observed in observed().prop_map(Box::new).boxed(),
        answers in answers().prop_map(Box::new).boxed(),
    ) {
        let mut looked = Looked::default();
        let mut looks = 0;
        let step = loop {
            let next = observed.plan(&looked);
            prop_assert_eq!(&next, &observed.plan(&looked));
            let LeaderStep::Look(look) = next.step else { break next.step };
            prop_assert!(answer(&answers, &observed, look.clone(), &mut looked), "{:?} is asked for again", look);
            looks += 1;
            prop_assert!(looks < MOST_LOOKS);
        };
        let attachment = |uid: &str| observed.attachments.iter().find(|a| a.uid == uid).unwrap();
        let dead = |named: &ControllerRef| looked.callers.get(named).is_some_and(|now| *now != CallerNow::MayCall);
        let handle = observed.handle.as_ref();
        let is_unlocked = || {
            let has_one_name = handle.is_some_and(|handle| handle.closed_for.is_some() && handle.let_go && !handle.mode.is_multi_node());
            let name = attachment_name(DRIVER_VOLUME, AccessMode::SingleNodeWriter, "");
            let by_name = has_one_name && looked.attachments.get(&name) == Some(&None);
            looked.locks.as_ref().is_some_and(Vec::is_empty) || (by_name && observed.locks.is_empty())
        };
        match step {
            LeaderStep::DeclareLost { attachment: uid, cause } => {
                let (node, none) = (looked.nodes.get(&uid).unwrap(), Vec::new());
                let claims = looked.users.get(&uid).unwrap_or(&none);
                let seen = loss::Seen { attachment: attachment(&uid), node, claims };
                prop_assert_eq!(loss::judge(&seen), Verdict::Lost(cause));
                prop_assert!(!is_heard(node));
            }
            LeaderStep::EndClaim { claim, attachment: uid } => {
                prop_assert!(attachment(&uid).lost);
                prop_assert!(observed.claims.iter().any(|c| c.uid == claim && !c.deleted));
            }
            LeaderStep::Abandon { attachment: uid } => {
                prop_assert!(attachment(&uid).lost && answers.caller == CallerNow::CutOff);
            }
            LeaderStep::Close { attachment: uid } => {
                let closed = attachment(&uid);
                let ends = closed.lost || closed.state >= AttachmentState::NodeDetached;
                let used = observed.claims.iter().any(|c| !c.deleted && c.uses() == Some(&uid));
                prop_assert!(!closed.deleted && (ends || (!used && !observed.cautious)));
                let known = observed.claims.iter().any(|c| c.names(&uid));
                prop_assert!(ends || known || looked.users.get(&uid).is_some_and(Vec::is_empty));
            }
            LeaderStep::FreeAttachment { attachment: uid } => {
                let freed = attachment(&uid);
                let out = || looked.nodes.get(&uid).is_some_and(|node| !is_heard(node)) && freed.is_lost_unfenced();
                prop_assert!(freed.deleted && (freed.is_undone() || out()));
            }
            LeaderStep::FreeClaim { claim } => {
                prop_assert!(observed.claims.iter().any(|c| c.uid == claim && c.deleted && c.held));
            }
            LeaderStep::CreateAttachment { claim, .. } | LeaderStep::AssignClaim { claim, .. } | LeaderStep::NameWriter { claim, .. } => {
                let granted = observed.claims.iter().find(|c| c.uid == claim && c.wants_grant());
                prop_assert!(granted.is_some_and(|c| !c.of_pod || looked.pods.get(&claim) == Some(&Entitled::Yes)));
                prop_assert!(!observed.ended_reports || looked.reports_have_ended == Some(true));
            }
            LeaderStep::DeleteClaim { claim } => {
                let deleted = observed.claims.iter().find(|c| c.uid == claim && c.of_pod && !c.deleted).unwrap();
                let is_mounted = deleted.uses().is_some() && deleted.state == ClaimState::Ready;
                let gone = looked.pods.get(&claim) == Some(&Entitled::PodGone);
                prop_assert!(deleted.state.is_final() || (gone && !is_mounted));
            }
            LeaderStep::RefuseClaim { claim, why } => {
                prop_assert_eq!(looked.pods.get(&claim), Some(&Entitled::No(why)));
                prop_assert!(observed.claims.iter().any(|c| c.uid == claim && c.wants_grant()));
            }
            LeaderStep::ImportVolume { .. } | LeaderStep::RenewVolume { .. } => {
                prop_assert!(false, "its name is no import's");
            }
            LeaderStep::MoveHandle(to) => {
                prop_assert!(to == caller("node-2") && dead(&caller("node-1")), "{:?}", looked.callers);
            }
            LeaderStep::AssignVolume(to) => {
                let now = observed.volume.as_ref().unwrap().spec.assignment.as_ref().unwrap();
                let moves = now.operation == to.operation && now.controller != to.controller;
                prop_assert!(!moves || dead(&caller("node-1")));
                let orders = to.operation == VolumeOperation::Delete && now.operation != to.operation;
                prop_assert!(!orders || (is_unlocked() && looked.copied_by == Some(None)));
                let goes = observed.volume.as_ref().unwrap().metadata.deletion_timestamp.is_some();
                let is_closed = handle.is_some_and(|handle| handle.closed_for == Some(DeletionPolicy::Delete));
                let stands = looked.handles.values().any(|live| live.as_ref() == handle);
                prop_assert!(!goes || to.operation != VolumeOperation::Delete || (is_closed && stands));
            }
            LeaderStep::RemoveHandle => {
                let now = observed.volume.as_ref().and_then(|volume| volume.spec.assignment.as_ref());
                // Both before that order, which comes behind the last closing.
                let was_looked_for = now.is_some_and(|now| now.operation == VolumeOperation::Delete)
                    && handle.unwrap().closed_for == Some(DeletionPolicy::Delete);
                let is_free = is_unlocked() && looked.copied_by == Some(None);
                prop_assert!(is_free || (was_looked_for && observed.locks.is_empty()));
                let has_ended = was_looked_for && observed.volume.as_ref().unwrap().state() == VolumeState::Deleted;
                let is_left = handle.unwrap().closed_for == Some(DeletionPolicy::Retain);
                prop_assert!(has_ended || (is_left && looked.assigned == Some(now.cloned())));
            }
            LeaderStep::BeginClosing { last } => {
                let volume = observed.volume.as_ref().unwrap();
                prop_assert_eq!(last.is_some(), volume.metadata.deletion_timestamp.is_some());
                prop_assert!(handle.unwrap().closed_for.is_none() || handle.unwrap().closed_for != last);
            }
            LeaderStep::FinishClosing { .. } | LeaderStep::TakeOver => {
                let epoch = handle.unwrap().epoch;
                prop_assert!(looked.locks.as_ref().unwrap().iter().all(|a| a.epoch >= epoch));
            }
            LeaderStep::CreateHandle { epoch, closing, closed_for, .. } => {
                let left = looked.locks.as_ref().unwrap();
                let goes = observed.volume.as_ref().unwrap().metadata.deletion_timestamp.is_some();
                prop_assert!(left.iter().all(|a| a.epoch < epoch) && closing == (goes || !left.is_empty()));
                prop_assert_eq!(closed_for.is_some(), goes);
            }
            LeaderStep::FreeVolume => {
                let uid = observed.volume.as_ref().unwrap().metadata.uid.as_ref();
                prop_assert!(looked.handles.values().flatten().all(|live| Some(&live.volume_uid) != uid));
            }
            LeaderStep::AllowDeletion(true) => {
                prop_assert!(!observed.cautious && observed.forgotten.is_empty() && looked.named_by.is_some());
                prop_assert!(!observed.ended_reports || looked.reports_have_ended == Some(true));
            }
            LeaderStep::AskNode { attachment, bytes } => {
                let told = observed.attachments.iter().find(|a| a.uid == attachment).unwrap();
                prop_assert!(!told.is_leaving() && told.growth.asked != bytes && told.growth.reached < bytes);
            }
            LeaderStep::Rest
            | LeaderStep::Look(_)
            | LeaderStep::ReportFollowed(_)
            | LeaderStep::MoveAttachment { .. }
            | LeaderStep::RetireWriter(_)
            | LeaderStep::ReportExpanded(_)
            | LeaderStep::ReportModified
            | LeaderStep::AllowDeletion(false)
            | LeaderStep::ReportReady
            | LeaderStep::RestoreStatus { .. }
            | LeaderStep::TellStorageLeft(_) => {}
        }
    }
}
