//! What is deleted, in which order, and what stays.

use super::*;

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
        let own = deleted(Ready, Validate).owns(closing);
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
    let kept = deleted(Ready, Validate).closed();
    assert_eq!(plan_of(kept, DeletionPolicy::Retain), VolumeStep::RemoveHandle);
    // An order stands, whatever is allowed since: its call may be running.
    let ordered = deleted(Ready, Delete).closed();
    assert_eq!(plan_of(ordered, DeletionPolicy::Delete), VolumeStep::Idle);
}

/// Agents do not know who else has it.
#[test]
fn what_nobody_can_use_is_judged_before_it_is_deleted() {
    let plan_of = |deleted: bool, policy: DeletionPolicy, may_delete: bool| {
        let mut row = row(Pending, Some(Create));
        let status = row.volume.status.as_mut().unwrap();
        status.rejected =
            Some(Rejected { volume_handle: "made".into(), reason: "small".into(), may_delete }.into());
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
        status.rejected =
            Some(Rejected { volume_handle: "made".into(), reason: "small".into(), may_delete }.into());
        row.same_driver = same_driver;
        row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
        if deleted { row.deleted().plan() } else { row.plan() }
    };
    let moved = VolumeStep::Assign(VolumeAssignment {
        operation: Create,
        controller: Some(c2()),
        ..VolumeAssignment::default()
    });
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
    assert_eq!(ready().handle("v-uid", false).plan(), closes(DeletionPolicy::Delete));
    assert_eq!(ready().closed().plan(), VolumeStep::AssignDelete(Some(c1())));
    let gone = || row(Deleted, Some(Delete)).deleted();
    assert_eq!(gone().closed().plan(), VolumeStep::RemoveHandle);
    assert_eq!(gone().plan(), VolumeStep::FreeVolume);
}

/// What was closed for another mode may be opened again by whoever has not heard of the deletion.
#[test]
fn a_volume_handle_that_is_closing_already_is_closed_for_the_deletion_too() {
    let closing = || row(Ready, Some(Create)).handle("v-uid", true).deleted();
    assert_eq!(closing().plan(), closes(DeletionPolicy::Delete));
    let mut kept = closing();
    kept.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(kept.plan(), closes(DeletionPolicy::Retain));
    let mut ordered = row(Ready, Some(Delete)).handle("v-uid", true).deleted();
    assert_eq!(ordered.plan(), closes(DeletionPolicy::Retain));
    // Its agent makes no call before it is closed for that, and that comes behind looks.
    ordered = ordered.closed_for(DeletionPolicy::Retain);
    assert_eq!(ordered.plan(), VolumeStep::AssignDelete(Some(c1())));
    assert_eq!(ordered.closed().plan(), VolumeStep::Idle);
}

/// Whoever is to make the calls was written down before (trap T49).
#[test]
fn a_volume_is_deleted_although_its_plugin_is_gone() {
    let orphan = |state, operation| {
        let mut row = row(state, operation).deleted();
        (row.plugin, row.controllers) = (false, Vec::new());
        row
    };
    assert_eq!(orphan(Ready, Some(Create)).handle("v-uid", false).plan(), closes(DeletionPolicy::Delete));
    assert_eq!(orphan(Ready, Some(Create)).closed().plan(), VolumeStep::AssignDelete(Some(c1())));
    assert_eq!(orphan(Ready, Some(Delete)).closed().plan(), VolumeStep::Idle);
    assert_eq!(orphan(Deleted, Some(Delete)).closed().plan(), VolumeStep::RemoveHandle);
    assert_eq!(orphan(Deleted, Some(Delete)).plan(), VolumeStep::FreeVolume);
}

