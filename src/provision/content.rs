//! What is done next about a VolumeSnapshotContent of a driver that moor serves.
//!
//! ```text
//! to be taken: the Volume that has the volume is found or made, then the Snapshot content-<UID>, which is taken
//! exists:      the Snapshot content-<UID> registers it
//! what the Snapshot says becomes the content's status
//! deleted with its VolumeSnapshot: the Snapshot goes, with the policy of the content, then the finalizer
//! ```
//!
//! Every Snapshot is made with the policy Retain. What is to become of the storage is written when the content ends.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::content_status::{self, goes_wrong};
use super::parameters::{ParameterError, too_many};
use super::request::Served;
use super::snapshot_class::{self, Taken};
use super::volume_snapshots::{ContentStatus, HalfSecret, VolumeSnapshotClass, VolumeSnapshotContent};
use crate::api::names;
use crate::api::snapshot::{SnapshotOf, SnapshotSpec};
use crate::api::volume::DeletionPolicy;
use crate::api::{Snapshot, Volume};

/// Everything the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The content, as it is now.
    pub content: &'a VolumeSnapshotContent,
    /// Its driver.
    pub driver: &'a Served<'a>,
    /// Its VolumeSnapshotClass, if there is one.
    pub class: Option<&'a VolumeSnapshotClass>,
    /// Who has the volume of which a snapshot is to be taken.
    pub volume: SourceVolume<'a>,
    /// The Snapshot of the name that is this content's.
    pub snapshot: Option<&'a Snapshot>,
    /// This leader has had the storage deleted.
    pub ordered: bool,
    /// Why the namespace of the VolumeSnapshot may have no snapshot taken.
    pub not_allowed: Option<&'a str>,
    /// moor's own namespace.
    pub namespace: &'a str,
}

/// Who has a volume.
#[derive(Clone, Copy, Debug)]
pub enum SourceVolume<'a> {
    /// Nobody has looked: no snapshot of it is to be taken now.
    Unasked,
    /// A Volume that moor keeps for PersistentVolumes.
    Kept(&'a Volume),
    /// A Volume of a user.
    OfUsers(&'a Volume),
    /// A Volume whose PersistentVolume is still to be made.
    BeingMade,
    /// A PersistentVolume, of which no Volume was made yet.
    NotTakenUp,
    /// Its Volume was removed by force.
    Removed,
    /// Nobody: no PersistentVolume stands for it either.
    Nobody,
}

/// One step. Every variant is at most one write, or two that may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing is to be done.
    Nothing,
    /// Make the Volume of the PersistentVolume that has the volume.
    TakeUp,
    /// Make this Snapshot.
    Make(Box<Snapshot>),
    /// Write this Secret on the Snapshot.
    UseSecret(Option<String>),
    /// Write this status on the content.
    Say(Box<ContentStatus>),
    /// Take csi-snapshotter's word off the content that it may be taking the snapshot.
    TakeWordOff,
    /// Write the policy on the Snapshot, and delete it.
    DeleteSnapshot(DeletionPolicy),
    /// Take the finalizer off the content.
    Free,
    /// The Snapshot is on its way, or something is missing. What goes wrong, if something does.
    Wait(Option<String>),
}

/// Why there is no Snapshot to make. The words are on the content, and the snapshot-controller copies them to the VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Lack {
    #[error("spec.volumeSnapshotRef: the content is bound to no VolumeSnapshot yet")]
    NotBound,
    #[error("spec.volumeSnapshotClassName is not set, and without a class no snapshot is taken")]
    NoClassNamed,
    #[error("VolumeSnapshotClass {0} does not exist; the snapshot is taken when it is created")]
    NoClass(String),
    #[error("VolumeSnapshotClass {class}: {error}")]
    Parameters { class: String, error: ParameterError },
    #[error("VolumeSnapshotClass {class}: {why}")]
    TooMany { class: String, why: String },
    #[error(transparent)]
    Secret(#[from] HalfSecret),
    #[error("{0}")]
    NotAllowed(String),
    #[error(
        "it is a member of a VolumeGroupSnapshot, and moor takes none; delete that, and snapshot its claims one by one"
    )]
    OfGroup,
    #[error("its volume is still being made")]
    BeingMade,
    #[error("the Volume that has its volume was removed by force: see the VolumeHandles of the driver")]
    Removed,
    #[error("no PersistentVolume stands for the volume any more of which the snapshot is to be taken")]
    Nobody,
    #[error(
        "Volume {0} has the volume, and was not made for a PersistentVolumeClaim: create a Snapshot (moor.dev) of it in its \
         namespace instead"
    )]
    OfUsers(String),
}

