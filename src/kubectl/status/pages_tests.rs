use serde_json::json;

use super::super::args::{Named, StatusOf};
use super::super::error::KubectlError;
use super::super::objects_tests::{condition, meta, object, scene};
use super::super::scene::{Scene, Scope};
use super::page;

fn shown(scene: &Scene, of: fn(Named) -> StatusOf, name: &str) -> String {
    page(scene, Some(&of(Named { name: name.into() })), &Scope::All).unwrap().to_string()
}

#[test]
fn a_volume_is_shown_with_all_who_use_it_and_wait_for_it() {
    let wanted = "\
Volume shop/data
  Plugin        p (driver d.example), well
  State         Ready for 9m (since 2026-01-01T00:01:00Z)
  Size          1Gi
  Handle        vol-1
  At its end    its storage is deleted
  Used as       SingleNodeWriter

Used by
  CLAIM   VOLUME  NODE    STATE  SINCE  MODE              WHY        FOR
  shop/a  data    node-1  Ready  7m     SingleNodeWriter  Published

Waited for by
  CLAIM   VOLUME  NODE    STATE    SINCE  MODE              WHY   FOR
  shop/b  data    node-2  Pending  4m     SingleNodeWriter  Held

Attachments
  VOLUME     NODE    STATE     SINCE  ATTACHED BY  WHY
  shop/data  node-1  Attached  8m     node-1       Attached

Snapshots of it
  SNAPSHOT     STATE  SINCE  WHY
  shop/before  Ready  5m     Ready

Conditions
  Ready is True for 9m (since 2026-01-01T00:01:00Z)
    Ready
";
    assert_eq!(shown(&scene(), StatusOf::Volume, "data"), wanted);
}

