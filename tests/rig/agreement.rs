//! What the driver has, compared with what the API server's objects say of it, at the end of every case.
//!
//! The driver's own list and the objects agree exactly: whatever the storage has is known of by an object that will see to it, and
//! what an object says to be there is there. What a case leaves otherwise on purpose it declares, with its reason, by
//! [`Rig::leaves`] and [`Rig::deleted`]. A declaration that is not needed is a disagreement too. What a test has put into the
//! storage itself ([`super::fake::backend::Backend::add`]) is its owner's, and needs no object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Error, ResourceExt as _};
use moor::api::names::create_name;
use moor::api::snapshot::SnapshotOperation;
use moor::api::volume::VolumeOperation;
use moor::api::{Snapshot, SnapshotState, Volume, VolumeHandle, VolumeState};
use serde::de::DeserializeOwned;

use super::fake::DRIVER;
use super::fake::groups;
use super::process::Moor;
use super::{CONTROLLER, Rig, at, snapshot_kinds};

/// How long what is under way at the end of a case may take to come to its end.
const SETTLES: Duration = Duration::from_secs(20);
/// Time between two comparisons.
const APART: Duration = Duration::from_millis(200);

/// The rigs of the case that runs. They live until they were compared: what is under way at the end goes on.
static RIGS: Mutex<Vec<Arc<Rig>>> = Mutex::new(Vec::new());

/// What a case leaves otherwise than the objects say, by the driver's id, with the reasons.
#[derive(Debug, Default)]
pub(super) struct Declared {
    left: BTreeMap<String, String>,
    deleted: BTreeMap<String, String>,
}

/// What the objects say of volumes, or of snapshots.
#[derive(Debug, Default)]
struct Said {
    /// Ids that an object knows of, and so will see to.
    known: BTreeSet<String>,
    /// Keys of what an object has the driver make, and does not know the id of yet.
    asked: BTreeSet<String>,
    /// Ids that an object says to be there, with that object.
    there: Vec<(String, String)>,
}

/// From now on a rig is compared at the end of its case.
pub(super) fn enlist(rig: &Arc<Rig>) {
    RIGS.lock().unwrap().push(rig.clone());
}

/// The end of a case that has passed.
pub(super) async fn compare_all() {
    let rigs = std::mem::take(&mut *RIGS.lock().unwrap());
    for rig in rigs {
        rig.assert_agreed().await;
    }
}

/// The end of a case that has not: what it has left says nothing.
pub(super) fn forget_all() {
    RIGS.lock().unwrap().clear();
}

impl Rig {
    /// What the driver has at these ids is left without an object, for this reason.
    pub fn leaves(&self, ids: &[impl AsRef<str>], why: &str) {
        let declared = ids.iter().map(|id| (id.as_ref().to_owned(), why.to_owned()));
        self.declared.lock().unwrap().left.extend(declared);
    }

    /// What objects say to be at these ids was taken away behind moor's back, for this reason.
    pub fn deleted(&self, ids: &[impl AsRef<str>], why: &str) {
        let declared = ids.iter().map(|id| (id.as_ref().to_owned(), why.to_owned()));
        self.declared.lock().unwrap().deleted.extend(declared);
    }

    /// The end of a rig before that of its case. All its processes end.
    pub async fn end(self: Arc<Self>) {
        RIGS.lock().unwrap().retain(|rig| !Arc::ptr_eq(rig, &self));
        self.assert_agreed().await;
    }

