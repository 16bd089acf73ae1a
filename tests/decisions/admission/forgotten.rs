//! A volume that is mounted somewhere without an Attachment (rule R7).

use moor::api::{AccessMode, AttachmentMode};
use moor::claim::admission::{Grant, Verdict};
use moor::claim::reason::Waiting;
use moor::claim::{ForgottenSeen, Mount};

use super::scene::{Driver, HERE, THERE, World};

fn mounted_on(node: &str) -> ForgottenSeen {
    ForgottenSeen {
        node: node.into(),
        instance: format!("{node}-driver"),
        mount: Mount::Reported("gone".into()),
    }
}

#[test]
fn it_is_granted_on_no_other_node_in_any_mode() {
    for held in AccessMode::ALL {
        for asked in AccessMode::ALL {
            let mut world = World::idle(held);
            world.forgotten = vec![mounted_on(HERE)];
            world.ask("a", asked, asked.is_reader_only(), Some(THERE));
            let Verdict::Wait(why) = world.verdict("a") else { panic!("{asked} granted beside a mount") };
            assert_eq!(why, Waiting::Forgotten(mounted_on(HERE)));
            for said in [HERE, "node-1-driver", "moor.dev/undo-forgotten=gone", "reboot"] {
                assert!(why.message().contains(said), "{said}: {}", why.message());
            }
        }
    }
}

/// Each is told what ends it there.
#[test]
fn a_record_that_cannot_be_read_is_not_said_to_end_with_a_reboot() {
    let told = |mount: Mount| {
        let mut world = World::idle(AccessMode::SingleNodeWriter);
        world.forgotten = vec![ForgottenSeen { mount, ..mounted_on(HERE) }];
        world.ask("a", AccessMode::SingleNodeWriter, false, Some(THERE));
        let Verdict::Wait(why) = world.verdict("a") else { panic!("granted beside a mount") };
        why.message()
    };
    let unreadable = told(Mount::Unreadable("gone".into()));
    assert!(
        !unreadable.contains("after a reboot") && unreadable.contains("no reboot changes"),
        "{unreadable}"
    );
    for said in ["Attachment gone", "nothing of the volume is mounted there", "moor.dev/undo-forgotten=gone"]
    {
        assert!(unreadable.contains(said), "{said}: {unreadable}");
    }
    // What neither describes may be such a record.
    for mount in [Mount::Named, Mount::InLease] {
        let message = told(mount);
        assert!(message.contains("cannot be read"), "{message}");
    }
}

/// Beside the agent's mount an Attachment would be attached, and detached again before the agent has said a word of it.
#[test]
fn on_its_own_node_nothing_new_is_made_either() {
    let mut world = World::idle(AccessMode::SingleNodeWriter);
    world.forgotten = vec![mounted_on(HERE)];
    world.ask("a", AccessMode::SingleNodeWriter, false, Some(HERE));
    assert_eq!(world.verdict("a"), Verdict::Wait(Waiting::Forgotten(mounted_on(HERE))));
    world.ask("b", AccessMode::SingleNodeReader, true, Some(HERE));
    world.claims.retain(|claim| claim.name == "b");
    assert_eq!(
        world.verdict("b"),
        Verdict::Wait(Waiting::Forgotten(mounted_on(HERE))),
        "nor a mode switched"
    );
}

/// An Attachment that can be joined, and a mount of it that nobody accounts for: of another claim, or by a file that cannot
/// be read.
fn with_its_own_mount() -> World {
    let mode = AccessMode::SingleNodeMultiWriter;
    let mut world = World::idle(mode);
    world.attach("u", HERE, mode, AttachmentMode::FileSystem, Driver::MultiWriter);
    world.forgotten = vec![ForgottenSeen { mount: Mount::Reported("u".into()), ..mounted_on(HERE) }];
    world
}

#[test]
fn an_attachment_is_joined_beside_its_own_mount() {
    let mut world = with_its_own_mount();
    world.ask("a", AccessMode::SingleNodeMultiWriter, false, Some(HERE));
    let join = Grant::Join { attachment: world.attachments[0].name.clone(), uid: "u".into() };
    assert_eq!(world.verdict("a"), Verdict::Grant(join));
    world.forgotten = vec![mounted_on(HERE)];
    assert!(matches!(world.verdict("a"), Verdict::Wait(Waiting::Forgotten(_))), "of another one");
}

#[test]
fn who_waits_for_it_is_not_overtaken() {
    let mut world = with_its_own_mount();
    world.ask("older", AccessMode::SingleNodeMultiWriter, false, Some(THERE));
    world.ask("younger", AccessMode::SingleNodeMultiWriter, false, Some(HERE));
    assert!(matches!(world.verdict("older"), Verdict::Wait(Waiting::Forgotten(_))));
    assert!(matches!(world.verdict("younger"), Verdict::Wait(Waiting::InLine { .. })));
}
