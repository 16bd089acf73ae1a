//! The mode table, written down from what CSI says of its modes and not from the code.
//!
//! CSI (VolumeCapability.AccessMode): a SINGLE_NODE mode counts nodes; only SINGLE_NODE_SINGLE_WRITER counts
//! workloads. MULTI_NODE_SINGLE_WRITER has one writer in all. CSI (NodePublishVolume, the table of a second target):
//! another target on the node is for MULTI_NODE modes, and for SINGLE_NODE_MULTI_WRITER where the driver has that
//! capability; in every other mode the driver answers FAILED_PRECONDITION. SINGLE_NODE_WRITER is sent as
//! SINGLE_NODE_MULTI_WRITER where it can be.

use moor::api::conditions::Reason;
use moor::api::{AccessMode, AttachmentMode};
use moor::claim::admission::{Grant, Verdict};
use moor::claim::reason::Waiting;

use super::scene::{Driver, HERE, THERE, World};

/// Who has the volume on node-1 when somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    None,
    Reader,
    Writer,
    Readers,
    Both,
    /// One writer (in a reading mode one reader) whose claim is deleted; its Attachment is open.
    Leaving,
    /// The same, with the Attachment closing.
    Closing,
    /// The claim object is gone, its Attachment closes.
    Orphaned,
}

const EXISTING: [Existing; 8] = [
    Existing::None,
    Existing::Reader,
    Existing::Writer,
    Existing::Readers,
    Existing::Both,
    Existing::Leaving,
    Existing::Closing,
    Existing::Orphaned,
];

/// One row: mode, who asks (`r` or `w`), on which node, and per column of [`EXISTING`] what becomes of it:
/// `C` a new Attachment, `J` the existing one, `W` it waits, `.` cannot exist; `-` is for the writer lock to say,
/// because nothing here knows whether the claim that is gone was a writer.
type Row = (AccessMode, char, &'static str, &'static str);

use AccessMode::{
    MultiNodeMultiWriter as Mnmw, MultiNodeReader as Mnr, MultiNodeSingleWriter as Mnsw,
    SingleNodeMultiWriter as Snmw, SingleNodeReader as Snr, SingleNodeSingleWriter as Snsw,
    SingleNodeWriter as Snw,
};

/// Modes whose answer does not depend on the driver.
#[rustfmt::skip]
const ANY_DRIVER: [Row; 14] = [
    //                   none reader writer readers both leaving closing orphaned
    (Snsw, 'r', HERE,  "C W W . . W W W"),
    (Snsw, 'r', THERE, "C W W . . W W W"),
    (Snsw, 'w', HERE,  "C W W . . W W W"),
    (Snsw, 'w', THERE, "C W W . . W W W"),
    (Mnr,  'r', HERE,  "C J . J . J W W"),
    (Mnr,  'r', THERE, "C C . C . C C C"),
    (Mnsw, 'r', HERE,  "C J J J J J W W"),
    (Mnsw, 'r', THERE, "C C C C C C C C"),
    (Mnsw, 'w', HERE,  "C J W J W W W W"),
    (Mnsw, 'w', THERE, "C C W C W W W -"),
    (Mnmw, 'r', HERE,  "C J J J J J W W"),
    (Mnmw, 'r', THERE, "C C C C C C C C"),
    (Mnmw, 'w', HERE,  "C J J J J J W W"),
    (Mnmw, 'w', THERE, "C C C C C C C C"),
];

/// Single-node modes where the node has room for one target only.
#[rustfmt::skip]
const ONE_TARGET: [Row; 10] = [
    (Snr,  'r', HERE,  "C W . . . W W W"),
    (Snr,  'r', THERE, "C W . . . W W W"),
    (Snw,  'r', HERE,  "C W W . . W W W"),
    (Snw,  'r', THERE, "C W W . . W W W"),
    (Snw,  'w', HERE,  "C W W . . W W W"),
    (Snw,  'w', THERE, "C W W . . W W W"),
    (Snmw, 'r', HERE,  "C W W . . W W W"),
    (Snmw, 'r', THERE, "C W W . . W W W"),
    (Snmw, 'w', HERE,  "C W W . . W W W"),
    (Snmw, 'w', THERE, "C W W . . W W W"),
];

