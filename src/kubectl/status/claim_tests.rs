use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::super::args::{Named, StatusOf};
use super::super::objects_tests::{condition, deleted, holder, meta, object, scene};
use super::super::scene::{Scene, Scope};
use super::page;
use crate::api::VolumeClaim;

fn shown(scene: &Scene, name: &str) -> String {
    let of = StatusOf::Claim(Named { name: name.into() });
    page(scene, Some(&of), &Scope::In("shop".into())).unwrap().to_string()
}

#[test]
fn who_has_the_volume_is_shown_with_where_and_by_whom() {
    let wanted = "\
VolumeClaim shop/a
  Volume        data of Plugin p, Ready (handle vol-1)
  Asks for      node node-1, SingleNodeWriter, FileSystem
  State         Ready for 7m (since 2026-01-01T00:03:00Z)
  Node          node-1; its agent was heard 3s ago
  Mounted at    /var/lib/moor/a
  Attachment    att: Attached for 8m (since 2026-01-01T00:02:00Z)
  Attached by   PluginInstance node-1-p; its agent was heard 3s ago

Conditions
  Ready is True for 7m (since 2026-01-01T00:03:00Z)
    Published
";
    assert_eq!(shown(&scene(), "a"), wanted);
}

#[test]
fn who_waits_is_shown_with_who_is_in_the_way() {
    let wanted = "\
VolumeClaim shop/b
  Volume        data of Plugin p, Ready (handle vol-1)
  Asks for      node node-2, SingleNodeWriter, FileSystem
  State         Pending for 4m (since 2026-01-01T00:06:00Z)
  Waits for     shop/a on node node-1 (Ready), which has it for 7m (since 2026-01-01T00:03:00Z)

Conditions
  Ready is False for 4m (since 2026-01-01T00:06:00Z)
    Held: the volume is held by shop/a on node node-1 (Ready)
    (Another claim holds the volume; status.waitingFor names it. This claim is next when that one is gone.)
";
    assert_eq!(shown(&scene(), "b"), wanted);
    // What has become of the holder since is said of its own claim and its node.
    let mut scene = scene();
    scene.claims[0] = deleted(holder());
    scene.agents.as_mut().unwrap().remove(0);
    let text = shown(&scene, "b");
    let more = "since 2026-01-01T00:03:00Z); it was deleted 2m ago; no agent has a Lease for it\n";
    assert!(text.contains(more), "{text}");
}

/// Nothing of what users and drivers write is an order to the terminal, and mount flags are not shown.
#[test]
fn what_is_tried_is_shown_with_the_drivers_words() {
    let mut scene = scene();
    let status = json!({ "state": "Taken", "attempts": 4, "nextRetry": "2026-01-01T00:10:30Z",
        "lastError": { "rpc": "NodePublishVolume", "code": "Internal", "message": "no\u{1b}]0;owned\u{7}\nroom" },
        "conditions": [condition("Ready", false, "NodePublishFailed", "no\u{1b}[1mroom", 6)] });
    let mut claim: VolumeClaim = object(&meta(Some("shop"), "a"), &json!(holder().spec), &status);
    claim.spec.pod = serde_json::from_value(
        json!({ "namespace": "shop", "name": "web-0", "uid": "u", "persistentVolume": "pv-1" }),
    )
    .unwrap();
    scene.claims[0] = deleted(claim);
    scene.claims[0].spec.force_detach = true;
    let attachment = scene.attachments[0].status.as_mut().unwrap();
    attachment.last_error = serde_json::from_value(
        json!({ "rpc": "ControllerUnpublishVolume", "code": "Aborted", "message": "busy" }),
    )
    .unwrap();
    let text = shown(&scene, "a");
    for line in [
        "  Made for      Pod shop/web-0, by PersistentVolume pv-1\n",
        "  State         Taken for 4m (since 2026-01-01T00:06:00Z)\n",
        "  Deleted       for 2m (since 2026-01-01T00:08:00Z)\n",
        "  Forced        spec.forceDetach is set\n",
        "  It last said  ControllerUnpublishVolume: Aborted: busy\n",
        "  Last said     NodePublishVolume: Internal: no\\u{1b}]0;owned\\u{7}\\nroom; attempt 4, next at 2026-01-01T00:10:30Z (in 30s)\n",
        "    NodePublishFailed: no\\u{1b}[1mroom\n    (NodePublishVolume failed and is tried again. The message has the driver's words.)\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("covert") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn one_that_is_not_there_is_an_error() {
    let of = StatusOf::Claim(Named { name: "c".into() });
    let error = page(&scene(), Some(&of), &Scope::In("shop".into())).unwrap_err();
    assert_eq!(error.to_string(), "there is no VolumeClaim c in namespace shop");
}

/// The name of a claim that is gone may be another one's by now.
#[test]
fn a_later_claim_of_the_same_name_is_not_the_holder() {
    let mut scene = scene();
    let page = |scene: &Scene| shown(scene, "b");
    scene.claims[0] = deleted(holder());
    assert!(page(&scene).contains("; it was deleted 2m ago"), "{}", page(&scene));
    let anew = |change: &dyn Fn(&mut VolumeClaim)| {
        let mut scene = scene.clone();
        change(&mut scene.claims[0]);
        assert!(!page(&scene).contains("it was deleted"), "{}", page(&scene));
    };
    let later: jiff::Timestamp = "2026-01-01T00:04:00Z".parse().unwrap();
    anew(&|claim| claim.metadata.creation_timestamp = Some(Time(later)));
    anew(&|claim| claim.spec.volume_name = "other".into());
    anew(&|claim| claim.spec.assignment.as_mut().unwrap().node_name = "node-2".into());
}
