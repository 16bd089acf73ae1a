use super::*;

const UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

fn said(uid: &str, name: Option<&str>, id: Option<&str>) -> Said {
    let (name, id) = (name.map(str::to_owned), id.map(str::to_owned));
    Said {
        kind: StorageKind::Volume,
        uid: uid.into(),
        namespace: "n".into(),
        name: "v".into(),
        plugin: "p".into(),
        driver: None,
        made_as: name,
        id,
        rejected: None,
        members: Vec::new(),
        caller: None,
        stands: true,
        is_missed: false,
    }
}

fn index(names: &[(&str, &str, Option<&str>)]) -> Index {
    let entry = |(uid, name, id): &(&str, &str, Option<&str>)| {
        let entry = Entry {
            name: Some((*name).into()),
            id: id.map(str::to_owned),
            listed: false,
            members: Vec::new(),
        };
        ((*uid).to_owned(), entry)
    };
    Index::of(&names.iter().map(entry).collect())
}

fn found(index: &Index, id: &str, context: &[&str]) -> Option<String> {
    index.find(id, context.iter().copied()).cloned()
}

#[test]
fn storage_is_recognised_by_its_id_and_by_a_name_that_a_driver_has_taken_up() {
    let made = format!("moor-{UID}");
    let index =
        index(&[("by-id", "pvc-x", Some("vol-1")), ("by-name", &made, None), ("said", "data_1", None)]);
    for (id, of) in [
        ("vol-1", Some("by-id")),
        ("vol-11", None),
        (made.as_str(), Some("by-name")),
        (&format!("csi-vol-{UID}.img"), Some("by-name")),
        (&format!("pool/ä{UID}"), Some("by-name")),
        ("server#share#data_1", Some("said")),
        ("data_12", None),
        ("moor-0a1b2c3d-0000-4000-8000-0123456789ac", None),
        ("", None),
    ] {
        assert_eq!(found(&index, id, &[]).as_deref(), of, "{id}");
    }
    assert_eq!(found(&index, "opaque", &["x", &format!("/export/{made}/")]).as_deref(), Some("by-name"));
}

#[test]
fn an_id_that_is_known_stays_and_another_one_was_not_listed_yet() {
    let ledger = Ledger::open(Path::new("/nowhere/ledger"));
    ledger.take_in("d", &said("a", Some("moor-a"), Some("1")));
    ledger.settle("d", StorageKind::Volume, ["a".to_owned()].iter(), std::iter::empty());
    ledger.take_in("d", &said("a", Some("moor-a"), None));
    let known = |ledger: &Ledger| ledger.entries("d", StorageKind::Volume)["a"].clone();
    assert_eq!(
        known(&ledger),
        Entry { name: Some("moor-a".into()), id: Some("1".into()), listed: true, members: Vec::new() }
    );
    ledger.take_in("d", &said("a", Some("moor-a"), Some("2")));
    assert_eq!((known(&ledger).id.as_deref(), known(&ledger).listed), (Some("2"), false));
    assert!(ledger.entries("other", StorageKind::Volume).is_empty());
    assert!(ledger.entries("d", StorageKind::Snapshot).is_empty());
    ledger.settle("d", StorageKind::Volume, std::iter::empty(), ["a".to_owned()].iter());
    assert!(ledger.entries("d", StorageKind::Volume).is_empty());
}

#[test]
fn what_is_written_is_there_after_a_restart_and_what_cannot_be_read_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let ledger = Ledger::open(&path);
    ledger.take_in("d", &said("a", Some("moor-a"), Some("1")));
    ledger.take_in("d", &said("r", None, Some("theirs")));
    ledger.write().unwrap();
    let again = Ledger::open(&path);
    assert_eq!(again.entries("d", StorageKind::Volume), ledger.entries("d", StorageKind::Volume));
    assert_eq!(again.entries("d", StorageKind::Volume).len(), 2);
    std::fs::write(&path, b"{").unwrap();
    assert!(Ledger::open(&path).entries("d", StorageKind::Volume).is_empty());
}
