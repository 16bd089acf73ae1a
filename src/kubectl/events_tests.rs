use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::args::{EventsOf, Named};
use super::events::{namespaces, page, subjects};
use super::objects_tests::{now, scene};
use super::scene::Scope;

fn event(kind: &str, namespace: Option<&str>, name: &str, minute: u32, more: Value) -> Event {
    let about = json!({ "apiVersion": "moor.dev/v1alpha1", "kind": kind, "name": name, "uid": format!("uid-{name}"),
        "namespace": namespace });
    let mut event = json!({ "metadata": { "name": format!("{name}.{minute}"), "namespace": namespace.unwrap_or("default") },
        "eventTime": format!("2026-01-01T00:{minute:02}:00.000000Z"), "type": "Warning", "reason": "CallFailed",
        "regarding": about, "reportingController": "moor.dev/agent", "reportingInstance": "node-1", "note": "no\u{1b}[1m" });
    let Value::Object(more) = more else { panic!("{more}") };
    event.as_object_mut().unwrap().extend(more);
    serde_json::from_value(event).unwrap()
}

#[test]
fn events_are_told_the_oldest_first_and_only_moors() {
    let series = json!({ "series": { "count": 4, "lastObservedTime": "2026-01-01T00:09:00.000000Z" } });
    let foreign = json!({ "regarding": { "apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "shop" },
        "reportingController": "kubelet" });
    let of_pod = json!({ "regarding": { "apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "shop" },
        "reason": "WaitsForVolume", "note": "held" });
    let all = vec![
        event(
            "VolumeClaim",
            Some("shop"),
            "a",
            8,
            json!({ "type": "Normal", "reason": "Orphan", "note": "unmounted" }),
        ),
        event("Volume", Some("shop"), "data", 1, series),
        event("Pod", Some("shop"), "web", 2, foreign),
        event("Pod", Some("shop"), "web", 3, of_pod),
    ];
    let wanted = "\
LAST              TYPE     REASON          ABOUT               BY            NOTE
7m                Warning  WaitsForVolume  Pod shop/web        agent node-1  held
2m                Normal   Orphan          VolumeClaim shop/a  agent node-1  unmounted
60s (x4 over 8m)  Warning  CallFailed      Volume shop/data    agent node-1  no\\u{1b}[1m
";
    let foreign = vec![all[2].clone()];
    assert_eq!(page(&(all, Vec::new()), None, now()).to_string(), wanted);
    let text = page(&(foreign, vec!["events: forbidden".into()]), None, now()).to_string();
    assert!(
        text.starts_with("There is no Event.") && text.ends_with("\nNot seen\n  events: forbidden\n"),
        "{text}"
    );
}

/// Whoever may write Events may write one about an object of moor's.
#[test]
fn an_event_of_any_length_is_shown_in_short() {
    let long = event(
        "Volume",
        Some("shop"),
        "data",
        1,
        json!({ "note": "\u{1b}".repeat(70_000), "reason": "r".repeat(70_000) }),
    );
    let next = event("Volume", Some("shop"), "data", 2, json!({}));
    let text = page(&(vec![long, next], Vec::new()), None, now()).to_string();
    assert!(
        text.len() < 200_000 && text.lines().count() == 3 && !text.contains('\u{1b}'),
        "{} bytes",
        text.len()
    );
}

#[test]
fn of_an_object_they_are_told_with_what_hangs_on_it() {
    let (scene, shop) = (scene(), Scope::In("shop".into()));
    let none = || json!({});
    let mut of_earlier = event("Attachment", None, "att", 6, none());
    of_earlier.regarding.as_mut().unwrap().uid = Some("another".into());
    let all = vec![
        event("Volume", Some("shop"), "data", 1, none()),
        event("VolumeClaim", Some("shop"), "a", 2, none()),
        event("Attachment", None, "att", 3, none()),
        event("VolumeHandle", None, "vh", 4, none()),
        event("Volume", Some("other"), "data", 5, none()),
        of_earlier,
        event("Snapshot", Some("shop"), "before", 7, none()),
        event("PluginInstance", None, "node-1-p", 8, none()),
        event("Volume", Some("shop"), "gone", 9, none()),
    ];
    let all = (all, Vec::new());
    let minutes = |of: &EventsOf| -> Vec<String> {
        let page = page(&all, Some(&subjects(&scene, of, &shop)), now()).to_string();
        page.lines().skip(1).map(|line| line.split("  ").next().unwrap().to_owned()).collect()
    };
    let named = |name: &str| Named { name: name.into() };
    assert_eq!(minutes(&EventsOf::Volume(named("data"))), ["9m", "8m", "7m", "6m"]);
    assert_eq!(minutes(&EventsOf::Claim(named("a"))), ["8m", "7m", "6m"]);
    assert_eq!(minutes(&EventsOf::Snapshot(named("before"))), ["3m"]);
    assert_eq!(minutes(&EventsOf::Plugin(named("p"))), ["2m"]);
    // It is not there any more, and was told of.
    assert_eq!(minutes(&EventsOf::Volume(named("gone"))), ["60s"]);
}

/// A claim that is kept for a Pod is in moor's namespace.
#[test]
fn events_are_looked_for_where_the_objects_are() {
    let mut scene = scene();
    let pod = json!({ "namespace": "team", "name": "web", "uid": "uid-web", "persistentVolume": "pv-1" });
    scene.claims[0].spec.pod = Some(serde_json::from_value(pod).unwrap());
    let named = |name: &str| Named { name: name.into() };
    let places = |of: &EventsOf| -> Vec<String> {
        namespaces(&subjects(&scene, of, &Scope::In("shop".into()))).into_iter().collect()
    };
    assert_eq!(places(&EventsOf::Claim(named("a"))), ["default", "shop", "team"]);
    assert_eq!(places(&EventsOf::Snapshot(named("before"))), ["default", "shop"]);
    assert_eq!(places(&EventsOf::Plugin(named("p"))), ["default"]);
}
