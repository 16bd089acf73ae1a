//! What is done next about a VolumeSnapshotContent, or a VolumeGroupSnapshotContent, of a driver that moor serves.
//!
//! ```text
//! to be taken: the Volumes that have the volumes are found or made, then the Snapshot content-<UID>, which is taken
//! exists:      the Snapshot content-<UID> registers it
//! what the Snapshot says becomes the content's status
//! deleted with what it is for: the Snapshot goes, with the policy of the content, then the finalizer
//! a group's: before it the Snapshots of its members go
//! ```
//!
//! Every Snapshot is made with the policy Retain. What is to become of the storage is written when the content ends.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::content_status::goes_wrong;
use super::parameters::{ParameterError, too_many};
use super::request::Served;
use super::snapshot_class::{self, Taken};
use super::snapshot_content::{Given, HalfSecret, SnapshotClass as _, SnapshotContent};
use crate::api::names;
use crate::api::snapshot::{SnapshotOf, SnapshotSpec};
use crate::api::volume::DeletionPolicy;
use crate::api::{Snapshot, Volume};

/// Everything the decision looks at.
#[derive(Debug)]
pub struct Seen<'a, C: SnapshotContent> {
    /// The content, as it is now.
    pub content: &'a C,
    /// Its driver.
    pub driver: &'a Served<'a>,
    /// Its class, if there is one.
    pub class: Option<&'a C::Class>,
    /// Who has the volumes of which snapshots are to be taken, in their order. Empty: none is to be taken now.
    pub volumes: Vec<SourceVolume<'a>>,
    /// The Snapshot of the name that is this content's.
    pub snapshot: Option<&'a Snapshot>,
    /// A Volume of which that Snapshot is to be taken is not there.
    pub is_source_gone: bool,
    /// Of a group: there are Snapshots of its members' contents that nobody has deleted.
    pub has_members: bool,
    /// Of a member: its group ends, or is still worked on.
    pub awaits_group: bool,
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
pub enum Content<S> {
    /// Nothing is to be done.
    Nothing,
    /// Make the Volume of the PersistentVolume that has the volume, of each volume of which that was not made yet.
    TakeUp,
    /// Make this Snapshot.
    Make(Box<Snapshot>),
    /// Write this Secret on the Snapshot.
    UseSecret(Option<String>),
    /// Write this status on the content.
    Say(Box<S>),
    /// Take csi-snapshotter's word off the content that it may be taking the snapshot.
    TakeWordOff,
    /// Delete the Snapshots of the members' contents: nothing more is made of them.
    DeleteMembers,
    /// Write the policy on the Snapshot, and delete it.
    DeleteSnapshot(DeletionPolicy),
    /// Take the finalizer off the content.
    Free,
    /// The Snapshot is on its way, or something is missing. What goes wrong, if something does.
    Wait(Option<String>),
}

/// Why there is no Snapshot to make. The words are on the content, and the snapshot-controller copies them to what it is for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Lack {
    #[error("{field}: the content is bound to no {of} yet")]
    NotBound { field: &'static str, of: &'static str },
    #[error("{0} is not set, and without a class no snapshot is taken")]
    NoClassNamed(&'static str),
    #[error("{of}Class {class} does not exist; the snapshot is taken when it is created")]
    NoClass { of: &'static str, class: String },
    #[error("{of}Class {class}: {error}")]
    Parameters { of: &'static str, class: String, error: ParameterError },
    #[error("{of}Class {class}: {why}")]
    TooMany { of: &'static str, class: String, why: String },
    #[error(transparent)]
    Secret(#[from] HalfSecret),
    #[error("{0}")]
    NotAllowed(String),
    #[error(
        "nothing says which members the group {0} has, and without them it cannot be deleted at the driver: \
         spec.deletionPolicy Retain leaves it"
    )]
    NoMembers(String),
    #[error("volume {0} is still being made")]
    BeingMade(String),
    #[error("the Volume that has volume {0} was removed by force: see the VolumeHandles of the driver")]
    Removed(String),
    #[error("no PersistentVolume stands for volume {0} any more, of which the snapshot is to be taken")]
    Nobody(String),
    #[error(
        "Volume {0} has the volume, and was not made for a PersistentVolumeClaim: create a Snapshot (moor.dev) of it in its \
         namespace instead"
    )]
    OfUsers(String),
}

