//! Decisions about PersistentVolumeClaims that moor provisions, PersistentVolumes that it reclaims, both that it makes of
//! users' Volumes, and VolumeSnapshotContents and VolumeGroupSnapshotContents.
//!
//! Pure: data in, data out. The storage itself is a Volume's, with the machine that every Volume has; here is decided when
//! one is made, what PersistentVolume is made of it, and when both go.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod annotations;
pub mod capacity;
mod content;
mod content_status;
mod export;
mod export_objects;
mod modify;
mod parameters;
mod persistent_volume;
mod progress;
mod reclaim;
mod refusal;
mod request;
mod resize;
mod restore;
mod snapshot_class;
mod snapshot_content;
mod source;
mod topology;
mod volume_group_snapshots;
mod volume_snapshots;
mod watched;

pub use annotations::{
    PROVISIONED_BY, SELECTED_NODE, deletion_secret, modify_secret, provisioner, selected_node,
};
pub use content::{Content, Seen as ContentSeen, SourceVolume, content};
pub use export::{Export, Seen as ExportSeen, claim_of as exported_claim, concerns as is_export, export};
pub use modify::{
    Claimed, LEFT_AT, MODIFIED_FOR, Modify, Said as ClassSaid, modify, status as class_status, target,
};
pub use parameters::{ClassSecrets, ParameterError, Resolved, resolve};
pub use persistent_volume::{FINALIZER, Match, compare, persistent_volume};
pub use progress::{ClaimNow, PersistentVolumeNow, Step, plan};
pub use reclaim::{Ends, Reclaim, VolumeNow, is_to_be_held, reclaim};
pub use refusal::{Refusal, SizeError, Waiting};
pub use request::{Asked, Request, Served, request};
pub use resize::{Resize, Said, resize, status as claim_status};
pub use restore::RestoreNow;
pub use snapshot_content::{Given, SnapshotContent};
pub use source::{CLONING_PROTECTION, Source, SourceNow, is_protected, source};
pub use topology::{NoPlace, Place, immediate, late};
pub use volume_group_snapshots::VolumeGroupSnapshotContent;
pub use volume_snapshots::{VolumeSnapshot, VolumeSnapshotContent};
pub use watched::{WatchedClaim, WatchedPersistentVolume};
