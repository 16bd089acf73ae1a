//! What decisions look at, as it mostly is; a test spells out what it is about: `ClaimSeen { deleted: true, ..claim("a") }`.
//!
//! The unit tests of the library have this module too (`src/lib.rs`), so a field that is new is added here and where
//! arbitrary ones are made, which is to vary it.

use std::collections::BTreeMap;

use moor::api::caller::ControllerRef;
use moor::api::capability::VolumeUse;
use moor::api::claim::Assignment;
use moor::api::lock::DriverVolume;
use moor::api::{Attachment, AttachmentState, VolumeClaim, VolumeHandle};
use moor::attachment::record::{Done, Record, TargetRecord};
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::{ClaimSeen, NodeSeen, VolumeSeen};
use moor::volume::InstanceSeen;

/// The boot of records.
pub const BOOT: &str = "boot";
/// The driver of everything.
pub const DRIVER: &str = "driver";
/// Namespace of everything that has one.
pub const NAMESPACE: &str = "default";
/// The node of Attachments.
pub const NODE: &str = "node";
/// UID of that Node.
pub const NODE_UID: &str = "node-uid";
/// UID of the Volume.
pub const VOLUME_UID: &str = "volume";
/// The volume as the driver knows it.
pub const VOLUME_ID: &str = "vol-1";
/// The volume of the fixtures, as its driver knows it.
pub const DRIVER_VOLUME: DriverVolume<'_> = DriverVolume { driver: DRIVER, handle: VOLUME_ID };

/// A claim that waits. Its name is its UID too.
pub fn claim(name: &str) -> ClaimSeen {
    ClaimSeen {
        namespace: NAMESPACE.into(),
        name: name.into(),
        uid: name.into(),
        ..ClaimSeen::of(&VolumeClaim::default())
    }
}

/// A claim that was granted this Attachment.
pub fn granted(name: &str, attachment: &AttachmentSeen) -> ClaimSeen {
    ClaimSeen { held: true, assignment: Some(grant(attachment)), ..claim(name) }
}

/// The grant of an Attachment.
pub fn grant(attachment: &AttachmentSeen) -> Assignment {
    Assignment {
        attachment: attachment.name.clone(),
        attachment_uid: attachment.uid.clone(),
        handle_name: attachment.handle_name.clone(),
        node_name: attachment.node.clone(),
        node_uid: attachment.node_uid.clone(),
    }
}

/// An Attachment that is attached to its node, as [`handle`] allows it.
pub fn attachment(uid: &str) -> AttachmentSeen {
    AttachmentSeen {
        name: format!("name-{uid}"),
        uid: uid.into(),
        namespace: NAMESPACE.into(),
        volume_uid: VOLUME_UID.into(),
        handle_name: "handle".into(),
        node: NODE.into(),
        node_uid: NODE_UID.into(),
        node_id: "id-of-node".into(),
        epoch: 1,
        controller: Some(controller()),
        attach: true,
        stage: true,
        state: AttachmentState::Attached,
        ..AttachmentSeen::of(&Attachment::default())
    }
}

/// The instance of all controller calls.
pub fn controller() -> ControllerRef {
    ControllerRef::new("controller", NODE, 0)
}

/// The VolumeHandle, which is open.
pub fn handle() -> HandleSeen {
    HandleSeen {
        name: "handle".into(),
        volume_handle: VOLUME_ID.into(),
        owner: format!("{NAMESPACE}/volume"),
        volume_uid: VOLUME_UID.into(),
        epoch: 1,
        let_go: false,
        controller: Some(controller()),
        ..HandleSeen::of(&VolumeHandle::default())
    }
}

/// The Volume, which is ready and can be used in one way.
pub fn volume() -> VolumeSeen {
    VolumeSeen {
        uid: VOLUME_UID.into(),
        deleted: false,
        ready: true,
        driver: DRIVER.into(),
        handle: VOLUME_ID.into(),
        uses: vec![VolumeUse::default()],
        mount_flags: Vec::new(),
        unprepared: None,
        attaches_read_only: false,
        read_only: false,
        is_to_be_placed: false,
        tolerates_second_target: None,
    }
}

/// A node that can take the volume. Its name is its UID too.
pub fn node(name: &str) -> NodeSeen {
    NodeSeen {
        name: name.into(),
        uid: name.into(),
        healthy: true,
        reachable: true,
        unclean: false,
        twin: None,
        has_room: true,
        retires: false,
        labels: BTreeMap::new(),
        load: 0,
        topology: BTreeMap::new(),
    }
}

/// A controller instance that works.
pub fn instance(at: &ControllerRef) -> InstanceSeen {
    InstanceSeen {
        name: at.instance.clone(),
        agent: at.agent.clone(),
        healthy: true,
        serving: true,
        silent: false,
        dead: false,
        tenure: at.tenure,
        relieved: 0,
        topology: BTreeMap::new(),
    }
}

/// A node's record of an Attachment that is staged and has no target.
pub fn record(attachment: &str) -> Record {
    Record {
        attachment_uid: attachment.into(),
        attachment_name: format!("name-{attachment}"),
        handle_name: "handle".into(),
        driver_name: DRIVER.into(),
        plugin_name: "plugin".into(),
        volume_handle: VOLUME_ID.into(),
        namespace: NAMESPACE.into(),
        boot_id: BOOT.into(),
        stage: true,
        staging_path: format!("/staging/{attachment}"),
        staged: Done::Yes,
        targets: BTreeMap::new(),
        left: BTreeMap::new(),
        revision: 0,
        forgotten: None,
    }
}

/// What a record has of a claim that is mounted.
pub fn target(claim: &str) -> TargetRecord {
    TargetRecord {
        namespace: NAMESPACE.into(),
        name: claim.into(),
        path: format!("/targets/{claim}"),
        published: Done::Yes,
        covered: false,
        device: None,
        imprint: None,
        revision: 0,
    }
}
