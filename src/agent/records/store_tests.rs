use super::*;
use crate::api::attachment::Fixed;
use crate::attachment::record::{Done, Imprint, Record};
use crate::attachment::record::{Left, TargetRecord};

pub(crate) fn stored(uid: &str) -> Stored {
    let target = TargetRecord {
        namespace: "ns".into(),
        name: "claim".into(),
        path: "/k/claims/c/target".into(),
        published: Done::Yes,
        covered: false,
        device: Some("7:1".into()),
        imprint: None,
        revision: 12,
    };
    let record = Record {
        attachment_uid: uid.into(),
        attachment_name: format!("name-of-{uid}"),
        handle_name: "handle".into(),
        driver_name: "driver".into(),
        plugin_name: "plugin".into(),
        volume_handle: "vol".into(),
        namespace: "ns".into(),
        boot_id: "boot-1".into(),
        stage: true,
        staging_path: "/k/staging/a".into(),
        staged: Done::Yes,
        targets: BTreeMap::from([("claim-uid".into(), target)]),
        left: BTreeMap::new(),
        revision: 10,
        forgotten: None,
    };
    Stored {
        record,
        staging_device: Some("7:1".into()),
        staging_imprint: None,
        staged_once: true,
        flags_seen: BTreeSet::new(),
        kept_by_driver: None,
        unused: false,
    }
}

/// What a user has mounted by then would pass for the driver's own for ever.
#[test]
fn what_the_driver_keeps_is_looked_for_before_anybody_can_have_it() {
    let new = Stored { unused: true, ..stored("a") };
    assert!(new.is_driver_alone());
    let mut emptied = new.clone();
    let imprint = Imprint { device: "7:1".into(), root: "/".into(), source: None, disk: None, raw: false };
    emptied.record.left.insert("gone".into(), Left { path: "/k/claims/gone/target".into(), imprint });
    assert!(!emptied.is_driver_alone(), "another claim has left it, perhaps with a user");

    let mut text = serde_json::to_value(&new).unwrap();
    text.as_object_mut().unwrap().remove("unused").unwrap();
    let mut earlier: Stored = serde_json::from_value(text).unwrap();
    assert!(!earlier.is_driver_alone(), "an earlier version has published, and not looked");
    assert!(earlier.enter_boot("boot-2") && earlier.is_driver_alone(), "a reboot leaves no mount to anybody");
}

#[tokio::test]
async fn records_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    assert!(records.unreadable().is_empty() && records.is_empty());
    records.put(stored("a")).await.unwrap();
    records.put(stored("b")).await.unwrap();
    let mut changed = stored("a");
    changed.record.staged = Done::Maybe;
    records.put(changed.clone()).await.unwrap();
    records.remove(&"b".into()).await;
    records.remove(&"b".into()).await;

    let again = Records::open(dir.path()).unwrap();
    assert!(again.unreadable().is_empty());
    assert_eq!(again.len(), 1);
    assert_eq!(again.get(&"a".into()), Some(changed));
    assert_eq!(again.of_handle("handle").len(), 1);
    assert!(again.of_handle("other").is_empty());
}

#[tokio::test]
async fn a_crash_before_the_rename_leaves_the_old_record() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    fs::write(dir.path().join("a.new"), "{\"half\":").unwrap();
    let again = Records::open(dir.path()).unwrap();
    assert!(again.unreadable().is_empty());
    assert_eq!(again.get(&"a".into()), Some(stored("a")));
    assert!(!dir.path().join("a.new").exists());
}

#[tokio::test]
async fn what_cannot_be_read_is_reported_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"half\":").unwrap();
    fs::write(dir.path().join("b.json"), serde_json::to_vec(&stored("other")).unwrap()).unwrap();
    for _ in 0..2 {
        let records = Records::open(dir.path()).unwrap();
        assert!(records.is_empty());
        let unreadable = records.unreadable();
        assert!(unreadable.iter().all(|u| u.path.exists()));
        let uids: Vec<_> = unreadable.iter().map(|u| u.attachment_uid.as_str()).collect();
        assert_eq!(uids, ["a", "b"]);
        // What JSON there is still says which volume it was.
        assert_eq!(unreadable[1].handle_name, stored("other").record.handle_name);
    }
    let records = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    assert_eq!(fs::read(dir.path().join("a.1.unreadable")).unwrap(), b"{\"half\":");
}

