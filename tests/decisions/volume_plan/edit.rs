//! A Volume whose capabilities or mount flags were edited: who is asked, in which turn, and what is granted when.

use moor::api::AttachmentMode::FileSystem;
use moor::api::capability::{MountOptions, VolumeUse};
use moor::api::conditions::{CallFailure, Desired, Reason, set};
use moor::api::edit::{Edit, EditAnswer, GrantedUse};
use moor::volume::edit::is_open;
use moor::volume::modification::failed;

use super::*;

const WRITER: VolumeUse =
    VolumeUse { access_mode: AccessMode::SingleNodeWriter, attachment_mode: FileSystem };
const READERS: VolumeUse =
    VolumeUse { access_mode: AccessMode::MultiNodeReader, attachment_mode: FileSystem };

fn using(capabilities: &[VolumeUse], flags: &[&str]) -> GrantedUse {
    let mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    GrantedUse { capabilities: capabilities.to_vec(), mount_flags }
}

/// A Ready Volume that claims get in one way, and that is asked to be given in another.
fn edited(operation: VolumeOperation, granted: &GrantedUse, asked: &GrantedUse) -> Row {
    let mut row = row(Ready, Some(operation)).handle("v-uid", false);
    row.volume.spec.assignment.as_mut().unwrap().granted = Some(granted.clone());
    row.volume.spec.capabilities.clone_from(&asked.capabilities);
    row.volume.spec.mount_options =
        Some(Box::new(MountOptions { mount_flags: asked.mount_flags.clone(), ..MountOptions::default() }));
    row
}

/// A use is added.
fn added(operation: VolumeOperation) -> Row {
    edited(operation, &using(&[WRITER], &[]), &using(&[WRITER, READERS], &[]))
}

fn step(row: &Row) -> VolumeAssignment {
    match row.plan() {
        VolumeStep::Assign(to) => to,
        other => panic!("{other:?}"),
    }
}

/// Does what is planned.
fn follow(row: &mut Row) -> VolumeOperation {
    let to = step(row);
    row.volume.spec.assignment = Some(to.clone());
    to.operation
}

/// The driver answers what it was asked last.
fn answer(row: &mut Row, error: Option<&str>) {
    let number = row.volume.edit().unwrap().number;
    let error = error.map(|code| CallFailure { code: code.into(), ..CallFailure::default() });
    row.volume.status.as_mut().unwrap().edit = Some(EditAnswer { number, error }.into());
}

fn gold() -> std::collections::BTreeMap<String, String> {
    [("tier".to_owned(), "gold".to_owned())].into()
}

/// The Volume says this, and has not been changed since.
fn say(row: &mut Row, reason: Reason) {
    let (generation, said) = (row.volume.metadata.generation, Desired::new(reason, "no"));
    set(&mut row.volume.status.as_mut().unwrap().conditions, &said, generation, jiff::Timestamp::UNIX_EPOCH);
}

#[test]
fn what_is_added_counts_when_the_driver_has_confirmed_it() {
    let mut row = added(Create);
    assert_eq!(row.volume.uses(), [WRITER], "not before");
    assert_eq!(follow(&mut row), Revalidate);
    assert_eq!(row.volume.edit(), Some(&Edit { number: 1, asked: using(&[WRITER, READERS], &[]) }));
    assert!(is_open(&row.volume));
    assert_eq!(row.plan(), VolumeStep::Idle, "it is its agent's now");
    answer(&mut row, Some("InvalidArgument"));
    assert_eq!((row.plan(), is_open(&row.volume)), (VolumeStep::Idle, true), "it is asked again");
    answer(&mut row, None);
    assert!(!is_open(&row.volume));
    assert_eq!(follow(&mut row), Revalidate, "the order stands, as that of a growth does");
    assert!(!is_open(&row.volume));
    let made = row.volume.spec.assignment.as_ref().unwrap().made.as_deref();
    assert_eq!(made, Some(&using(&[WRITER], &[])), "CreateVolume is repeated with that");
    assert_eq!(row.volume.uses(), [WRITER, READERS]);
    assert_eq!(row.plan(), VolumeStep::Idle);
}

