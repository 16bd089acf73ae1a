//! Waiting claims are granted in order of age, as soon as they can be, and nobody waits for ever.

use moor::api::capability::VolumeUse;
use moor::api::handle::{Writer, WriterRef};
use moor::api::{AccessMode, AttachmentMode, AttachmentUid, ClaimState, ClaimUid};
use moor::attachment::AttachmentSeen;
use moor::attachment::closing::{self, ClosingStep, Unused};
use moor::claim::ClaimSeen;
use moor::claim::admission::{Grant, Verdict};
use moor::claim::writer::retire;
use proptest::prelude::*;
use proptest::sample::select;

use super::scene::{Driver, HERE, THERE, World};
use crate::fixtures::{grant, node};

/// A node on which the driver is not healthy: whoever names it waits, and is in nobody's way.
const SICK: &str = "node-3";

#[derive(Clone, Debug)]
enum Event {
    /// A claim is made.
    Arrive { mode: AccessMode, read_only: bool, node: Option<&'static str>, at: AttachmentMode },
    /// The claim at this place (of those alive) is deleted.
    Delete(usize),
    /// The node has undone its part for the deleted claim at this place.
    Detach(usize),
    /// What closes and is used by nobody is gone.
    Free,
    /// The Attachment at this place is removed by hand.
    RemoveLock(usize),
    /// The node of the claim at this place (of those alive without their Attachment) gives the grant back.
    GiveBack(usize),
}

fn event() -> impl Strategy<Value = Event> {
    use AccessMode::{MultiNodeReader, MultiNodeSingleWriter, SingleNodeReader, SingleNodeWriter};
    // Few modes, so that claims often agree; one that the volume does not list.
    let modes = vec![SingleNodeWriter, SingleNodeReader, MultiNodeReader, MultiNodeSingleWriter];
    let modes = prop_oneof![8 => select(modes), 1 => Just(AccessMode::MultiNodeMultiWriter)];
    let nodes = prop_oneof![
        4 => select(vec![Some(HERE), Some(THERE)]), 2 => Just(None), 1 => Just(Some(SICK))
    ];
    let at = prop_oneof![6 => Just(AttachmentMode::FileSystem), 1 => Just(AttachmentMode::BlockDevice)];
    prop_oneof![
        4 => (modes, any::<bool>(), nodes, at).prop_map(|(mode, reads, node, at)| {
            Event::Arrive { mode, read_only: reads || mode.is_reader_only(), node, at }
        }),
        2 => any::<prop::sample::Index>().prop_map(|i| Event::Delete(i.index(8))),
        2 => any::<prop::sample::Index>().prop_map(|i| Event::Detach(i.index(8))),
        1 => Just(Event::Free),
        1 => any::<prop::sample::Index>().prop_map(|i| Event::RemoveLock(i.index(4))),
        1 => any::<prop::sample::Index>().prop_map(|i| Event::GiveBack(i.index(4))),
    ]
}

/// A world that runs, and what is wrong with it.
struct Run {
    world: World,
    driver: Driver,
    serial: i64,
}

impl Run {
    fn new(driver: Driver) -> Self {
        let mut world = World::idle(AccessMode::SingleNodeWriter);
        world.volume.uses.retain(|u| u.access_mode != AccessMode::MultiNodeMultiWriter);
        let mut sick = node(SICK);
        sick.healthy = false;
        world.nodes.push(sick);
        Self { world, driver, serial: 0 }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Arrive { mode, read_only, node, at } => {
                self.serial += 1;
                // Two claims a second: the name decides between them.
                let (uid, created) = (format!("c{:03}", self.serial), self.serial / 2);
                let claim = self.world.ask(&uid, *mode, *read_only, *node);
                (claim.attachment_mode, claim.created) = (*at, created);
            }
            Event::Delete(place) => {
                let mut living = self.world.claims.iter_mut().filter(|c| !c.deleted);
                if let Some(claim) = living.nth(*place) {
                    claim.deleted = true;
                }
                // Without a grant there is nothing to undo.
                self.world.claims.retain(|c| !c.deleted || c.uses().is_some());
            }
            Event::Detach(place) => {
                let leaving: Vec<ClaimUid> =
                    self.world.claims.iter().filter(|c| c.deleted).map(|c| c.uid.clone()).collect();
                if let Some(gone) = leaving.get(*place) {
                    self.remove(gone);
                }
            }
            Event::Free => self.free(),
            Event::RemoveLock(place) => {
                if *place < self.world.attachments.len() {
                    self.world.attachments.remove(*place);
                }
            }
            Event::GiveBack(place) => {
                let unlocked: Vec<ClaimUid> =
                    self.unlocked().into_iter().filter(|c| !c.deleted).map(|c| c.uid.clone()).collect();
                if let Some(uid) = unlocked.get(*place) {
                    let claim = self.world.claims.iter_mut().find(|c| &c.uid == uid).unwrap();
                    (claim.yielded, claim.state) = (claim.uses().cloned(), ClaimState::Pending);
                }
            }
        }
    }

