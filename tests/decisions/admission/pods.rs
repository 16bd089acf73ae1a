//! Pods that share a volume on their node, as kubelet lets them.

use moor::api::{AccessMode, AttachmentMode, ClaimState};
use moor::attachment::StagedAs;
use moor::claim::Waiting;
use moor::claim::admission::{Grant, Verdict};

use super::scene::{Driver, HERE, THERE, World};

const SNW: AccessMode = AccessMode::SingleNodeWriter;

fn flagged() -> StagedAs {
    StagedAs { flags: vec!["context=a".into()], group: Some("2000".into()) }
}

/// The Attachment that a Pod's claim was made, whose driver says nothing of second targets.
fn world(holds: bool) -> World {
    let mut world = World::idle(SNW);
    world.attach("held", HERE, SNW, AttachmentMode::FileSystem, Driver::Tolerant);
    world.attachments[0].staged_as = flagged();
    if holds {
        world.hold("holder", "held", false).of_pod = true;
    }
    world
}

fn asks(mut world: World, of_pod: bool, staged_as: StagedAs) -> Verdict {
    let claim = world.ask("asking", SNW, false, Some(HERE));
    (claim.of_pod, claim.staged_as) = (of_pod, staged_as);
    world.verdict("asking")
}

fn joins(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Grant(Grant::Join { .. }))
}

/// kubelet stages a volume once for all Pods of a node, in the way of the first of them.
#[test]
fn what_is_in_use_is_joined_and_what_nobody_uses_is_staged_anew() {
    assert!(joins(&asks(world(true), true, StagedAs::default())), "in use");
    assert!(joins(&asks(world(false), true, flagged())), "as it is");
    for other in [StagedAs { group: None, ..flagged() }, StagedAs { flags: Vec::new(), ..flagged() }] {
        let verdict = asks(world(false), true, other);
        assert!(matches!(verdict, Verdict::Wait(Waiting::Held(_))), "{verdict:?}");
    }
    // One of a user's says nothing of it, and goes by the Volume.
    let of_user = |flags: &[&str]| {
        let mut world = world(false);
        world.volume.mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        asks(world, false, StagedAs::default())
    };
    assert!(joins(&of_user(&["context=a"])));
    let verdict = of_user(&["noatime"]);
    assert!(matches!(verdict, Verdict::Wait(Waiting::Held(_))), "{verdict:?}");
}

#[test]
fn where_the_plugin_says_nothing_pods_share_a_node_and_nobody_shares_it_with_them() {
    assert!(joins(&asks(world(true), true, flagged())));
    let verdict = asks(world(true), false, StagedAs::default());
    assert!(matches!(verdict, Verdict::Wait(Waiting::OneTarget(_))), "{verdict:?}");
    let mut beside_user = world(true);
    beside_user.claims[0].of_pod = false;
    let verdict = asks(beside_user, true, flagged());
    assert!(matches!(verdict, Verdict::Wait(Waiting::OneTarget(_))), "{verdict:?}");
    for said in [true, false] {
        let mut world = world(true);
        world.volume.tolerates_second_target = Some(said);
        world.attachments[0].exclusive = !said;
        assert_eq!(joins(&asks(world, false, StagedAs::default())), said);
    }
    // The driver takes it itself.
    let mut able = world(true);
    able.attachments[0].multi_writer = true;
    assert!(joins(&asks(able, false, StagedAs::default())));
}

/// Attached so for the sake of the PersistentVolume, whatever its Pods would do.
#[test]
fn a_volume_that_is_only_read_is_shared_by_who_does_not_say_so() {
    let mut read_only = world(true);
    read_only.attachments[0].read_only = true;
    assert!(!joins(&asks(read_only.clone(), true, flagged())));
    read_only.volume.read_only = true;
    assert!(joins(&asks(read_only, true, flagged())));
}

/// kubelet says that a Pod only reads where the Pod says so, whatever the mode of its PersistentVolume.
#[test]
fn in_a_mode_in_which_nobody_writes_pods_share_what_is_attached_read_only() {
    const ROX: AccessMode = AccessMode::MultiNodeReader;
    for holds in [true, false] {
        let mut world = World::idle(ROX);
        world.attach("held", HERE, ROX, AttachmentMode::FileSystem, Driver::Tolerant);
        world.attachments[0].read_only = true;
        if holds {
            world.hold("holder", "held", false).of_pod = true;
        }
        world.ask("asking", ROX, false, Some(HERE)).of_pod = true;
        let verdict = world.verdict("asking");
        assert!(joins(&verdict), "{verdict:?} where somebody holds it: {holds}");
    }
}

#[test]
fn a_refused_claim_waits_for_nothing_and_nobody_waits_for_it() {
    let mut refused = world(false);
    let claim = refused.ask("refused", SNW, false, Some(HERE));
    (claim.of_pod, claim.not_entitled) = (true, Some("Pod ns/a is not on node b".into()));
    let younger = refused.ask("younger", SNW, false, Some(HERE));
    (younger.of_pod, younger.staged_as, younger.state) = (true, flagged(), ClaimState::Pending);
    let Verdict::Wait(why) = refused.verdict("refused") else { panic!("it is granted") };
    assert_eq!(why.message(), "Pod ns/a is not on node b", "as it was said");
    assert!(!why.holds_the_line() && joins(&refused.verdict("younger")));
}

/// Whoever waits may not see the holder's claim, which is in moor's namespace.
#[test]
fn who_waits_for_a_silent_node_is_told_the_ways_out() {
    let mut world = world(true);
    let holder = world.claims.iter_mut().find(|claim| claim.name == "holder").unwrap();
    holder.silence = Some("nothing is heard: kubectl delete node there".into());
    world.ask("asking", SNW, false, Some(THERE)).of_pod = true;
    let Verdict::Wait(why) = world.verdict("asking") else { panic!("it is granted") };
    let said = why.message();
    assert!(
        said.contains("holder") && said.ends_with(" is gone. nothing is heard: kubectl delete node there"),
        "{said}"
    );
}
