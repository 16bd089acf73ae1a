//! Who makes the calls: instances that die or come, and drivers that are not there any more.

use moor::api::conditions::Reason;

use super::*;

/// It is not to be taken for a driver without Controller service, whose volumes are used without being attached.
#[test]
fn a_volume_waits_for_a_controller_instance_where_the_plugin_wants_it() {
    let mut row = row(Pending, None).registered();
    row.controllers = Vec::new();
    assert!(matches!(row.plan(), VolumeStep::Assign(VolumeAssignment { controller: None, .. })));
    for (by, word) in [(SaidBy::Plugin, "spec.controllerNodes"), (SaidBy::Driver, "spec.roles")] {
        row.controllers_said = Some(by);
        row.volume.spec.volume_handle = Some("vol-7".into());
        let VolumeStep::Wait(why) = row.plan() else { panic!("it does not wait") };
        assert!(why.reason() == Reason::NoInstance && why.message().contains(word), "{why:?}");
        row.volume.spec.volume_handle = None;
        assert_eq!(row.plan(), VolumeStep::Wait(why), "also one that is to be made");
    }
}

#[test]
fn a_driver_without_controller_service_only_registers() {
    let mut new = row(Pending, None);
    new.controllers.clear();
    assert!(matches!(new.plan(), VolumeStep::Wait(VolumeWaiting::CannotCreate { .. })));
    let mut registered = row(Pending, None).registered();
    registered.controllers.clear();
    let to = VolumeAssignment { operation: Validate, controller: None, ..VolumeAssignment::default() };
    assert_eq!(registered.plan(), VolumeStep::Assign(to));
}

/// It would make a second volume, and nobody would know of the first.
#[test]
fn a_creation_of_unknown_outcome_is_kept_from_another_driver() {
    let other_driver = |may_exist: Option<bool>| {
        let mut row = row(Pending, Some(Create));
        row.volume.status.as_mut().unwrap().may_exist = may_exist;
        row.same_driver = false;
        row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
        row
    };
    let known = Some(true);
    // Its agent says nothing before the call.
    let unsaid = None;
    for row in [known, unsaid].into_iter().flat_map(|said| [other_driver(said), other_driver(said).deleted()])
    {
        let VolumeStep::Wait(why) = row.plan() else { panic!("the other driver is asked") };
        for said in [
            "CreateVolume may have been called",
            "Plugin loop",
            "that driver again",
            "spec.deletionPolicy Retain",
        ] {
            assert!(why.message().contains(said), "{said}: {}", why.message());
        }
    }
    let mut given_up = other_driver(known).deleted();
    given_up.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(given_up.plan(), VolumeStep::FreeVolume, "no driver is asked");
    // The driver has said that it made nothing, or was never asked.
    let none = Some(false);
    let moved = VolumeStep::Assign(VolumeAssignment {
        operation: Create,
        controller: Some(c2()),
        ..VolumeAssignment::default()
    });
    assert_eq!(other_driver(none).plan(), moved);
    assert_eq!(other_driver(none).deleted().plan(), VolumeStep::FreeVolume);
}

/// The lock would be on what another driver calls so.
#[test]
fn storage_without_its_lock_is_not_locked_for_another_driver() {
    let kept = |row: Row, what: &str| {
        let row = Row { same_driver: false, ..row };
        let VolumeStep::Wait(why) = row.plan() else { panic!("{what}: {:?}", row.plan()) };
        assert!(why.message().contains("spec.deletionPolicy Retain"), "{what}: {why:?}");
    };
    kept(row(Created, Some(Create)), "made");
    kept(row(Created, Some(Create)).handle("other", false), "made, and another Volume has that handle there");
    kept(row(Created, Some(Create)).deleted(), "made and deleted");
    kept(row(Created, Some(Create)).handle("other", false).deleted(), "deleted beside another Volume");
    kept(row(Ready, Some(Create)), "its lock was removed by hand");
    kept(row(Ready, Some(Delete)).deleted(), "its lock was removed by hand while it is deleted");
    let mut left = row(Created, Some(Create)).deleted();
    left.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(Row { same_driver: false, ..left }.plan(), VolumeStep::FreeVolume);
}

#[test]
fn a_dead_instance_is_replaced_and_a_silent_one_is_not() {
    let mut row = row(Pending, Some(Create));
    row.controllers = vec![instance(&c1(), false, false), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::Assign(after_another(c2())));
}

/// Its agent cannot say so, and nobody else would.
#[test]
fn a_volume_says_whose_agent_is_not_heard() {
    let rows = || {
        let mut given_up = row(Pending, Some(Create)).deleted();
        given_up.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
        given_up.volume.status.as_mut().unwrap().rejected = Some(Rejected::default().into());
        vec![
            row(Pending, Some(Create)),
            row(Pending, Some(Validate)).registered(),
            row(Pending, Some(Create)).deleted(),
            row(Ready, Some(Delete)).deleted().closed(),
            row(Ready, Some(Delete)).deleted().handle("other", false),
            given_up,
        ]
    };
    for (mut row, mut orphan) in rows().into_iter().zip(rows()) {
        row.controllers = vec![instance(&c1(), false, false), instance(&c2(), true, false)];
        assert_eq!(row.plan(), VolumeStep::Idle, "its agent says what is wrong");
        row.controllers[0].silent = true;
        let VolumeStep::Wait(why) = row.plan() else { panic!("{:?}", row.plan()) };
        assert_eq!(why.reason(), Reason::AgentNotHeard);
        for said in ["node node-1", "PluginInstance c1", "instance of Plugin loop takes over"] {
            assert!(why.message().contains(said), "{said}: {}", why.message());
        }
        // Nobody is believed without it, and nobody takes over.
        orphan.plugin = false;
        orphan.controllers = vec![InstanceSeen { silent: true, ..instance(&c1(), false, true) }];
        if orphan.volume.metadata.deletion_timestamp.is_none()
            || orphan.volume.spec.deletion_policy == Some(DeletionPolicy::Retain)
        {
            continue;
        }
        let VolumeStep::Wait(why) = orphan.plan() else { panic!("{:?}", orphan.plan()) };
        assert!(why.message().contains("Plugin loop, which does not exist, is created again"), "{why:?}");
    }
}