/// The same where it has room for several.
#[rustfmt::skip]
const SEVERAL_TARGETS: [Row; 10] = [
    (Snr,  'r', HERE,  "C J . J . J W W"),
    (Snr,  'r', THERE, "C W . W . W W W"),
    (Snw,  'r', HERE,  "C J J J J J W W"),
    (Snw,  'r', THERE, "C W W W W W W W"),
    (Snw,  'w', HERE,  "C J J J J J W W"),
    (Snw,  'w', THERE, "C W W W W W W W"),
    (Snmw, 'r', HERE,  "C J J J J J W W"),
    (Snmw, 'r', THERE, "C W W W W W W W"),
    (Snmw, 'w', HERE,  "C J J J J J W W"),
    (Snmw, 'w', THERE, "C W W W W W W W"),
];

/// The table of a driver. SINGLE_NODE_MULTI_WRITER says nothing about SINGLE_NODE_READER_ONLY.
fn rows(driver: Driver) -> Vec<Row> {
    let single = ONE_TARGET.into_iter().zip(SEVERAL_TARGETS).map(|(one, several)| match driver {
        Driver::Plain => one,
        Driver::MultiWriter if one.0 == Snr => one,
        Driver::MultiWriter | Driver::Tolerant => several,
    });
    ANY_DRIVER.into_iter().chain(single).collect()
}

fn holders(world: &mut World, existing: Existing, mode: AccessMode, at: AttachmentMode, driver: Driver) {
    if existing == Existing::None {
        return;
    }
    world.attach("held", HERE, mode, at, driver);
    let reads = mode.is_reader_only();
    match existing {
        Existing::None | Existing::Orphaned => {}
        Existing::Reader => drop(world.hold("holder", "held", true).uid.clone()),
        Existing::Writer => drop(world.hold("holder", "held", false).uid.clone()),
        Existing::Readers => {
            world.hold("holder", "held", true);
            world.hold("second", "held", true);
        }
        Existing::Both => {
            world.hold("second", "held", true);
            world.hold("holder", "held", false);
        }
        Existing::Leaving | Existing::Closing => world.hold("holder", "held", reads).deleted = true,
    }
    world.attachments[0].deleted = matches!(existing, Existing::Closing | Existing::Orphaned);
}

/// What admission made of it, in the table's letters; for a wait, the holder is checked.
fn outcome(world: &World, existing: Existing, context: &str) -> char {
    match world.verdict("asking") {
        Verdict::Grant(Grant::Create { .. }) => 'C',
        Verdict::Grant(Grant::Join { uid, .. } | Grant::NameWriter { uid, .. }) => {
            assert_eq!(uid, "held", "{context}");
            'J'
        }
        Verdict::Grant(Grant::SwitchMode { .. }) => 'S',
        Verdict::Wait(Waiting::Held(holder) | Waiting::OneTarget(holder)) => {
            assert_eq!(holder.node, HERE, "{context}: {holder:?}");
            let orphaned = format!("Attachment/{}", world.attachments[0].name);
            let names: &[&str] = match existing {
                Existing::Orphaned => &[&orphaned],
                // With several, whoever of them is in the way.
                Existing::Readers | Existing::Both => &["default/holder", "default/second"],
                _ => &["default/holder"],
            };
            assert!(names.contains(&holder.who.as_str()), "{context}: {holder:?}");
            let leaves = matches!(existing, Existing::Leaving | Existing::Closing | Existing::Orphaned);
            assert_eq!(holder.state == "leaving", leaves, "{context}: {holder:?}");
            'W'
        }
        Verdict::Wait(other) => panic!("{context}: {other:?}"),
    }
}

fn cells() -> impl Iterator<Item = (Driver, AccessMode, bool, &'static str, Existing, char)> {
    Driver::ALL.into_iter().flat_map(|driver| {
        rows(driver).into_iter().flat_map(move |(mode, asks, place, row)| {
            let cells: Vec<char> = row.split(' ').map(|cell| cell.chars().next().unwrap()).collect();
            assert_eq!(cells.len(), EXISTING.len());
            let of = EXISTING.into_iter().zip(cells).filter(|(_, cell)| !matches!(cell, '.' | '-'));
            of.map(move |(existing, cell)| (driver, mode, asks == 'r', place, existing, cell))
        })
    })
}

