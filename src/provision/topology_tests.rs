use k8s_openapi::api::core::v1::TopologySelectorLabelRequirement;

use super::*;

fn segments(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn place(node: &str, healthy: bool, of: &[(&str, &str)]) -> Place {
    Place { node: node.to_owned(), healthy, segments: segments(of) }
}

fn zones() -> Vec<Place> {
    vec![
        place("a1", true, &[("zone", "a")]),
        place("a2", true, &[("zone", "a")]),
        place("b", true, &[("zone", "b")]),
        place("c", true, &[("zone", "c")]),
        place("sick", false, &[("zone", "d")]),
        place("rack", true, &[("zone", "e"), ("rack", "1")]),
        place("nowhere", true, &[]),
    ]
}

fn term(of: &[(&str, &[&str])]) -> TopologySelectorTerm {
    let wanted = of.iter().map(|(key, values)| TopologySelectorLabelRequirement {
        key: (*key).to_owned(),
        values: values.iter().map(|v| (*v).to_owned()).collect(),
    });
    TopologySelectorTerm { match_label_expressions: Some(wanted.collect()) }
}

fn said(request: &TopologyRequest) -> Vec<&str> {
    assert_eq!(request.required, request.preferred);
    request.required.iter().map(|place| place.segments["zone"].as_str()).collect()
}

#[test]
fn the_chosen_nodes_place_comes_first() {
    let places = zones();
    for (node, allowed, strict, expected) in [
        ("b", vec![], false, vec!["b", "c", "a"]),
        ("a2", vec![], false, vec!["a", "b", "c"]),
        ("b", vec![], true, vec!["b"]),
        ("b", vec![term(&[("zone", &["a", "b"])])], false, vec!["b", "a"]),
        // The scheduler has chosen it all the same.
        ("b", vec![term(&[("zone", &["c"])])], false, vec!["b", "c"]),
        ("sick", vec![], false, vec!["d", "a", "b", "c"]),
        ("rack", vec![], false, vec!["e"]),
    ] {
        let request = late(&places, node, &allowed, strict, None).unwrap();
        assert_eq!(said(&request), expected, "{node} {allowed:?} {strict}");
    }
}

#[test]
fn a_copy_of_local_storage_begins_where_its_source_is() {
    let places = zones();
    let in_zone = |zone: &'static str| move |at: &BTreeMap<String, String>| at["zone"] == zone;
    let made = |node, allowed: &[_], strict, zone| {
        late(&places, node, allowed, strict, Some(&in_zone(zone))).map(|r| said(&r).join(" "))
    };
    assert_eq!(made("b", &[], false, "a").as_deref(), Ok("a b c"));
    assert_eq!(made("b", &[], false, "b").as_deref(), Ok("b c a"));
    assert_eq!(made("b", &[], true, "b").as_deref(), Ok("b"));
    let elsewhere = Err(NoPlace::SourceElsewhere { node: "b".to_owned() });
    assert_eq!(made("b", &[], true, "a"), elsewhere, "nowhere but at the chosen node");
    assert_eq!(made("b", &[], false, "d"), elsewhere, "no healthy driver is there");
    assert_eq!(
        made("b", &[term(&[("zone", &["b", "c"])])], false, "a"),
        elsewhere,
        "it is not allowed there"
    );
}

#[test]
fn a_driver_that_names_no_place_tells_none_apart() {
    for (places, expected) in [
        (vec![place("a", true, &[]), place("b", true, &[])], true),
        (vec![place("a", true, &[]), place("sick", false, &[])], true),
        // It may say so yet.
        (vec![], false),
        (vec![place("sick", false, &[])], false),
        (zones(), false),
        (vec![place("a", true, &[]), place("sick", false, &[("zone", "a")])], false),
    ] {
        assert_eq!(names_no_place(&places), expected, "{places:?}");
    }
}

#[test]
fn a_node_whose_place_is_not_known_is_waited_for() {
    for node in ["nowhere", "unheard-of"] {
        let none = late(&zones(), node, &[], false, None).unwrap_err();
        assert_eq!(none, NoPlace::Unknown { node: node.to_owned() });
        assert!(none.to_string().contains(node));
    }
}

#[test]
fn without_a_node_all_allowed_places_are_asked_for_and_claims_begin_at_different_ones() {
    let places = zones();
    let all = |allowed: &[TopologySelectorTerm], uid: &str| immediate(&places, allowed, uid, |_| false);
    let mut first = BTreeSet::new();
    for n in 0..64 {
        let request = all(&[], &format!("uid-{n}")).unwrap();
        let mut zones = said(&request);
        first.insert(zones[0].to_owned());
        zones.sort_unstable();
        assert_eq!(zones, ["a", "b", "c", "e"]);
    }
    assert_eq!(first.len(), 4, "each is the first one of some claim");
    assert_eq!(all(&[], "u"), all(&[], "u"), "and always the same one of one claim");
    let both = [term(&[("zone", &["a"])]), term(&[("zone", &["e"]), ("rack", &["1"])])];
    let mut zones = all(&both, "u").unwrap();
    zones.required.sort_by(|a, b| a.segments["zone"].cmp(&b.segments["zone"]));
    zones.preferred.sort_by(|a, b| a.segments["zone"].cmp(&b.segments["zone"]));
    assert_eq!(said(&zones), ["a", "e"]);
    assert_eq!(all(&[term(&[("zone", &["a"]), ("rack", &["1"])])], "u"), Err(NoPlace::NotAllowed));
    assert_eq!(immediate(&[], &[], "u", |_| false), Err(NoPlace::NoDriver));
    assert_eq!(immediate(&places[4..5], &[], "u", |_| false), Err(NoPlace::NoDriver), "no healthy one");
}

#[test]
fn of_very_many_places_as_many_are_asked_for_as_an_object_holds() {
    let places: Vec<_> =
        (0..500).map(|n| place(&format!("n{n}"), true, &[("zone", &n.to_string())])).collect();
    let request = late(&places, "n300", &[], false, None).unwrap();
    assert_eq!((request.required.len(), said(&request)[0]), (MAX_PLACES, "300"));
}

#[test]
fn a_copy_begins_where_its_source_is() {
    let places = zones();
    let source = |terms: serde_json::Value| -> PersistentVolume {
        let affinity = serde_json::json!({ "required": { "nodeSelectorTerms": terms } });
        let whole = serde_json::json!({ "spec": { "nodeAffinity": affinity } });
        serde_json::from_value(whole).unwrap()
    };
    let term =
        |key: &str, values: &[&str]| serde_json::json!({ "key": key, "operator": "In", "values": values });
    let order = |source: Option<&PersistentVolume>, allowed: &[TopologySelectorTerm]| -> Vec<String> {
        let request = immediate(&places, allowed, "u", |at| source.is_some_and(|of| has(of, at))).unwrap();
        said(&request).into_iter().map(str::to_owned).collect()
    };
    let plain = order(None, &[]);
    for zone in ["a", "b", "c", "e"] {
        let there = source(serde_json::json!([{ "matchExpressions": [term("zone", &[zone])] }]));
        let copy = order(Some(&there), &[]);
        assert_eq!(copy[0], zone);
        let without = |all: &[String]| all.iter().filter(|at| *at != zone).cloned().collect::<Vec<_>>();
        assert_eq!(without(&copy), without(&plain), "the others as ever");
    }
    // Of two terms one is enough, and of one term all that it says.
    let either = source(serde_json::json!([
        { "matchExpressions": [term("zone", &["c"]), term("rack", &["1"])] },
        { "matchExpressions": [term("zone", &["e"]), term("rack", &["1", "2"])] },
    ]));
    assert_eq!(order(Some(&either), &[])[0], "e");
    // It must be where the class allows, and one that is everywhere, or in no place that is known, begins as any.
    let away = source(serde_json::json!([{ "matchExpressions": [term("zone", &["c"])] }]));
    assert_eq!(order(Some(&away), &[self::term(&[("zone", &["b"])])]), ["b"]);
    let nowhere = source(serde_json::json!([{ "matchExpressions": [term("zone", &["d"])] }, {}]));
    assert_eq!(order(Some(&nowhere), &[]), plain);
    assert_eq!(order(Some(&PersistentVolume::default()), &[]), plain);
}
