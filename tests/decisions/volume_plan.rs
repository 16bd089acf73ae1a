//! What the leader does next for a Volume, row by row.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::attachment::ControllerRef;
use moor::api::plugin::Balancing;
use moor::api::volume::{DeletionPolicy, Rejected, VolumeAssignment, VolumeOperation, VolumeStatus};
use moor::api::{AccessMode, Volume, VolumeState};
use moor::attachment::HandleSeen;
use moor::plugin::allow::{NotAllowed, Right};
use moor::volume::{InstanceSeen, Seen, VolumeStep, VolumeWaiting, plan};

fn c1() -> ControllerRef {
    ControllerRef { instance: "c1".into(), agent: "node-1".into() }
}

fn c2() -> ControllerRef {
    ControllerRef { instance: "c2".into(), agent: "node-2".into() }
}

fn instance(to: &ControllerRef, healthy: bool, dead: bool) -> InstanceSeen {
    let topology = std::collections::BTreeMap::new();
    let (name, agent) = (to.instance.clone(), to.agent.clone());
    InstanceSeen { name, agent, healthy, serving: healthy, dead, topology }
}

/// A Volume to be created, in some state, optionally assigned, optionally deleted.
struct Row {
    volume: Volume,
    held: bool,
    plugin: bool,
    older_plugin: Option<&'static str>,
    not_allowed: Option<NotAllowed>,
    same_driver: bool,
    controllers: Vec<InstanceSeen>,
    names_controllers: bool,
    can_create: bool,
    attaches: bool,
    handle: Option<HandleSeen>,
    in_use_by: Option<String>,
    wanted_mode: Option<AccessMode>,
}

fn row(state: VolumeState, operation: Option<VolumeOperation>) -> Row {
    let mut volume = Volume::default();
    volume.metadata.uid = Some("v-uid".into());
    volume.metadata.name = Some("data".into());
    volume.spec.plugin_name = "loop".into();
    volume.spec.assignment =
        operation.map(|operation| VolumeAssignment { operation, controller: Some(c1()) });
    volume.status = Some(VolumeStatus { state, ..VolumeStatus::default() });
    Row {
        volume,
        held: operation.is_some(),
        plugin: true,
        older_plugin: None,
        not_allowed: None,
        same_driver: true,
        controllers: vec![instance(&c1(), true, false)],
        names_controllers: false,
        can_create: true,
        attaches: true,
        handle: None,
        in_use_by: None,
        wanted_mode: None,
    }
}

impl Row {
    fn registered(mut self) -> Self {
        self.volume.spec.volume_handle = Some("vol-7".into());
        self
    }

    fn deleted(mut self) -> Self {
        self.volume.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        self
    }

    fn handle(mut self, volume_uid: &str, closing: bool) -> Self {
        self.handle = Some(HandleSeen {
            name: "handle".into(),
            volume_handle: "vol-1".into(),
            owner: "ns/volume".into(),
            volume_uid: volume_uid.into(),
            mode: AccessMode::SingleNodeWriter,
            epoch: 3,
            closing,
            controller: Some(c1()),
            writer: None,
        });
        self
    }

    /// Registered while no instance of the driver had the Controller service.
    fn without_controller(mut self) -> Self {
        self.volume.spec.assignment.as_mut().unwrap().controller = None;
        if let Some(handle) = &mut self.handle {
            handle.controller = None;
        }
        self.registered()
    }

    fn plan(&self) -> VolumeStep {
        plan(&Seen {
            volume: &self.volume,
            held: self.held,
            plugin: self.plugin.then_some(Balancing::Spread),
            older_plugin: self.older_plugin,
            not_allowed: self.not_allowed.clone(),
            same_driver: self.same_driver,
            controllers: &self.controllers,
            names_controllers: self.names_controllers,
            any_healthy: true,
            can_create: self.can_create,
            attaches: self.attaches,
            handle: self.handle.as_ref(),
            in_use_by: self.in_use_by.clone(),
            wanted_mode: self.wanted_mode,
        })
    }
}

fn open_in(mode: AccessMode) -> VolumeStep {
    VolumeStep::FinishClosing { mode, first_controller: None }
}

fn open_with(first: &ControllerRef) -> VolumeStep {
    VolumeStep::FinishClosing { mode: AccessMode::SingleNodeWriter, first_controller: Some(first.clone()) }
}

