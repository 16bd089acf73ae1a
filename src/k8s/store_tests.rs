use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::*;

fn meta(name: &str, uid: &str, version: u64) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("ns".into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    }
}

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap { metadata: meta(name, uid, version), ..ConfigMap::default() }
}

fn being_deleted(name: &str, uid: &str, version: u64) -> ConfigMap {
    let mut object = object(name, uid, version);
    object.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    object.metadata.deletion_grace_period_seconds = Some(0);
    object
}

/// Changes as (old version, new version).
fn versions(changes: &[Change<ConfigMap>]) -> Vec<(Option<u64>, Option<u64>)> {
    let of = |object: &Option<Arc<ConfigMap>>| object.as_ref().map(|object| version(&object.metadata));
    changes.iter().map(|change| (of(&change.old), of(&change.new))).collect()
}

fn uids(uids: &[&str]) -> HashSet<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

fn known(store: &Store<ConfigMap>, name: &str) -> Option<u64> {
    store.by_name(Named { namespace: "ns", name }).map(|object| version(&object.metadata))
}

const A: Origin = Origin::Stream(0);
const B: Origin = Origin::Stream(1);

#[test]
fn the_newest_version_wins_whoever_delivers_it_and_numbers_are_compared_as_numbers() {
    let mut store = Store::new(2);
    assert_eq!(versions(&store.put(object("v", "u1", 9), A)), [(None, Some(9))]);
    assert_eq!(versions(&store.put(object("v", "u1", 10), Origin::Own)), [(Some(9), Some(10))]);
    assert_eq!(versions(&store.put(object("v", "u1", 9), B)), []);
    assert_eq!(known(&store, "v"), Some(10));
}

#[test]
fn the_echo_of_an_own_write_is_no_change() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 10), Origin::Own);
    assert_eq!(versions(&store.put(object("v", "u1", 10), A)), []);
}

#[test]
fn an_object_leaves_when_it_is_in_neither_stream() {
    let mut store = Store::new(2);
    store.put(object("v", "u1", 5), A);
    store.put(object("v", "u1", 5), B);
    let still_there = store.leave(&meta("v", "u1", 6), 0);
    assert_eq!(versions(&still_there), [(Some(5), Some(5))], "somebody should look");
    assert_eq!(versions(&store.leave(&meta("v", "u1", 6), 1)), [(Some(5), None)]);
    assert_eq!(known(&store, "v"), None);
}

#[test]
fn a_late_write_response_does_not_bring_back_what_has_left() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 5), A);
    store.leave(&meta("v", "u1", 8), 0);
    assert_eq!(versions(&store.put(object("v", "u1", 7), Origin::Own)), []);
    assert_eq!(known(&store, "v"), None);
}

#[test]
fn what_left_a_selection_may_come_back_with_a_newer_version() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 5), A);
    store.leave(&meta("v", "u1", 8), 0);
    assert_eq!(versions(&store.put(object("v", "u1", 9), A)), [(None, Some(9))]);
}

/// A write that takes an object out of one selection is news of it in the other, and so is whatever comes before a LIST that lacks it.
#[test]
fn what_left_one_stream_is_there_when_the_other_one_catches_up() {
    for left in [7, 100] {
        let mut store = Store::new(2);
        store.put(object("v", "u1", 5), A);
        if left == 7 {
            store.leave(&meta("v", "u1", left), 0);
        } else {
            store.listed(&uids(&[]), left, 0);
        }
        assert_eq!(known(&store, "v"), None);
        assert_eq!(versions(&store.put(object("v", "u1", 7), Origin::Own)), [], "it may be late");
        assert_eq!(versions(&store.put(object("v", "u1", 7), B)), [(None, Some(7))]);
        assert_eq!(versions(&store.leave(&meta("v", "u1", 109), 1)), [(Some(7), None)]);
    }
}

/// What a watch has told is newer.
#[test]
fn an_answer_that_no_stream_selects_ends_what_is_older() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 5), A);
    assert!(store.outgrow(&meta("v", "u1", 5)).is_none());
    assert!(store.outgrow(&meta("w", "u2", 9)).is_none());
    assert_eq!(known(&store, "v"), Some(5));
    assert_eq!(versions(&Vec::from_iter(store.outgrow(&meta("v", "u1", 6)))), [(Some(5), None)]);
    assert_eq!(versions(&store.put(object("v", "u1", 6), Origin::Own)), []);
    assert_eq!(versions(&store.put(object("v", "u1", 8), A)), [(None, Some(8))]);
}

#[test]
fn a_uid_confirmed_gone_never_comes_back() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 5), A);
    store.bury("u1", u64::MAX);
    assert_eq!(versions(&store.put(object("v", "u1", 1_000), A)), []);
}

