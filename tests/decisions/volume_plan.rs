//! What the leader does next for a Volume, row by row.

mod deletion;
mod drivers;
mod edit;
mod growth;
mod modification;
mod secrets;
mod source;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::caller::ControllerRef;
use moor::api::export::Exported;
use moor::api::plugin::Balancing;
use moor::api::secrets::SecretTemplates;
use moor::api::volume::{
    Binding, DeletionPolicy, Rejected, Segments, VolumeAssignment, VolumeOperation, VolumeStatus,
};
use moor::api::{AccessMode, Volume, VolumeState};
use moor::attachment::HandleSeen;
use moor::plugin::allow::{NotAllowed, Right};
use moor::volume::{Grows, InstanceSeen, PluginSeen, SaidBy, Seen, VolumeStep, VolumeWaiting, plan};

use super::fixtures;

fn c1() -> ControllerRef {
    ControllerRef::new("c1", "node-1", 0)
}

fn c2() -> ControllerRef {
    ControllerRef::new("c2", "node-2", 0)
}

fn instance(to: &ControllerRef, healthy: bool, dead: bool) -> InstanceSeen {
    InstanceSeen { healthy, serving: healthy, dead, ..fixtures::instance(to) }
}

/// A Volume to be created, in some state, optionally assigned, optionally deleted.
struct Row {
    volume: Volume,
    held: bool,
    plugin: bool,
    balancing: Balancing,
    active: Option<ControllerRef>,
    plugin_ends: bool,
    older_plugin: Option<&'static str>,
    not_allowed: Option<NotAllowed>,
    same_driver: bool,
    adopts: bool,
    controllers: Vec<InstanceSeen>,
    controllers_said: Option<SaidBy>,
    can_create: bool,
    attaches: bool,
    grows: Option<Grows>,
    modifies: Option<bool>,
    secrets: Option<SecretTemplates>,
    handle: Option<HandleSeen>,
    source: source::Source,
    copied_by: Option<String>,
    in_use_by: Option<String>,
    has_attachments: bool,
    first_place: Option<Segments>,
    wanted_mode: Option<AccessMode>,
}

fn row(state: VolumeState, operation: Option<VolumeOperation>) -> Row {
    let mut volume = Volume::default();
    volume.metadata.uid = Some("v-uid".into());
    volume.metadata.name = Some("data".into());
    volume.spec.plugin_name = "loop".into();
    volume.spec.assignment = operation.map(|operation| VolumeAssignment {
        operation,
        controller: Some(c1()),
        ..VolumeAssignment::default()
    });
    volume.status = Some(VolumeStatus { state, ..VolumeStatus::default() });
    Row {
        volume,
        held: operation.is_some(),
        plugin: true,
        balancing: Balancing::Spread,
        active: None,
        plugin_ends: false,
        older_plugin: None,
        not_allowed: None,
        same_driver: true,
        adopts: false,
        controllers: vec![instance(&c1(), true, false)],
        controllers_said: None,
        can_create: true,
        attaches: true,
        grows: None,
        modifies: None,
        secrets: None,
        handle: None,
        source: source::Source::Nothing,
        copied_by: None,
        in_use_by: None,
        has_attachments: false,
        first_place: None,
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
        let (volume_uid, controller) = (volume_uid.into(), Some(c1()));
        self.handle = Some(HandleSeen { volume_uid, epoch: 3, closing, controller, ..fixtures::handle() });
        self
    }

    /// Its own VolumeHandle, closed for the last time.
    fn closed_for(self, policy: DeletionPolicy) -> Self {
        let mut row = self.handle("v-uid", true);
        row.handle.as_mut().unwrap().closed_for = Some(policy);
        row
    }

    /// The same, for a deletion.
    fn closed(self) -> Self {
        self.closed_for(DeletionPolicy::Delete)
    }

    /// Its own VolumeHandle, open or closed for a deletion.
    fn owns(self, closed: bool) -> Self {
        if closed { self.closed() } else { self.handle("v-uid", false) }
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
            plugin: PluginSeen {
                balancing: self.plugin.then_some(self.balancing),
                is_local: false,
                active: self.active.as_ref(),
                ends: self.plugin_ends,
                older: self.older_plugin,
                controllers: &self.controllers,
                controllers_said: self.controllers_said,
                any_healthy: true,
                can_create: self.can_create,
                attaches: self.attaches,
                grows: self.grows,
                modifies: self.modifies,
                secrets: self.secrets.as_ref(),
            },
            not_allowed: self.not_allowed.clone(),
            same_driver: self.same_driver,
            adopts: self.adopts,
            handle: self.handle.as_ref(),
            source: self.source.seen(),
            copied_by: self.copied_by.clone(),
            in_use_by: self.in_use_by.clone(),
            has_attachments: self.has_attachments,
            first_place: self.first_place.clone(),
            wanted_mode: self.wanted_mode,
        })
    }
}