/// Without the lock another Volume could be using what a DeleteVolume that is under way deletes.
#[test]
fn the_lock_of_an_ordered_deletion_stays_until_its_outcome_is_known() {
    let mut row = row(Ready, Some(Delete)).deleted().closed();
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
    // The VolumeHandle is written first: whoever has seen that the call has ended does not remove it while it is made again.
    let mut lost = row(Pending, Some(Delete)).deleted().closed();
    assert_eq!(lost.plan(), closes(DeletionPolicy::Retain));
    lost = lost.closed_for(DeletionPolicy::Retain);
    assert_eq!(lost.plan(), VolumeStep::RestoreStatus);
    // The call may be running: its outcome is waited for, and says what the status said.
    let mut creating = row(Pending, Some(Create)).deleted().closed();
    assert_eq!(creating.plan(), VolumeStep::Idle);
    creating.handle.as_mut().unwrap().controller = Some(c2());
    creating.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(creating.plan(), VolumeStep::Assign(after_another(c2())));
    // The repeated call was refused, or answered with what nobody can use: no call is running, and the storage is there.
    assert_eq!(
        row(Deleted, Some(Create)).deleted().closed().plan(),
        VolumeStep::RestoreStatus,
        "what was not made anew was made before"
    );
    let mut rejected = row(Pending, Some(Create)).deleted().closed();
    let (volume_handle, reason, may_delete) = ("made".into(), "small".into(), false);
    rejected.volume.status.as_mut().unwrap().rejected =
        Some(Rejected { volume_handle, reason, may_delete }.into());
    assert_eq!(rejected.plan(), VolumeStep::RestoreStatus, "its agent deletes nothing that has a lock");
    // After the lock went.
    assert_eq!(row(Pending, Some(Delete)).deleted().plan(), VolumeStep::FreeVolume);
}

#[test]
fn retained_storage_is_never_deleted() {
    let registered = || row(Ready, Some(Validate)).registered().deleted();
    assert_eq!(registered().handle("v-uid", false).plan(), closes(DeletionPolicy::Retain));
    assert_eq!(registered().closed().plan(), VolumeStep::RemoveHandle);
    let mut kept = row(Ready, Some(Create)).deleted().closed();
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

/// By it Attachments follow to another instance when theirs is dead.
#[test]
fn a_lock_that_was_removed_by_force_comes_back_while_something_is_attached() {
    let used = |state, has_attachments| {
        let in_use_by = Some("Attachment a on node n".to_owned());
        Row { in_use_by, has_attachments, ..row(state, Some(Create)).deleted() }
    };
    assert_eq!(used(Ready, true).plan(), VolumeStep::MakeHandle);
    let by = || VolumeStep::Wait(VolumeWaiting::InUse { by: "Attachment a on node n".to_owned() });
    assert_eq!(used(Ready, false).plan(), by(), "a mount that a node reports");
    assert_eq!(used(Deleted, true).plan(), by());
    assert_eq!(used(Ready, true).handle("other", true).plan(), by(), "another Volume has it");
    assert_eq!(Row { same_driver: false, ..used(Ready, true) }.plan(), by());
    assert_eq!(
        Row { plugin: false, ..used(Ready, true) }.plan(),
        by(),
        "nobody says what its driver is called"
    );
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
        let expected = if dead { VolumeStep::Assign(after_another(c2())) } else { VolumeStep::Idle };
        assert_eq!(creating.plan(), expected, "dead={dead}");
        let mut deleting = row(Ready, Some(Delete)).deleted().closed();
        deleting.handle.as_mut().unwrap().controller = Some(c2());
        deleting.controllers = controllers;
        let expected = if dead { VolumeStep::AssignDelete(Some(c2())) } else { VolumeStep::Idle };
        assert_eq!(deleting.plan(), expected, "dead={dead}");
    }
}

/// Registered while no instance of the driver had the Controller service: its owner is told, and nothing is left in silence.
#[test]
fn storage_that_nobody_can_delete_waits_for_who_can_or_for_its_owners_word() {
    let deleted = |closing| {
        let mut row = row(Ready, Some(Validate)).owns(closing).without_controller().deleted();
        row.volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
        row
    };
    let waits = VolumeStep::Wait(VolumeWaiting::CannotDelete { plugin: "loop".into() });
    for controllers in [vec![], vec![instance(&c1(), false, false)]] {
        for closing in [false, true] {
            let mut nobody = deleted(closing);
            nobody.controllers.clone_from(&controllers);
            assert_eq!(nobody.plan(), waits, "closing {closing}");
            nobody.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
            let leaves = if closing { VolumeStep::RemoveHandle } else { closes(DeletionPolicy::Retain) };
            assert_eq!(nobody.plan(), leaves, "closing {closing}");
        }
    }
    // One that came since, of the driver that has the VolumeHandle, and only where that is allowed.
    assert_eq!(deleted(false).plan(), closes(DeletionPolicy::Delete));
    assert_eq!(deleted(true).plan(), VolumeStep::AssignDelete(Some(c1())));
    let mut lacks = deleted(true);
    lacks.not_allowed = Some(lack(Right::DeleteRegistered));
    assert_eq!(lacks.plan(), VolumeStep::Wait(VolumeWaiting::NotAllowed(lack(Right::DeleteRegistered))));
    lacks.controllers.clear();
    assert_eq!(lacks.plan(), VolumeStep::Wait(VolumeWaiting::NotAllowed(lack(Right::DeleteRegistered))));
    // Without its VolumeHandle nothing says whose the instances are.
    let mut unlocked = deleted(true);
    unlocked.handle = None;
    assert_eq!(unlocked.plan(), waits);
    unlocked.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(unlocked.plan(), VolumeStep::FreeVolume);
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
        assert_eq!(
            open.plan(),
            closes(DeletionPolicy::Retain),
            "it is looked at before the call may be made"
        );
        let anothers = row(state, Some(Delete)).deleted().handle("other", false);
        assert_eq!(anothers.plan(), VolumeStep::Idle, "its agent says what to do");
    }
}

