//! A claim whose Attachment was removed by hand (interleaving N9): its node may have the volume mounted.

use moor::api::{AccessMode, AttachmentMode, ClaimState};
use moor::claim::admission::{Grant, Verdict};
use moor::claim::reason::Waiting;

use super::scene::{Driver, HERE, THERE, World};

/// A claim is Ready on node 1 in this mode, and its Attachment is gone.
fn removed(mode: AccessMode) -> World {
    let mut world = World::idle(mode);
    world.attach("u1", HERE, mode, AttachmentMode::FileSystem, Driver::MultiWriter);
    world.hold("holder", "u1", mode.is_reader_only());
    world.attachments.clear();
    world
}

fn waits_for_holder(world: &World, uid: &str) -> bool {
    let verdict = world.verdict(uid);
    matches!(&verdict, Verdict::Wait(Waiting::Held(h)) if h.who == "default/holder" && h.node == HERE)
}

#[test]
fn nobody_gets_a_lock_beside_it() {
    for held in AccessMode::ALL {
        for asked in AccessMode::ALL {
            for node in [HERE, THERE] {
                let mut world = removed(held);
                world.ask("a", asked, true, Some(node));
                let beside = held == asked && held.is_multi_node() && node == THERE;
                assert_eq!(
                    waits_for_holder(&world, "a"),
                    !beside,
                    "{asked} on {node} beside {held} on {HERE}"
                );
                world.claims[0].deleted = true;
                assert_eq!(waits_for_holder(&world, "a"), !beside, "leaving is still there");
            }
        }
    }
}

#[test]
fn it_is_out_of_the_way_when_its_node_has_given_it_back_or_is_lost() {
    let grants =
        |world: &World, uid: &str| matches!(world.verdict(uid), Verdict::Grant(Grant::Create { .. }));
    let mut world = removed(AccessMode::SingleNodeWriter);
    world.ask("a", AccessMode::SingleNodeWriter, false, Some(THERE));
    assert!(waits_for_holder(&world, "a"));
    let mut lost = world.clone();
    lost.claims[0].state = ClaimState::Lost;
    assert!(grants(&lost, "a"));
    // It stands in line by its age again.
    (world.claims[0].yielded, world.claims[0].state) = (Some("u1".into()), ClaimState::Pending);
    assert!(grants(&world, "holder"));
    world.claims[0].created = 9;
    assert!(grants(&world, "a"));
}

/// The Volume was made anew under its name for another handle; the claims of the old one use that.
#[test]
fn a_claim_on_another_handle_is_in_nobodys_way() {
    let mut world = removed(AccessMode::SingleNodeWriter);
    world.volume.handle = "volume-2".into();
    world.ask("a", AccessMode::SingleNodeWriter, false, Some(THERE));
    assert!(matches!(world.verdict("a"), Verdict::Grant(Grant::Create { .. })));
}
