//! Who makes a volume's calls, by example.

use super::super::active::elect;
use super::*;
use crate::fixtures;

fn instance(name: &str, healthy: bool, dead: bool) -> InstanceSeen {
    let at = ControllerRef::new(name, format!("agent-of-{name}"), 0);
    let topology = BTreeMap::from([("zone".into(), name.into())]);
    InstanceSeen { healthy, serving: healthy, dead, topology, ..fixtures::instance(&at) }
}

fn zone(name: &str) -> Segments {
    Segments { segments: BTreeMap::from([("zone".into(), name.into())]) }
}

fn plugin(controllers: &[InstanceSeen], balancing: Balancing) -> PluginSeen<'_> {
    PluginSeen {
        balancing: Some(balancing),
        is_local: balancing == Balancing::PerTopology,
        active: None,
        ends: false,
        older: None,
        controllers,
        controllers_said: None,
        any_healthy: true,
        can_create: true,
        attaches: true,
        grows: None,
        modifies: None,
        secrets: None,
    }
}

/// What is known of a driver's growth by these instances: a Controller or a Node service, healthy or not, with the
/// capability or without.
fn grows(called: bool, instances: &[(Service, bool, bool)]) -> Option<Grows> {
    let status = |&(service, healthy, expands): &(Service, bool, bool)| {
        let mut status = PluginInstanceStatus { healthy, ..PluginInstanceStatus::default() };
        let named = expands.then(|| "EXPAND_VOLUME".to_owned()).into_iter().collect();
        match service {
            Service::Controller => (status.controller, status.capabilities.controller) = (true, named),
            Service::Node => (status.node, status.capabilities.node) = (true, named),
        }
        status
    };
    let all: Vec<_> = instances.iter().map(status).collect();
    Grows::of(all.iter(), called)
}

#[test]
fn a_volume_grows_by_who_has_said_so() {
    use Service::{Controller, Node};
    assert_eq!(grows(true, &[(Controller, true, true), (Node, true, true)]), Some(Grows::ByController));
    assert_eq!(grows(true, &[(Controller, false, true)]), Some(Grows::ByController), "it once said so");
    assert_eq!(grows(true, &[(Controller, true, false), (Node, true, true)]), Some(Grows::OnNodes));
    assert_eq!(grows(false, &[(Node, true, true)]), Some(Grows::OnNodes));
    assert_eq!(grows(true, &[(Controller, true, false), (Node, true, false)]), Some(Grows::NotAtAll));
}

#[test]
fn of_a_service_that_was_not_heard_nothing_is_said() {
    use Service::{Controller, Node};
    assert_eq!(grows(true, &[(Node, true, true)]), None, "its controller process is not there");
    assert_eq!(grows(true, &[(Controller, false, false), (Node, true, true)]), None);
    assert_eq!(grows(true, &[(Controller, true, false), (Node, false, false)]), None);
    assert_eq!(grows(false, &[]), None);
}

#[test]
fn a_volume_is_modified_where_the_controller_says_so() {
    let of = |called, healthy, named: &[&str], node: bool| {
        let mut status = PluginInstanceStatus { healthy, ..PluginInstanceStatus::default() };
        (status.controller, status.node) = (!node, node);
        status.capabilities.controller = named.iter().map(|&name| name.to_owned()).collect();
        modifies([status].iter(), called)
    };
    assert_eq!(of(true, true, &["MODIFY_VOLUME"], false), Some(true));
    assert_eq!(of(true, false, &["MODIFY_VOLUME"], false), Some(true), "it once said so");
    assert_eq!(of(true, true, &["EXPAND_VOLUME"], false), Some(false));
    assert_eq!(of(true, false, &[], false), None, "it is not there");
    assert_eq!(of(true, true, &[], true), None, "its controller process is not there");
    assert_eq!(of(false, true, &[], true), Some(false), "it has none");
}

#[test]
fn an_unhealthy_instance_gets_nothing_new() {
    let all = [instance("a", false, false), instance("b", true, false)];
    for key in ["1", "2", "3", "4"] {
        assert_eq!(plugin(&all, Balancing::Spread).choose(Places::default(), key).unwrap().instance, "b");
    }
}

#[test]
fn volumes_are_spread_over_instances() {
    let all = [instance("a", true, false), instance("b", true, false)];
    let on_a = (0..100)
        .filter(|i| {
            plugin(&all, Balancing::Spread).choose(Places::default(), &i.to_string()).unwrap().instance == "a"
        })
        .count();
    assert!((25..=75).contains(&on_a), "{on_a} of 100");
}

/// So that a driver with storage of its own on each node works as it comes.
#[test]
fn spread_begins_where_the_volume_is_or_should_be_and_goes_elsewhere_if_it_must() {
    let all = [instance("a", true, false), instance("b", true, false), instance("c", false, false)];
    let chosen = |required: &[Segments], preferred: &[Segments], key: &str| {
        let places = Places { required, preferred };
        plugin(&all, Balancing::Spread).choose(places, key).unwrap().instance.clone()
    };
    let mut anywhere = std::collections::BTreeSet::new();
    for key in (0..16).map(|n| n.to_string()) {
        assert_eq!(chosen(&[zone("b")], &[], &key), "b");
        assert_eq!(chosen(&[zone("a"), zone("b")], &[zone("b"), zone("a")], &key), "b");
        assert_eq!(chosen(&[zone("a")], &[zone("b")], &key), "a", "what must be comes first");
        anywhere.insert(chosen(&[zone("c")], &[zone("c")], &key));
    }
    assert_eq!(anywhere.len(), 2, "nobody is well there, so all others are alike");
}

