use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::api::names::agent_lease_name;

fn lease(name: &str, version: u64) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.to_owned());
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

fn of(agent: &str, version: u64) -> Lease {
    lease(&agent_lease_name(agent), version)
}

/// The Lease of an agent that has said at this revision that etcd was restored.
fn saying(agent: &str, version: u64, said: Restored) -> Lease {
    let mut lease = of(agent, version);
    said.say_in(&mut lease);
    lease
}

fn awaits(caution: &Caution, agent: &str) -> bool {
    caution.awaits(&agent_lease_name(agent))
}

fn hears(caution: &Caution, lease: &Lease) {
    caution.changed(None, Some(lease));
}

/// Begins as the next process does, with the leader's Lease as the last one has left it.
fn next(leader: &Lease, agents: &[Lease]) -> Caution {
    let caution = Caution::default();
    let now = leader.spec.as_ref().unwrap().renew_time.as_ref().unwrap().0;
    if let Some(cause) = cause(leader, now) {
        caution.raise(cause, agents);
    }
    caution
}

/// The leader's Lease after this one has renewed it.
fn told_by(caution: &Caution, version: u64) -> Lease {
    let mut leader = lease("moor-controller", version);
    let renew_time = Some(MicroTime(Timestamp::from_second(1_700_000_000).unwrap()));
    leader.spec = Some(LeaseSpec { renew_time, ..LeaseSpec::default() });
    caution.tell(&mut leader);
    leader
}

#[test]
fn only_a_gap_in_leadership_asks_for_caution() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let leader = told_by(&Caution::default(), 9);
    assert_eq!(cause(&leader, at(1_700_000_003)), None);
    assert_eq!(cause(&leader, at(1_700_000_010)), Some(Cause::Gap(9)));
    assert_eq!(cause(&leader, at(1_699_999_940)), Some(Cause::Gap(9)), "a clock that jumped");
}

#[test]
fn an_agent_is_heard_when_its_lease_changes() {
    let caution = Caution::default();
    assert!(!caution.is_on() && !awaits(&caution, "a"));
    caution.raise(Cause::Gap(1), &[of("a", 5), of("b", 6), of("c", 7)]);
    assert!(awaits(&caution, "a") && awaits(&caution, "b"));
    hears(&caution, &of("a", 8));
    assert!(!awaits(&caution, "a") && awaits(&caution, "b"));
    // A watch that is behind shows what was before.
    hears(&caution, &of("b", 4));
    hears(&caution, &of("b", 6));
    assert!(awaits(&caution, "b"));
    // Younger than the backup: heard when it has a Lease at all.
    assert!(awaits(&caution, "d"));
    hears(&caution, &of("d", 9));
    assert!(!awaits(&caution, "d"));
    caution.changed(Some(&of("c", 7)), None);
    assert!(!awaits(&caution, "c"), "removed with its node");
    caution.end();
    assert!(!caution.is_on() && !awaits(&caution, "b"));
}

#[test]
fn one_agent_that_has_found_it_out_speaks_for_all() {
    let caution = Caution::default();
    // Of an earlier restore, after which somebody has led.
    caution.raise(Cause::Gap(50), &[saying("a", 60, Restored::At(20)), of("b", 6)]);
    hears(&caution, &saying("a", 70, Restored::At(20)));
    assert!(!caution.is_restored());
    hears(&caution, &saying("c", 71, Restored::Now));
    assert!(caution.is_restored() && awaits(&caution, "b") && !awaits(&caution, "c"));
    caution.end();
    assert!(!caution.is_restored());
}

/// It was said before this process began, so no change tells of it.
#[test]
fn a_word_from_before_the_start_counts_when_nobody_has_led_since() {
    let caution = Caution::default();
    caution.raise(Cause::Gap(50), &[saying("a", 70, Restored::At(55)), of("b", 6)]);
    assert!(caution.is_restored() && awaits(&caution, "a"));
    // Or the watch is faster than the list at the start.
    let caution = Caution::default();
    hears(&caution, &saying("a", 70, Restored::At(55)));
    caution.raise(Cause::Gap(50), &[of("a", 40), of("b", 6)]);
    assert!(caution.is_restored());
}

#[test]
fn caution_is_handed_on_with_its_cause_while_it_lasts() {
    let agents = [of("a", 5), of("b", 6)];
    let (first, calm) = (Caution::default(), Caution::default());
    first.raise(Cause::Gap(50), &agents);
    let left = told_by(&first, 60);
    assert!(first.knows(&left) && !calm.knows(&left));

    // The last leader has ended before it could tell.
    let word = saying("a", 58, Restored::Now);
    hears(&first, &word);
    assert!(next(&left, &[word, agents[1].clone()]).is_restored());

    let second = next(&left, &agents);
    assert!(second.is_on() && !second.is_restored());
    let left = told_by(&first, 61);
    assert!(!second.knows(&left), "it has yet to learn that etcd was restored");
    // Also where the Lease of who has said so is gone.
    let third = next(&left, &agents[1..]);
    assert!(third.is_restored() && third.knows(&left) && awaits(&third, "b"));

    third.end();
    let left = told_by(&third, 90);
    assert!(calm.knows(&left) && !next(&left, &agents).is_on());
}
