//! One pass over a VolumeSnapshotContent, or a VolumeGroupSnapshotContent, or over the Snapshots that were made for one that is gone.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt as _};
use serde::Serialize;

use super::allow::namespace_seen;
use super::caches::{BY_CONTENT, BY_SNAPSHOT_HANDLE};
use super::context::Context;
use super::key::{Key, VolumeKey};
use super::known::Known;
use super::reclaim::{Found, Whose, found};
use super::{imports, served, steps};
use crate::api::conditions::whole_second;
use crate::api::volume::DeletionPolicy;
use crate::api::{Snapshot, Volume, names};
use crate::k8s::cache::Cached;
use crate::k8s::events::EventReason;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Cache, Named, Next};
use crate::plugin::allow;
use crate::provision::{
    Content, ContentSeen, SnapshotContent, SourceVolume, VolumeGroupSnapshotContent, VolumeSnapshotContent,
    WatchedClaim, content,
};
use crate::volume::persistent_volume::CsiSource;

/// Time between looks at a content that waits for what no watch tells.
const RECHECK: Duration = Duration::from_secs(10);

/// A kind of contents, as the leader knows it.
pub(crate) trait Heeded: SnapshotContent + Cached + Serialize {
    /// All of them.
    fn cache(known: &Known) -> &Arc<Cache<Self>>;

    /// The reasons of Events: it cannot be taken, looked at, deleted.
    const REASONS: [EventReason; 3];

    /// Of one member of a group: whether that ends, or is still worked on.
    fn awaits_group(&self, known: &Known) -> bool;
}

impl Heeded for VolumeSnapshotContent {
    const REASONS: [EventReason; 3] = [
        EventReason::SnapshotCreationFailed,
        EventReason::SnapshotContentCheckandUpdateFailed,
        EventReason::SnapshotDeleteError,
    ];

    fn cache(known: &Known) -> &Arc<Cache<Self>> {
        &known.contents
    }

    fn awaits_group(&self, known: &Known) -> bool {
        let Some(group) = self.group() else { return false };
        let is_it = |of: &&Arc<VolumeGroupSnapshotContent>| {
            of.spec.driver == self.spec.driver && of.handle() == Some(group)
        };
        known.group_contents.all().iter().find(is_it).is_some_and(|of| of.ends() || !of.is_ready())
    }
}

impl Heeded for VolumeGroupSnapshotContent {
    const REASONS: [EventReason; 3] = [
        EventReason::GroupSnapshotCreationFailed,
        EventReason::GroupSnapshotContentCheckandUpdateFailed,
        EventReason::GroupSnapshotDeleteError,
    ];

    fn cache(known: &Known) -> &Arc<Cache<Self>> {
        &known.group_contents
    }

    fn awaits_group(&self, _: &Known) -> bool {
        false
    }
}

/// A content comes, changes or goes: so does what its claims wait for.
pub(crate) fn changed(
    known: &Known,
    before: Option<&VolumeSnapshotContent>,
    after: Option<&VolumeSnapshotContent>,
) {
    let Some(content) = after.or(before) else { return };
    known.queue.add(Key::Content(content.name_any()));
    let of = &content.spec.volume_snapshot_ref;
    let waits = |claim: &WatchedClaim| {
        claim.restores() == Some(&of.name) && claim.metadata.namespace.as_ref() == Some(&of.namespace)
    };
    for claim in known.pvcs.all().iter().filter(|claim| claim.awaits() && waits(claim)) {
        known.queue.add(Key::Provision(claim.named()));
    }
}

/// A group comes, changes or goes: so does what the contents of its members wait for.
pub(crate) fn group_changed(known: &Known, group: &VolumeGroupSnapshotContent) {
    known.queue.add(Key::GroupContent(group.name_any()));
    let is_member = |content: &&Arc<VolumeSnapshotContent>| {
        content.spec.driver == group.spec.driver
            && content.group().is_some_and(|of| Some(of) == group.handle())
    };
    for content in known.contents.all().iter().filter(is_member) {
        known.queue.add(Key::Content(content.name_any()));
    }
}

/// A driver's name begins to be served, or ends, or is served otherwise.
pub(crate) fn name_changed(known: &Known, name: &str) {
    wake_of::<VolumeSnapshotContent>(known, name);
    wake_of::<VolumeGroupSnapshotContent>(known, name);
}

