//! A volume that is mounted somewhere without an Attachment (rule R7).

use moor::api::AccessMode;
use moor::claim::admission::{Grant, Verdict};
use moor::claim::reason::Waiting;
use moor::claim::{ForgottenSeen, Mount};

use super::scene::{HERE, THERE, World};

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

#[test]
fn on_its_own_node_the_agent_sees_to_it() {
    let mut world = World::idle(AccessMode::SingleNodeWriter);
    world.forgotten = vec![mounted_on(HERE)];
    world.ask("a", AccessMode::SingleNodeWriter, false, Some(HERE));
    assert!(matches!(world.verdict("a"), Verdict::Grant(Grant::Create { .. })));
    // Two nodes that both may have it: neither gets it.
    world.forgotten.push(mounted_on(THERE));
    assert!(matches!(world.verdict("a"), Verdict::Wait(Waiting::Forgotten(_))));
}

#[test]
fn who_waits_for_it_is_not_overtaken() {
    let mut world = World::idle(AccessMode::SingleNodeWriter);
    world.forgotten = vec![mounted_on(HERE)];
    world.ask("older", AccessMode::SingleNodeWriter, false, Some(THERE));
    world.ask("younger", AccessMode::SingleNodeWriter, false, Some(HERE));
    assert!(matches!(world.verdict("younger"), Verdict::Wait(Waiting::InLine { .. })));
}
