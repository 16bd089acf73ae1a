use serde_json::json;

use super::objects_tests::{condition, meta, object, scene};
use super::orphans::page;

#[test]
fn what_is_alone_is_shown_with_what_to_do() {
    let mut scene = scene();
    let orphan = |kind: &str, handle: &str| {
        json!({ "kind": kind, "handle": handle, "uid": "uid-old", "createName": "moor-uid-old", "bytes": 1_073_741_824,
            "since": "2026-01-01T00:04:00Z" })
    };
    let status = json!({ "orphans": [orphan("Volume", "vol\u{1b}[2J"), orphan("Snapshot", "snap-9")],
        "orphanedVolumes": 3, "orphanedSnapshots": 1,
        "capabilities": { "controller": ["LIST_VOLUMES"] } });
    scene.plugins = vec![
        object(&meta(None, "p"), &json!({}), &status),
        object(&meta(None, "mute"), &json!({}), &json!({})),
    ];
    let gone = json!({ "state": "Ready", "volumeHandle": "vol-7",
        "conditions": [condition("StorageFound", false, "StorageMissing", "not listed", 5)] });
    scene.volumes.push(object(&meta(Some("shop"), "lost"), &json!({ "pluginName": "p" }), &gone));
    assert_eq!(
        page(&scene).to_string(),
        "\
Storage that no object stands for
  PLUGIN  KIND      HANDLE        SIZE  FOUND   MADE AS       FOR UID
  p       Volume    vol\\u{1b}[2J  1Gi   6m ago  moor-uid-old  uid-old
  p       Snapshot  snap-9        1Gi   6m ago  moor-uid-old  uid-old
  and 2 more of Plugin p, which come here when some of these are gone
  To keep one, create an object that names it; it is told no more then:
    a Volume with spec.pluginName PLUGIN and spec.volumeHandle HANDLE
    a Snapshot with spec.pluginName PLUGIN and spec.snapshotHandle HANDLE
  Else make sure that nobody needs it, and delete it with the storage's own tools: moor does not

Objects whose storage the driver does not list any more
  KIND    NAME       PLUGIN  HANDLE  FOUND
  Volume  shop/lost  p       vol-7   5m ago
  Look at the storage: if it is gone, delete the object, and create it anew from a backup
The driver of Plugin mute lists nothing (no LIST_VOLUMES, no LIST_SNAPSHOTS): nothing is known of it
"
    );
}

#[test]
fn where_nothing_is_alone_that_is_said() {
    let mut scene = scene();
    scene.plugins.clear();
    assert_eq!(
        page(&scene).to_string(),
        "No storage is known that moor has had made and that no object stands for\n\
         No object is known whose storage its driver does not list any more\n"
    );
}
