//! Snapshots that exist, and are looked for.

use super::*;

#[test]
fn one_that_exists_is_looked_for_by_any_instance() {
    let mut case = Case::new();
    (case.volume, case.lock, case.takes) = (None, None, None);
    case.snapshot.spec.volume_name = None;
    case.snapshot.spec.snapshot_handle = Some("snap-9".into());
    assert_eq!(case.plan(), SnapshotStep::Look(Look::Holders(vec!["snap-9".into()])));
    case.looked.holders = Some(vec![holder("other", true)]);
    assert_eq!(case.waits(), SnapshotWaiting::HandleEnds("Snapshot other".into()));
    case.looked.holders = Some(vec![holder("other", false)]);
    let SnapshotStep::Assign(assignment) = case.plan() else { panic!() };
    assert_eq!(assignment.operation, SnapshotOperation::List, "two may stand for one");
    assert_eq!(assignment.snapshot_handle.as_deref(), Some("snap-9"));
    case.instances.clear();
    assert_eq!(case.waits(), SnapshotWaiting::NoInstance("plugin".into()));
}

/// Where each place has storage of its own, the first one that is asked need not be the one that has it.
#[test]
fn one_that_exists_is_looked_for_in_one_place_after_the_other() {
    let mut case = Case::new();
    (case.volume, case.lock, case.balancing) = (None, None, Balancing::PerTopology);
    case.snapshot.spec.volume_name = None;
    case.snapshot.spec.snapshot_handle = Some("snap-9".into());
    case.looked.holders = Some(Vec::new());
    let place = |name: &str| BTreeMap::from([("host".to_owned(), name.to_owned())]);
    // Two nodes are in one place, and the driver of another one is not well.
    case.instances = [("node-4", "a"), ("node-3", "b"), ("node-2", "b"), ("node-1", "c"), ("node-5", "d")]
        .map(|(node, at)| InstanceSeen { topology: place(at), healthy: at != "c", ..healthy(node) })
        .into();
    for (generation, (node, at)) in
        [("node-4", "a"), ("node-2", "b"), ("node-5", "d")].into_iter().enumerate()
    {
        let SnapshotStep::Assign(assignment) = case.plan() else { panic!("{:?}", case.plan()) };
        assert_eq!(
            (assignment.controller.clone(), assignment.operation),
            (self::at(node), SnapshotOperation::List)
        );
        assert_eq!(
            assignment.accessible_topology,
            vec![Segments { segments: place(at) }],
            "copies are made there"
        );
        case.snapshot.spec.assignment = Some(*assignment);
        case.snapshot.metadata.generation = Some(i64::try_from(generation).unwrap() + 2);
        assert_eq!(
            case.plan(),
            SnapshotStep::Idle,
            "what {node} answers is awaited, whatever was said before"
        );
        let status = case.snapshot.status.get_or_insert_default();
        status.observed_generation = case.snapshot.metadata.generation;
        let code = Reason::SnapshotNotFound.as_str().to_owned();
        status.last_error = Some(CallFailure { code, ..CallFailure::default() }.into());
    }
    assert_eq!(case.plan(), SnapshotStep::Idle, "all were asked");
    case.snapshot.spec.assignment = None;
    case.balancing = Balancing::Spread;
    let SnapshotStep::Assign(assignment) = case.plan() else { panic!() };
    assert_eq!(assignment.accessible_topology, Vec::new(), "any instance knows of all");
}
