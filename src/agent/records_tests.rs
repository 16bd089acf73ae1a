use super::*;
use crate::attachment::record::TargetRecord;

pub(crate) fn stored(uid: &str) -> Stored {
    let target = TargetRecord {
        namespace: "ns".into(),
        name: "claim".into(),
        path: "/k/claims/c/target".into(),
        published: Done::Yes,
        covered: false,
        device: Some("7:1".into()),
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
        secrets: crate::api::attachment::SecretRefs::default(),
        boot_id: "boot-1".into(),
        stage: true,
        staging_path: "/k/staging/a".into(),
        staged: Done::Yes,
        targets: BTreeMap::from([("claim-uid".into(), target)]),
        revision: 10,
        forgotten: None,
    };
    Stored { record, staging_device: Some("7:1".into()), staged_once: true }
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
    records.remove("b").await.unwrap();
    records.remove("b").await.unwrap();

    let again = Records::open(dir.path()).unwrap();
    assert!(again.unreadable().is_empty());
    assert_eq!(again.len(), 1);
    assert_eq!(again.get("a"), Some(changed));
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
    assert_eq!(again.get("a"), Some(stored("a")));
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

#[test]
fn another_boot_leaves_nothing_certain() {
    let mut stored = stored("a");
    assert!(!stored.enter_boot("boot-1"));
    assert!(stored.enter_boot("boot-2"));
    assert_eq!(stored.record.staged, Done::Maybe);
    assert_eq!(stored.record.targets["claim-uid"].published, Done::Maybe);
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
    stored.doubt("claim-uid");
    assert_eq!(stored.record.staged, Done::Yes);
}

#[test]
fn a_mount_that_is_gone_casts_no_doubt_on_other_claims() {
    let mut stored = stored("a");
    let other = stored.record.targets["claim-uid"].clone();
    stored.record.targets.insert("other".into(), other);
    stored.doubt("claim-uid");
    assert_eq!(stored.record.staged, Done::Maybe);
    assert_eq!(stored.record.targets["claim-uid"].published, Done::Maybe);
    assert_eq!(stored.record.targets["other"].published, Done::Yes);
}

#[test]
fn a_dismissed_file_is_kept_and_not_spoken_of() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"half\":").unwrap();
    let records = Records::open(dir.path()).unwrap();
    assert!(!records.dismiss("b").unwrap());
    assert!(records.dismiss("a").unwrap());
    for records in [records, Records::open(dir.path()).unwrap()] {
        assert!(records.unreadable().is_empty());
    }
    assert_eq!(fs::read(dir.path().join("a.1.dismissed")).unwrap(), b"{\"half\":");
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
    assert_eq!(stored.record.targets["claim-uid"].revision, 0);
}
