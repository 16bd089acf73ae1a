use jiff::Timestamp;

use super::*;
use crate::api::health::HealthKind::*;

const GIB: u64 = 1 << 30;

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn finding(kind: HealthKind) -> HealthFinding {
    HealthFinding { kind, message: format!("as {kind:?}"), since: at(1) }
}

fn of(mount: MountSeen, driver: DriverSeen) -> Look {
    Look { mount, driver, bytes: None, inodes: None, is_written: true }
}

fn well() -> Look {
    of(MountSeen::There { read_only: false }, DriverSeen::Normal)
}

fn kinds(look: &Look, reported: &[HealthKind]) -> Vec<HealthKind> {
    let reported: Vec<_> = reported.iter().map(|kind| finding(*kind)).collect();
    found(look, &reported).into_keys().collect()
}

fn words() -> String {
    "words".to_owned()
}

#[test]
fn what_was_seen_to_be_well_ends_and_what_was_not_seen_stays() {
    let all = [Abnormal, NotMounted, Stale, NoAnswer, ReadOnly];
    assert_eq!(kinds(&well(), &all), []);
    assert_eq!(kinds(&of(MountSeen::Unseen, DriverSeen::Away), &all), all);
    // What the driver has never said has no place any more when it has nothing to say.
    assert_eq!(
        kinds(&of(MountSeen::Unseen, DriverSeen::Mute), &all),
        [NotMounted, Stale, NoAnswer, ReadOnly]
    );
    assert_eq!(
        kinds(&of(MountSeen::There { read_only: false }, DriverSeen::Away), &all),
        [Abnormal, NoAnswer]
    );
    assert_eq!(kinds(&of(MountSeen::There { read_only: false }, DriverSeen::Mute), &all), []);
    assert_eq!(kinds(&of(MountSeen::Unseen, DriverSeen::Away), &[]), []);
}

#[test]
fn each_way_in_which_a_mount_is_not_well_is_told() {
    let mount = |mount| kinds(&of(mount, DriverSeen::Mute), &[]);
    assert_eq!(mount(MountSeen::NotMounted(words())), [NotMounted]);
    assert_eq!(mount(MountSeen::Stale(words())), [Stale]);
    assert_eq!(mount(MountSeen::Hangs(words())), [NoAnswer]);
    assert_eq!(mount(MountSeen::There { read_only: true }), [ReadOnly]);
    let only_read = Look { is_written: false, ..of(MountSeen::There { read_only: true }, DriverSeen::Mute) };
    assert_eq!(kinds(&only_read, &[ReadOnly]), []);
}

#[test]
fn a_driver_is_silent_when_it_has_failed_often_enough_in_a_row() {
    let failed =
        |in_a_row| of(MountSeen::There { read_only: false }, DriverSeen::Failed { words: words(), in_a_row });
    for in_a_row in 1..FAILURES {
        assert_eq!(kinds(&failed(in_a_row), &[]), []);
    }
    assert_eq!(kinds(&failed(FAILURES), &[]), [NoAnswer]);
    // After a restart of the agent the count begins again, and what is reported does not end by that.
    assert_eq!(kinds(&failed(1), &[Abnormal, NoAnswer]), [Abnormal, NoAnswer]);
    assert_eq!(
        kinds(&of(MountSeen::Hangs(words()), DriverSeen::Abnormal(words())), &[]),
        [Abnormal, NoAnswer]
    );
}

fn with_bytes(total: u64, available: u64) -> Look {
    let used = total - available;
    Look { bytes: Some(Amount { total, used, available }), ..well() }
}

#[test]
fn a_volume_is_full_below_one_bound_and_not_any_more_above_another() {
    let hundredth = GIB / 100;
    assert_eq!(kinds(&with_bytes(GIB, hundredth + 1), &[]), []);
    assert_eq!(kinds(&with_bytes(GIB, hundredth), &[]), [Full]);
    assert_eq!(kinds(&with_bytes(GIB, 3 * hundredth), &[Full]), [Full]);
    assert_eq!(kinds(&with_bytes(GIB, 3 * hundredth + 1), &[Full]), []);
    // Of a large one a hundredth is much.
    assert_eq!(kinds(&with_bytes(10_000 * GIB, 2 * GIB), &[]), []);
    assert_eq!(kinds(&with_bytes(10_000 * GIB, GIB), &[]), [Full]);
    assert_eq!(kinds(&with_bytes(10_000 * GIB, 4 * GIB), &[Full]), []);
    assert_eq!(kinds(&well(), &[Full]), [Full], "not known this time");
}

#[test]
fn what_a_driver_leaves_out_does_not_make_a_volume_full() {
    let raw = Look { bytes: Some(Amount { total: GIB, used: 0, available: 0 }), ..well() };
    assert_eq!(kinds(&raw, &[]), []);
    let half = Look { bytes: Some(Amount { total: GIB, used: GIB / 2, available: 0 }), ..well() };
    assert_eq!(kinds(&half, &[]), []);
    // What is kept for root is not available, and not used either.
    let reserved = Look { bytes: Some(Amount { total: GIB, used: GIB / 100 * 95, available: 0 }), ..well() };
    assert_eq!(kinds(&reserved, &[]), [Full]);
    let nothing = Look { bytes: Some(Amount { total: 0, used: 0, available: 0 }), ..well() };
    assert_eq!(kinds(&nothing, &[]), []);
}

#[test]
fn inodes_are_told_of_where_there_is_room() {
    let inodes = Some(Amount { total: 1000, used: 1000, available: 0 });
    assert_eq!(kinds(&Look { inodes, ..with_bytes(GIB, GIB / 2) }, &[]), [OutOfInodes]);
    assert_eq!(kinds(&Look { inodes, ..with_bytes(GIB, 0) }, &[OutOfInodes]), [Full]);
    let some = Some(Amount { total: 1000, used: 969, available: 31 });
    assert_eq!(kinds(&Look { inodes: some, ..well() }, &[OutOfInodes]), []);
}

#[test]
fn numbers_that_cannot_be_are_not_taken() {
    assert_eq!(Amount::told(8, 3, 5), Some(Amount { total: 8, used: 3, available: 5 }));
    assert_eq!(Amount::told(8, 0, 0), Some(Amount { total: 8, used: 0, available: 0 }));
    for (total, used, available) in
        [(-1, 0, 0), (8, -3, 5), (8, 3, -5), (8, 9, 0), (8, 0, 9), (i64::MAX, 0, 0), (i64::MIN, 0, 0)]
    {
        assert_eq!(Amount::told(total, used, available), None, "{total} {used} {available}");
    }
}

#[test]
fn a_report_changes_only_with_what_is_wrong() {
    let found = Found::from([(Stale, "other words".to_owned()), (Full, "w".repeat(2 * MAX_WORDS))]);
    let reported = [finding(Stale), finding(ReadOnly)];
    let now = report(&found, &reported, &at(9), false);
    let seen: Vec<_> = now.iter().map(|f| (f.kind, f.since.0.as_second(), f.message.len())).collect();
    assert_eq!(seen, [(Stale, 1, "as Stale".len()), (Full, 9, MAX_WORDS)]);
    assert_eq!(report(&found, &now, &at(20), false), now);
    let anew = report(&found, &now, &at(20), true);
    assert_eq!((anew[0].message.as_str(), anew[0].since.0.as_second()), ("other words", 1));
    assert_eq!(report(&Found::new(), &now, &at(20), false), []);
}
