//! What the leader and the agent of the controller instance do next about one Attachment, case by case.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::caller::ControllerRef;
use moor::api::{AccessMode, Attachment, AttachmentState, ClaimState, FINALIZER};
use moor::attachment::closing::{self, ClosingStep, Unused};
use moor::attachment::controller_side::{ControllerStep, HandleRead, is_misplaced, plan};
use moor::attachment::observed::{Standing, standing};
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::ClaimSeen;

use super::fixtures::{self, granted};

use AttachmentState::{Attached, ControllerDetached, NodeDetached, Taken};

const STATES: [AttachmentState; 4] = [Taken, Attached, NodeDetached, ControllerDetached];

fn instance(name: &str) -> ControllerRef {
    ControllerRef::new(name, format!("agent-of-{name}"), 0)
}

/// Made at epoch 2 for instance `mine`.
fn attachment(state: AttachmentState) -> AttachmentSeen {
    AttachmentSeen { epoch: 2, controller: Some(instance("mine")), state, ..fixtures::attachment("u") }
}

/// As it was when [`attachment`] was made.
fn handle() -> HandleSeen {
    HandleSeen { epoch: 2, controller: Some(instance("mine")), ..fixtures::handle() }
}

fn closing(epoch: i64) -> HandleSeen {
    HandleSeen { closing: true, epoch, ..handle() }
}

fn moved(handle: HandleSeen) -> HandleSeen {
    HandleSeen { controller: Some(instance("successor")), ..handle }
}

/// Handles that were never open for the Attachment.
fn strangers() -> Vec<HandleSeen> {
    vec![
        HandleSeen { epoch: 1, ..handle() },
        HandleSeen { epoch: 3, ..handle() },
        HandleSeen { epoch: 4, ..handle() },
        HandleSeen { volume_uid: "another".into(), ..handle() },
        HandleSeen { mode: AccessMode::MultiNodeReader, ..handle() },
        closing(1),
        closing(2),
        closing(4),
    ]
}

fn step(attachment: &AttachmentSeen, handle: &HandleSeen) -> ControllerStep {
    plan(attachment, "mine", &HandleRead::Read(Some(handle)))
}

/// Rule R3 and section 2, "the two reads that close every race".
#[test]
fn a_first_call_needs_the_handle_as_it_was() {
    let taken = attachment(Taken);
    let of = |handle: &HandleSeen| standing(&taken, Some(handle));
    assert_eq!(of(&handle()), Standing::Valid);
    assert_eq!(of(&moved(handle())), Standing::NotMine);
    // Whoever closes lists the Attachments after this: a call may have been made before.
    assert_eq!(of(&closing(3)), Standing::MayHaveRun);
    assert_eq!(of(&moved(closing(3))), Standing::NotMine);
    for stranger in strangers() {
        assert_eq!(of(&stranger), Standing::NeverRan, "{stranger:?}");
        assert_eq!(of(&moved(stranger.clone())), Standing::NeverRan, "{stranger:?}");
    }
    // Somebody removed it by hand: a call may have run before.
    assert_eq!(standing(&taken, None), Standing::MayHaveRun);
    // Where nothing is attached it is the node that asks, and no instance has a part in it.
    let bare = AttachmentSeen { attach: false, controller: None, ..taken.clone() };
    assert_eq!(standing(&bare, Some(&handle())), Standing::Valid);
    assert_eq!(standing(&bare, Some(&closing(3))), Standing::MayHaveRun);
}

