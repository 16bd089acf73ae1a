//! Properties of the pure decisions on arbitrary input (P1 total, P2 order, P4 safety of
//! detach, P5 crash, P6 quiescence, P9 JSON). What needs more than one step is in `model.rs`.

mod node_side;

use super::model::arbitrary::{
    CLAIM_STATES, INSTANCES, STATES, Scene, attachment, attachments, claim, claims, handle, record, scene,
};
use moor::api::attachment::AttachmentStatus;
use moor::api::capability::VolumeUse;
use moor::api::claim::VolumeClaimStatus;
use moor::api::{AccessMode, AttachmentState, ClaimState};
use moor::attachment::AttachmentSeen;
use moor::attachment::closing::{self, ClosingStep, Unused};
use moor::attachment::controller_side::{self, ControllerStep, HandleRead};
use moor::attachment::observed::{Standing, is_mine, standing};
use moor::attachment::record::Record;
use moor::claim::admission::{self, Grant, Verdict, admit};
use moor::claim::release::{self, ReleaseStep};
use moor::claim::{ClaimSeen, Mount};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

/// The claim holds a grant of the handle, and its Attachment is not there.
fn uses_without_lock(claim: &ClaimSeen, attachments: &[AttachmentSeen]) -> bool {
    let missing = claim.uses().is_some_and(|uid| attachments.iter().all(|a| a.uid != *uid));
    let of_handle = claim.assignment.as_ref().is_some_and(|a| a.attachment != "h");
    missing && of_handle && claim.state != ClaimState::Lost
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// P1, P5, P6: admission answers every claim that wants a grant, the same way every time, grants at
    /// most once in a pass, and only what the Volume lists in the mode that its VolumeHandle has.
    #[test]
    fn admission_grants_one_listed_use(
        scene in scene(),
    ) {
        let Scene { volume, handle, claims, attachments, nodes, forgotten } = scene;
        let seen = admission::Seen {
            volume_name: "volume",
            volume: volume.as_ref(),
            handle: handle.as_ref(),
            claims: &claims,
            attachments: &attachments,
            nodes: &nodes,
            forgotten: &forgotten,
            not_allowed: &[],
        };
        let verdicts = admit(&seen);
        prop_assert_eq!(&verdicts, &admit(&seen));
        let granted: Vec<_> = verdicts.iter().filter_map(|(uid, v)| match v {
            Verdict::Grant(grant) => Some((uid, grant)),
            Verdict::Wait(_) => None,
        }).collect();
        prop_assert!(granted.len() <= 1, "{} grants in one pass", granted.len());
        for (uid, grant) in granted {
            let claim = claims.iter().find(|c| &c.uid == uid).unwrap();
            prop_assert!(claim.wants_grant());
            let (volume, handle) = (volume.as_ref().unwrap(), handle.as_ref().unwrap());
            prop_assert!(volume.ready && !volume.deleted && !handle.closing);
            prop_assert_eq!(&handle.volume_uid, &volume.uid);
            let wanted =
                VolumeUse { access_mode: claim.mode, attachment_mode: claim.attachment_mode };
            prop_assert!(volume.uses.contains(&wanted), "the Volume does not list {:?}", wanted);
            let writer = |c: &ClaimSeen| c.mode == AccessMode::MultiNodeSingleWriter && !c.read_only;
            if writer(claim) && !matches!(grant, Grant::SwitchMode { .. }) {
                let locked = |u: &str| attachments.iter().any(|a| a.uid == u);
                let holds = |c: &ClaimSeen| c.uses().is_some_and(|u| c.state != ClaimState::Lost || locked(u));
                let another = claims.iter().any(|c| writer(c) && holds(c));
                prop_assert!(!another, "a second writer in MultiNodeSingleWriter");
            }
            // Only what exists can be used while the driver is not known.
            let joins = matches!(grant, Grant::Join { .. } | Grant::NameWriter { .. });
            prop_assert!(joins || volume.unprepared.is_none());
            let node = match grant {
                Grant::SwitchMode { .. } => None,
                Grant::Create { node, .. } => Some(node),
                Grant::Join { uid, .. } | Grant::NameWriter { uid, .. } => {
                    attachments.iter().find(|a| &a.uid == uid).map(|a| &a.node)
                }
            };
            if let Some(mount) = forgotten.first() {
                let of_its_attachment = matches!(grant, Grant::Join { uid, .. } | Grant::NameWriter { uid, .. }
                    if mount.mount == Mount::Reported(uid.clone()) && node == Some(&mount.node));
                prop_assert!(of_its_attachment, "granted beside a mount that nobody accounts for");
            }
            match grant {
                Grant::SwitchMode { mode } => {
                    prop_assert_ne!(*mode, handle.mode);
                    prop_assert!(attachments.is_empty(), "a mode is switched under an Attachment");
                    let unlocked = claims.iter().any(|c| uses_without_lock(c, &attachments));
                    prop_assert!(!unlocked, "a mode is switched under a claim whose Attachment was removed");
                }
                Grant::Create { attachment, node } => {
                    prop_assert_eq!(claim.mode, handle.mode);
                    prop_assert!(claim.node.as_ref().is_none_or(|n| n == node));
                    prop_assert!(nodes.iter().any(|n| &n.name == node && n.healthy && n.reachable && !n.unclean));
                    prop_assert!(attachments.iter().all(|a| &a.name != attachment && &a.node != node));
                    prop_assert!(claim.mode.is_multi_node() || attachments.is_empty());
                    let in_the_way = claims.iter().any(|c| {
                        let beside = c.mode.is_multi_node() && claim.mode.is_multi_node();
                        let here = c.assignment.as_ref().is_some_and(|a| &a.node_name == node);
                        uses_without_lock(c, &attachments) && (here || !beside)
                    });
                    prop_assert!(!in_the_way, "granted beside a claim whose Attachment was removed");
                }
                Grant::Join { attachment, uid } | Grant::NameWriter { attachment, uid } => {
                    let named = handle.names_writer(&claim.uid, uid);
                    let names = matches!(grant, Grant::NameWriter { .. });
                    prop_assert_eq!(names, writer(claim) && !named);
                    prop_assert_ne!(claim.yielded.as_ref(), Some(uid));
                    let joined = attachments.iter().find(|a| &a.uid == uid).unwrap();
                    prop_assert_eq!(&joined.name, attachment);
                    prop_assert!(!joined.deleted && !joined.lost);
                    prop_assert!(joined.state < AttachmentState::NodeDetached);
                    prop_assert!(claim.node.as_ref().is_none_or(|n| n == &joined.node));
                    prop_assert_eq!((joined.mode, joined.epoch), (claim.mode, handle.epoch));
                    let users = claims.iter().filter(|c| c.uses() == Some(uid)).count();
                    prop_assert!(!joined.exclusive || users == 0);
                }
            }
        }
        // Every claim that wants a grant is answered, or is behind the one that was granted.
        let wanting = claims.iter().filter(|c| c.wants_grant()).count();
        let answered = verdicts.len();
        let passed = verdicts.iter().any(|(_, v)| matches!(v, Verdict::Grant(_)));
        prop_assert!(answered == wanting || (passed && answered <= wanting));
    }

    /// Fairness (trap B30): whoever is granted has no older claim waiting for the same volume.
    #[test]
    fn nobody_overtakes_a_claim_that_waits_for_the_volume(
        scene in scene(),
    ) {
        let Scene { volume, handle, claims, attachments, nodes, forgotten } = scene;
        let seen = admission::Seen {
            volume_name: "volume",
            volume: volume.as_ref(),
            handle: handle.as_ref(),
            claims: &claims,
            attachments: &attachments,
            nodes: &nodes,
            forgotten: &forgotten,
            not_allowed: &[],
        };
        let age = |uid: &str| {
            let claim = claims.iter().find(|c| c.uid == uid).unwrap();
            (claim.created, claim.name.clone())
        };
        let verdicts = admit(&seen);
        for (uid, _) in verdicts.iter().filter(|(_, v)| matches!(v, Verdict::Grant(_))) {
            for (other, verdict) in &verdicts {
                let holds = matches!(verdict, Verdict::Wait(w) if w.holds_the_line());
                prop_assert!(!holds || age(uid) < age(other), "{} overtakes {}", uid, other);
            }
        }
    }

    /// P1, P4, P5: an Attachment is freed only when it closes and is undone, closed only when no living
    /// claim uses it or it is leaving anyway.
    #[test]
    fn closing_frees_only_what_is_undone(
        attachment in attachment("u1"),
        claims in claims(),
        cautious in any::<bool>(),
        (lingers, was_used) in any::<(bool, bool)>(),
    ) {
        let unused = Unused { lingers, was_used };
        let step = closing::plan(&attachment, &claims, cautious, unused);
        prop_assert_eq!(&step, &closing::plan(&attachment, &claims, cautious, unused));
        // To linger takes one step away, and changes no other.
        let at_once = closing::plan(&attachment, &claims, cautious, Unused { lingers: false, was_used });
        if step != at_once {
            prop_assert!(lingers && step.is_none() && !attachment.is_leaving());
            prop_assert!(matches!(at_once, Some(ClosingStep::Close | ClosingStep::CloseIfUnused)));
        }
        match step {
            Some(ClosingStep::Free) => {
                prop_assert!(attachment.deleted && attachment.is_undone());
                prop_assert!(!attachment.attach || attachment.state == AttachmentState::ControllerDetached);
                prop_assert!(attachment.state >= AttachmentState::NodeDetached);
            }
            Some(ClosingStep::FreeIfStillOut) => {
                prop_assert!(attachment.deleted && attachment.lost && !attachment.attach);
                prop_assert!(attachment.state < AttachmentState::NodeDetached);
            }
            Some(close @ (ClosingStep::Close | ClosingStep::CloseIfUnused)) => {
                prop_assert!(!attachment.deleted);
                let used = claims.iter().any(|c| !c.deleted && c.uses() == Some(&"u1".into()));
                let leaving = attachment.lost || attachment.state >= AttachmentState::NodeDetached;
                prop_assert!(leaving || !used);
                // Who left is known, or is looked for.
                let of_it = |c: &ClaimSeen| c.assignment.as_ref().is_some_and(|a| a.attachment_uid == "u1");
                let known = leaving || was_used || claims.iter().any(of_it);
                prop_assert_eq!(close == ClosingStep::Close, known);
            }
            None => {}
        }
    }

    /// P1, P5, P8: a claim that uses an Attachment which the cache has stays, unless its node said that it is done.
    #[test]
    fn a_claim_is_freed_only_after_its_node_or_its_attachment(
        claim in claim("a"),
        attachments in attachments(),
    ) {
        let step = release::plan(&claim, &attachments);
        prop_assert_eq!(step, release::plan(&claim, &attachments));
        if let Some(step) = step {
            prop_assert!(claim.deleted && claim.held);
            let known = attachments.iter().any(|a| Some(&a.uid) == claim.uses());
            let detached = claim.state == ClaimState::NodeDetached;
            prop_assert!(detached || !known);
            prop_assert!(step == ReleaseStep::FreeIfAttachmentGone || detached || claim.uses().is_none());
        }
    }

    /// P1, P4, P5: the controller side calls nothing for others, nothing on a node that may still use the
    /// volume, and nothing that makes an attachment without a valid live read.
    #[test]
    fn the_controller_side_stays_within_its_half(
        attachment in attachment("u1"),
        read in of(of(handle())),
        instance in select(INSTANCES.to_vec()),
    ) {
        let read = match &read {
            None => HandleRead::Unread,
            Some(handle) => HandleRead::Read(handle.as_ref()),
        };
        let step = controller_side::plan(&attachment, instance, &read);
        prop_assert_eq!(step, controller_side::plan(&attachment, instance, &read));
        let mine = attachment.controller.as_ref().is_some_and(|c| c.instance == instance);
        if step != ControllerStep::Idle {
            prop_assert!(mine && attachment.attach);
            prop_assert!(attachment.state != AttachmentState::ControllerDetached);
        }
        let valid = matches!(&read, HandleRead::Read(h) if standing(&attachment, *h) == Standing::Valid);
        match step {
            ControllerStep::Unpublish => {
                let in_use = attachment.state == AttachmentState::Attached && !attachment.lost;
                prop_assert!(!in_use, "ControllerUnpublish while the node may use the volume");
                let owned = matches!(&read, HandleRead::Read(h) if is_mine(&attachment, *h));
                prop_assert!(owned, "ControllerUnpublish by an instance that may have a successor");
            }
            ControllerStep::Publish => {
                prop_assert!(valid && !attachment.deleted && !attachment.lost);
                prop_assert_eq!(attachment.state, AttachmentState::Taken);
            }
            ControllerStep::ReportDetached => {
                prop_assert_eq!(attachment.state, AttachmentState::Taken);
                prop_assert!(!valid && read != HandleRead::Read(None), "a call may have run");
            }
            ControllerStep::ReadHandle => prop_assert_eq!(&read, &HandleRead::Unread),
            ControllerStep::Idle => {}
        }
    }

    /// P9: states survive JSON, unknown fields are tolerated, absent ones read as the start of a life.
    #[test]
    fn states_round_trip_through_json(
        state in select(STATES.to_vec()),
        claim_state in select(CLAIM_STATES.to_vec()),
        record in record("u1"),
    ) {
        let status = AttachmentStatus { state, ..AttachmentStatus::default() };
        let mut json = serde_json::to_value(&status).unwrap();
        json["fromANewerVersion"] = serde_json::json!({"a": 1});
        prop_assert_eq!(serde_json::from_value::<AttachmentStatus>(json).unwrap(), status);
        let status = VolumeClaimStatus { state: claim_state, ..VolumeClaimStatus::default() };
        let json = serde_json::to_value(&status).unwrap();
        prop_assert_eq!(serde_json::from_value::<VolumeClaimStatus>(json).unwrap(), status);
        let json = serde_json::to_string(&record).unwrap();
        prop_assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
    }
}

#[test]
fn an_absent_status_reads_as_the_start_of_a_life() {
    let attachment: AttachmentStatus = serde_json::from_str("{}").unwrap();
    assert_eq!(attachment.state, AttachmentState::Taken);
    let claim: VolumeClaimStatus = serde_json::from_str("{}").unwrap();
    assert_eq!(claim.state, ClaimState::Pending);
}