#[test]
fn an_answer_counts_for_what_was_asked_and_for_nothing_else() {
    let mut row = added(Create);
    follow(&mut row);
    answer(&mut row, None);
    row.volume.spec.mount_options =
        Some(Box::new(MountOptions { mount_flags: vec!["noatime".into()], ..MountOptions::default() }));
    assert_eq!(follow(&mut row), Revalidate, "it has not heard of these flags");
    assert_eq!(row.volume.edit().unwrap().number, 2);
    assert_eq!((row.plan(), row.volume.uses()), (VolumeStep::Idle, vec![WRITER]));
    answer(&mut row, None);
    assert_eq!(follow(&mut row), Revalidate);
    assert_eq!(
        (row.volume.uses(), row.volume.mount_flags()),
        (vec![WRITER, READERS], &["noatime".to_owned()][..])
    );
}

#[test]
fn who_goes_back_is_where_he_was() {
    let mut row = added(Create);
    follow(&mut row);
    answer(&mut row, Some("InvalidArgument"));
    row.volume.spec.capabilities = vec![WRITER];
    assert!(!is_open(&row.volume), "nobody wants to know any more");
    follow(&mut row);
    assert_eq!((row.plan(), row.volume.uses()), (VolumeStep::Idle, vec![WRITER]));
    // Who comes to it again asks anew, whatever was answered then.
    answer(&mut row, None);
    row.volume.spec.capabilities = vec![WRITER, READERS];
    assert_eq!(follow(&mut row), Revalidate);
    assert_eq!(row.volume.edit().unwrap().number, 3);
    assert_eq!((row.plan(), row.volume.uses()), (VolumeStep::Idle, vec![WRITER]));
}

#[test]
fn what_is_taken_away_counts_at_once_and_nobody_is_asked() {
    let mut row = edited(Create, &using(&[WRITER, READERS], &["a"]), &using(&[READERS], &["a"]));
    assert_eq!(row.volume.uses(), [READERS]);
    assert_eq!(follow(&mut row), Create);
    assert_eq!(row.volume.granted(), Some(&using(&[READERS], &["a"])));
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.volume.spec.capabilities = vec![WRITER, READERS];
    assert_eq!(follow(&mut row), Revalidate, "it is asked for anew");
}

#[test]
fn where_there_is_nobody_to_ask_an_edit_counts_at_once() {
    let mut row = added(Validate).without_controller();
    (row.controllers, row.attaches) = (vec![], false);
    let said = Row { controllers_said: Some(SaidBy::Driver), ..added(Validate).without_controller() };
    assert_eq!(Row { controllers: vec![], attaches: false, ..said }.plan(), VolumeStep::Idle, "it comes");
    assert_eq!(follow(&mut row), Validate);
    assert_eq!((row.volume.uses(), row.plan()), (vec![WRITER, READERS], VolumeStep::Idle));
    // One that came later makes the calls of the VolumeHandle alone.
    let mut later = added(Validate).without_controller();
    later.handle.as_mut().unwrap().controller = Some(c1());
    assert_eq!((follow(&mut later), later.volume.uses()), (Revalidate, vec![WRITER]));
    // What a PersistentVolume says is no question to a driver.
    let mut adopted = Row { adopts: true, ..added(Adopt) };
    assert_eq!(follow(&mut adopted), Adopt);
}