#[test]
fn what_is_wrong_with_a_volume_is_shown() {
    let mut scene = scene();
    let status = scene.volumes[0].status.get_or_insert_default();
    let finding = json!({ "nodeName": "node-1", "kind": "Stale", "message": "not connected",
        "since": "2026-01-01T00:04:00Z" });
    status.health = vec![serde_json::from_value(finding).unwrap()];
    let text = shown(&scene, StatusOf::Volume, "data");
    let wanted = "  Health        Stale on node node-1 (not connected) for 6m (since 2026-01-01T00:04:00Z)\n";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn what_a_volumes_driver_last_said_is_shown() {
    let mut scene = scene();
    scene.claims.clear();
    scene.attachments.clear();
    let spec = json!({ "pluginName": "other", "capacity": "2Gi", "source": { "snapshotName": "before" },
        "deletionPolicy": "Retain", "parameters": { "password": "covert" },
        "assignment": { "operation": "Create", "controller": { "instance": "gone", "agent": "node-2" } } });
    let status = json!({ "attempts": 2, "nextRetry": "2026-01-01T00:09:00Z",
        "lastError": { "rpc": "CreateVolume", "code": "ResourceExhausted", "message": "no room" },
        "conditions": [condition("Ready", false, "CreateVolumeFailed", "CreateVolume: no room", 4)] });
    scene.volumes.push(object(&meta(Some("shop"), "copy"), &spec, &status));
    let text = shown(&scene, StatusOf::Volume, "copy");
    let wanted = "\
Volume shop/copy
  Plugin        other, which is not seen
  State         Pending for 6m (since 2026-01-01T00:04:00Z)
  Size          asked for 2Gi
  Made of       Snapshot before
  At its end    its storage stays
  Own calls     Create, by PluginInstance gone, which is not there any more; its agent is silent, last heard 3m ago
  Last said     CreateVolume: ResourceExhausted: no room; attempt 2, next at 2026-01-01T00:09:00Z (due)

No claim has it

Conditions
";
    assert!(text.starts_with(wanted), "{text}");
    assert!(!text.contains("covert"), "{text}");
    let text = shown(&scene, StatusOf::Snapshot, "before");
    let wanted = "\
Snapshot shop/before
  Of            Volume data, Ready
  State         Ready for 5m (since 2026-01-01T00:05:00Z)
  Taken         5m ago, at 2026-01-01T00:05:00Z
  Needs         1Gi
  Handle        snap-1
  At its end    the driver is told to delete it

Volumes made of it
  VOLUME     STATE    WHY
  shop/copy  Pending  CreateVolumeFailed

Conditions
  Ready is True for 5m (since 2026-01-01T00:05:00Z)
    Ready
";
    assert_eq!(text, wanted);
}

#[test]
fn a_plugin_is_shown_with_its_driver_on_every_node() {
    let wanted = "\
Plugin p
  Driver        d.example 1.2
  State         well
  Controllers   1 of 1 well
  Nodes         1 of 2 well
  Calls         SingleActive
  Pods          served as d.example
  Volumes       1: 1 Ready
  Snapshots     none
  Attachments   1: 1 Attached

Instances
  NODE    WELL  SINCE  SERVES            VOLUMES  NODE ID    VERSION  AGENT
  node-1  yes   9m     Controller, Node  1 of 8   id-node-1  1.2      its agent was heard 3s ago
  node-2  no    6m     Node              0 of 8   id-node-2  1.2      its agent is silent, last heard 3m ago
    on node-2: not well for 6m: Probe: Unavailable: no storage

Conditions
  Ready is True for 9m (since 2026-01-01T00:01:00Z)
    Healthy: all well
";
    assert_eq!(shown(&scene(), StatusOf::Plugin, "p"), wanted);
}

#[test]
fn a_node_is_shown_with_its_drivers_and_volumes() {
    let wanted = "\
Node node-1
  Agent         its agent was heard 3s ago

Drivers
  PLUGIN  WELL  SINCE  SERVES            VOLUMES  NODE ID    VERSION
  p       yes   9m     Controller, Node  1 of 8   id-node-1  1.2

Claims that have a volume there
  CLAIM   VOLUME  NODE    STATE  SINCE  MODE              WHY        FOR
  shop/a  data    node-1  Ready  7m     SingleNodeWriter  Published

Attachments
  VOLUME     NODE    STATE     SINCE  ATTACHED BY  WHY
  shop/data  node-1  Attached  8m     node-1       Attached
";
    assert_eq!(shown(&scene(), StatusOf::Node, "node-1"), wanted);
    let mut scene = scene();
    let status = scene.instances[1].status.as_mut().unwrap();
    status.forgotten =
        serde_json::from_value(json!([{ "handleName": "h", "volumeHandle": "vol-9", "attachmentUID": "u9",
        "claims": ["shop/old"], "reason": "WentBack" }]))
        .unwrap();
    scene.agents.as_mut().unwrap()[1].leftovers = true;
    let text = shown(&scene, StatusOf::Node, "node-2");
    for line in [
        "  Agent         its agent is silent, last heard 3m ago\n  Left over     mounts of volumes that were taken",
        "    p: vol-9 is or may be mounted there, of which no object tells (WentBack; it was for shop/old; Attachment u9)\n",
        "\nClaims that wait for one there\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let of = StatusOf::Node(Named { name: "node-3".into() });
    assert!(matches!(page(&scene, Some(&of), &Scope::All), Err(KubectlError::NothingOnNode { .. })));
    scene.unseen.push("attachments: forbidden".into());
    let refused = page(&scene, Some(&of), &Scope::In("shop".into())).unwrap_err().to_string();
    assert!(
        refused.contains("no claim of namespace shop is for it; not seen: attachments: forbidden"),
        "{refused}"
    );
}

/// What may not be read is not said to be gone, and what was not counted not to be there.
#[test]
fn absence_is_said_only_of_what_was_looked_at() {
    let mut scene = scene();
    scene.attachments.clear();
    assert!(shown(&scene, StatusOf::Claim, "a").contains("  Attachment    att, which is not there now\n"));
    scene.hidden.extend(["attachments", "volumes", "plugininstances"].map(str::to_owned));
    assert!(shown(&scene, StatusOf::Claim, "a").contains("  Attachment    att, which is not seen\n"));
    scene.volumes.clear();
    assert!(shown(&scene, StatusOf::Claim, "a").contains("  Volume        data, which is not seen\n"));
    assert!(
        shown(&scene, StatusOf::Snapshot, "before")
            .contains("  Of            Volume data, which is not seen\n")
    );
    scene.instances.clear();
    let shop = Scope::In("shop".into());
    let of = StatusOf::Node(Named { name: "node-1".into() });
    let text = page(&scene, Some(&of), &shop).unwrap().to_string();
    assert!(text.contains("\nIts drivers are not seen\n"), "{text}");
    assert!(text.contains("\nClaims of namespace shop that have a volume there\n"), "{text}");
    let of = StatusOf::Plugin(Named { name: "p".into() });
    let text = page(&scene, Some(&of), &shop).unwrap().to_string();
    assert!(text.contains("  Volumes       none of namespace shop\n"), "{text}");
}

/// Who restores a Volume under its old name has another volume than that which the Snapshot is of.
#[test]
fn a_snapshot_of_an_earlier_volume_is_none_of_this_one() {
    let mut scene = scene();
    scene.snapshots[0].status.as_mut().unwrap().source_volume_handle = Some("vol-0".into());
    let text = shown(&scene, StatusOf::Snapshot, "before");
    assert!(text.contains("  Of            an earlier Volume data, "), "{text}");
    assert!(!shown(&scene, StatusOf::Volume, "data").contains("Snapshots of it"));
    scene.snapshots[0].status.as_mut().unwrap().source_volume_handle = Some("vol-1".into());
    assert!(shown(&scene, StatusOf::Volume, "data").contains("Snapshots of it"));
}