/// What the file says was its Attachment's, which may be of any volume where nobody else says of which.
#[test]
fn a_file_that_names_no_volume_may_be_of_any() {
    let of = |json: &str, is_known: bool| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.json"), json).unwrap();
        let file = Records::open(dir.path()).unwrap().unreadable().remove(0);
        [("one", "driver"), ("other", "driver"), ("one", "other")]
            .map(|(handle, driver)| Fixed {
                handle_name: handle.into(),
                driver_name: driver.into(),
                ..Fixed::default()
            })
            .map(|attachment| file.may_be_of(&attachment, is_known))
    };
    assert_eq!(of("{\"half\":", false), [true, true, true]);
    assert_eq!(of("{\"half\":", true), [false; 3], "its Attachment says of which");
    assert_eq!(of("{\"driverName\":\"driver\"}", false), [true, true, false]);
    let named = "{\"driverName\":\"driver\",\"handleName\":\"one\"}";
    assert_eq!(of(named, false), [true, false, true]);
    assert_eq!(of(named, true), [true, false, true], "another may have its UID");
}

/// A disk that fails for once, or too many open files: what the file says is not known, and it may be all that is known
/// of a mount.
#[test]
fn a_file_that_the_disk_does_not_give_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    // Its content is what cannot be had of a directory.
    let failing = dir.path().join("a.json");
    fs::create_dir(&failing).unwrap();
    for aside in [false, true] {
        if aside {
            fs::rename(&failing, dir.path().join("a.1.unreadable")).unwrap();
        }
        let told = Records::open(dir.path()).unwrap_err().to_string();
        assert!(told.contains("read the record") && told.contains("directory"), "{told}");
    }
    fs::rename(dir.path().join("a.1.unreadable"), &failing).unwrap();
    assert!(failing.exists(), "nothing was set aside");
}

/// By another version, or after a disk was mended.
#[tokio::test]
async fn a_file_that_can_be_read_again_is_a_record_again() {
    let dir = tempfile::tempdir().unwrap();
    let text = |uid: &str| serde_json::to_vec(&stored(uid)).unwrap();
    fs::write(dir.path().join("a.1.unreadable"), "{\"half\":").unwrap();
    fs::write(dir.path().join("a.2.unreadable"), text("a")).unwrap();
    // This one is older than the record that there is.
    fs::write(dir.path().join("b.1.unreadable"), text("b")).unwrap();
    let mut newer = stored("b");
    newer.record.staged = Done::Maybe;
    fs::write(dir.path().join("b.json"), serde_json::to_vec(&newer).unwrap()).unwrap();
    for _ in 0..2 {
        let records = Records::open(dir.path()).unwrap();
        assert_eq!(
            (records.get(&"a".into()), records.get(&"b".into())),
            (Some(stored("a")), Some(newer.clone()))
        );
        let left: Vec<_> = records.unreadable().into_iter().map(|u| u.path).collect();
        assert_eq!(left, ["a.1.unreadable", "b.1.unreadable"].map(|name| dir.path().join(name)));
    }
    let records = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    assert_eq!(Records::open(dir.path()).unwrap().get(&"a".into()), Some(stored("a")));
}

/// It could not be read, was presumed, and all that it could speak of is undone. A version that can read it must not undo
/// that again, under the mounts of a later Attachment.
#[tokio::test]
async fn what_is_undone_does_not_become_a_record_again() {
    let dir = tempfile::tempdir().unwrap();
    let text = |uid: &str| serde_json::to_vec(&stored(uid)).unwrap();
    for name in ["a.1.unreadable", "a.3.unreadable", "ab.1.unreadable"] {
        fs::write(dir.path().join(name), "{\"of\":\"another version\"}").unwrap();
    }
    let records = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    records.remove(&"a".into()).await;
    let left: Vec<_> = records.unreadable().into_iter().map(|u| u.attachment_uid).collect();
    assert_eq!(left, ["ab"]);
    assert!(!dir.path().join("a.1.unreadable").exists() && !dir.path().join("a.3.unreadable").exists());
    assert!(dir.path().join("ab.1.unreadable").exists());

    // A disk that takes no writes has them for longer, and nothing of the volume is begun before they are gone.
    let (here, away) = (dir.path().join("records"), dir.path().join("away"));
    fs::create_dir(&here).unwrap();
    fs::write(here.join("b.1.unreadable"), "{\"half\":").unwrap();
    let records = Records::open(&here).unwrap();
    records.put(stored("b")).await.unwrap();
    fs::rename(&here, &away).unwrap();
    records.remove(&"b".into()).await;
    assert!(records.put(stored("c")).await.is_err());
    fs::rename(&away, &here).unwrap();
    fs::write(here.join("b.1.unreadable"), text("b")).unwrap();
    records.put(stored("c")).await.unwrap();
    let again = Records::open(&here).unwrap();
    assert_eq!((again.get(&"b".into()), again.len()), (None, 1));
    assert!(records.unreadable().is_empty() && again.unreadable().is_empty());
}