    /// Claims whose Attachment was removed by hand.
    fn unlocked(&self) -> Vec<&ClaimSeen> {
        let is_there = |uid: &AttachmentUid| self.world.attachments.iter().any(|a| a.uid == *uid);
        self.world.claims.iter().filter(|c| c.uses().is_some_and(|uid| !is_there(uid))).collect()
    }

    /// The claim is off its node and freed; the VolumeHandle says so if it was the writer.
    fn remove(&mut self, uid: &str) {
        let off = ClaimSeen { state: ClaimState::NodeDetached, ..self.claim(uid).clone() };
        if let Some(writer) = retire(Some(&self.world.handle), &off) {
            self.world.handle.writer = Some(writer);
        }
        self.world.claims.retain(|c| c.uid != uid);
    }

    fn free(&mut self) {
        let claims = self.world.claims.clone();
        let used = |uid: &AttachmentUid| claims.iter().any(|c| c.uses() == Some(uid));
        self.world.attachments.retain(|a| !a.deleted || used(&a.uid));
    }

    /// What the leader does until it has nothing to do. Every grant is checked when it is written.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..200 {
            let verdicts = self.world.admit();
            let granted = verdicts.iter().find_map(|(uid, v)| match v {
                Verdict::Grant(grant) => Some((uid.clone(), grant.clone())),
                Verdict::Wait(_) => None,
            });
            let joined = match &granted {
                Some((_, Grant::Join { uid, .. } | Grant::NameWriter { uid, .. })) => Some(uid.clone()),
                _ => None,
            };
            let claims = self.world.claims.clone();
            let closes = |a: &AttachmentSeen| {
                let step = closing::plan(a, &claims, false, Unused::default());
                matches!(step, Some(ClosingStep::Close | ClosingStep::CloseIfUnused))
            };
            let all = self.world.attachments.iter_mut();
            let mut unused = all.filter(|a| Some(&a.uid) != joined.as_ref() && closes(a));
            if let Some(unused) = unused.next() {
                unused.deleted = true;
                continue;
            }
            let Some((uid, grant)) = granted else { return self.nothing_is_left_undone() };
            self.act(&uid, grant)?;
        }
        Err(TestCaseError::fail("the leader does not come to rest"))
    }

    fn act(&mut self, uid: &str, granted: Grant) -> Result<(), TestCaseError> {
        let claim = self.claim(uid).clone();
        let older = self.waiting().into_iter().find(|c| self.is_feasible(c)).map(|c| c.uid.clone());
        prop_assert_eq!(older.as_deref(), Some(uid), "{} overtakes", uid);
        match granted {
            Grant::SwitchMode { mode } => {
                prop_assert!(self.world.attachments.is_empty(), "the mode changes under a holder");
                prop_assert!(self.unlocked().is_empty(), "the mode changes under who lost the lock");
                (self.world.handle.mode, self.world.handle.writer) = (mode, None);
            }
            Grant::NameWriter { attachment, uid: on } => {
                prop_assert!(self.fits(&claim), "{} may not write", uid);
                let holder =
                    WriterRef { claim: claim.key(), claim_uid: uid.into(), attachment, attachment_uid: on };
                let grant = self.world.handle.writer.as_ref().map_or(1, |w| w.grant + 1);
                self.world.handle.writer = Some(Writer { holder, grant, released: false, after: None });
            }
            Grant::Create { node, .. } => {
                prop_assert!(self.fits(&claim), "{} is granted beside a holder", uid);
                self.serial += 1;
                let name = format!("a{:03}", self.serial);
                self.world.attach(&name, &node, claim.mode, claim.attachment_mode, self.driver);
            }
            Grant::Join { uid: attachment, .. } => {
                prop_assert!(self.fits(&claim), "{} does not fit in", uid);
                let to = self.world.attachments.iter().find(|a| a.uid == attachment).unwrap().clone();
                let claim = self.world.claims.iter_mut().find(|c| c.uid == uid).unwrap();
                claim.assignment = Some(grant(&to));
                claim.state = ClaimState::Ready;
            }
        }
        Ok(())
    }

    /// The oldest claim that could be granted at all waits only for somebody who is in its way.
    fn nothing_is_left_undone(&self) -> Result<(), TestCaseError> {
        if let Some(first) = self.waiting().into_iter().find(|c| self.is_feasible(c)) {
            prop_assert!(!self.fits(first), "{} waits for nothing: {:?}", first.uid, self.world.admit());
        }
        for (uid, verdict) in self.world.admit() {
            let Verdict::Wait(why) = verdict else { continue };
            prop_assert!(!why.message().is_empty());
            let (feasible, holds) = (self.is_feasible(self.claim(&uid)), why.holds_the_line());
            prop_assert!(feasible || !holds, "{} can never be granted and holds up others", uid);
        }
        Ok(())
    }

    fn claim(&self, uid: &str) -> &ClaimSeen {
        self.world.claims.iter().find(|c| c.uid == uid).unwrap()
    }

    fn waiting(&self) -> Vec<&ClaimSeen> {
        let mut line: Vec<_> =
            self.world.claims.iter().filter(|c| !c.deleted && c.uses().is_none()).collect();
        line.sort_by_key(|c| (c.created, c.uid.clone()));
        line
    }

    /// It can be granted once others let go.
    fn is_feasible(&self, claim: &ClaimSeen) -> bool {
        let wanted = VolumeUse { access_mode: claim.mode, attachment_mode: claim.attachment_mode };
        claim.node.as_deref() != Some(SICK) && self.world.volume.uses.contains(&wanted)
    }

    /// Nobody who is there, leaves or has left traces is in its way: CSI's meaning of the modes.
    fn fits(&self, claim: &ClaimSeen) -> bool {
        [HERE, THERE].into_iter().filter(|n| claim.node.as_deref().is_none_or(|named| named == *n)).any(|n| {
            let holders: Vec<_> = self.world.claims.iter().filter(|c| c.uses().is_some()).collect();
            let writes = |c: &ClaimSeen| !c.read_only;
            let second_writer = claim.mode == AccessMode::MultiNodeSingleWriter
                && writes(claim)
                && holders.iter().any(|c| writes(c));
            let unlocked_in_the_way = self.unlocked().into_iter().any(|c| {
                let beside = c.mode == claim.mode && claim.mode.is_multi_node();
                !beside || c.assignment.as_ref().is_some_and(|a| a.node_name == n)
            });
            !second_writer
                && !unlocked_in_the_way
                && self.world.attachments.iter().all(|a| {
                    let here = a.node == n;
                    let users = holders.iter().filter(|c| c.uses() == Some(&a.uid)).count();
                    let joins = !a.deleted
                        && a.attachment_mode == claim.attachment_mode
                        && (users == 0 || !self.driver.is_exclusive(claim.mode));
                    a.mode == claim.mode && if here { joins } else { claim.mode.is_multi_node() }
                })
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nobody younger overtakes an older feasible claim, an infeasible one blocks nobody (trap B30), whoever fits in gets
    /// in at once, no two holders contradict their mode, and when everybody has left nobody waits.
    #[test]
    fn grants_are_fair_and_prompt(
        events in prop::collection::vec(event(), 1..40),
        driver in select(Driver::ALL.to_vec()),
    ) {
        let mut run = Run::new(driver);
        for event in &events {
            run.happen(event);
            run.settle()?;
        }
        // Everybody leaves, in order of age.
        for _ in 0..=events.len() {
            run.free();
            run.settle()?;
            let holders: Vec<_> = run.world.claims.iter().filter(|c| c.uses().is_some()).collect();
            let Some(first) = holders.iter().map(|c| c.uid.clone()).min() else { break };
            run.remove(&first);
            run.settle()?;
        }
        let left: Vec<_> = run.waiting().into_iter().filter(|c| run.is_feasible(c)).collect();
        prop_assert!(left.is_empty(), "never granted: {:?}", left);
    }
}

/// An older writer closes the door: readers that come later wait behind it, so it gets its turn (trap B30).
#[test]
fn an_older_writer_closes_the_door_for_younger_readers() {
    use AccessMode::{MultiNodeReader, SingleNodeWriter};
    let mut run = Run::new(Driver::Plain);
    let reader = |node| Event::Arrive {
        mode: MultiNodeReader,
        read_only: true,
        node: Some(node),
        at: AttachmentMode::FileSystem,
    };
    let writer = Event::Arrive {
        mode: SingleNodeWriter,
        read_only: false,
        node: Some(THERE),
        at: AttachmentMode::FileSystem,
    };
    for event in [reader(HERE), writer, reader(THERE), reader(HERE)] {
        run.happen(&event);
        run.settle().unwrap();
    }
    let waits = |run: &Run| run.waiting().iter().map(|c| c.uid.clone()).collect::<Vec<_>>();
    let (first, writer, readers) = ("c001", waits(&run)[0].clone(), waits(&run)[1..].to_vec());
    assert_eq!(readers.len(), 2, "a younger reader has got in: {:?}", run.world.claims);
    for reader in &readers {
        let Verdict::Wait(why) = run.world.verdict(reader) else { panic!("{reader} is granted") };
        assert_eq!(why.message(), format!("claim default/{writer} is older and waits for the same volume"));
    }
    run.remove(first);
    run.settle().unwrap();
    run.free();
    run.settle().unwrap();
    assert_eq!(waits(&run), readers, "the writer has its turn");
    assert_eq!(run.world.handle.mode, SingleNodeWriter);
}