use VolumeOperation::{Create, Delete, Validate};
use VolumeState::{Created, Deleted, Pending, Ready};

#[test]
fn a_volume_without_its_plugin_waits_and_names_it() {
    let mut row = row(Pending, None);
    row.plugin = false;
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::PluginNotFound { plugin: "loop".into() }));
}

/// It is not to be taken for a driver without Controller service, whose volumes are used without being attached.
#[test]
fn a_volume_waits_for_a_controller_instance_where_the_plugin_wants_it() {
    let mut row = row(Pending, None).registered();
    row.controllers = Vec::new();
    assert!(matches!(row.plan(), VolumeStep::Assign(VolumeAssignment { controller: None, .. })));
    row.names_controllers = true;
    let VolumeStep::Wait(why) = row.plan() else { panic!("it does not wait") };
    assert!(why.reason() == "NoInstance" && why.message().contains("spec.controllerNodes"), "{why:?}");
}

#[test]
fn a_volume_of_a_plugin_whose_driver_is_an_older_ones_waits_and_names_both() {
    let mut row = row(Pending, None);
    row.older_plugin = Some("first");
    let why = VolumeWaiting::DuplicateDriver { plugin: "loop".into(), older: "first".into() };
    assert_eq!(row.plan(), VolumeStep::Wait(why));
    let mut ready = self::row(Ready, Some(Create)).handle("v-uid", false);
    ready.older_plugin = Some("first");
    assert_eq!(ready.plan(), VolumeStep::Idle, "what it has it keeps");
}

fn lack(right: Right) -> NotAllowed {
    let field = "spec.volumeHandle";
    NotAllowed { plugin: "loop".into(), exists: true, namespace: "team".into(), right, field }
}

#[test]
fn a_volume_that_is_not_allowed_is_not_assigned_and_one_that_was_stays() {
    let mut row = row(Pending, None).registered();
    row.not_allowed = Some(lack(Right::Register));
    let why = VolumeWaiting::NotAllowed(lack(Right::Register));
    assert_eq!(row.plan(), VolumeStep::Wait(why));
    let mut ready = self::row(Ready, Some(Validate)).registered().handle("v-uid", false);
    ready.not_allowed = Some(lack(Right::Register));
    assert_eq!(ready.plan(), VolumeStep::Idle, "what it has it keeps");
    let mut made = self::row(Created, Some(Create));
    made.not_allowed = Some(lack(Right::Create));
    assert_eq!(made.plan(), VolumeStep::MakeHandle);
}

/// Nothing is begun: neither is the VolumeHandle closed, nor the order given.
#[test]
fn registered_storage_is_not_deleted_without_the_right() {
    let refused = VolumeStep::Wait(VolumeWaiting::NotAllowed(lack(Right::DeleteRegistered)));
    let plan_of = |mut row: Row, policy| {
        row.volume.spec.deletion_policy = Some(policy);
        row.not_allowed = Some(lack(Right::DeleteRegistered));
        row.plan()
    };
    let deleted = |state, operation| row(state, Some(operation)).registered().deleted();
    for closing in [false, true] {
        let own = deleted(Ready, Validate).handle("v-uid", closing);
        assert_eq!(plan_of(own, DeletionPolicy::Delete), refused, "closing {closing}");
    }
    assert_eq!(
        plan_of(deleted(Created, Validate), DeletionPolicy::Delete),
        refused,
        "before its VolumeHandle is made"
    );
    // Nothing of it is to be deleted: it was never known, is another's, or stays.
    assert_eq!(plan_of(deleted(Pending, Validate), DeletionPolicy::Delete), VolumeStep::FreeVolume);
    let anothers = deleted(Created, Validate).handle("other", false);
    assert_eq!(plan_of(anothers, DeletionPolicy::Delete), VolumeStep::FreeVolume);
    let kept = deleted(Ready, Validate).handle("v-uid", true);
    assert_eq!(plan_of(kept, DeletionPolicy::Retain), VolumeStep::RemoveHandle);
    // An order stands, whatever is allowed since: its call may be running.
    let ordered = deleted(Ready, Delete).handle("v-uid", true);
    assert_eq!(plan_of(ordered, DeletionPolicy::Delete), VolumeStep::Idle);
}

#[test]
fn a_new_volume_is_assigned_to_be_created() {
    let to = VolumeAssignment { operation: Create, controller: Some(c1()) };
    assert_eq!(row(Pending, None).plan(), VolumeStep::Assign(to));
}