#[test]
fn another_boot_leaves_nothing_certain() {
    let mut stored = stored("a");
    assert!(!stored.enter_boot("boot-1"));
    assert!(stored.enter_boot("boot-2"));
    assert_eq!(stored.record.staged, Done::Maybe);
    assert_eq!(stored.record.targets[&"claim-uid".into()].published, Done::Maybe);
    assert_eq!(stored.staging_device, None);
    assert_eq!(stored.record.boot_id, "boot-2");
}

#[test]
fn what_was_never_called_stays_so_in_another_boot() {
    let mut stored = stored("a");
    stored.record.staged = Done::No;
    stored.enter_boot("boot-2");
    assert_eq!(stored.record.staged, Done::No);
}

#[test]
fn a_record_of_an_older_agent_is_read() {
    let mut text = serde_json::to_value(stored("a")).unwrap();
    let fields = text.as_object_mut().unwrap();
    fields.remove("stagingDevice");
    fields.remove("stagedOnce");
    let read: Stored = serde_json::from_value(text).unwrap();
    assert_eq!(read.staging_device, None);
    assert_eq!(read.record, stored("a").record);
}

/// After a reboot the first claim has its volume staged again; the second one learns only then of its own mount.
#[test]
fn a_mount_of_an_earlier_boot_casts_no_doubt_on_this_boots_staging() {
    let mut stored = stored("a");
    stored.enter_boot("boot-2");
    stored.record.staged = Done::Yes;
    stored.doubt(&"claim-uid".into());
    assert_eq!(stored.record.staged, Done::Yes);
}

#[test]
fn a_mount_that_is_gone_casts_no_doubt_on_other_claims() {
    let mut stored = stored("a");
    let other = stored.record.targets[&"claim-uid".into()].clone();
    stored.record.targets.insert("other".into(), other);
    stored.doubt(&"claim-uid".into());
    assert_eq!(stored.record.staged, Done::Maybe);
    assert_eq!(stored.record.targets[&"claim-uid".into()].published, Done::Maybe);
    assert_eq!(stored.record.targets[&"other".into()].published, Done::Yes);
}

#[tokio::test]
async fn a_dismissed_file_is_kept_and_not_spoken_of() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"half\":").unwrap();
    let records = Records::open(dir.path()).unwrap();
    assert_eq!(records.dismiss(&"b".into()).await.unwrap(), None);
    assert_eq!(records.dismiss(&"a".into()).await.unwrap().unwrap().attachment_uid, "a");
    for records in [records, Records::open(dir.path()).unwrap()] {
        assert!(records.unreadable().is_empty());
    }
    assert_eq!(fs::read(dir.path().join("a.1.dismissed")).unwrap(), b"{\"half\":");
}

/// The order to dismiss it came when the Attachment was undone, and this had not been heard of.
#[tokio::test]
async fn what_is_undone_leaves_no_dismissed_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"half\":").unwrap();
    let records = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    records.dismiss(&"a".into()).await.unwrap().unwrap();
    records.remove(&"a".into()).await;
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn all_that_records_speak_of_is_doubted_when_history_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    assert!(records.doubted(&stored("a")).is_empty());
    records.doubt_all().unwrap();
    let again = Records::open(dir.path()).unwrap();
    assert_eq!(again.doubted(&stored("a")), ["a", "claim-uid"]);
    again.settle("a");
    assert_eq!(again.doubted(&stored("a")), ["claim-uid"]);
    // Made after: the new history knows it.
    assert_eq!(again.doubted(&stored("b")), ["claim-uid"]);
}