fn wake_of<C: Heeded>(known: &Known, driver: &str) {
    for content in C::cache(known).all().iter().filter(|content| content.driver() == driver) {
        known.queue.add(Key::of_content(C::IS_GROUP, &content.name_any()));
    }
}

/// Settles one content.
pub(crate) async fn run<C: Heeded>(ctx: &Context, name: &str) -> Next {
    steps::run(ctx, "snapshotting", name, || step::<C>(ctx, name)).await
}

/// One step; None: something has changed, and it is looked at again.
async fn step<C: Heeded>(ctx: &Context, name: &str) -> Result<Option<Next>, ApiError> {
    let key = Key::of_content(C::IS_GROUP, name);
    // One that is nothing to moor costs no request.
    let mut made = ctx.snapshots.by_index(BY_CONTENT, name);
    // What users write into theirs counts for nothing.
    made.retain(|snapshot| {
        snapshot.metadata.namespace.as_ref() == Some(&ctx.namespace) && snapshot.is_group() == C::IS_GROUP
    });
    let known = C::cache(ctx).get(name);
    let is_served = known.as_ref().is_some_and(|known| served::plugin_of(ctx, known.driver()).is_some());
    if made.is_empty() && !is_served {
        ctx.provisioning.forget(&key);
        return Ok(Some(Next::Done));
    }
    let api: Api<C> = Api::all_with(ctx.client.clone(), &());
    let live = match get_live(&api, name).await {
        Ok(live) => live,
        // Where the kind is gone nobody knows what became of its objects.
        Err(error) if error.is_undefined() => return Ok(Some(Next::After(RECHECK))),
        Err(error) => return Err(error),
    };
    let uid = live.as_ref().and_then(|live| live.meta().uid.as_deref());
    for snapshot in made.iter().filter(|snapshot| !is_for(snapshot, uid)) {
        leave(ctx, snapshot).await?;
    }
    let Some(live) = live else {
        ctx.provisioning.left(&key);
        return Ok(Some(Next::Done));
    };
    go_on(ctx, &key, &live).await
}

fn is_for(snapshot: &Snapshot, content_uid: Option<&str>) -> bool {
    let of = snapshot.spec.volume_snapshot_content.as_ref();
    of.is_some_and(|of| Some(of.uid.as_str()) == content_uid)
}

/// The content of this Snapshot is gone, removed by force: the Snapshot goes, and leaves the storage. What it was told before
/// stands.
async fn leave(ctx: &Context, snapshot: &Snapshot) -> Result<(), ApiError> {
    if snapshot.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let handle = snapshot.handle().unwrap_or_default();
    let name = snapshot.metadata.name.as_deref();
    tracing::warn!(snapshot = name, handle, "its content was removed by force; the storage stays");
    delete(ctx, snapshot, DeletionPolicy::Retain).await.map(drop)
}

/// Writes what is to become of the storage, and deletes the Snapshot. Returns whether it is there to do so: one that an earlier
/// leader has seen the end of is not.
async fn delete(ctx: &Context, snapshot: &Snapshot, policy: DeletionPolicy) -> Result<bool, ApiError> {
    let mut after = snapshot.clone();
    after.spec.deletion_policy = Some(policy);
    let is_written = ctx.writer.update(&ctx.snapshots, snapshot, &after).await?;
    // What is gone when it is written leaves the cache.
    let is_there = ctx.snapshots.by_uid(snapshot.metadata.uid.as_deref().unwrap_or_default()).is_some();
    if snapshot.metadata.deletion_timestamp.is_some() || !is_there {
        return Ok(is_there);
    }
    tracing::info!(snapshot = snapshot.metadata.name, ?policy, "deleted");
    // What was written was as it was seen.
    if is_written {
        ctx.writer.delete_in(&ctx.snapshots, snapshot).await
    } else {
        ctx.writer.delete_as_seen(&ctx.snapshots, snapshot).await
    }
}