/// Plans the next step. `now` is when what is new is first said.
#[must_use]
pub fn content<C: SnapshotContent>(seen: &Seen<'_, C>, now: &Time) -> Content<C::Status> {
    let Seen { content, snapshot, .. } = *seen;
    let meta = content.meta();
    if is_anothers(seen) {
        return Content::Nothing;
    }
    if content.ends() {
        return end(seen, now);
    }
    let Some(snapshot) = snapshot else {
        // It is deleted, and what it is for is not: nothing is begun.
        if meta.deletion_timestamp.is_some() {
            return Content::Nothing;
        }
        // The snapshot-controller writes at once which one of its group it is, and the group says when all are ready. One whose group
        // ends stands for nothing any more.
        if content.is_of_group() && (content.said_handle().is_none() || seen.awaits_group) {
            return Content::Wait(None);
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
    if is_for_nobody(seen, snapshot) {
        return Content::DeleteSnapshot(DeletionPolicy::Retain);
    }
    match content.secret() {
        Ok(secret) if secret != snapshot.spec.secret_name => return Content::UseSecret(secret),
        Ok(_) => {}
        Err(half) => return fail(content, &half.to_string(), now),
    }
    let status = content.says(snapshot, now);
    if content.status() != Some(&status) {
        return Content::Say(Box::new(status));
    }
    if content.is_being_created() && snapshot.handle().is_some() {
        return Content::TakeWordOff;
    }
    Content::Wait(goes_wrong(snapshot))
}

/// Whether somebody else heeds it, or nobody: csi-snapshotter heeds none whose class is of another driver either.
fn is_anothers<C: SnapshotContent>(seen: &Seen<'_, C>) -> bool {
    let Seen { content, driver, class, .. } = *seen;
    content.driver() != driver.name
        || (content.volume_handles().is_empty() && content.given().is_none())
        || class.is_some_and(|class| class.driver() != driver.name)
}

/// Whether nobody has begun anything with the Snapshot and nobody will: what it registers is with a Plugin that does not serve the
/// driver any more, or the Volume has gone with such a Plugin. It is made anew.
fn is_for_nobody<C: SnapshotContent>(seen: &Seen<'_, C>, snapshot: &Snapshot) -> bool {
    let with = snapshot.spec.plugin_name.as_deref();
    is_not_begun(snapshot) && (seen.is_source_gone || with.is_some_and(|with| with != seen.driver.plugin))
}

fn is_not_begun(snapshot: &Snapshot) -> bool {
    snapshot.spec.assignment.is_none() && snapshot.metadata.deletion_timestamp.is_none()
}

/// Whether the Snapshot was made for this content. In moor's namespace only moor says for which one was.
fn is_own<C: SnapshotContent>(seen: &Seen<'_, C>, snapshot: &Snapshot) -> bool {
    let of = snapshot.spec.volume_snapshot_content.as_ref();
    let is_there = snapshot.metadata.namespace.as_deref() == Some(seen.namespace);
    is_there && of.is_some_and(|of| Some(&of.uid) == seen.content.meta().uid.as_ref())
}

fn not_own(snapshot: &Snapshot) -> String {
    let name = snapshot.metadata.name.as_deref().unwrap_or_default();
    format!("Snapshot {name} exists in moor's namespace, and was not made for this content; delete it")
}

/// Says what goes wrong, if the content does not say so.
fn fail<C: SnapshotContent>(content: &C, words: &str, now: &Time) -> Content<C::Status> {
    let status = content.fails(words, now);
    if content.status() == Some(&status) {
        Content::Wait(Some(words.to_owned()))
    } else {
        Content::Say(Box::new(status))
    }
}

/// The Snapshot to make; None: a Volume is to be made first.
fn to_make<C: SnapshotContent>(seen: &Seen<'_, C>) -> Result<Option<Snapshot>, Lack> {
    let (content, meta, of) = (seen.content, seen.content.meta(), C::WORDS.of);
    let there = registered(content);
    let is_given = content.given().is_some();
    if let (None, true, Some(group)) = (&there, content.ends(), content.said_handle()) {
        return Err(Lack::NoMembers(group.to_owned()));
    }
    let taken = match (content.class_name(), seen.class) {
        // What is known to be there, or is to go, needs its class no more, which may be gone.
        _ if there.is_some() && (!is_given || content.ends()) => Taken::default(),
        (None, _) if there.is_some() => Taken::default(),
        (None, _) => return Err(Lack::NoClassNamed(C::WORDS.class_field)),
        (Some(class), None) => return Err(Lack::NoClass { of, class: class.to_owned() }),
        (Some(class), Some(found)) => read(class, found, content)?,
    };
    let spec = SnapshotSpec {
        secret_name: content.secret()?,
        deletion_policy: Some(DeletionPolicy::Retain),
        volume_snapshot_content: Some(SnapshotOf {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            list_secret: taken.list_secret.clone(),
        }),
        ..SnapshotSpec::default()
    };
    let spec = match there {
        Some(there) => SnapshotSpec {
            plugin_name: Some(seen.driver.plugin.to_owned()),
            snapshot_handle: Some(there.handle),
            member_handles: there.members,
            ..spec
        },
        None => match to_take(seen, taken, spec)? {
            Some(spec) => spec,
            None => return Ok(None),
        },
    };
    let name = names::snapshot_of_content(meta.uid.as_deref().unwrap_or_default());
    let namespace = Some(seen.namespace.to_owned());
    let metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    Ok(Some(Snapshot { metadata, spec, status: None }))
}

/// What is there, as the driver knows it. What is still worked on is asked for by its name again, as it was by whoever began it: few
/// drivers list snapshots, and without that nobody would hear when it is ready. A member of a group was begun with it.
fn registered<C: SnapshotContent>(content: &C) -> Option<Given> {
    let is_there = content.is_ready() || content.ends() || content.is_of_group();
    content.given().or_else(|| content.said_there().filter(|_| is_there))
}

fn read<C: SnapshotContent>(class: &str, found: &C::Class, content: &C) -> Result<Taken, Lack> {
    let (name, of) = (content.meta().name.as_deref().unwrap_or_default(), C::WORDS.of);
    let taken = snapshot_class::resolve(found.parameters(), &C::WORDS, name)
        .map_err(|error| Lack::Parameters { of, class: class.to_owned(), error })?;
    match too_many(&taken.driver) {
        Some(why) => Err(Lack::TooMany { of, class: class.to_owned(), why }),
        None => Ok(taken),
    }
}

/// What is asked of the driver for a snapshot; None: a Volume is to be made first.
fn to_take<C: SnapshotContent>(
    seen: &Seen<'_, C>,
    taken: Taken,
    spec: SnapshotSpec,
) -> Result<Option<SnapshotSpec>, Lack> {
    let (of, words) = (seen.content.reference(), C::WORDS);
    if of.uid.is_empty() {
        return Err(Lack::NotBound { field: words.reference, of: words.of });
    }
    if let Some(why) = seen.not_allowed {
        return Err(Lack::NotAllowed(why.to_owned()));
    }
    let (mut names, mut is_missing) = (Vec::new(), false);
    for (handle, volume) in seen.content.volume_handles().into_iter().zip(&seen.volumes) {
        let handle = handle.to_owned();
        match volume {
            SourceVolume::Kept(volume) => names.extend(volume.metadata.name.clone()),
            SourceVolume::NotTakenUp => is_missing = true,
            SourceVolume::OfUsers(volume) => {
                let owner = volume.reference();
                return Err(Lack::OfUsers(format!("{}/{}", owner.namespace, owner.name)));
            }
            SourceVolume::BeingMade => return Err(Lack::BeingMade(handle)),
            SourceVolume::Removed => return Err(Lack::Removed(handle)),
            SourceVolume::Nobody => return Err(Lack::Nobody(handle)),
        }
    }
    if is_missing {
        return Ok(None);
    }
    let mut parameters = taken.driver;
    if seen.driver.extra_create_metadata {
        let content = seen.content.meta().name.clone().unwrap_or_default();
        let told = [
            (format!("{}/name", words.told), of.name.clone()),
            (format!("{}/namespace", words.told), of.namespace.clone()),
            (format!("{}content/name", words.told), content),
        ];
        parameters.extend(told.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)));
    }
    let (volume_name, volume_names) =
        if C::IS_GROUP { (None, names) } else { (names.into_iter().next(), Vec::new()) };
    Ok(Some(SnapshotSpec {
        volume_name,
        volume_names,
        // csi-snapshotter's, so that what it has begun is found again, and what moor has.
        create_name: Some(format!("{}-{}", words.create_name, of.uid)),
        parameters,
        ..spec
    }))
}

