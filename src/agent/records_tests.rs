use super::*;
use crate::attachment::record::TargetRecord;

pub(crate) fn stored(uid: &str) -> Stored {
    let target = TargetRecord {
        namespace: "ns".into(),
        name: "claim".into(),
        path: "/k/claims/c/target".into(),
        published: Done::Yes,
        device: Some("7:1".into()),
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
    };
    Stored { record, staging_device: Some("7:1".into()), staged_once: true }
}

#[tokio::test]
async fn records_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (records, unreadable) = Records::open(dir.path()).unwrap();
    assert!(unreadable.is_empty() && records.is_empty());
    records.put(stored("a")).await.unwrap();
    records.put(stored("b")).await.unwrap();
    let mut changed = stored("a");
    changed.record.staged = Done::Maybe;
    records.put(changed.clone()).await.unwrap();
    records.remove("b").await.unwrap();
    records.remove("b").await.unwrap();

    let (again, unreadable) = Records::open(dir.path()).unwrap();
    assert!(unreadable.is_empty());
    assert_eq!(again.len(), 1);
    assert_eq!(again.get("a"), Some(changed));
    assert_eq!(again.of_handle("handle").len(), 1);
    assert!(again.of_handle("other").is_empty());
}

#[tokio::test]
async fn a_crash_before_the_rename_leaves_the_old_record() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _) = Records::open(dir.path()).unwrap();
    records.put(stored("a")).await.unwrap();
    fs::write(dir.path().join("a.new"), "{\"half\":").unwrap();
    let (again, unreadable) = Records::open(dir.path()).unwrap();
    assert!(unreadable.is_empty());
    assert_eq!(again.get("a"), Some(stored("a")));
    assert!(!dir.path().join("a.new").exists());
}

#[tokio::test]
async fn what_cannot_be_read_is_reported_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.json"), "{\"half\":").unwrap();
    fs::write(dir.path().join("b.json"), serde_json::to_vec(&stored("other")).unwrap()).unwrap();
    for _ in 0..2 {
        let (records, unreadable) = Records::open(dir.path()).unwrap();
        assert!(records.is_empty());
        assert_eq!(unreadable.len(), 2);
        assert!(unreadable.iter().all(|path| path.exists()));
    }
    let (records, _) = Records::open(dir.path()).unwrap();
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
