//! A long line of claims: who is told what, and how much of that a change of hands makes untrue.

use std::collections::BTreeMap;

use moor::api::AccessMode::SingleNodeSingleWriter;
use moor::api::{AttachmentMode, ClaimState};
use moor::claim::admission::FRONT;
use moor::claim::admission::Verdict;
use moor::claim::line::told;

use super::scene::{Driver, HERE, THERE, World};

/// So many writes may tell those who wait that the volume has changed hands.
const MOST_WRITES: usize = 10;

fn name(place: usize) -> String {
    format!("w{place:04}")
}

/// A volume that `holder` has, and a line for it.
fn line(length: usize) -> World {
    let mut world = World::idle(SingleNodeSingleWriter);
    world.attach("first", THERE, SingleNodeSingleWriter, AttachmentMode::FileSystem, Driver::Plain);
    world.hold("holder", "first", false);
    for place in 0..length {
        world.ask(&name(place), SingleNodeSingleWriter, false, Some([HERE, THERE][place % 2]));
    }
    world
}

/// Reason and message by UID, as they are written.
fn words(world: &World) -> BTreeMap<String, String> {
    let verdicts = world.admit();
    told(&verdicts)
        .map(|(uid, why)| (uid.to_owned(), format!("{}: {}", why.reason().as_str(), why.message())))
        .collect()
}

/// How many claims that wait after are told something else than before.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> usize {
    after.iter().filter(|(uid, words)| before.get(*uid) != Some(words)).count()
}

#[test]
fn a_hand_over_changes_what_few_are_told() {
    let mut world = line(1000);
    let mut said = words(&world);
    assert_eq!(said.len(), 1000);
    let mut writes = 0;
    let mut look = |world: &World| {
        let now = words(world);
        writes += changed(&said, &now);
        said = now;
    };
    // The holder leaves.
    world.claims[0].deleted = true;
    look(&world);
    world.attachments.clear();
    world.claims.remove(0);
    assert!(matches!(world.verdict(&name(0)), Verdict::Grant(_)), "the first in line");
    // Whoever was first has it, in each of its states.
    world.claims.remove(0);
    world.attach("second", HERE, SingleNodeSingleWriter, AttachmentMode::FileSystem, Driver::Plain);
    world.hold(&name(0), "second", false);
    for state in [ClaimState::Taken, ClaimState::Ready] {
        world.claims.last_mut().unwrap().state = state;
        look(&world);
    }
    assert!((1..=MOST_WRITES).contains(&writes), "{writes} writes");
}

#[test]
fn the_front_names_the_holder_and_the_others_whom_they_stand_behind() {
    let world = line(9);
    let said: Vec<_> = world.admit();
    let ways: Vec<_> = told(&said).map(|(_, why)| why.holder().unwrap()).collect();
    assert!(!ways[0].state.is_empty() && ways[1..].iter().all(|holder| holder.state.is_empty()), "{ways:?}");
    assert!(ways[..FRONT].iter().all(|holder| holder.who == "default/holder" && holder.node == THERE));
    for (place, holder) in ways.iter().enumerate().skip(FRONT) {
        assert_eq!(holder.who, format!("default/{}", name(place - 1)));
    }
}

/// What is wrong with a claim itself is told wherever it stands, and then nobody stands behind it.
#[test]
fn who_can_never_be_served_is_told_so_far_back_too() {
    let mut world = line(9);
    world.claims[7].node = Some("elsewhere".into());
    let said = words(&world);
    assert!(said[&name(6)].starts_with("NodeNotUsable"), "{said:?}");
    assert!(said[&name(7)].contains(&name(5)), "{said:?}");
}
