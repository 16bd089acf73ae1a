use super::*;

const DRIVER: &str = "driver.example.com";
const AT: MadeFor<'_> = MadeFor { plugin: "p", namespace: "moor" };

fn zone(name: &str) -> Segments {
    BTreeMap::from([("zone".to_owned(), name.to_owned())])
}

fn class(name: &str, mode: &str, parameters: &[(&str, &str)]) -> Arc<StorageClass> {
    let metadata =
        ObjectMeta { name: Some(name.into()), uid: Some(format!("uid-of-{name}")), ..ObjectMeta::default() };
    Arc::new(StorageClass {
        metadata,
        provisioner: DRIVER.into(),
        volume_binding_mode: Some(mode.into()),
        parameters: Some(parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
        ..StorageClass::default()
    })
}

fn late(name: &str) -> Arc<StorageClass> {
    class(name, "WaitForFirstConsumer", &[])
}

fn source<'a>(
    name: &'a str,
    place: Option<&'a Segments>,
    answers: bool,
    healthy: bool,
) -> CapacitySource<'a> {
    CapacitySource { name, place, is_anywhere: false, makes: answers, answers, healthy }
}

fn plan(sources: &[CapacitySource<'_>], balancing: Balancing, classes: &[Arc<StorageClass>]) -> CapacityPlan {
    CapacityPlan::new(&CapacityOf { driver: DRIVER, balancing, sources }, classes)
}

/// Who is asked about which zone.
fn asked(plan: &CapacityPlan) -> BTreeMap<String, String> {
    plan.questions().iter().map(|q| (q.request.segments["zone"].clone(), q.instance.clone())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn room(bytes: i64) -> Capacity {
    Capacity { available_capacity: Some(bytes), ..Capacity::default() }
}

#[test]
fn each_late_class_is_asked_about_in_each_place_without_what_is_the_provisioners() {
    let (a, b) = (zone("a"), zone("b"));
    let sources = [
        source("1", Some(&a), true, true),
        source("2", Some(&b), true, true),
        source("3", Some(&b), true, true),
    ];
    let parameters = [
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/node-stage-secret-name", "s"),
        ("k", "v"),
    ];
    let of_another = StorageClass { provisioner: "another".into(), ..(*late("other")).clone() };
    let classes = [
        class("late", "WaitForFirstConsumer", &parameters),
        class("now", "Immediate", &[]),
        Arc::new(of_another),
    ];
    let plan = plan(&sources, Balancing::PerTopology, &classes);
    assert_eq!(asked(&plan), pairs(&[("a", "1"), ("b", "2")]));
    let wanted = CapacityRequest {
        storage_class_name: "late".into(),
        fs_type: Some("xfs".into()),
        parameters: pairs(&[("k", "v")]),
        segments: b,
    };
    assert_eq!(plan.requests_of("2").into_values().collect::<Vec<_>>(), [wanted]);
    assert!(plan.requests_of("3").is_empty() && plan.requests_of("0").is_empty());
}

#[test]
fn who_is_in_a_place_answers_for_it_and_is_not_spoken_for_by_others() {
    let (a, b, c) = (zone("a"), zone("b"), zone("c"));
    let sources = [
        source("1", Some(&a), true, true),
        // Ill, and still the one that knows.
        source("2", Some(&b), true, false),
        source("3", Some(&c), false, true),
    ];
    let classes = [late("late")];
    let local = plan(&sources, Balancing::PerTopology, &classes);
    assert_eq!(asked(&local), pairs(&[("a", "1"), ("b", "2")]), "nobody can make a volume in c");
    for balancing in [Balancing::Spread, Balancing::SingleActive] {
        let central = plan(&sources, balancing, &classes);
        assert_eq!(asked(&central), pairs(&[("a", "1"), ("b", "2"), ("c", "1")]));
    }
    let healthy_first = [source("1", Some(&a), true, false), source("2", Some(&a), true, true)];
    assert_eq!(asked(&plan(&healthy_first, Balancing::PerTopology, &classes)), pairs(&[("a", "2")]));
    let apart = [source("1", None, true, true), source("2", Some(&a), false, true)];
    assert_eq!(asked(&plan(&apart, Balancing::Spread, &classes)), pairs(&[("a", "1")]));
}

#[test]
fn an_object_says_what_was_answered_and_is_written_when_that_changes() {
    let a = zone("a");
    let sources = [source("1", Some(&a), true, true)];
    let plan = plan(&sources, Balancing::Spread, &[late("late")]);
    let question = &plan.questions()[0];
    let step =
        |said: Option<&Capacity>, found: Option<&CSIStorageCapacity>| plan.object(question, AT, said, found);
    assert_eq!(step(None, None), CapacityStep::Nothing);
    let failed = Capacity { last_error: Some("no".into()), ..Capacity::default() };
    assert_eq!(step(Some(&failed), None), CapacityStep::Nothing);
    let CapacityStep::Create(made) = step(Some(&room(1_000_000)), None) else { panic!("it is not made") };
    assert_eq!(made.metadata.name.as_deref(), Some(question.name.as_str()));
    assert_eq!(made.metadata.namespace.as_deref(), Some("moor"));
    let labels = made.metadata.labels.clone().unwrap();
    assert_eq!((labels[DRIVER_NAME].as_str(), labels[MANAGED_BY].as_str()), (DRIVER, "moor"));
    assert!(is_ours(&made) && plugin_of(&made) == Some("p"));
    assert_eq!(made.storage_class_name, "late");
    assert_eq!(made.node_topology.as_ref().unwrap().match_labels, Some(a.clone()));
    assert_eq!(made.maximum_volume_size, None);

    // As the API server writes it.
    let found = CSIStorageCapacity { capacity: Some(Quantity("1M".into())), ..(*made).clone() };
    assert_eq!(step(Some(&room(1_000_000)), Some(&found)), CapacityStep::Nothing);
    assert_eq!(step(None, Some(&found)), CapacityStep::Nothing, "an instance that says nothing");
    let largest = Capacity { maximum_volume_size: Some(1 << 20), ..room(0) };
    let CapacityStep::Correct(less) = step(Some(&largest), Some(&found)) else {
        panic!("it is not corrected")
    };
    assert_eq!(
        (less.capacity.clone().unwrap().0, less.maximum_volume_size.clone().unwrap().0),
        ("0".into(), "1Mi".into())
    );
    let CapacityStep::Correct(less) = step(Some(&room(0)), Some(&less)) else {
        panic!("it is not corrected")
    };
    assert_eq!(less.maximum_volume_size, None);

    let elsewhere = LabelSelector { match_labels: Some(zone("b")), match_expressions: None };
    let wrong = CSIStorageCapacity { node_topology: Some(elsewhere), ..found.clone() };
    assert_eq!(step(None, Some(&wrong)), CapacityStep::Delete, "it cannot be changed");
    let foreign =
        CSIStorageCapacity { metadata: ObjectMeta { labels: None, ..found.metadata.clone() }, ..found };
    assert!(!is_ours(&foreign));
}

#[test]
fn a_class_that_was_made_anew_has_objects_of_its_own() {
    let a = zone("a");
    let sources = [source("1", Some(&a), true, true)];
    let before = plan(&sources, Balancing::Spread, &[late("late")]);
    let mut anew = (*late("late")).clone();
    anew.metadata.uid = Some("another".into());
    let after = plan(&sources, Balancing::Spread, &[Arc::new(anew)]);
    assert!(before.names().is_disjoint(&after.names()), "an answer about another class would count");
}

#[test]
fn the_scheduler_goes_by_the_objects_once_there_is_one_of_every_class() {
    let (a, b, c) = (zone("a"), zone("b"), zone("c"));
    let sources = [
        source("1", Some(&a), true, true),
        source("2", Some(&b), true, true),
        source("3", Some(&c), true, false),
    ];
    let both = plan(&sources, Balancing::PerTopology, &[late("x"), late("y")]);
    let with = |told: &dyn Fn(&CapacityQuestion) -> bool, said| {
        let has = |name: &str| both.questions().iter().any(|q| q.name == name && told(q));
        both.counts(has, said)
    };
    assert!(with(&|_| true, false));
    assert!(with(&|q| q.instance != "3", false), "nobody waits for who cannot answer");
    assert!(!with(&|q| q.instance == "1", false), "2 will answer at once");
    assert!(with(&|q| q.instance == "1", true), "a node that has come changes it for no other");
    assert!(!with(&|q| q.request.storage_class_name == "x", true), "nothing would be placed for class y");
    assert!(!with(&|_| false, true));
    let none = plan(&sources, Balancing::PerTopology, &[class("now", "Immediate", &[])]);
    assert!(!none.counts(|_| true, true), "the next class would find it true before it has objects");
    let nobody = plan(&[source("1", Some(&a), false, true)], Balancing::Spread, &[late("x")]);
    assert!(!nobody.counts(|_| true, true), "the driver says nothing of its room any more");
}

/// A version of the driver that answers is rolled out, or rolled back.
#[test]
fn nothing_counts_while_volumes_can_be_made_where_nobody_says_how_much_room_there_is() {
    let (a, b) = (zone("a"), zone("b"));
    let older = CapacitySource { makes: true, ..source("2", Some(&b), false, true) };
    let sources = [source("1", Some(&a), true, true), older];
    let mixed = plan(&sources, Balancing::PerTopology, &[late("x")]);
    assert_eq!(asked(&mixed), pairs(&[("a", "1")]));
    assert!(!mixed.counts(|_| true, true), "no Pod would go to b");
    assert!(plan(&sources, Balancing::Spread, &[late("x")]).counts(|_| true, false), "1 speaks for b");
}

/// Else one node that says that there are places would have all others do without Pods.
#[test]
fn nothing_counts_while_an_instance_says_nothing_of_places() {
    let a = zone("a");
    let nowhere = CapacitySource { is_anywhere: true, ..source("2", None, false, true) };
    let sources = [source("1", Some(&a), true, true), nowhere];
    for balancing in [Balancing::Spread, Balancing::PerTopology] {
        assert!(plan(&sources[..1], balancing, &[late("x")]).counts(|_| true, false));
        let mixed = plan(&sources, balancing, &[late("x")]);
        assert_eq!(asked(&mixed), pairs(&[("a", "1")]));
        assert!(!mixed.counts(|_| true, true) && !mixed.counts(|_| true, false));
    }
}

/// Somebody finds storageCapacity false though the driver has GET_CAPACITY.
#[test]
fn why_the_scheduler_does_not_go_by_the_room_is_said() {
    let (a, b) = (zone("a"), zone("b"));
    let first = || source("1", Some(&a), true, true);
    let nowhere = CapacitySource { is_anywhere: true, ..source("2", None, false, true) };
    let silent = CapacitySource { makes: true, ..source("2", Some(&b), false, true) };
    let unconfirmed = source("1", None, true, true);
    let long = "x".repeat(4096);
    let (x, now) = (|| late("x"), class("now", "Immediate", &[]));
    let odd = class("odd", "WaitForFirstConsumer", &[("k", &long)]);
    let said = |sources: &[CapacitySource<'_>], classes: &[_], told: bool| {
        let plan = plan(sources, Balancing::PerTopology, classes);
        let (why, counts) = (plan.why_untold(|_| told, false), plan.counts(|_| told, false));
        assert_eq!(why.is_none(), counts, "{why:?}");
        why.unwrap_or_default()
    };
    for (sources, classes, told, words) in [
        (vec![first()], vec![x()], true, ""),
        (vec![first(), nowhere], vec![x()], true, "PluginInstance 2 does not say where"),
        (vec![first(), silent], vec![x()], true, "how much room there is in zone=b"),
        (vec![first()], vec![now], true, "WaitForFirstConsumer"),
        (vec![first()], vec![x()], false, "of StorageClass x yet"),
        (vec![first()], vec![x(), odd.clone()], true, "StorageClass odd has more parameters"),
        (vec![first()], vec![odd], true, "StorageClass odd has more parameters"),
        (vec![unconfirmed], vec![x()], true, "Node's labels"),
    ] {
        let said = said(&sources, &classes, told);
        assert!(said.contains(words) && said.is_empty() == words.is_empty(), "{words}: {said}");
    }
    let some = plan(&[first(), source("2", Some(&b), true, true)], Balancing::PerTopology, &[x()]);
    let of_first = some.questions()[0].name.clone();
    let why = some.why_untold(|name| name == of_first, false).unwrap();
    assert!(why.contains("PluginInstance 2 has not answered"), "{why}");
    assert!(CapacityPlan::without_places(true).why_untold(|_| true, false).unwrap().contains("VOLUME_ACC"));
    let mute = plan(&[source("1", Some(&a), false, true)], Balancing::Spread, &[x()]);
    assert_eq!(mute.why_untold(|_| true, false), None, "it says nothing of its room");
    assert_eq!(CapacityPlan::without_places(false).why_untold(|_| true, false), None);
}

#[test]
fn a_class_that_no_driver_can_be_given_is_not_asked_about_and_does_not_count() {
    let a = zone("a");
    let sources = [source("1", Some(&a), true, true)];
    let long = "x".repeat(4096);
    // A PluginInstance has no room for these, and one refusal would keep all others from being asked.
    for (key, value) in [("k", long.as_str()), ("csi.storage.k8s.io/fstype", &long[..129])] {
        let plan = plan(&sources, Balancing::Spread, &[class("x", "WaitForFirstConsumer", &[(key, value)])]);
        assert!(plan.questions().is_empty() && !plan.counts(|_| true, true));
    }
}

#[test]
fn an_instance_is_asked_no_more_than_an_object_holds() {
    let places: Vec<_> = (0..=MAX_CAPACITIES).map(|n| zone(&n.to_string())).collect();
    let of = |count: usize, parameters: &[(&str, &str)]| {
        let nodes = places.iter().take(count).map(|place| source("node", Some(place), false, true));
        let sources: Vec<_> = nodes.chain([source("central", None, true, true)]).collect();
        plan(&sources, Balancing::Spread, &[class("x", "WaitForFirstConsumer", parameters)])
    };
    let most = of(MAX_CAPACITIES, &[]);
    assert_eq!((most.questions().len(), most.is_too_much), (MAX_CAPACITIES, false));
    let long = "x".repeat(4000);
    for more in [of(MAX_CAPACITIES + 1, &[]), of(MAX_CAPACITIES, &[("k", &long)])] {
        assert!(more.is_too_much && more.questions().is_empty() && !more.counts(|_| true, true));
    }
}