/// The Snapshot of a content's name, as it is now where the cache has none.
async fn snapshot_of(ctx: &Context, content_uid: &str) -> Result<Option<Snapshot>, ApiError> {
    let name = names::snapshot_of_content(content_uid);
    if let Some(known) = ctx.snapshots.get_in(Named { namespace: &ctx.namespace, name: &name }) {
        return Ok(Some((*known).clone()));
    }
    let live = get_live(&ctx.writer.api::<Snapshot>(&ctx.namespace), &name).await?;
    if let Some(live) = &live {
        ctx.snapshots.apply(live.clone());
    }
    Ok(live)
}

/// The Snapshots of the contents of a group's members that nobody has deleted yet.
fn members_of(ctx: &Context, group: &Snapshot) -> Vec<Arc<Snapshot>> {
    let of_member = |id: &str| ctx.snapshots.by_index(BY_SNAPSHOT_HANDLE, id);
    let mut found: Vec<_> = group.handles().flat_map(of_member).collect();
    found.retain(|member| {
        !member.is_group()
            && member.metadata.namespace.as_ref() == Some(&ctx.namespace)
            && member.spec.volume_snapshot_content.is_some()
            && member.metadata.deletion_timestamp.is_none()
            && member.driver_name() == group.driver_name()
    });
    found
}

async fn go_on<C: Heeded>(ctx: &Context, key: &Key, live: &C) -> Result<Option<Next>, ApiError> {
    let Some(driver) = served::driver(ctx, live.driver()) else { return Ok(Some(Next::Done)) };
    let uid = live.meta().uid.as_deref().unwrap_or_default();
    let snapshot = snapshot_of(ctx, uid).await?;
    let is_new = snapshot.is_none() && live.meta().deletion_timestamp.is_none();
    let class = match live.class_name().filter(|_| is_new) {
        Some(class) => get_live::<C::Class>(&Api::all_with(ctx.client.clone(), &()), class).await?,
        None => None,
    };
    let of = if is_new && !live.is_ready() { live.volume_handles() } else { Vec::new() };
    let mut has = Vec::new();
    for id in of {
        let source = CsiSource { driver: live.driver().to_owned(), volume_handle: id.to_owned() };
        has.push(who_has(ctx, &source).await?);
    }
    let served = driver.seen();
    let namespace = namespace_seen(ctx, &live.reference().namespace);
    let plugin = ctx.plugins.get(served.plugin);
    let not_allowed = plugin.and_then(|plugin| allow::take(&plugin, &namespace, C::WORDS.reference));
    let not_allowed = not_allowed.map(|lack| lack.message());
    let members = snapshot.as_ref().filter(|_| C::IS_GROUP).map(|group| members_of(ctx, group));
    let members = members.unwrap_or_default();
    let seen = ContentSeen {
        content: live,
        driver: &served,
        class: class.as_ref(),
        volumes: has.iter().map(Has::seen).collect(),
        snapshot: snapshot.as_ref(),
        is_source_gone: snapshot.as_ref().is_some_and(|snapshot| {
            VolumeKey::of_snapshots_volumes(snapshot).any(|of| ctx.volumes.get_in(of.named()).is_none())
        }),
        has_members: !members.is_empty(),
        awaits_group: live.awaits_group(ctx),
        ordered: ctx.provisioning.has_ordered(key, uid),
        not_allowed: not_allowed.as_deref(),
        namespace: &ctx.namespace,
    };
    let now = whole_second(Timestamp::now());
    match (content(&seen, &now), &snapshot) {
        (Content::Nothing, _) => Ok(Some(Next::Done)),
        (Content::TakeUp, _) => {
            let mut are_there = true;
            for has in &has {
                if let Has::PersistentVolume(volume) = has {
                    are_there &= imports::take_up(ctx, volume).await?;
                }
            }
            Ok((!are_there).then_some(Next::After(RECHECK)))
        }
        (Content::Make(wanted), _) => make(ctx, key, live, &wanted).await,
        (Content::UseSecret(secret), Some(snapshot)) => {
            let mut after = snapshot.clone();
            after.spec.secret_name = secret;
            ctx.writer.update(&ctx.snapshots, snapshot, &after).await?;
            Ok(None)
        }
        (Content::Say(status), _) => {
            say(ctx, key, live, &status).await?;
            Ok(None)
        }
        (Content::TakeWordOff, _) => {
            ctx.writer.update(C::cache(ctx), live, &live.created()).await?;
            Ok(None)
        }
        (Content::DeleteMembers, _) => {
            for member in &members {
                delete(ctx, member, DeletionPolicy::Retain).await?;
            }
            Ok(None)
        }
        (Content::DeleteSnapshot(policy), Some(snapshot)) => {
            if delete(ctx, snapshot, policy).await? && policy == DeletionPolicy::Delete {
                ctx.provisioning.ordered(key, uid);
            }
            Ok(None)
        }
        (Content::UseSecret(_) | Content::DeleteSnapshot(_), None) => Ok(None),
        (Content::Free, _) => {
            ctx.writer.free(C::cache(ctx), live, C::WORDS.finalizer).await?;
            ctx.provisioning.left(key);
            tracing::info!(content = live.meta().name, "released");
            Ok(Some(Next::Done))
        }
        (Content::Wait(words), _) => {
            match words {
                Some(words) => tell(ctx, key, live, &words).await,
                None => ctx.provisioning.forget(key),
            }
            // The Snapshot wakes, and what there is none for is looked at again.
            Ok(Some(if snapshot.is_some() { Next::Done } else { Next::After(RECHECK) }))
        }
    }
}