/// The last closing, and what becomes of the storage.
fn closes(last: DeletionPolicy) -> VolumeStep {
    VolumeStep::BeginClosing { last: Some(last) }
}

fn open_in(mode: AccessMode) -> VolumeStep {
    VolumeStep::FinishClosing { mode, first_controller: None }
}

fn open_with(first: &ControllerRef) -> VolumeStep {
    VolumeStep::FinishClosing { mode: AccessMode::SingleNodeWriter, first_controller: Some(first.clone()) }
}

use VolumeOperation::{Adopt, Create, Delete, Expand, Modify, Revalidate, Validate};
use VolumeState::{Created, Deleted, Pending, Ready};

#[test]
fn a_volume_without_its_plugin_waits_and_names_it() {
    let mut row = row(Pending, None);
    row.plugin = false;
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::PluginNotFound { plugin: "loop".into() }));
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

#[test]
fn while_the_active_instance_is_not_well_new_volumes_wait_for_it_and_name_it() {
    let mut row = row(Pending, None);
    (row.balancing, row.active) = (Balancing::SingleActive, Some(c1()));
    let VolumeStep::Assign(assigned) = row.plan() else { panic!("{:?}", row.plan()) };
    assert_eq!(assigned.controller, Some(c1()));
    row.controllers.iter_mut().filter(|i| i.name == c1().instance).for_each(|i| i.healthy = false);
    let (plugin, instance) = ("loop".into(), c1().instance.clone());
    let why = VolumeWaiting::ActiveNotThere { plugin, instance };
    assert!(why.message().contains("end its process"), "{}", why.message());
    assert_eq!(row.plan(), VolumeStep::Wait(why));
}

#[test]
fn a_plugin_that_is_being_deleted_begins_nothing_and_ends_what_it_has_begun() {
    let mut row = row(Pending, None);
    row.plugin_ends = true;
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::PluginEnds { plugin: "loop".into() }));
    let mut made = self::row(Created, Some(Create));
    let wanted = made.plan();
    made.plugin_ends = true;
    assert_eq!(made.plan(), wanted);
}

/// CreateVolume, which was another instance's to call before.
fn after_another(to: ControllerRef) -> VolumeAssignment {
    let (operation, controller) = (Create, Some(to));
    VolumeAssignment { operation, controller, created_before: true, ..VolumeAssignment::default() }
}

#[test]
fn a_volume_is_made_in_the_place_of_its_first_claim_and_every_call_says_the_same() {
    let place = |name: &str| Segments { segments: [("zone".to_owned(), name.to_owned())].into() };
    let mut row = row(Pending, None);
    row.volume.spec.binding = Binding::WaitForFirstClaim;
    let volume = row.volume.metadata.name.clone().unwrap();
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::FirstClaim { volume }));
    row.first_place = Some(place("a"));
    let VolumeStep::Assign(first) = row.plan() else { panic!("{:?}", row.plan()) };
    assert_eq!((first.operation, &first.place), (Create, &Some(place("a"))));
    // Another claim is first by now, and the instance is dead.
    row.volume.spec.assignment = Some(first.clone());
    row.first_place = Some(place("b"));
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    let moved = VolumeAssignment { place: first.place, ..after_another(c2()) };
    assert_eq!(row.plan(), VolumeStep::Assign(moved));
    // A driver that knows no places.
    row.volume.spec.assignment = None;
    row.first_place = Some(Segments::default());
    let VolumeStep::Assign(anywhere) = row.plan() else { panic!("{:?}", row.plan()) };
    assert_eq!(anywhere.place, None);
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