/// Its agent gives it up, for which nobody has to look who uses it.
#[test]
fn what_its_owner_leaves_under_an_order_is_closed_for_no_deletion() {
    let mut row = row(Ready, Some(Delete)).deleted().closed_for(DeletionPolicy::Retain);
    assert_eq!(row.plan(), VolumeStep::AssignDelete(Some(c1())));
    row.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(row.plan(), VolumeStep::Idle);
}

#[test]
fn whoever_came_since_deletes_the_storage() {
    let mut row = row(Ready, Some(Validate)).registered().deleted().closed();
    row.volume.spec.assignment.as_mut().unwrap().controller = None;
    assert_eq!(row.plan(), VolumeStep::RemoveHandle, "registered storage is kept");
    row.volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
    assert_eq!(row.plan(), VolumeStep::AssignDelete(Some(c1())));
}

/// Its only node was deleted, and the Plugin with it: the owner says that the storage may stay, and nobody else can.
#[test]
fn what_its_owner_leaves_goes_when_nobody_is_there_to_give_it_up() {
    let calls = [(Create, Pending), (Delete, Pending), (Delete, Created), (Delete, Ready)];
    for (operation, state) in calls {
        let left = |policy| {
            let mut row = row(state, Some(operation)).deleted().closed();
            row.volume.spec.deletion_policy = Some(policy);
            (row.plugin, row.controllers) = (false, vec![instance(&c1(), false, true)]);
            row
        };
        let unlocked = |policy| Row { handle: None, ..left(policy) };
        for row in [left(DeletionPolicy::Retain), unlocked(DeletionPolicy::Retain)] {
            assert_eq!(row.plan(), VolumeStep::GiveUp(c1()), "{operation:?} {state:?}");
        }
        let kept = [left(DeletionPolicy::Delete), unlocked(DeletionPolicy::Delete)];
        assert!(
            kept.iter().all(|row| !matches!(row.plan(), VolumeStep::GiveUp(_))),
            "{operation:?} {state:?}"
        );
        let mut serves = left(DeletionPolicy::Retain);
        serves.controllers = vec![instance(&c1(), false, false)];
        assert!(!matches!(serves.plan(), VolumeStep::GiveUp(_)), "its agent gives it up");
        let mut open = left(DeletionPolicy::Retain);
        open = open.owns(false);
        assert_eq!(open.plan(), closes(DeletionPolicy::Retain));
    }
}

/// Pods could come to it until its PersistentVolumeClaim is gone, and its PersistentVolume would keep the storage.
#[test]
fn an_exported_volume_is_not_closed_before_its_export_has_ended() {
    let exported = |mut row: Row| {
        let export = Exported { persistent_volume_claim: "files".into(), ..Exported::default() };
        row.volume.metadata.namespace = Some("team".into());
        row.volume.status.as_mut().unwrap().export = Some(export.into());
        row.plan()
    };
    let waits = VolumeStep::Wait(VolumeWaiting::Exported { claim: "team/files".into() });
    let deleted = || row(Ready, Some(Create)).handle("v-uid", false).deleted();
    assert_eq!(exported(deleted()), waits);
    assert_eq!(deleted().plan(), closes(DeletionPolicy::Delete));
    // Who uses it comes first.
    let by = || "claim team/a".to_owned();
    let used = Row { in_use_by: Some(by()), ..deleted() };
    assert_eq!(exported(used), VolumeStep::Wait(VolumeWaiting::InUse { by: by() }));
    // A VolumeHandle goes on to a living instance all the while.
    let mut dead = deleted();
    dead.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(exported(dead), VolumeStep::MoveHandle(c2()));
    // One that stands does not mind.
    assert_eq!(exported(row(Ready, Some(Create)).handle("v-uid", false)), VolumeStep::Idle);
}