#[test]
fn another_uid_under_the_name_is_one_gone_and_one_new() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 5), A);
    assert_eq!(versions(&store.put(object("v", "u2", 9), A)), [(Some(5), None), (None, Some(9))]);
    // The late response about the first one belongs to nobody.
    assert_eq!(versions(&store.put(object("v", "u1", 7), Origin::Own)), []);
    assert_eq!(known(&store, "v"), Some(9));
}

#[test]
fn a_predecessor_that_arrives_late_does_not_displace_its_successor() {
    let mut store = Store::new(1);
    store.put(object("v", "u2", 9), Origin::Own);
    assert_eq!(versions(&store.put(object("v", "u1", 5), A)), []);
    assert_eq!(
        store.by_name(Named { namespace: "ns", name: "v" }).unwrap().metadata.uid.as_deref(),
        Some("u2")
    );
    // Its DELETED must not take the name away from the successor.
    store.leave(&meta("v", "u1", 8), 0);
    assert_eq!(known(&store, "v"), Some(9));
}

#[test]
fn a_response_without_finalizers_on_a_deleted_object_removes_it() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 5), A);
    assert_eq!(versions(&store.put(being_deleted("v", "u1", 6), Origin::Own)), [(Some(5), None)]);
}

#[test]
fn a_pod_in_its_grace_period_is_still_there() {
    let mut store = Store::new(1);
    let mut terminating = being_deleted("v", "u1", 6);
    terminating.metadata.deletion_grace_period_seconds = Some(30);
    store.put(terminating, A);
    assert_eq!(known(&store, "v"), Some(6));
}

#[test]
fn a_list_drops_what_it_lacks_unless_that_is_newer_than_the_list() {
    let mut store = Store::new(1);
    store.put(object("old", "u1", 5), A);
    store.put(object("kept", "u2", 6), A);
    store.put(object("newer", "u3", 21), Origin::Own);
    let changes = store.listed(&uids(&["u2"]), 20, 0);
    assert_eq!(versions(&changes), [(Some(5), None)]);
    assert_eq!((known(&store, "kept"), known(&store, "newer")), (Some(6), Some(21)));
}

#[test]
fn a_list_of_one_stream_keeps_what_the_other_has() {
    let mut store = Store::new(2);
    store.put(object("v", "u1", 5), B);
    store.listed(&uids(&[]), 20, 0);
    assert_eq!(known(&store, "v"), Some(5));
    assert_eq!(versions(&store.listed(&uids(&[]), 20, 1)), [(Some(5), None)]);
}

#[test]
fn an_own_write_waits_for_the_lists_of_all_streams() {
    let mut store = Store::new(2);
    store.put(object("v", "u1", 5), Origin::Own);
    assert_eq!(versions(&store.listed(&uids(&[]), 20, 0)), []);
    assert_eq!(versions(&store.listed(&uids(&[]), 20, 1)), [(Some(5), None)]);
}

#[test]
fn indexes_follow_changes_and_removal() {
    let mut store = Store::new(1);
    store.add_index(Index("node"), |object: &ConfigMap| {
        object.data.iter().filter_map(|data| data.get("node").cloned()).collect()
    });
    let on = |node: &str, version| {
        let mut object = object("v", "u1", version);
        object.data = Some([("node".to_owned(), node.to_owned())].into());
        object
    };
    store.put(on("n1", 5), A);
    assert_eq!(store.by_index(Index("node"), "n1").len(), 1);
    store.put(on("n2", 6), A);
    assert_eq!(
        (store.by_index(Index("node"), "n1").len(), store.by_index(Index("node"), "n2").len()),
        (0, 1)
    );
    store.leave(&meta("v", "u1", 7), 0);
    assert_eq!(store.by_index(Index("node"), "n2").len(), 0);
    assert!(store.indexes.iter().all(Keyed::is_empty), "no empty sets stay behind");
    assert!(store.names.is_empty());
}

#[test]
fn tombstones_are_bounded() {
    let mut store: Store<ConfigMap> = Store::new(1);
    for n in 0..TOMBSTONES + 10 {
        store.bury(&format!("u{n}"), u64::MAX);
    }
    assert_eq!(store.tombstones.left_at.len(), TOMBSTONES);
    assert_eq!(store.tombstones.order.len(), TOMBSTONES);
}

/// No API server lets it change.
#[test]
fn an_object_keeps_its_name() {
    let mut store = Store::new(1);
    store.put(object("v", "u1", 1), A);
    assert!(store.put(object("w", "u1", 2), A).is_empty());
    assert_eq!((known(&store, "v"), known(&store, "w")), (Some(1), None));
    store.put(object("w", "u2", 3), A);
    store.bury("u1", u64::MAX);
    assert_eq!((known(&store, "v"), known(&store, "w")), (None, Some(3)));
}
