//! Guards of admission that no larger test notices when they are missing: each is alone in what keeps a claim from a
//! grant, or alone in what another guard must not keep.

use moor::api::conditions::Reason;
use moor::api::handle::{Writer, WriterRef};
use moor::api::{AccessMode, AttachmentMode, ClaimState};
use moor::claim::admission::{Grant, Seen, Verdict, admit, attaches_read_only, wanted_mode};
use moor::claim::reason::Waiting;

use super::super::fixtures;
use super::scene::{Driver, HERE, THERE, World};

use AccessMode::{
    MultiNodeMultiWriter as Mnmw, MultiNodeReader as Mnr, MultiNodeSingleWriter as Mnsw,
    SingleNodeMultiWriter as Snmw, SingleNodeWriter as Snw,
};

/// Somebody holds the volume on [`HERE`] in this mode, and another claim could join.
fn held(mode: AccessMode) -> World {
    let mut world = World::idle(mode);
    world.attach("held", HERE, mode, AttachmentMode::FileSystem, Driver::MultiWriter);
    world.hold("holder", "held", true);
    world.ask("asking", mode, true, Some(HERE));
    assert!(matches!(world.verdict("asking"), Verdict::Grant(Grant::Join { .. })), "{mode}");
    world
}

fn is_held(world: &World) -> bool {
    matches!(world.verdict("asking"), Verdict::Wait(Waiting::Held(_) | Waiting::OneTarget(_)))
}

#[test]
fn a_volume_is_granted_only_when_it_is_ready_and_has_its_handle() {
    let idle = || {
        let mut world = World::idle(Snw);
        world.ask("asking", Snw, false, None);
        world
    };
    assert!(matches!(idle().verdict("asking"), Verdict::Grant(Grant::Create { .. })));
    let mut world = idle();
    world.volume.ready = false;
    assert!(matches!(world.verdict("asking"), Verdict::Wait(Waiting::VolumeNotReady { .. })));
    let mut world = idle();
    world.handle.volume_uid = "another's".into();
    assert!(matches!(world.verdict("asking"), Verdict::Wait(Waiting::VolumeNotReady { .. })));
    let mut world = idle();
    world.volume.deleted = true;
    assert!(matches!(world.verdict("asking"), Verdict::Wait(Waiting::VolumeDeleted { .. })));
    let mut world = idle();
    world.handle.closing = true;
    assert!(matches!(world.verdict("asking"), Verdict::Wait(Waiting::ModeChanging)));
}

/// Nobody joins what was granted before the driver had a Controller service, and all who wait know whom to ask.
#[test]
fn a_volume_that_gets_its_first_controller_is_granted_to_nobody_beside_its_users() {
    let mut world = World::idle(Snw);
    world.attach("old", HERE, Snw, AttachmentMode::FileSystem, Driver::Tolerant);
    world.attachments[0].attach = false;
    world.handle.closing = true;
    world.handle.epoch = world.attachments[0].epoch + 1;
    world.ask("asking", Snw, false, Some(HERE));
    let Verdict::Wait(Waiting::NotAttached(holder)) = world.verdict("asking") else { panic!("{world:?}") };
    assert_eq!(
        (holder.who, holder.node.as_str()),
        (format!("Attachment/{}", world.attachments[0].name), HERE)
    );
    world.handle.controller = Some(moor::api::caller::ControllerRef::default());
    assert!(matches!(world.verdict("asking"), Verdict::Wait(Waiting::ModeChanging)));
}

/// An Attachment under the name that the claim needs is joined only if it is what the claim needs. Most of this cannot
/// happen while the epochs are kept (rule R3); that it is compared makes no difference of a cache dangerous.
#[test]
fn an_attachment_that_differs_in_one_thing_is_not_joined() {
    let mut other_mode = held(Snmw);
    other_mode.attachments[0].mode = Snw;
    assert!(is_held(&other_mode));
    let mut other_volume = held(Snmw);
    other_volume.attachments[0].volume_uid = "before it was made again".into();
    assert!(is_held(&other_volume));
    let mut older = held(Snmw);
    older.handle.epoch += 1;
    assert!(is_held(&older));
}

/// An assignment to what the claim has given back changes nothing: it would be given back again, for ever.
#[test]
fn what_its_node_gave_back_is_not_granted_again() {
    let mut world = held(Snmw);
    let assignment = world.claims[0].assignment.clone();
    let asking = world.claims.iter_mut().find(|c| c.uid == "asking").unwrap();
    (asking.assignment, asking.yielded) = (assignment, Some("held".into()));
    assert!(is_held(&world));
}

/// The volume is not opened in a mode that nobody could be granted in.
#[test]
fn the_wanted_mode_is_that_of_a_claim_that_could_be_placed() {
    let first = |node: Option<&str>| {
        let mut world = World::idle(Snw);
        world.ask("older", Mnr, true, node);
        world.ask("younger", Mnmw, false, None);
        world
    };
    assert_eq!(wanted_mode(&first(None).seen()), Some(Mnr));
    assert_eq!(wanted_mode(&first(Some("nowhere")).seen()), Some(Mnmw));
    let mut unlisted = first(None);
    unlisted.volume.uses.retain(|u| u.access_mode != Mnr);
    assert_eq!(wanted_mode(&unlisted.seen()), Some(Mnmw));
    let mut unprepared = first(None);
    unprepared.volume.unprepared = Some("Plugin p does not exist".into());
    assert_eq!(wanted_mode(&unprepared.seen()), None);
}