#[test]
fn a_volume_is_attached_only_by_who_stands() {
    let taken = attachment(Taken);
    assert_eq!(plan(&taken, "mine", &HandleRead::Unread), ControllerStep::ReadHandle);
    assert_eq!(step(&taken, &handle()), ControllerStep::Publish);
    assert_eq!(step(&taken, &moved(handle())), ControllerStep::Idle);
    assert_eq!(step(&taken, &closing(3)), ControllerStep::Unpublish);
    assert_eq!(step(&taken, &moved(closing(3))), ControllerStep::Idle);
    for stranger in strangers() {
        assert_eq!(step(&taken, &stranger), ControllerStep::ReportDetached, "{stranger:?}");
    }
    assert_eq!(plan(&taken, "mine", &HandleRead::Read(None)), ControllerStep::Unpublish);
    // Nobody wants it any more, and a call may be on its way.
    let unwanted = AttachmentSeen { deleted: true, ..taken.clone() };
    assert_eq!(step(&unwanted, &handle()), ControllerStep::Unpublish);
    // Somebody else's, or nothing to attach.
    assert_eq!(plan(&taken, "another", &HandleRead::Read(Some(&handle()))), ControllerStep::Idle);
    let bare = AttachmentSeen { attach: false, ..taken };
    assert_eq!(step(&bare, &handle()), ControllerStep::Idle);
}

/// After its node, or instead of a lost one; whatever became of the handle, but only by its instance (rule R2).
#[test]
fn a_volume_is_detached_after_its_node() {
    for (state, lost, due) in [
        (Taken, true, true),
        (Attached, false, false),
        (Attached, true, true),
        (NodeDetached, false, true),
        (NodeDetached, true, true),
        (ControllerDetached, false, false),
        (ControllerDetached, true, false),
    ] {
        let seen = AttachmentSeen { lost, deleted: true, ..attachment(state) };
        let expected = if due { ControllerStep::Unpublish } else { ControllerStep::Idle };
        for handle in strangers().into_iter().chain([handle(), closing(3)]) {
            assert_eq!(step(&seen, &handle), expected, "{state:?} lost={lost} {handle:?}");
            assert_eq!(step(&seen, &moved(handle)), ControllerStep::Idle, "{state:?} lost={lost}");
        }
        assert_eq!(plan(&seen, "mine", &HandleRead::Read(None)), expected, "{state:?} lost={lost}");
    }
    assert_eq!(
        step(&attachment(NodeDetached), &handle()),
        ControllerStep::Idle,
        "the leader closes it first"
    );
}

/// Rule R2: the Attachment follows its handle only while a call is due.
#[test]
fn an_attachment_follows_its_handle_when_a_call_is_due() {
    for (state, lost, due) in [
        (Taken, false, true),
        (Attached, false, false),
        (Attached, true, true),
        (NodeDetached, false, true),
        (ControllerDetached, false, false),
        (ControllerDetached, true, false),
    ] {
        let seen = AttachmentSeen { lost, ..attachment(state) };
        assert_eq!(is_misplaced(&seen, &moved(handle())), due, "{state:?} lost={lost}");
        assert!(!is_misplaced(&seen, &handle()), "it is where it should be");
        let nobody = HandleSeen { controller: None, ..handle() };
        assert!(!is_misplaced(&seen, &nobody), "there is nobody to go to");
        let bare = AttachmentSeen { attach: false, ..seen };
        assert!(!is_misplaced(&bare, &moved(handle())), "there is nothing to call");
    }
}

#[test]
fn a_node_uses_only_what_is_attached_and_stays() {
    for state in STATES {
        for attach in [true, false] {
            let seen = AttachmentSeen { attach, ..attachment(state) };
            let expected = state == Attached || (state == Taken && !attach);
            assert_eq!(seen.is_usable(), expected, "{state:?} attach={attach}");
            assert!(!AttachmentSeen { deleted: true, ..seen.clone() }.is_usable(), "{state:?} closing");
            assert!(!AttachmentSeen { lost: true, ..seen.clone() }.is_usable(), "{state:?} lost");
        }
    }
}

/// The lock is free when both sides are undone, a lost node's without its word, and a side that is not there at once.
#[test]
fn the_lock_is_free_when_both_sides_are_undone() {
    for state in STATES {
        for (attach, lost) in [(true, false), (true, true), (false, false), (false, true)] {
            let seen = AttachmentSeen { attach, lost, deleted: true, ..attachment(state) };
            let step = match state {
                ControllerDetached => Some(ClosingStep::Free),
                NodeDetached => (!attach).then_some(ClosingStep::Free),
                Taken | Attached => (lost && !attach).then_some(ClosingStep::FreeIfStillOut),
            };
            assert_eq!(
                closing::plan(&seen, &[], false, Unused::default()),
                step,
                "{state:?} attach={attach} lost={lost}"
            );
        }
    }
}