/// Plans the next step. `now` is when what is new is first said.
#[must_use]
pub fn content(seen: &Seen<'_>, now: &Time) -> Content {
    let Seen { content, snapshot, .. } = *seen;
    if is_anothers(seen) {
        return Content::Nothing;
    }
    if content.ends() {
        return end(seen, now);
    }
    let Some(snapshot) = snapshot else {
        // It is deleted, and its VolumeSnapshot is not: nothing is begun.
        if content.metadata.deletion_timestamp.is_some() {
            return Content::Nothing;
        }
        return match to_make(seen) {
            Ok(Some(snapshot)) => Content::Make(Box::new(snapshot)),
            Ok(None) => Content::TakeUp,
            Err(lack) => fail(content, &lack.to_string(), now),
        };
    };
    if !is_own(seen, snapshot) {
        return fail(content, &not_own(snapshot), now);
    }
    if snapshot.metadata.deletion_timestamp.is_some() {
        // Somebody has deleted it, and it leaves the storage: another one is made after it.
        return Content::Wait(goes_wrong(snapshot));
    }
    match content.secret() {
        Ok(secret) if secret != snapshot.spec.secret_name => return Content::UseSecret(secret),
        Ok(_) => {}
        Err(half) => return fail(content, &half.to_string(), now),
    }
    let status = content_status::of(content, snapshot, now);
    if content.status.as_ref() != Some(&status) {
        return Content::Say(Box::new(status));
    }
    if content.is_being_created() && snapshot.handle().is_some() {
        return Content::TakeWordOff;
    }
    Content::Wait(goes_wrong(snapshot))
}

/// Whether somebody else heeds it, or nobody: csi-snapshotter heeds none whose class is of another driver either.
fn is_anothers(seen: &Seen<'_>) -> bool {
    let Seen { content, driver, class, .. } = *seen;
    let source = &content.spec.source;
    content.spec.driver != driver.name
        || (source.volume_handle.is_none() && source.snapshot_handle.is_none())
        || class.is_some_and(|class| class.driver != driver.name)
}

/// Whether the Snapshot was made for this content. In moor's namespace only moor says for which one was.
fn is_own(seen: &Seen<'_>, snapshot: &Snapshot) -> bool {
    let of = snapshot.spec.volume_snapshot_content.as_ref();
    let is_there = snapshot.metadata.namespace.as_deref() == Some(seen.namespace);
    is_there && of.is_some_and(|of| Some(&of.uid) == seen.content.metadata.uid.as_ref())
}

fn not_own(snapshot: &Snapshot) -> String {
    let name = snapshot.metadata.name.as_deref().unwrap_or_default();
    format!("Snapshot {name} exists in moor's namespace, and was not made for this content; delete it")
}

/// Says what goes wrong, if the content does not say so.
fn fail(content: &VolumeSnapshotContent, words: &str, now: &Time) -> Content {
    let status = content_status::failing(content, words, now);
    if content.status.as_ref() == Some(&status) {
        Content::Wait(Some(words.to_owned()))
    } else {
        Content::Say(Box::new(status))
    }
}

/// The Snapshot to make; None: its Volume is to be made first.
fn to_make(seen: &Seen<'_>) -> Result<Option<Snapshot>, Lack> {
    let content = seen.content;
    let named = content.spec.volume_snapshot_class_name.as_deref();
    let handle = registered(content);
    let is_given = content.spec.source.snapshot_handle.is_some();
    if handle.is_none() && content.is_of_group() {
        return Err(Lack::OfGroup);
    }
    let taken = match (named, seen.class) {
        // What is known to be there, or is to go, needs its class no more, which may be gone.
        _ if handle.is_some() && (!is_given || content.ends()) => Taken::default(),
        (None, _) if handle.is_some() => Taken::default(),
        (None, _) => return Err(Lack::NoClassNamed),
        (Some(class), None) => return Err(Lack::NoClass(class.to_owned())),
        (Some(class), Some(found)) => read(class, found, content)?,
    };
    let spec = SnapshotSpec {
        secret_name: content.secret()?,
        deletion_policy: Some(DeletionPolicy::Retain),
        volume_snapshot_content: Some(SnapshotOf {
            name: content.metadata.name.clone().unwrap_or_default(),
            uid: content.metadata.uid.clone().unwrap_or_default(),
            list_secret: taken.list_secret.clone(),
        }),
        ..SnapshotSpec::default()
    };
    let spec = match handle {
        Some(handle) => SnapshotSpec {
            plugin_name: Some(seen.driver.plugin.to_owned()),
            snapshot_handle: Some(handle.to_owned()),
            ..spec
        },
        None => match to_take(seen, taken, spec)? {
            Some(spec) => spec,
            None => return Ok(None),
        },
    };
    let name = names::snapshot_of_content(content.metadata.uid.as_deref().unwrap_or_default());
    let namespace = Some(seen.namespace.to_owned());
    let metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    Ok(Some(Snapshot { metadata, spec, status: None }))
}