/// Writes the status, and what goes wrong by it where Events are read.
async fn say<C: Heeded>(ctx: &Context, key: &Key, live: &C, status: &C::Status) -> Result<(), ApiError> {
    if let Some(words) = C::error(status) {
        tell(ctx, key, live, words).await;
    }
    ctx.writer.update_status(C::cache(ctx), live, status).await?;
    Ok(())
}

async fn make<C: Heeded>(
    ctx: &Context,
    key: &Key,
    live: &C,
    wanted: &Snapshot,
) -> Result<Option<Next>, ApiError> {
    match ctx.writer.create_in(&ctx.snapshots, wanted).await {
        Ok(_) => {
            tracing::info!(content = live.meta().name, snapshot = wanted.metadata.name, "taken up");
            Ok(None)
        }
        Err(error) => match error.refusal() {
            Some(refusal) => {
                tell(ctx, key, live, &format!("its Snapshot: {refusal}")).await;
                Ok(Some(Next::After(RECHECK)))
            }
            None => Err(error),
        },
    }
}

async fn tell<C: Heeded>(ctx: &Context, key: &Key, live: &C, words: &str) {
    let [not_taken, not_found, not_deleted] = C::REASONS;
    let reason = if live.meta().deletion_timestamp.is_some() {
        not_deleted
    } else if live.given().is_some() {
        not_found
    } else {
        not_taken
    };
    if ctx.provisioning.is_news(key, words) {
        tracing::info!(content = live.meta().name, reason = reason.as_str(), "{words}");
        ctx.recorder.publish(live, reason, "Snapshot", words).await;
    }
}

/// Who has the volume of which a snapshot is to be taken.
enum Has {
    Volume(Arc<Volume>, Whose),
    PersistentVolume(Box<PersistentVolume>),
    Removed,
    Nobody,
}

impl Has {
    fn seen(&self) -> SourceVolume<'_> {
        match self {
            Self::Volume(volume, Whose::Kept(_)) => SourceVolume::Kept(volume),
            Self::Volume(_, Whose::BeingMade) => SourceVolume::BeingMade,
            Self::Volume(volume, Whose::Users) => SourceVolume::OfUsers(volume),
            Self::PersistentVolume(_) => SourceVolume::NotTakenUp,
            Self::Removed => SourceVolume::Removed,
            Self::Nobody => SourceVolume::Nobody,
        }
    }
}

async fn who_has(ctx: &Context, source: &CsiSource) -> Result<Has, ApiError> {
    // For no PersistentVolume in particular.
    match found(ctx, "", source).await? {
        Found::There(volume, whose) => return Ok(Has::Volume(volume, whose)),
        Found::Removed => return Ok(Has::Removed),
        Found::Gone => {}
    }
    let Some(stands) = ctx.persistent_volumes.naming(source, None).await? else { return Ok(Has::Nobody) };
    let live = get_live(&Api::<PersistentVolume>::all(ctx.client.clone()), &stands.name).await?;
    let live = live
        .filter(|live| imports::volume_for(ctx, live).is_some() || imports::not_served(ctx, live).is_some());
    Ok(live.map_or(Has::Nobody, |live| Has::PersistentVolume(Box::new(live))))
}