#[test]
fn a_registered_volume_is_assigned_to_be_validated() {
    let to = VolumeAssignment { operation: Validate, controller: Some(c1()) };
    assert_eq!(row(Pending, None).registered().plan(), VolumeStep::Assign(to));
}

#[test]
fn a_driver_that_cannot_create_is_not_asked_to() {
    let mut row = row(Pending, None);
    row.can_create = false;
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin: "loop".into() }));
}

#[test]
fn a_driver_without_controller_service_only_registers() {
    let mut new = row(Pending, None);
    new.controllers.clear();
    assert!(matches!(new.plan(), VolumeStep::Wait(VolumeWaiting::CannotCreate { .. })));
    let mut registered = row(Pending, None).registered();
    registered.controllers.clear();
    let to = VolumeAssignment { operation: Validate, controller: None };
    assert_eq!(registered.plan(), VolumeStep::Assign(to));
}

#[test]
fn while_the_agent_is_at_it_the_leader_does_nothing() {
    assert_eq!(row(Pending, Some(Create)).plan(), VolumeStep::Idle);
    assert_eq!(row(Ready, Some(Delete)).deleted().handle("v-uid", true).plan(), VolumeStep::Idle);
}

/// Agents do not know who else has it.
#[test]
fn what_nobody_can_use_is_judged_before_it_is_deleted() {
    let plan_of = |deleted: bool, policy: DeletionPolicy, may_delete: bool| {
        let mut row = row(Pending, Some(Create));
        let status = row.volume.status.as_mut().unwrap();
        status.rejected = Some(Rejected { volume_handle: "made".into(), reason: "small".into(), may_delete });
        row.volume.spec.deletion_policy = Some(policy);
        if deleted { row.deleted().plan() } else { row.plan() }
    };
    for deleted in [false, true] {
        assert_eq!(plan_of(deleted, DeletionPolicy::Delete, false), VolumeStep::JudgeRejected);
        assert_eq!(plan_of(deleted, DeletionPolicy::Delete, true), VolumeStep::Idle);
    }
    assert_eq!(plan_of(false, DeletionPolicy::Retain, false), VolumeStep::JudgeRejected);
    // Its agent gives it up.
    assert_eq!(plan_of(true, DeletionPolicy::Retain, false), VolumeStep::Idle);
}

/// Made by one driver it is nothing to another one, and what was true for one instance may not be for the next.
#[test]
fn what_nobody_can_use_is_judged_for_the_instance_that_deletes_it() {
    let retain = std::cell::Cell::new(None);
    let plan_of = |deleted: bool, same_driver: bool, may_delete: bool| {
        let mut row = row(Pending, Some(Create));
        row.volume.spec.deletion_policy = retain.get();
        let status = row.volume.status.as_mut().unwrap();
        status.rejected = Some(Rejected { volume_handle: "made".into(), reason: "small".into(), may_delete });
        row.same_driver = same_driver;
        row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
        if deleted { row.deleted().plan() } else { row.plan() }
    };
    let moved = VolumeStep::Assign(VolumeAssignment { operation: Create, controller: Some(c2()) });
    for deleted in [false, true] {
        assert_eq!(plan_of(deleted, true, true), VolumeStep::JudgeAnew, "deleted={deleted}");
        assert_eq!(plan_of(deleted, true, false), moved, "deleted={deleted}");
        for may_delete in [false, true] {
            let VolumeStep::Wait(why) = plan_of(deleted, false, may_delete) else {
                panic!("it is not kept from the other driver: deleted={deleted}");
            };
            assert!(why.message().contains("spec.deletionPolicy Retain"), "{why:?}");
        }
    }
    retain.set(Some(DeletionPolicy::Retain));
    assert_eq!(plan_of(true, false, true), VolumeStep::FreeVolume, "no driver is asked");
    assert_eq!(plan_of(true, true, false), moved, "its agent gives it up");
}