    /// Compares, and waits while they do not agree for what may be under way.
    async fn assert_agreed(&self) {
        let end = Instant::now() + SETTLES;
        loop {
            let disagreements = self.disagreements().await;
            if disagreements.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "storage and objects do not agree:\n{}", disagreements.join("\n"));
            tokio::time::sleep(APART).await;
        }
    }

    async fn disagreements(&self) -> Vec<String> {
        let (volumes, snapshots) = (self.said_of_volumes().await, self.said_of_snapshots().await);
        // Who is not there sees to nothing: then an object that has to is enough.
        let in_order = self.all_run();
        let backend = self.fake.backend();
        let stored = |(key, made): (&String, bool)| (key.clone(), backend.id(key), made);
        let has: Vec<_> = backend.volumes.iter().map(|(key, v)| stored((key, v.created.is_some()))).collect();
        // A member of a group was asked for with its group.
        let keeps = backend.snapshots.iter().map(|(key, kept)| {
            (kept.group.clone().unwrap_or_else(|| key.clone()), format!("snap-{key}"), kept.taken.is_some())
        });
        let groups = backend.groups.iter();
        let groups = groups.map(|(key, group)| (key.clone(), groups::id(key), group.taken.is_some()));
        let keeps: Vec<_> = keeps.chain(groups).collect();
        drop(backend);
        let declared = self.declared.lock().unwrap();
        let (mut all, mut needed) = (Vec::new(), BTreeSet::new());
        for (said, stored) in [(&volumes, &has), (&snapshots, &keeps)] {
            for (key, id, made) in stored {
                if said.known.contains(id) || said.asked.contains(key) || !made {
                    continue;
                }
                needed.insert(id.clone());
                if !declared.left.contains_key(id) {
                    all.push(format!("the driver has {id}, and no object knows of it"));
                }
            }
            for (id, object) in said.there.iter().filter(|_| in_order) {
                if stored.iter().any(|(_, there, _)| there == id) {
                    continue;
                }
                needed.insert(id.clone());
                if !declared.deleted.contains_key(id) {
                    all.push(format!("{object} says that {id} is there, and the driver does not have it"));
                }
            }
        }
        let unneeded = declared.left.iter().chain(declared.deleted.iter().filter(|_| in_order));
        let unneeded = unneeded.filter(|(id, _)| !needed.contains(*id));
        all.extend(unneeded.map(|(id, why)| format!("{id} is as the objects say, and was declared: {why}")));
        all
    }

    async fn said_of_volumes(&self) -> Said {
        let admin = &self.cluster.admin;
        let mut said = Said::default();
        for volume in all(Api::<Volume>::all(admin.clone())).await {
            let status = volume.status.clone().unwrap_or_default();
            said.known.extend(volume.spec.volume_handle.iter().chain(&status.volume_handle).cloned());
            said.known.extend(status.rejected.into_iter().map(|rejected| rejected.volume_handle));
            let operation = volume.spec.assignment.as_ref().map(|assignment| assignment.operation);
            if status.state == VolumeState::Pending && operation == Some(VolumeOperation::Create) {
                let name = create_name(volume.spec.create_name.as_deref(), volume.metadata.uid.as_deref());
                said.asked.insert(volume.spec.parameters.get("key").cloned().unwrap_or(name));
            }
            let is_there = matches!(status.state, VolumeState::Created | VolumeState::Ready);
            if let Some(id) = status.volume_handle.filter(|_| is_there && volume.spec.plugin_name == DRIVER) {
                said.there.push((id, format!("Volume {}", volume.name_any())));
            }
        }
        for handle in all(Api::<VolumeHandle>::all(admin.clone())).await {
            let (id, name) = (handle.spec.volume_handle.clone(), handle.name_any());
            said.known.insert(id.clone());
            if handle.spec.driver_name == DRIVER {
                said.there.push((id, format!("VolumeHandle {name}")));
            }
        }
        for volume in all(Api::<PersistentVolume>::all(admin.clone())).await {
            said.known.extend(volume.spec.and_then(|spec| Some(spec.csi?.volume_handle)));
        }
        said
    }

    async fn said_of_snapshots(&self) -> Said {
        let admin = &self.cluster.admin;
        let mut said = Said::default();
        for snapshot in all(Api::<Snapshot>::all(admin.clone())).await {
            let ids = [snapshot.spec.snapshot_handle.as_deref(), snapshot.said_handle(), snapshot.handle()];
            said.known.extend(ids.into_iter().flatten().map(str::to_owned));
            let operation = snapshot.spec.assignment.as_ref().map(|assignment| assignment.operation);
            let state = snapshot.state();
            if state == SnapshotState::Pending && operation == Some(SnapshotOperation::Create) {
                let uid = snapshot.metadata.uid.as_deref();
                let name = create_name(snapshot.spec.create_name.as_deref(), uid);
                said.asked.insert(snapshot.spec.parameters.get("key").cloned().unwrap_or(name));
            }
            let is_there = matches!(state, SnapshotState::Created | SnapshotState::Ready);
            if let Some(id) = snapshot.said_handle().filter(|_| is_there) {
                said.there.push((id.to_owned(), format!("Snapshot {}", snapshot.name_any())));
            }
        }
        let kind = ApiResource::erase::<Snapshot>(&());
        for snapshot in all(Api::<DynamicObject>::all_with(admin.clone(), &kind)).await {
            let named = ids_at(&snapshot, "/status/members", "/snapshotHandle");
            said.known.extend(ids_at(&snapshot, "/spec/assignment/members", "/snapshotHandle"));
            said.known.extend(ids_at(&snapshot, "/spec/memberHandles", ""));
            if ["Created", "Ready"].iter().any(|state| at(&snapshot, "/status/state") == state) {
                let object = format!("Snapshot {}", snapshot.name_any());
                said.there.extend(named.iter().map(|id| (id.clone(), object.clone())));
            }
            said.known.extend(named);
        }
        // A cluster that does not have these kinds has none of them.
        let groups = snapshot_kinds::group_contents(admin).list(&ListParams::default()).await;
        for content in groups.map(|listed| listed.items).unwrap_or_default() {
            let given = "/spec/source/groupSnapshotHandles";
            let ids =
                [format!("{given}/volumeGroupSnapshotHandle"), "/status/volumeGroupSnapshotHandle".into()];
            said.known.extend(ids.iter().filter_map(|id| Some(at(&content, id).as_str()?.to_owned())));
            said.known.extend(ids_at(&content, &format!("{given}/volumeSnapshotHandles"), ""));
            said.known.extend(ids_at(&content, "/status/volumeSnapshotInfoList", "/snapshotHandle"));
        }
        let contents = snapshot_kinds::contents(admin).list(&ListParams::default()).await;
        for content in contents.map(|listed| listed.items).unwrap_or_default() {
            let ids =
                ["/spec/source/snapshotHandle", "/status/snapshotHandle"].map(|at| content.data.pointer(at));
            said.known.extend(ids.into_iter().flatten().filter_map(|id| Some(id.as_str()?.to_owned())));
        }
        said
    }

    /// Whether every process of moor runs: the controller's, and the agents' of all nodes that there ever were.
    fn all_run(&self) -> bool {
        let mut processes = self.processes.lock().unwrap();
        let nodes = self.nodes.lock().unwrap();
        let mut actors = nodes.iter().map(String::as_str).chain([CONTROLLER]);
        actors.all(|actor| processes.get_mut(actor).is_some_and(Moor::is_running))
    }
}

/// The ids in a list of an object, each at a path within its entry.
fn ids_at(object: &DynamicObject, list: &str, path: &str) -> Vec<String> {
    let entries = at(object, list).as_array().into_iter().flatten();
    entries.filter_map(|entry| Some(entry.pointer(path)?.as_str()?.to_owned())).collect()
}

async fn all<K>(api: Api<K>) -> Vec<K>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut listed = api.list(&ListParams::default()).await;
    // A connection that has been idle for long may be closed just when it is used again.
    if matches!(listed, Err(Error::Service(_) | Error::HyperError(_))) {
        listed = api.list(&ListParams::default()).await;
    }
    listed.unwrap().items
}