#[test]
fn flags_need_the_right_to_choose_them() {
    let mut row = edited(Create, &using(&[WRITER], &["old"]), &using(&[WRITER], &["new"]));
    row.not_allowed = Some(lack(Right::Parameterise));
    assert_eq!((row.plan(), row.volume.mount_flags()), (VolumeStep::Idle, &["old".to_owned()][..]));
    // Those that were granted stay, and to go without any is nobody's right.
    let mut kept = edited(Create, &using(&[WRITER], &["old"]), &using(&[WRITER, READERS], &["old"]));
    kept.not_allowed = Some(lack(Right::Parameterise));
    assert_eq!(step(&kept).operation, Revalidate);
    row.volume.spec.mount_options = None;
    assert_eq!(step(&row).operation, Revalidate);
    row.volume.spec.mount_options =
        Some(Box::new(MountOptions { mount_flags: vec!["new".into()], ..MountOptions::default() }));
    row.not_allowed = None;
    assert_eq!(step(&row).operation, Revalidate);
}

/// One call at a time, and none that is refused keeps others away.
#[test]
fn an_edit_takes_its_turn() {
    let mut row = added(Create);
    row.modifies = Some(true);
    row.volume.spec.mutable_parameters = gold();
    assert_eq!(follow(&mut row), Revalidate, "it has not been asked");
    answer(&mut row, Some("InvalidArgument"));
    row.volume.metadata.generation = Some(1);
    assert_eq!(follow(&mut row), Modify, "it does not wait until the driver is asked again");
    row.volume.metadata.generation = Some(2);
    assert_eq!(row.plan(), VolumeStep::Idle, "what runs comes to its end");
    say(&mut row, Reason::ModifyVolumeFailed);
    failed(row.volume.status.as_mut().unwrap(), &gold(), CallFailure::default(), false);
    assert_eq!(follow(&mut row), Revalidate, "it has failed");
    row.volume.metadata.generation = Some(3);
    assert_eq!(row.plan(), VolumeStep::Idle, "and now the other one waits");
    say(&mut row, Reason::EditNotConfirmed);
    assert_eq!(follow(&mut row), Modify);
    row.volume.metadata.generation = Some(3);
    let wanted = row.volume.spec.mutable_parameters.clone();
    let status = row.volume.status.as_mut().unwrap();
    (status.mutable_parameters, status.conditions, status.modification) = (wanted, Vec::new(), None);
    assert_eq!(follow(&mut row), Revalidate, "nothing else is due");
    let mut running = added(Modify);
    running.modifies = Some(true);
    running.volume.spec.mutable_parameters = gold();
    assert_eq!(running.plan(), VolumeStep::Idle, "one that runs is not broken off");
}

#[test]
fn an_order_to_ask_follows_the_handle_and_ends_with_the_volume() {
    let mut row = added(Create);
    follow(&mut row);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::MoveHandle(c2()));
    row.handle.as_mut().unwrap().controller = Some(c2());
    assert_eq!(follow(&mut row), Create, "the first one may be heard again");
    assert_eq!(follow(&mut row), Revalidate);
    assert_eq!(row.volume.caller(), Some(&c2()));
    // The order may have taken the place of one whose call is running.
    let mut kept = row.deleted();
    kept.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(kept.plan(), closes(DeletionPolicy::Retain));
    kept = kept.closed_for(DeletionPolicy::Retain);
    kept.handle.as_mut().unwrap().controller = Some(c2());
    assert_eq!(kept.plan(), VolumeStep::Idle, "its agent says that none is");
    kept.volume.status.as_mut().unwrap().state = Deleted;
    assert_eq!(kept.plan(), VolumeStep::RemoveHandle);
    let mut lost = added(Revalidate);
    lost.volume.status.as_mut().unwrap().state = Pending;
    assert_eq!(follow(&mut lost), Create, "its status was lost");
}

#[test]
fn a_volume_from_before_edits_is_left_alone() {
    let mut row = added(Create);
    row.volume.spec.assignment.as_mut().unwrap().granted = None;
    assert_eq!((row.plan(), row.volume.uses()), (VolumeStep::Idle, vec![WRITER, READERS]));
}