const USES: [AttachmentMode; 2] = [AttachmentMode::FileSystem, AttachmentMode::BlockDevice];

/// 7 modes x reader and writer x same and other node x existing claims x block and file system x three drivers.
#[test]
fn every_cell_of_the_mode_table_holds() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for (driver, mode, read_only, place, existing, expected) in cells() {
        for (asked, held) in USES.into_iter().flat_map(|asked| USES.map(|held| (asked, held))) {
            let mut world = World::idle(mode);
            holders(&mut world, existing, mode, held, driver);
            world.ask("asking", mode, read_only, Some(place)).attachment_mode = asked;
            // A volume is staged once on a node, as a file system or as a device (CSI NodeStageVolume).
            let expected = if expected == 'J' && asked != held { 'W' } else { expected };
            let context = format!("{driver:?} {mode} reads={read_only} {place} {existing:?} {held}->{asked}");
            let found = outcome(&world, existing, &context);
            if found != expected {
                wrong.push(format!("{context}: expected {expected}, found {found}"));
            }
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {seen} cells:\n{}", wrong.len(), wrong.join("\n"));
    println!("{seen} cells");
}

/// Whoever names no node gets one on which the table grants; it waits only where no node would do.
#[test]
fn a_claim_without_a_node_waits_only_if_no_node_would_grant_it() {
    let table: Vec<_> = cells().collect();
    let mut wrong = Vec::new();
    for (driver, mode, read_only, _, existing, here) in table.iter().filter(|c| c.3 == HERE) {
        let same = |c: &&(Driver, AccessMode, bool, &str, Existing, char)| {
            (c.0, c.1, c.2, c.3, c.4) == (*driver, *mode, *read_only, THERE, *existing)
        };
        let Some(there) = table.iter().find(same).map(|c| c.5) else { continue };
        for (asked, held) in USES.into_iter().flat_map(|asked| USES.map(|held| (asked, held))) {
            let here = if *here == 'J' && asked != held { 'W' } else { *here };
            let mut world = World::idle(*mode);
            holders(&mut world, *existing, *mode, held, *driver);
            world.ask("asking", *mode, *read_only, None).attachment_mode = asked;
            let context = format!("{driver:?} {mode} reads={read_only} {existing:?} {held}->{asked}");
            let found = outcome(&world, *existing, &context);
            let expected = if here == 'W' { there } else { here };
            if found != expected {
                wrong.push(format!("{context}: expected {expected}, found {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The first claim fixes the mode and the last one clears it: another mode waits as long as anything of the volume is
/// attached anywhere, and is switched to when nothing is.
#[test]
fn the_mode_is_fixed_by_the_first_claim_and_cleared_by_the_last() {
    for (driver, mode, _, _, existing, _) in cells() {
        for asked in AccessMode::ALL.into_iter().filter(|asked| *asked != mode) {
            for node in [Some(HERE), Some(THERE), None] {
                let mut world = World::idle(mode);
                holders(&mut world, existing, mode, AttachmentMode::FileSystem, driver);
                world.ask("asking", asked, asked.is_reader_only(), node);
                let context = format!("{driver:?} {mode}->{asked} {node:?} {existing:?}");
                let expected = if existing == Existing::None { 'S' } else { 'W' };
                assert_eq!(outcome(&world, existing, &context), expected, "{context}");
            }
        }
    }
}

/// A use that the Volume does not list is refused with words that name both, whoever holds the volume, and it keeps
/// nobody else waiting.
#[test]
fn a_use_that_the_volume_does_not_list_is_refused() {
    for mode in AccessMode::ALL {
        for at in USES {
            let mut world = World::idle(mode);
            world.volume.uses.retain(|u| (u.access_mode, u.attachment_mode) != (mode, at));
            world.ask("asking", mode, true, Some(HERE)).attachment_mode = at;
            let Verdict::Wait(why) = world.verdict("asking") else { panic!("{mode}/{at} was granted") };
            assert_eq!(why.reason(), Reason::UseNotListed);
            let message = why.message();
            assert!(message.contains(&format!("{mode}/{at}, only ")), "{message}");
            assert!(message.contains("delete this claim"), "{message}");
            assert!(!message.contains(&format!("only {mode}/{at}")), "{message}");

            let other = if at == AttachmentMode::FileSystem { USES[1] } else { USES[0] };
            world.ask("younger", mode, true, Some(HERE)).attachment_mode = other;
            assert!(matches!(world.verdict("younger"), Verdict::Grant(Grant::Create { .. })), "{mode}/{at}");
        }
    }
}

/// A handover: the new writer waits and names the one that leaves, on whichever node it comes up.
#[test]
fn a_handover_names_the_leaver() {
    for mode in AccessMode::ALL.into_iter().filter(|mode| !mode.is_reader_only()) {
        for closing in [false, true] {
            let mut world = World::idle(mode);
            world.attach("held", HERE, mode, AttachmentMode::FileSystem, Driver::Plain);
            world.attachments[0].deleted = closing;
            world.hold("old", "held", false).deleted = true;
            world.ask("new", mode, false, Some(THERE));
            match world.verdict("new") {
                Verdict::Grant(_) => assert_eq!(mode, Mnmw, "{mode}"),
                Verdict::Wait(why) => {
                    let holder = why.holder().unwrap();
                    assert_eq!(
                        (holder.who.as_str(), holder.state.as_str()),
                        ("default/old", "leaving"),
                        "{mode}"
                    );
                    let message = why.message();
                    assert!(message.contains("default/old on node node-1 (leaving)"), "{message}");
                }
            }
        }
    }
}

/// A claim that was lost with its node stays until its user deletes it. It keeps the writer's place only as long as
/// its Attachment is there.
#[test]
fn a_lost_writer_gives_its_place_up_with_its_attachment() {
    let mut world = World::idle(Mnsw);
    world.attach("held", HERE, Mnsw, AttachmentMode::FileSystem, Driver::Plain);
    world.attachments[0].lost = true;
    world.hold("holder", "held", false).state = moor::api::ClaimState::Lost;
    world.ask("asking", Mnsw, false, Some(THERE));
    assert!(matches!(world.verdict("asking"), Verdict::Wait(Waiting::Held(_))));
    world.attachments.clear();
    assert!(matches!(world.verdict("asking"), Verdict::Grant(Grant::Create { .. })));
}

/// Where an Attachment cannot be made because the driver is not known, the claim says so and is in nobody's way:
/// what exists can still be joined.
#[test]
fn a_driver_that_is_not_known_stops_only_what_is_new() {
    let mut world = World::idle(Mnmw);
    world.attach("held", HERE, Mnmw, AttachmentMode::FileSystem, Driver::Plain);
    world.hold("holder", "held", false);
    world.volume.unprepared = Some("Plugin p does not exist".into());
    world.ask("new", Mnmw, false, Some(THERE));
    world.ask("joining", Mnmw, false, Some(HERE));
    let Verdict::Wait(why) = world.verdict("new") else { panic!("granted") };
    assert_eq!((why.reason(), why.message().as_str()), (Reason::PluginNotReady, "Plugin p does not exist"));
    assert!(matches!(world.verdict("joining"), Verdict::Grant(Grant::Join { .. })));
    // Nor is the mode changed for it.
    world.ask("other", Snw, false, Some(HERE));
    world.claims.retain(|c| c.uid == "other");
    world.attachments.clear();
    assert!(matches!(world.verdict("other"), Verdict::Wait(Waiting::PluginNotReady { .. })));
}

#[test]
fn a_node_that_was_registered_anew_is_joined_only_under_its_new_uid() {
    for mode in AccessMode::ALL.into_iter().filter(|mode| !mode.is_reader_only() && *mode != Snsw) {
        let mut world = World::idle(mode);
        world.attach("held", HERE, mode, AttachmentMode::FileSystem, Driver::MultiWriter);
        world.hold("old", "held", true);
        world.ask("new", mode, true, Some(HERE));
        assert!(matches!(world.verdict("new"), Verdict::Grant(_)), "{mode}");
        world.attachments[0].node_uid = "before it was registered anew".into();
        match world.verdict("new") {
            Verdict::Grant(grant) => panic!("{mode}: {grant:?}"),
            Verdict::Wait(why) => assert_eq!(why.holder().unwrap().who, "default/old", "{mode}"),
        }
    }
}