/// The snapshot that is there, as the driver knows it. One that is still worked on is asked for by its name again, as it was by
/// whoever began it: few drivers list snapshots, and without that nobody would hear when it is ready.
fn registered(content: &VolumeSnapshotContent) -> Option<&str> {
    let given = content.spec.source.snapshot_handle.as_deref();
    given.or_else(|| content.said_handle().filter(|_| content.is_ready() || content.ends()))
}

fn read(class: &str, found: &VolumeSnapshotClass, content: &VolumeSnapshotContent) -> Result<Taken, Lack> {
    let name = content.metadata.name.as_deref().unwrap_or_default();
    let taken = snapshot_class::resolve(&found.parameters, name)
        .map_err(|error| Lack::Parameters { class: class.to_owned(), error })?;
    match too_many(&taken.driver) {
        Some(why) => Err(Lack::TooMany { class: class.to_owned(), why }),
        None => Ok(taken),
    }
}

/// What is asked of the driver for a snapshot; None: the Volume is to be made first.
fn to_take(seen: &Seen<'_>, taken: Taken, spec: SnapshotSpec) -> Result<Option<SnapshotSpec>, Lack> {
    let of = &seen.content.spec.volume_snapshot_ref;
    if of.uid.is_empty() {
        return Err(Lack::NotBound);
    }
    if let Some(why) = seen.not_allowed {
        return Err(Lack::NotAllowed(why.to_owned()));
    }
    let volume = match seen.volume {
        SourceVolume::Kept(volume) => volume,
        SourceVolume::NotTakenUp => return Ok(None),
        SourceVolume::OfUsers(volume) => {
            let owner = volume.reference();
            return Err(Lack::OfUsers(format!("{}/{}", owner.namespace, owner.name)));
        }
        SourceVolume::BeingMade => return Err(Lack::BeingMade),
        SourceVolume::Removed => return Err(Lack::Removed),
        SourceVolume::Unasked | SourceVolume::Nobody => return Err(Lack::Nobody),
    };
    let mut parameters = taken.driver;
    if seen.driver.extra_create_metadata {
        let content = seen.content.metadata.name.clone().unwrap_or_default();
        let told = [
            ("volumesnapshot/name", of.name.clone()),
            ("volumesnapshot/namespace", of.namespace.clone()),
            ("volumesnapshotcontent/name", content),
        ];
        parameters.extend(told.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)));
    }
    Ok(Some(SnapshotSpec {
        volume_name: volume.metadata.name.clone(),
        // csi-snapshotter's, so that what it has begun is found again, and what moor has.
        create_name: Some(format!("snapshot-{}", of.uid)),
        parameters,
        ..spec
    }))
}

/// The next step for a content that is to go.
fn end(seen: &Seen<'_>, now: &Time) -> Content {
    let Seen { content, snapshot, .. } = *seen;
    if !content.is_held() {
        return Content::Nothing;
    }
    if let Some(stranger) = snapshot.filter(|snapshot| !is_own(seen, snapshot)) {
        return fail(content, &not_own(stranger), now);
    }
    // Without a word the storage stays, and a group's goes with the group.
    let policy = content.spec.deletion_policy.filter(|_| !content.is_of_group());
    let policy = policy.unwrap_or(DeletionPolicy::Retain);
    match (snapshot, policy) {
        (Some(snapshot), policy) => {
            let is_ordered = snapshot.metadata.deletion_timestamp.is_some()
                && snapshot.spec.deletion_policy == Some(policy);
            match (is_ordered, policy) {
                (false, _) => Content::DeleteSnapshot(policy),
                (true, DeletionPolicy::Retain) => Content::Free,
                (true, DeletionPolicy::Delete) => match goes_wrong(snapshot) {
                    Some(words) => fail(content, &words, now),
                    None => Content::Wait(None),
                },
            }
        }
        (None, DeletionPolicy::Retain) => Content::Free,
        // It may be there, and nobody here knows that it was deleted: a driver that has done so answers with OK.
        (None, DeletionPolicy::Delete) if content.said_handle().is_some() && !seen.ordered => {
            match to_make(seen) {
                Ok(Some(snapshot)) => Content::Make(Box::new(snapshot)),
                Ok(None) => Content::Wait(None),
                Err(lack) => fail(content, &lack.to_string(), now),
            }
        }
        // Whoever looks next, csi-snapshotter too, knows by this that nothing is left to be deleted.
        (None, DeletionPolicy::Delete) if content.said_handle().is_some() => {
            Content::Say(Box::new(content_status::deleted(content)))
        }
        (None, DeletionPolicy::Delete) => Content::Free,
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