/// It would make a second volume, and nobody would know of the first.
#[test]
fn a_creation_of_unknown_outcome_is_kept_from_another_driver() {
    let other_driver = |may_exist: bool| {
        let mut row = row(Pending, Some(Create));
        row.volume.status.as_mut().unwrap().may_exist = may_exist;
        row.same_driver = false;
        row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
        row
    };
    for row in [other_driver(true), other_driver(true).deleted()] {
        let VolumeStep::Wait(why) = row.plan() else { panic!("the other driver is asked") };
        for said in
            ["CreateVolume was called", "Plugin loop", "that driver again", "spec.deletionPolicy Retain"]
        {
            assert!(why.message().contains(said), "{said}: {}", why.message());
        }
    }
    let mut given_up = other_driver(true).deleted();
    given_up.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(given_up.plan(), VolumeStep::FreeVolume, "no driver is asked");
    // Nothing was called yet, or the driver has said that it made nothing.
    let moved = VolumeStep::Assign(VolumeAssignment { operation: Create, controller: Some(c2()) });
    assert_eq!(other_driver(false).plan(), moved);
    assert_eq!(other_driver(false).deleted().plan(), VolumeStep::FreeVolume);
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
    let to = VolumeAssignment { operation: Create, controller: Some(c2()) };
    assert_eq!(row.plan(), VolumeStep::Assign(to));
}

#[test]
fn the_handle_comes_before_ready() {
    assert_eq!(row(Created, Some(Create)).plan(), VolumeStep::MakeHandle);
    assert_eq!(row(Created, Some(Create)).handle("v-uid", false).plan(), VolumeStep::ReportReady);
}

#[test]
fn a_handle_of_another_volume_is_contested() {
    assert_eq!(row(Created, Some(Validate)).handle("other", false).plan(), VolumeStep::ContestHandle);
    assert_eq!(row(Ready, Some(Create)).handle("other", false).plan(), VolumeStep::ContestHandle);
}

#[test]
fn a_mode_switch_closes_first_and_opens_in_the_wanted_mode() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false);
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.wanted_mode = Some(AccessMode::MultiNodeReader);
    assert_eq!(row.plan(), VolumeStep::BeginClosing);
    let mut closing = row.handle("v-uid", true);
    assert_eq!(closing.plan(), open_in(AccessMode::MultiNodeReader));
    closing.wanted_mode = None;
    assert_eq!(closing.plan(), open_in(AccessMode::SingleNodeWriter));
}

#[test]
fn the_handle_moves_only_away_from_a_dead_instance() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false);
    row.controllers = vec![instance(&c1(), false, false), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::MoveHandle(c2()));
}

#[test]
fn deletion_waits_for_whoever_uses_the_volume() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false).deleted();
    row.in_use_by = Some("claim default/w".into());
    let by = "claim default/w".into();
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::InUse { by }));
}

#[test]
fn deletion_closes_deletes_removes_and_frees_in_this_order() {
    let ready = || row(Ready, Some(Create)).deleted();
    assert_eq!(ready().handle("v-uid", false).plan(), VolumeStep::BeginClosing);
    assert_eq!(ready().handle("v-uid", true).plan(), VolumeStep::AssignDelete(Some(c1())));
    let gone = || row(Deleted, Some(Delete)).deleted();
    assert_eq!(gone().handle("v-uid", true).plan(), VolumeStep::RemoveHandle);
    assert_eq!(gone().plan(), VolumeStep::FreeVolume);
}

/// Whoever is to make the calls was written down before (trap T49).
#[test]
fn a_volume_is_deleted_although_its_plugin_is_gone() {
    let orphan = |state, operation| {
        let mut row = row(state, operation).deleted();
        (row.plugin, row.controllers) = (false, Vec::new());
        row
    };
    assert_eq!(orphan(Ready, Some(Create)).handle("v-uid", false).plan(), VolumeStep::BeginClosing);
    assert_eq!(
        orphan(Ready, Some(Create)).handle("v-uid", true).plan(),
        VolumeStep::AssignDelete(Some(c1()))
    );
    assert_eq!(orphan(Ready, Some(Delete)).handle("v-uid", true).plan(), VolumeStep::Idle);
    assert_eq!(orphan(Deleted, Some(Delete)).handle("v-uid", true).plan(), VolumeStep::RemoveHandle);
    assert_eq!(orphan(Deleted, Some(Delete)).plan(), VolumeStep::FreeVolume);
}

