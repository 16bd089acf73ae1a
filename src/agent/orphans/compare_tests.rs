use jiff::Timestamp;

use super::super::ledger::Entry;
use super::*;

fn said(uid: &str, id: Option<&str>) -> Said {
    Said {
        kind: StorageKind::Volume,
        uid: uid.into(),
        namespace: "n".into(),
        name: format!("v-{uid}"),
        plugin: "p".into(),
        driver: None,
        made_as: Some(format!("moor-{uid}")),
        id: id.map(str::to_owned),
        rejected: None,
        members: Vec::new(),
        caller: None,
        stands: id.is_some(),
        is_missed: false,
    }
}

/// Entries by UID, name and id, all of them listed before.
fn entries(all: &[(&str, Option<&str>, Option<&str>)]) -> Entries {
    let entry = |(uid, name, id): &(&str, Option<&str>, Option<&str>)| {
        let entry = Entry {
            name: name.map(str::to_owned),
            id: id.map(str::to_owned),
            listed: true,
            members: Vec::new(),
        };
        ((*uid).to_owned(), entry)
    };
    all.iter().map(entry).collect()
}

fn listed(all: &[(&str, &str)]) -> Recognition {
    let found = |(id, uid): &(&str, &str)| ((*id).to_owned(), Recognised { bytes: 7, uid: (*uid).into() });
    all.iter().map(found).collect()
}

fn ids(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn what_an_object_answers_for_is_no_orphan() {
    let known = entries(&[("a", Some("moor-a"), Some("1")), ("r", None, Some("2"))]);
    let alone = |objects: &[Said]| without_object(&listed(&[("1", "a"), ("2", "r")]), &known, objects);
    // What was registered was never moor's.
    assert_eq!(alone(&[]), ids(&["1"]));
    // By its id, whoever it is.
    assert!(alone(&[said("b", Some("1"))]).is_empty());
    assert!(alone(&[Said { rejected: Some("1".into()), ..said("b", None) }]).is_empty());
    // It is being made, or its status was lost.
    assert!(alone(&[said("a", None)]).is_empty());
    // Another one will be answered with it, since it asks for it by the same name.
    assert!(alone(&[Said { made_as: Some("moor-a".into()), ..said("b", None) }]).is_empty());
    assert_eq!(alone(&[said("b", Some("3"))]), ids(&["1"]));
}

#[test]
fn what_nobody_could_register_is_not_told() {
    let long = "x".repeat(MAX_HANDLE + 1);
    let known = entries(&[("a", Some("moor-a"), None)]);
    for id in ["a\u{1b}[31m", "a\nb", &long] {
        assert!(without_object(&listed(&[(id, "a")]), &known, &[]).is_empty(), "{id:?}");
    }
}

#[test]
fn an_object_is_without_storage_if_that_was_listed_and_it_stood_then() {
    let known = entries(&[("a", Some("moor-a"), Some("1"))]);
    let before = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let alone = |listed: &Recognition, known: &Entries, object: Said, before: &BTreeMap<String, String>| {
        !without_storage(listed, known, std::iter::once(&object), before).is_empty()
    };
    let (nothing, a) = (Recognition::new(), || said("a", Some("1")));
    assert!(alone(&nothing, &known, a(), &before));
    assert!(!alone(&listed(&[("1", "a")]), &known, a(), &before));
    assert!(!alone(&nothing, &known, a(), &BTreeMap::new()), "it came while the listing was made");
    let told = Said { is_missed: true, ..a() };
    assert!(
        alone(&nothing, &Entries::new(), told, &BTreeMap::new()),
        "another agent has found it before this one took over"
    );
    assert!(!alone(&nothing, &known, Said { stands: false, ..a() }, &before), "it goes");
    let mut unlisted = known.clone();
    unlisted.get_mut("a").unwrap().listed = false;
    assert!(!alone(&nothing, &unlisted, a(), &before), "the driver has never listed it");
    assert!(!alone(&nothing, &known, said("a", Some("2")), &before), "it is another one by now");
}

#[test]
fn one_listing_alone_reports_nothing() {
    let (known, all) = (
        entries(&[("a", Some("moor-a"), None), ("b", Some("moor-b"), None)]),
        listed(&[("1", "a"), ("2", "b")]),
    );
    let time = |second| Time(Timestamp::from_second(second).unwrap());
    let report = |earlier: &[&str], since: &BTreeMap<String, Time>| {
        let (named, count) =
            orphans(StorageKind::Volume, &ids(&["1", "2"]), &ids(earlier), since, &time(9), (&all, &known));
        let told = named.iter().map(|orphan| (orphan.handle.clone(), orphan.since.0.as_second()));
        (told.collect::<Vec<_>>(), count)
    };
    assert_eq!(report(&[], &BTreeMap::new()), (Vec::new(), 0));
    assert_eq!(report(&["2", "gone"], &BTreeMap::new()), (vec![("2".into(), 9)], 1));
    let told = BTreeMap::from([("1".to_owned(), time(3)), ("gone".to_owned(), time(1))]);
    assert_eq!(report(&["2"], &told), (vec![("1".into(), 3), ("2".into(), 9)], 2));

    let objects = [said("a", Some("1")), Said { is_missed: true, ..said("b", Some("2")) }];
    let names = |earlier: &[&str]| {
        let told = missing(&ids(&["a", "b"]), &ids(earlier), &objects);
        told.into_iter().map(|missing| missing.uid).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["b"], "that is told already");
    assert_eq!(names(&["a"]), ["a", "b"]);
}

#[test]
fn there_is_room_for_the_first_and_all_are_counted() {
    let many: Vec<(String, String)> = (0..100).map(|n| (format!("id-{n:03}"), format!("uid-{n}"))).collect();
    let all: Vec<(&str, &str)> = many.iter().map(|(id, uid)| (id.as_str(), uid.as_str())).collect();
    let known: Vec<_> = all.iter().map(|(_, uid)| (*uid, Some("name"), None)).collect();
    let found: BTreeSet<String> = many.iter().map(|(id, _)| id.clone()).collect();
    let now = Time(Timestamp::UNIX_EPOCH);
    let at_hand = (listed(&all), entries(&known));
    let (named, count) =
        orphans(StorageKind::Snapshot, &found, &found, &BTreeMap::new(), &now, (&at_hand.0, &at_hand.1));
    assert_eq!((named.len(), count), (MAX_NAMED, 100));
    assert_eq!((named[0].handle.as_str(), named[0].bytes), ("id-000", Some(7)));
}