#[test]
fn per_topology_stays_where_the_volume_is() {
    let all = [instance("a", true, false), instance("b", true, false)];
    let place = [zone("b")];
    let at = Places { required: &place, preferred: &[] };
    assert_eq!(plugin(&all, Balancing::PerTopology).choose(at, "k").unwrap().instance, "b");
    let elsewhere = [zone("c")];
    let at = Places { required: &elsewhere, preferred: &[] };
    assert!(plugin(&all, Balancing::PerTopology).choose(at, "k").is_none());
}

#[test]
fn per_topology_begins_at_the_best_place() {
    let all = [instance("a", true, false), instance("b", true, false), instance("c", false, false)];
    let chosen = |required: &[Segments], preferred: &[Segments], key: &str| {
        let places = Places { required, preferred };
        plugin(&all, Balancing::PerTopology).choose(places, key).unwrap().instance.clone()
    };
    let everywhere = [zone("a"), zone("b"), zone("c")];
    for key in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        assert_eq!(chosen(&everywhere, &[zone("b"), zone("a")], key), "b");
        assert_eq!(chosen(&everywhere, &[zone("a"), zone("b")], key), "a");
        // The best place has nobody who is well.
        assert_eq!(chosen(&everywhere, &[zone("c"), zone("b")], key), "b");
        // What must be comes before what should be.
        assert_eq!(chosen(&[zone("a")], &[zone("b")], key), "a");
    }
}

#[test]
fn work_moves_only_away_from_the_dead() {
    let all = [instance("a", false, false), instance("b", true, false)];
    assert!(plugin(&all, Balancing::Spread).successor(&all[0].to_ref(), Places::default(), "k").is_none());
    let all = [instance("a", false, true), instance("b", true, false)];
    assert_eq!(
        plugin(&all, Balancing::Spread).successor(&all[0].to_ref(), Places::default(), "k").unwrap().instance,
        "b"
    );
}

#[test]
fn work_moves_away_from_who_was_relieved_of_it() {
    let mut all = [instance("a", false, false), instance("b", true, false)];
    let a = all[0].to_ref();
    let given = |tenure| a.in_tenure(tenure);
    let next = |all: &[InstanceSeen], tenure| {
        let active = elect(Some(&given(tenure)), all);
        let seen = PluginSeen { active: active.as_ref(), ..plugin(all, Balancing::SingleActive) };
        seen.successor(&given(tenure), Places::default(), "k")
    };
    // Told to give it up, and has not said yet that it has.
    all[0].tenure = 7;
    assert_eq!(next(&all, 0), None);
    all[0].relieved = 7;
    assert_eq!(next(&all, 0).unwrap().instance, "b");
    assert_eq!(next(&all, 7), None, "given to it since");
    // It is back before anybody has taken over.
    all[0].healthy = true;
    assert_eq!(next(&all, 0), Some(given(7)));
}

fn single_active<'a>(all: &'a [InstanceSeen], active: Option<&'a ControllerRef>) -> PluginSeen<'a> {
    PluginSeen { active, ..plugin(all, Balancing::SingleActive) }
}

#[test]
fn with_one_active_nobody_else_is_given_anything() {
    let all = [instance("a", true, false), instance("b", true, false)];
    let [a, b] = [all[0].to_ref(), all[1].to_ref()];
    let chosen = |all: &[InstanceSeen], active| single_active(all, active).choose(Places::default(), "k");
    assert_eq!(chosen(&all, None), None, "none is chosen yet");
    assert_eq!(chosen(&all, Some(&b)), Some(b.clone()));
    assert_eq!(single_active(&all, Some(&b)).waits_for_active(), None);
    let edited = |edit: fn(&mut InstanceSeen)| {
        let mut all = all.clone();
        edit(&mut all[1]);
        all
    };
    let sick = edited(|b| b.healthy = false);
    assert_eq!(chosen(&sick, Some(&b)), None, "its calls may be running");
    assert_eq!(single_active(&sick, Some(&b)).waits_for_active(), Some(&b));
    // What it was given before moves to whoever is chosen next, and what it was given now would not.
    assert_eq!(chosen(&edited(|b| b.tenure = 7), Some(&b)), None, "it is being relieved");
    assert_eq!(chosen(&edited(|b| (b.tenure, b.relieved) = (7, 7)), Some(&b)), None);
    // An object that was made anew begins its tenures anew.
    let later = b.in_tenure(7);
    assert_eq!(chosen(&all, Some(&later)), Some(b.clone()));
    assert_eq!(chosen(&all, Some(&a)), Some(a.clone()));
    assert_eq!(single_active(&all, Some(&a)).successor(&later, Places::default(), "k"), None, "b lives");
    let dead = edited(|b| (b.healthy, b.dead) = (false, true));
    assert_eq!(single_active(&dead, Some(&a)).successor(&later, Places::default(), "k"), Some(a));
}

/// New work waits for its place. What is left of a place that is gone may be for any instance to end.
#[test]
fn what_is_only_taken_to_be_local_moves_anywhere_when_its_instance_is_dead() {
    let all = [instance("a", false, true), instance("b", true, false)];
    let place = [zone("a")];
    let places = Places { required: &place, preferred: &[] };
    let declared = plugin(&all, Balancing::PerTopology);
    let taken = PluginSeen { is_local: false, ..declared };
    assert_eq!((declared.choose(places, "k"), taken.choose(places, "k")), (None, None));
    assert_eq!(declared.successor(&all[0].to_ref(), places, "k"), None);
    assert_eq!(taken.successor(&all[0].to_ref(), places, "k").unwrap().instance, "b");
}

#[test]
fn an_unknown_instance_is_not_concluded_dead() {
    let all = [instance("b", true, false)];
    let gone = ControllerRef::new("a", "x", 0);
    assert!(plugin(&all, Balancing::Spread).successor(&gone, Places::default(), "k").is_none());
}