/// Without the lock another Volume could be using what a DeleteVolume that is under way deletes.
#[test]
fn the_lock_of_an_ordered_deletion_stays_until_its_outcome_is_known() {
    let mut row = row(Ready, Some(Delete)).deleted().handle("v-uid", true);
    row.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(row.plan(), VolumeStep::Idle, "its agent says when it is over");
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    row.handle.as_mut().unwrap().controller = Some(c2());
    assert_eq!(row.plan(), VolumeStep::AssignDelete(Some(c2())), "or whoever comes after it");
    row.volume.status.as_mut().unwrap().state = Deleted;
    assert_eq!(row.plan(), VolumeStep::RemoveHandle);
}

/// Its agent deletes nothing of which the status does not say that it was made. The VolumeHandle says it.
#[test]
fn a_status_that_was_lost_while_storage_is_deleted_is_written_again() {
    assert_eq!(row(Pending, Some(Delete)).deleted().handle("v-uid", true).plan(), VolumeStep::RestoreStatus);
    // The call may be running: its outcome is waited for, and says what the status said.
    let mut creating = row(Pending, Some(Create)).deleted().handle("v-uid", true);
    assert_eq!(creating.plan(), VolumeStep::Idle);
    creating.handle.as_mut().unwrap().controller = Some(c2());
    creating.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    let again = VolumeAssignment { operation: Create, controller: Some(c2()) };
    assert_eq!(creating.plan(), VolumeStep::Assign(again));
    // The repeated call was refused, or answered with what nobody can use: no call is running, and the storage is there.
    assert_eq!(
        row(Deleted, Some(Create)).deleted().handle("v-uid", true).plan(),
        VolumeStep::RestoreStatus,
        "what was not made anew was made before"
    );
    let mut rejected = row(Pending, Some(Create)).deleted().handle("v-uid", true);
    let (volume_handle, reason, may_delete) = ("made".into(), "small".into(), false);
    rejected.volume.status.as_mut().unwrap().rejected = Some(Rejected { volume_handle, reason, may_delete });
    assert_eq!(rejected.plan(), VolumeStep::RestoreStatus, "its agent deletes nothing that has a lock");
    // After the lock went.
    assert_eq!(row(Pending, Some(Delete)).deleted().plan(), VolumeStep::FreeVolume);
}

#[test]
fn retained_storage_is_never_deleted() {
    let registered = || row(Ready, Some(Validate)).registered().deleted();
    assert_eq!(registered().handle("v-uid", false).plan(), VolumeStep::BeginClosing);
    assert_eq!(registered().handle("v-uid", true).plan(), VolumeStep::RemoveHandle);
    let mut kept = row(Ready, Some(Create)).deleted().handle("v-uid", true);
    kept.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(kept.plan(), VolumeStep::RemoveHandle);
}

#[test]
fn an_open_creation_is_resolved_before_the_volume_goes() {
    assert_eq!(row(Pending, Some(Create)).deleted().plan(), VolumeStep::Idle);
    // Created, and only then deleted: without the lock another Volume could use the same storage.
    assert_eq!(row(Created, Some(Create)).deleted().plan(), VolumeStep::MakeHandle);
    assert_eq!(row(Deleted, Some(Create)).deleted().plan(), VolumeStep::FreeVolume);
    assert_eq!(row(Pending, Some(Validate)).registered().deleted().plan(), VolumeStep::FreeVolume);
}

#[test]
fn storage_whose_lock_was_lost_is_locked_again_before_it_is_deleted() {
    assert_eq!(row(Ready, Some(Create)).deleted().plan(), VolumeStep::MakeHandle);
}

#[test]
fn a_volume_that_was_never_touched_is_let_go() {
    let mut row = row(Pending, None).deleted();
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.held = true;
    assert_eq!(row.plan(), VolumeStep::FreeVolume);
}

/// A registered Volume can take over the handle of one that was deleting it.
#[test]
fn a_handle_that_is_closing_is_opened_before_ready() {
    let row = row(Created, Some(Validate)).registered().handle("v-uid", true);
    assert_eq!(row.plan(), open_in(AccessMode::SingleNodeWriter));
}

#[test]
fn the_mode_that_it_has_is_not_switched_to() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false);
    row.wanted_mode = Some(AccessMode::SingleNodeWriter);
    assert_eq!(row.plan(), VolumeStep::Idle);
}

/// Nobody else could detach what a deleted Volume still waits for (rule R2).
#[test]
fn a_deleted_volume_moves_away_from_a_dead_instance_before_it_waits() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false).deleted();
    row.in_use_by = Some("claim default/w".into());
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::MoveHandle(c2()));
}