/// The leader does one thing at a time: what is done must not be found again.
#[test]
fn one_that_only_others_hold_is_done() {
    let seen = AttachmentSeen { deleted: true, let_go: true, ..attachment(ControllerDetached) };
    assert_eq!(closing::plan(&seen, &[], false, Unused::default()), None);
    let mut object = Attachment::default();
    let mut is_let_go = |deleted: bool, finalizers: &[&str]| {
        object.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
        object.metadata.finalizers = Some(finalizers.iter().map(|&f| f.to_owned()).collect());
        AttachmentSeen::of(&object).let_go
    };
    assert!(is_let_go(true, &["example.com/theirs"]));
    assert!(
        !is_let_go(true, &["example.com/theirs", FINALIZER]) && !is_let_go(false, &["example.com/theirs"])
    );
}

#[test]
fn an_attachment_closes_when_nobody_uses_it_or_it_cannot_be_used() {
    let user = ClaimSeen { state: ClaimState::Ready, ..granted("a", &attachment(Attached)) };
    let gone = ClaimSeen { deleted: true, ..user.clone() };
    let gave_back = ClaimSeen { yielded: Some("u".into()), ..user.clone() };
    let waits = ClaimSeen { assignment: None, state: ClaimState::Pending, ..user.clone() };
    let another = granted("a", &fixtures::attachment("another"));
    for state in [Taken, Attached] {
        let open = attachment(state);
        assert_eq!(
            closing::plan(&open, std::slice::from_ref(&user), false, Unused::default()),
            None,
            "{state:?}"
        );
        assert_eq!(
            closing::plan(&open, &[gone.clone(), user.clone()], false, Unused::default()),
            None,
            "{state:?}"
        );
        for left in [&gone, &gave_back] {
            assert_eq!(
                closing::plan(&open, std::slice::from_ref(left), false, Unused::default()),
                Some(ClosingStep::Close),
                "{left:?}"
            );
        }
        // That nobody has used it is what a cache says that is behind.
        for unknown in [&[][..], std::slice::from_ref(&another), std::slice::from_ref(&waits)] {
            assert_eq!(
                closing::plan(&open, unknown, false, Unused::default()),
                Some(ClosingStep::CloseIfUnused),
                "{unknown:?}"
            );
        }
        let lost = AttachmentSeen { lost: true, ..open };
        assert_eq!(
            closing::plan(&lost, std::slice::from_ref(&user), false, Unused::default()),
            Some(ClosingStep::Close),
            "{state:?}"
        );
    }
    for state in [NodeDetached, ControllerDetached] {
        let left = attachment(state);
        assert_eq!(
            closing::plan(&left, std::slice::from_ref(&user), false, Unused::default()),
            Some(ClosingStep::Close),
            "{state:?}"
        );
    }
}

/// A claim that joined it may be missing in the backup, beside one that is known and has left.
#[test]
fn an_unused_attachment_is_not_closed_where_etcd_may_have_been_restored() {
    let leaving = granted("a", &attachment(Attached));
    let gone = ClaimSeen { state: ClaimState::Ready, deleted: true, ..leaving };
    for state in [Taken, Attached] {
        let open = attachment(state);
        for claims in [&[][..], std::slice::from_ref(&gone)] {
            assert_eq!(closing::plan(&open, claims, true, Unused::default()), None, "{state:?} {claims:?}");
        }
        let lost = AttachmentSeen { lost: true, ..open };
        assert_eq!(closing::plan(&lost, &[], true, Unused::default()), Some(ClosingStep::Close), "{state:?}");
    }
    let left = attachment(NodeDetached);
    assert_eq!(closing::plan(&left, &[], true, Unused::default()), Some(ClosingStep::Close));
    let undone = AttachmentSeen { deleted: true, ..attachment(ControllerDetached) };
    assert_eq!(closing::plan(&undone, &[], true, Unused::default()), Some(ClosingStep::Free));
}
