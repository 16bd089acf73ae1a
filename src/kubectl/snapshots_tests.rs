use serde_json::json;

use super::objects_tests::{condition, meta, now, object, scene};
use super::snapshots::page;

#[test]
fn snapshots_are_listed_with_why_they_are_not_ready() {
    let mut all = scene().snapshots;
    let status = json!({ "state": "Created", "snapshotHandle": "snap\u{1b}[2J",
        "conditions": [condition("Ready", false, "NotReadyToUse", "the driver works on it", 5)] });
    all.push(object(
        &meta(Some("shop"), "later"),
        &json!({ "snapshotHandle": "snap\u{1b}[2J", "pluginName": "p" }),
        &status,
    ));
    let wanted = "\
SNAPSHOT  VOLUME        STATE    SIZE  HANDLE         TAKEN   WHY
before    data          Ready    1Gi   snap-1         5m ago  Ready
later     (registered)  Created        snap\\u{1b}[2J          NotReadyToUse: the driver works on it
";
    assert_eq!(page(&(all.clone(), Vec::new()), false, now()).to_string(), wanted);
    let everywhere = page(&(all, vec!["Snapshot shop/x".into()]), true, now()).to_string();
    assert!(everywhere.starts_with("NAMESPACE  SNAPSHOT  VOLUME"), "{everywhere}");
    assert!(everywhere.contains("\nshop       before    data"), "{everywhere}");
    assert!(everywhere.ends_with("\nNot seen\n  Snapshot shop/x\n"), "{everywhere}");
    assert_eq!(page(&(Vec::new(), Vec::new()), false, now()).to_string(), "There is no Snapshot\n");
}