/// The next step for a content that is to go.
fn end<C: SnapshotContent>(seen: &Seen<'_, C>, now: &Time) -> Content<C::Status> {
    let Seen { content, snapshot, .. } = *seen;
    if !content.is_held() {
        return Content::Nothing;
    }
    if let Some(stranger) = snapshot.filter(|snapshot| !is_own(seen, snapshot)) {
        return fail(content, &not_own(stranger), now);
    }
    // Without a word the storage stays, and a group's goes with the group.
    let policy = content.deletion_policy().filter(|_| !content.is_of_group());
    let policy = policy.unwrap_or(DeletionPolicy::Retain);
    match (snapshot, policy) {
        (Some(snapshot), policy) => {
            let is_ordered = snapshot.metadata.deletion_timestamp.is_some()
                && snapshot.spec.deletion_policy == Some(policy);
            // Of one that is not taken up yet nobody would be asked to delete anything.
            let is_there = snapshot.spec.snapshot_handle.is_some() || content.said_handle().is_some();
            let is_told = snapshot.spec.assignment.is_some() || !is_there;
            // What is to be taken of a Volume that has gone since is taken by nobody, and what is there was asked for before.
            let is_to_take = is_not_begun(snapshot) && snapshot.spec.snapshot_handle.is_none();
            let is_in_vain = is_for_nobody(seen, snapshot) || is_to_take && registered(content).is_some();
            match (is_ordered, policy) {
                // Also of one that is ordered away: whoever had not seen yet that the group ends may have made them since.
                (_, DeletionPolicy::Delete) if seen.has_members => Content::DeleteMembers,
                (false, DeletionPolicy::Retain) => Content::DeleteSnapshot(policy),
                (false, DeletionPolicy::Delete) if is_told => Content::DeleteSnapshot(policy),
                // So that it is registered, and then deleted as what is there.
                (false, DeletionPolicy::Delete) if is_in_vain => {
                    Content::DeleteSnapshot(DeletionPolicy::Retain)
                }
                (true, DeletionPolicy::Retain) => Content::Free,
                (_, DeletionPolicy::Delete) => match goes_wrong(snapshot) {
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
            Content::Say(Box::new(content.without_storage()))
        }
        (None, DeletionPolicy::Delete) => Content::Free,
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