#[test]
fn the_handle_moves_only_away_from_a_dead_instance() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false);
    row.controllers = vec![instance(&c1(), false, false), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::MoveHandle(c2()));
}

/// Which instance of a driver with several is seen first is chance, and must not decide whether volumes are attached.
#[test]
fn a_controller_that_comes_before_ready_validates() {
    let mut row = row(Pending, Some(Validate)).without_controller();
    let to = VolumeAssignment { operation: Validate, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(row.plan(), VolumeStep::Assign(to.clone()));
    assert_eq!(row.handle("v-uid", false).without_controller().plan(), VolumeStep::Assign(to));
    row = self::row(Pending, Some(Validate)).without_controller();
    row.controllers = vec![instance(&c1(), false, false)];
    assert!(matches!(row.plan(), VolumeStep::Wait(VolumeWaiting::NoInstance { .. })));
    row.controllers.clear();
    row.attaches = false;
    assert_eq!(row.plan(), VolumeStep::MakeHandle, "the driver has no Controller service");
}

#[test]
fn a_handle_that_was_made_before_its_controller_came_gets_it_before_ready() {
    let validated = |closing| {
        let mut row = row(Created, Some(Validate)).registered().handle("v-uid", closing);
        row.handle.as_mut().unwrap().controller = None;
        // Where the Volume is assigned, whoever else there is by now.
        row.controllers = vec![instance(&c2(), true, false), instance(&c1(), false, false)];
        row
    };
    assert_eq!(validated(false).plan(), VolumeStep::BeginClosing { last: None });
    assert_eq!(validated(true).plan(), open_with(&c1()));
    assert_eq!(
        row(Created, Some(Validate)).registered().handle("v-uid", false).plan(),
        VolumeStep::ReportReady
    );
}

#[test]
fn a_ready_volume_that_was_never_attached_is_closed_for_its_first_controller() {
    let ready = |closing| row(Ready, Some(Validate)).handle("v-uid", closing).without_controller();
    assert_eq!(ready(false).plan(), VolumeStep::BeginClosing { last: None });
    assert_eq!(ready(true).plan(), open_with(&c1()));
    let mut switching = ready(true);
    switching.wanted_mode = Some(AccessMode::MultiNodeReader);
    let (mode, first_controller) = (AccessMode::MultiNodeReader, Some(c1()));
    assert_eq!(switching.plan(), VolumeStep::FinishClosing { mode, first_controller });
    let mut silent = ready(true);
    silent.controllers = vec![instance(&c1(), false, false)];
    assert_eq!(silent.plan(), VolumeStep::Idle, "open it would be used without being attached");
}

#[test]
fn a_driver_that_never_attaches_needs_no_closing() {
    let ready = |closing| {
        let mut row = row(Ready, Some(Validate)).handle("v-uid", closing).without_controller();
        row.attaches = false;
        row
    };
    let to = VolumeAssignment { operation: Validate, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(
        ready(false).plan(),
        VolumeStep::Assign(to),
        "who deletes it one day, and takes its snapshots"
    );
    let mut silent = ready(true);
    silent.controllers = vec![instance(&c1(), false, false)];
    assert_eq!(silent.plan(), open_in(AccessMode::SingleNodeWriter));
    silent.controllers.clear();
    assert_eq!(silent.plan(), open_in(AccessMode::SingleNodeWriter));
}

/// Else nobody could call DeleteVolume for it one day, although the driver has it by now.
#[test]
fn a_volume_that_was_adopted_without_a_caller_gets_one_when_its_driver_has_the_controller_service() {
    let ready = || {
        let mut row = row(Ready, Some(Adopt)).handle("v-uid", false).without_controller();
        (row.adopts, row.attaches) = (true, false);
        row
    };
    let to = VolumeAssignment { operation: Adopt, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(ready().plan(), VolumeStep::Assign(to));
    let mut unheard = ready();
    unheard.controllers = vec![instance(&c1(), false, false)];
    assert_eq!(unheard.plan(), VolumeStep::Idle, "nobody can be chosen yet");
    let mut one_has = ready();
    one_has.handle.as_mut().unwrap().controller = Some(c2());
    assert_eq!(one_has.plan(), VolumeStep::Idle, "there are no two callers");
    let mut named = ready();
    named.volume.spec.assignment.as_mut().unwrap().controller = Some(c2());
    assert_eq!(named.plan(), VolumeStep::Idle, "it has one already");
    named.controllers.push(instance(&c2(), false, true));
    let to = VolumeAssignment { operation: Adopt, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(named.plan(), VolumeStep::Assign(to), "that one is gone");
    let mut attaches = ready();
    attaches.attaches = true;
    assert_eq!(
        attaches.plan(),
        VolumeStep::BeginClosing { last: None },
        "first nobody uses it without being attached"
    );
    // By that its storage goes, when its PersistentVolume ends so.
    let mut goes = ready().deleted();
    goes.handle.as_mut().unwrap().closed_for = Some(DeletionPolicy::Delete);
    goes.volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
    assert_eq!(goes.plan(), VolumeStep::AssignDelete(Some(c1())), "although it was told no caller");
    goes.volume.spec.assignment.as_mut().unwrap().controller = Some(c1());
    assert_eq!(goes.plan(), VolumeStep::AssignDelete(Some(c1())));
}