#[test]
fn the_call_of_a_deleted_volume_moves_only_away_from_a_dead_instance() {
    for dead in [false, true] {
        let controllers = vec![instance(&c1(), false, dead), instance(&c2(), true, false)];
        let mut creating = row(Pending, Some(Create)).deleted();
        creating.controllers.clone_from(&controllers);
        let again = VolumeAssignment { operation: Create, controller: Some(c2()) };
        let expected = if dead { VolumeStep::Assign(again) } else { VolumeStep::Idle };
        assert_eq!(creating.plan(), expected, "dead={dead}");
        let mut deleting = row(Ready, Some(Delete)).deleted().handle("v-uid", true);
        deleting.handle.as_mut().unwrap().controller = Some(c2());
        deleting.controllers = controllers;
        let expected = if dead { VolumeStep::AssignDelete(Some(c2())) } else { VolumeStep::Idle };
        assert_eq!(deleting.plan(), expected, "dead={dead}");
    }
}

/// A driver without Controller service deletes nothing, whatever the policy says.
#[test]
fn storage_that_nobody_can_delete_is_let_go() {
    let mut row = row(Ready, Some(Validate)).registered().deleted().handle("v-uid", true);
    row.volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
    assert_eq!(row.plan(), VolumeStep::AssignDelete(Some(c1())));
    row.controllers.clear();
    row.volume.spec.assignment.as_mut().unwrap().controller = None;
    row.handle.as_mut().unwrap().controller = None;
    assert_eq!(row.plan(), VolumeStep::RemoveHandle);
}

#[test]
fn a_deleted_volume_takes_no_lock_that_it_does_not_need() {
    // Nothing of it goes, so nobody has to be kept away.
    assert_eq!(row(Ready, Some(Validate)).registered().deleted().plan(), VolumeStep::FreeVolume);
    // The lock is another's, and with it the storage.
    assert_eq!(row(Ready, Some(Create)).deleted().handle("other", false).plan(), VolumeStep::FreeVolume);
}

#[test]
fn a_call_that_deletes_gets_back_the_lock_without_which_it_is_not_made() {
    for state in [Created, Ready] {
        assert_eq!(row(state, Some(Delete)).deleted().plan(), VolumeStep::MakeHandle);
        let open = row(state, Some(Delete)).deleted().handle("v-uid", false);
        assert_eq!(open.plan(), VolumeStep::BeginClosing);
        let anothers = row(state, Some(Delete)).deleted().handle("other", false);
        assert_eq!(anothers.plan(), VolumeStep::Idle, "its agent says what to do");
    }
}

/// Which instance of a driver with several is seen first is chance, and must not decide whether volumes are attached.
#[test]
fn a_controller_that_comes_before_ready_validates() {
    let mut row = row(Pending, Some(Validate)).without_controller();
    let to = VolumeAssignment { operation: Validate, controller: Some(c1()) };
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
    assert_eq!(validated(false).plan(), VolumeStep::BeginClosing);
    assert_eq!(validated(true).plan(), open_with(&c1()));
    assert_eq!(
        row(Created, Some(Validate)).registered().handle("v-uid", false).plan(),
        VolumeStep::ReportReady
    );
}

#[test]
fn a_ready_volume_that_was_never_attached_is_closed_for_its_first_controller() {
    let ready = |closing| row(Ready, Some(Validate)).handle("v-uid", closing).without_controller();
    assert_eq!(ready(false).plan(), VolumeStep::BeginClosing);
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
    assert_eq!(ready(false).plan(), VolumeStep::Idle);
    let mut silent = ready(true);
    silent.controllers = vec![instance(&c1(), false, false)];
    assert_eq!(silent.plan(), open_in(AccessMode::SingleNodeWriter));
    silent.controllers.clear();
    assert_eq!(silent.plan(), open_in(AccessMode::SingleNodeWriter));
}

#[test]
fn whoever_came_since_deletes_the_storage() {
    let mut row = row(Ready, Some(Validate)).registered().deleted().handle("v-uid", true);
    row.volume.spec.assignment.as_mut().unwrap().controller = None;
    assert_eq!(row.plan(), VolumeStep::RemoveHandle, "registered storage is kept");
    row.volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
    assert_eq!(row.plan(), VolumeStep::AssignDelete(Some(c1())));
}