/// Kubernetes has taken it, and no answer could take it away again.
#[test]
fn a_volume_of_a_persistent_volume_is_taken_without_a_call() {
    let mut row = row(Pending, None).registered();
    row.adopts = true;
    let to = VolumeAssignment { operation: Adopt, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(row.plan(), VolumeStep::Assign(to));
    let mut taken = self::row(Pending, Some(Adopt)).registered();
    assert_eq!(taken.plan(), VolumeStep::MakeHandle);
    taken = taken.handle("v-uid", false);
    assert_eq!(taken.plan(), VolumeStep::ReportReady);
    let another = self::row(Pending, Some(Adopt)).registered().handle("other", false);
    assert_eq!(another.plan(), VolumeStep::ContestHandle);
    // Deleted before it was taken, and after: its storage stays.
    assert_eq!(self::row(Pending, Some(Adopt)).registered().deleted().plan(), VolumeStep::FreeVolume);
    let mut leaves = self::row(Ready, Some(Adopt)).registered().closed().deleted();
    assert_eq!(leaves.plan(), VolumeStep::RemoveHandle);
    leaves.handle = None;
    assert_eq!(leaves.plan(), VolumeStep::FreeVolume);
}

#[test]
fn a_new_volume_is_assigned_to_be_created() {
    let to = VolumeAssignment { operation: Create, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(row(Pending, None).plan(), VolumeStep::Assign(to));
}

#[test]
fn a_registered_volume_is_assigned_to_be_validated() {
    let to = VolumeAssignment { operation: Validate, controller: Some(c1()), ..VolumeAssignment::default() };
    assert_eq!(row(Pending, None).registered().plan(), VolumeStep::Assign(to));
}

#[test]
fn a_driver_that_cannot_create_is_not_asked_to() {
    let mut row = row(Pending, None);
    row.can_create = false;
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin: "loop".into() }));
}

#[test]
fn while_the_agent_is_at_it_the_leader_does_nothing() {
    assert_eq!(row(Pending, Some(Create)).plan(), VolumeStep::Idle);
    assert_eq!(row(Ready, Some(Delete)).deleted().closed().plan(), VolumeStep::Idle);
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
    assert_eq!(row.plan(), VolumeStep::BeginClosing { last: None });
    let mut closing = row.handle("v-uid", true);
    assert_eq!(closing.plan(), open_in(AccessMode::MultiNodeReader));
    closing.wanted_mode = None;
    assert_eq!(closing.plan(), open_in(AccessMode::SingleNodeWriter));
}

/// The cache of Volumes is behind: another leader has it deleted, and has looked who uses it.
#[test]
fn what_was_closed_for_a_deletion_is_not_opened_for_its_volume_again() {
    for state in [Created, Ready] {
        let mut row = row(state, Some(Create)).handle("v-uid", true);
        assert!(matches!(row.plan(), VolumeStep::FinishClosing { .. }));
        row.handle.as_mut().unwrap().closed_for = Some(DeletionPolicy::Delete);
        let why = || VolumeStep::Wait(VolumeWaiting::HandleClosed { handle: "handle".into() });
        assert_eq!(row.plan(), why());
        // By an earlier version, which said it by the finalizer alone.
        (row.handle.as_mut().unwrap().closed_for, row.handle.as_mut().unwrap().let_go) = (None, true);
        assert_eq!(row.plan(), why());
    }
    let mut taken = row(Created, Some(Validate)).handle("other", true);
    taken.handle.as_mut().unwrap().closed_for = Some(DeletionPolicy::Retain);
    assert_eq!(taken.plan(), VolumeStep::ContestHandle, "by another Volume, when that one is gone");
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