/// CSI ControllerPublishVolume, `readonly`: where nobody writes, and in MULTI_NODE_SINGLE_WRITER for who only reads.
#[test]
fn only_what_never_writes_is_attached_read_only() {
    for mode in AccessMode::ALL {
        for read_only in [false, true] {
            let mut world = World::idle(mode);
            let expected = mode.is_reader_only() || (mode == Mnsw && read_only);
            let asking = world.ask("asking", mode, read_only, None);
            assert_eq!(attaches_read_only(asking), expected, "{mode} reads={read_only}");
        }
    }
}

/// A claim that ends is not granted, also if it was waiting or was lost with its node, or if a node that was taken over has
/// given it back and written at once that it is done, which is final: no other node would make anything for it.
#[test]
fn a_claim_that_ends_is_not_granted() {
    let mut world = World::idle(Snw);
    world.ask("deleted", Snw, false, None).deleted = true;
    world.ask("lost", Snw, false, None).state = ClaimState::Lost;
    let ended = world.ask("ended", Snw, false, None);
    let mine = moor::claim::ClaimSeen {
        yielded: Some("u".into()),
        ..fixtures::granted("ended", &fixtures::attachment("u"))
    };
    (ended.state, ended.assignment, ended.yielded) =
        (ClaimState::NodeDetached, mine.assignment, mine.yielded);
    assert_eq!(world.admit(), []);
    assert_eq!(wanted_mode(&world.seen()), None);
}

/// MULTI_NODE_SINGLE_WRITER, as far as the VolumeHandle says it: who is named and may still write blocks everybody but
/// itself, although its claim is gone (interleaving N14).
#[test]
fn a_writer_that_is_only_named_still_blocks() {
    let on = |claim: &str| WriterRef {
        claim: format!("default/{claim}"),
        claim_uid: claim.into(),
        attachment_uid: "held".into(),
        ..WriterRef::default()
    };
    let named = |holder: &str, released, after: Option<&str>| {
        let mut world = World::idle(Mnsw);
        world.attach("held", HERE, Mnsw, AttachmentMode::FileSystem, Driver::Plain);
        world.hold("reader", "held", true);
        world.ask("asking", Mnsw, false, Some(THERE));
        world.handle.writer = Some(Writer { holder: on(holder), grant: 2, released, after: after.map(on) });
        world
    };
    assert!(is_held(&named("removed", false, None)));
    assert!(!is_held(&named("removed", true, None)), "it was seen to be done");
    assert!(!is_held(&named("asking", false, None)), "itself");
    assert!(is_held(&named("asking", false, Some("removed"))), "the one before it is not done");
    assert!(is_held(&named("removed", true, Some("before"))));
    let mut gone = named("removed", false, None);
    gone.attachments.clear();
    gone.claims.retain(|c| c.uid == "asking");
    assert!(!is_held(&gone), "its Attachment is gone");
    // Its claim is there, and on another Attachment by now.
    let mut moved = named("reader", false, None);
    moved.claims[0].assignment.as_mut().unwrap().attachment_uid = "elsewhere".into();
    assert!(!is_held(&moved));
    // A writer does not wait for itself: it was named, and has yet to be assigned.
    let mut again = named("asking", false, None);
    again.claims[1].node = Some(HERE.into());
    assert!(matches!(again.verdict("asking"), Verdict::Grant(Grant::Join { .. })));
}

/// Two wait for the same holder, and only one of them for the driver's sake.
#[test]
fn a_driver_that_takes_one_target_is_named_as_the_reason() {
    let told = |mode, node| {
        let mut world = World::idle(mode);
        world.attach("held", HERE, mode, AttachmentMode::FileSystem, Driver::Plain);
        world.hold("holder", "held", false);
        world.ask("asking", mode, false, Some(node));
        let Verdict::Wait(why) = world.verdict("asking") else { panic!("{mode:?} on {node} is granted") };
        assert_eq!((why.reason(), why.holds_the_line()), (Reason::Held, true));
        assert_eq!(why.holder().map(|h| h.who).as_deref(), Some("default/holder"));
        why.message()
    };
    let words =
        ["SINGLE_NODE_MULTI_WRITER", "spec.toleratesSecondTarget", "default/holder", "made after that"];
    let message = told(Snw, HERE);
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    for message in [told(Snw, THERE), told(AccessMode::SingleNodeSingleWriter, HERE)] {
        assert!(!message.contains(words[0]), "neither elsewhere nor in a mode for one claim: {message}");
    }
}

/// Its namespace may not have what it asks for: it is not granted, does not have the volume prepared for it, and nobody
/// stands behind it.
#[test]
fn a_claim_that_is_not_allowed_holds_nobody_up() {
    use moor::plugin::allow::{NotAllowed, Right};
    let lack = NotAllowed {
        plugin: "p".into(),
        exists: true,
        namespace: "default".into(),
        right: Right::Parameterise,
        field: "spec.mountOptions.mountFlags",
    };
    let mut world = World::idle(AccessMode::SingleNodeWriter);
    world.ask("refused", AccessMode::MultiNodeReader, true, Some(HERE));
    world.ask("younger", AccessMode::SingleNodeWriter, false, Some(HERE));
    let refused = [("refused".into(), lack.clone())];
    let seen = Seen { not_allowed: &refused, ..world.seen() };
    let verdicts = admit(&seen);
    assert_eq!(verdicts[0], ("refused".into(), Verdict::Wait(Waiting::NotAllowed(lack))));
    assert!(matches!(&verdicts[1].1, Verdict::Grant(Grant::Create { .. })), "{verdicts:?}");
    assert_eq!(wanted_mode(&seen), Some(AccessMode::SingleNodeWriter));
    // With the right it is first in line.
    assert!(matches!(world.verdict("refused"), Verdict::Grant(Grant::SwitchMode { .. })));
}
