use serde_json::json;

use super::super::objects_tests::{condition, deleted, holder, meta, object, scene};
use super::super::scene::{Scene, Scope};
use super::page;
use crate::api::VolumeClaim;

fn shown(scene: &Scene) -> String {
    page(scene, None, &Scope::All).unwrap().to_string()
}

#[test]
fn everything_is_on_one_page() {
    let wanted = "\
Plugins
  PLUGIN  DRIVER     WELL  CONTROLLERS  NODES  VERSION
  p       d.example  yes   1/1          1/2    1.2
    p on node-2: not well for 6m: Probe: Unavailable: no storage

Objects
  Volumes       1: 1 Ready
  Snapshots     1: 1 Ready
  Claims        2: 1 Pending, 1 Ready
  Attachments   1: 1 Attached

Waits longest
  FOR  WHAT                WHY
  4m   VolumeClaim shop/b  Held: the volume is held by shop/a on node node-1 (Ready)

Silent nodes
  node-2, last heard 3m ago: no claim has a volume there
";
    assert_eq!(shown(&scene()), wanted);
}

#[test]
fn what_is_well_or_not_there_is_said_so() {
    let mut scene = scene();
    scene.plugins.clear();
    scene.volumes.clear();
    scene.claims.clear();
    scene.agents.as_mut().unwrap().truncate(1);
    let text = shown(&scene);
    for line in
        ["No Plugin is seen\n", "  Volumes       none\n", "\nNothing waits\n", "\nNo node is silent\n"]
    {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn the_longest_wait_is_first_and_the_rest_is_counted() {
    let mut scene = scene();
    for minute in 0..9 {
        let ready = condition("Ready", false, "Held", "held", minute);
        let (meta, spec) = (meta(Some("shop"), &format!("w{minute}")), json!({ "volumeName": "data" }));
        scene.claims.push(object(&meta, &spec, &json!({ "conditions": [ready] })));
    }
    scene.claims[0] = deleted(holder());
    scene.volumes[0].status.as_mut().unwrap().conditions.push(
        serde_json::from_value(condition("Drifted", true, "AttachmentMissing", "not at id-1", 2)).unwrap(),
    );
    let text = shown(&scene);
    let waits = text.split("Waits longest\n").nth(1).unwrap();
    let lines: Vec<&str> = waits.lines().collect();
    assert!(lines[1].starts_with("  10m  VolumeClaim shop/w0  Held: held"), "{text}");
    assert!(text.contains("  8m   Volume shop/data     AttachmentMissing: not at id-1\n"), "{text}");
    assert_eq!(lines[11], "  and 2 more", "{text}");
    assert!(text.contains("  Claims        11: 10 Pending, 1 Ready; 1 of them leaving\n"), "{text}");
}

/// No claim is left to tell of it.
#[test]
fn an_attachment_that_does_not_go_waits() {
    let mut scene = scene();
    scene.claims.clear();
    assert!(shown(&scene).contains("\nNothing waits\n"));
    let mut going = deleted(scene.attachments.remove(0));
    going.status.as_mut().unwrap().conditions = vec![
        serde_json::from_value(condition("Ready", false, "ControllerUnpublishFailed", "Internal: no", 9))
            .unwrap(),
    ];
    scene.attachments.push(going);
    let text = shown(&scene);
    assert!(
        text.contains(
            "  2m   Attachment of shop/data on node-1  deleted; ControllerUnpublishFailed: Internal: no\n"
        ),
        "{text}"
    );
}

#[test]
fn a_node_without_a_lease_is_named_and_claims_of_one_namespace_are_said_so() {
    let mut scene = scene();
    scene.agents.as_mut().unwrap().remove(0);
    let text = page(&scene, None, &Scope::In("shop".into())).unwrap().to_string();
    assert!(text.contains("\n  node-1: 1 claim of namespace shop keeps its volume there\n"), "{text}");
    assert!(
        text.contains("\n  node-2, last heard 3m ago: no claim of namespace shop has a volume there\n"),
        "{text}"
    );
}

/// Who may not read Leases goes by what the leader has said.
#[test]
fn silence_is_known_from_claims_too() {
    let mut scene = scene();
    scene.agents = None;
    scene.unseen.push("whether agents are heard: forbidden".into());
    assert!(shown(&scene).contains("\nNo claim says that its node is silent\n"));
    let mut silent: VolumeClaim = holder();
    silent.status.as_mut().unwrap().conditions.push(
        serde_json::from_value(condition("NodeSilent", true, "NoHeartbeat", "nothing is heard", 8)).unwrap(),
    );
    scene.claims[0] = silent;
    let text = shown(&scene);
    assert!(text.contains("\nSilent nodes\n  node-1: 1 claim keeps its volume there\n"), "{text}");
    assert!(text.ends_with("\nNot seen\n  whether agents are heard: forbidden\n"), "{text}");
    assert_eq!(text.matches("VolumeClaim shop/a").count(), 0, "the silence is told once");
}