#[test]
fn after_a_reboot_nothing_is_in_use_that_could_be_forgotten() {
    let mut stored = stored("a");
    let since = 1;
    stored.record.forgotten =
        Some(crate::attachment::record::Forgotten { why: crate::attachment::record::Lapse::WentBack, since });
    stored.enter_boot("boot-2");
    assert_eq!((stored.record.forgotten, stored.record.revision), (None, 0));
    assert_eq!(stored.record.targets[&"claim-uid".into()].revision, 0);
}

/// The copy in memory says less than the files meanwhile, and nothing is begun before they say no more.
#[tokio::test]
async fn what_a_disk_did_not_take_is_on_it_before_anything_new() {
    let dir = tempfile::tempdir().unwrap();
    let (here, away) = (dir.path().join("records"), dir.path().join("away"));
    let records = Records::open(&here).unwrap();
    records.put(stored("a")).await.unwrap();
    records.put(stored("b")).await.unwrap();
    assert_eq!(records.disk.problem(), None);

    // No write succeeds in a directory that is not there.
    fs::rename(&here, &away).unwrap();
    records.remove(&"a".into()).await;
    let mut less = stored("b");
    less.record.targets.clear();
    records.put_or_defer(less.clone()).await;
    assert!(records.put(stored("c")).await.is_err());
    assert_eq!(
        (records.get(&"a".into()), records.get(&"b".into()), records.get(&"c".into())),
        (None, Some(less.clone()), None)
    );
    assert!(records.disk.problem().is_some());
    fs::rename(&away, &here).unwrap();
    let started_now = Records::open(&here).unwrap();
    assert_eq!(
        (started_now.get(&"a".into()), started_now.get(&"b".into())),
        (Some(stored("a")), Some(stored("b")))
    );
    assert_eq!(records.deferred_handles(), ["handle".to_owned()].into());

    // The file of b still cannot be written.
    fs::create_dir(here.join("b.new")).unwrap();
    assert!(records.put(stored("c")).await.is_err());
    assert!(!here.join("c.json").exists(), "written before what is older");
    fs::remove_dir(here.join("b.new")).unwrap();
    // Another volume's affair.
    let mut other = stored("o");
    other.record.handle_name = "other".into();
    records.put(other.clone()).await.unwrap();
    assert_eq!(records.deferred_handles(), ["handle".to_owned()].into());
    records.put(stored("c")).await.unwrap();
    assert!(records.deferred_handles().is_empty());
    let started_now = Records::open(&here).unwrap();
    let all = ["a", "b", "c", "o"].map(|uid| started_now.get(&uid.into()));
    assert_eq!(all, [None, Some(less), Some(stored("c")), Some(other)]);
}

/// It may say what was to be written, or what was there before.
#[tokio::test]
async fn a_file_that_was_half_written_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::open(dir.path()).unwrap();
    fs::create_dir(dir.path().join("a.json")).unwrap();
    assert!(records.put(stored("a")).await.is_err());
    assert_eq!(records.deferred_handles(), ["handle".to_owned()].into());
    assert!(!dir.path().join("a.new").exists(), "it takes room");
    fs::remove_dir(dir.path().join("a.json")).unwrap();
    records.catch_up("handle").await.unwrap();
    assert!(records.deferred_handles().is_empty() && records.is_empty());
    assert!(Records::open(dir.path()).unwrap().is_empty());
}

/// On a full disk no record can be presumed in its place.
#[tokio::test]
async fn a_file_that_cannot_be_read_outlives_a_record_that_was_not_written() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"half\":").unwrap();
    let records = Records::open(dir.path()).unwrap();
    // Nothing can be written there.
    fs::create_dir(dir.path().join("a.new")).unwrap();
    assert!(records.put(stored("a")).await.is_err());
    records.catch_up("handle").await.unwrap();
    assert!(records.deferred_handles().is_empty());
    fs::remove_dir(dir.path().join("a.new")).unwrap();
    let started_now = Records::open(dir.path()).unwrap();
    assert_eq!(started_now.unreadable().len(), 1, "what it speaks of is known to nobody else");
    started_now.put(stored("a")).await.unwrap();
    assert!(started_now.remove(&"a".into()).await);
    assert!(Records::open(dir.path()).unwrap().unreadable().is_empty(), "it goes with its record");
}
