//! One API server with moor's kinds, roles and policies, and what it holds.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass, VolumeAttributesClass};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Error, Resource, ResourceExt as _};
use moor::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim, VolumeHandle};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, watch};

use super::control_plane::ControlPlane;
use super::{NAMESPACE, SPACE, chart, lag};

/// How long anything that has to happen may take, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Time between looks at the API server.
pub const LOOK: Duration = Duration::from_millis(50);

/// The API server of a test binary. Its cases run on it one after the other.
pub struct Cluster {
    pub directory: PathBuf,
    /// May do everything, moor's policies notwithstanding.
    pub admin: Client,
    // What was last seen: five watches, each as late as it likes. Good for waiting; what is true at a moment that something
    // else tells, such as a call, is read from the API server.
    pub volumes: Store<Volume>,
    pub claims: Store<VolumeClaim>,
    pub attachments: Store<Attachment>,
    pub handles: Store<VolumeHandle>,
    pub instances: Store<PluginInstance>,
    changes: watch::Receiver<()>,
    rigs: AtomicUsize,
    pub(super) control_plane: Mutex<ControlPlane>,
}

impl Cluster {
    pub async fn start(directory: PathBuf) -> Self {
        let control_plane = ControlPlane::start(&directory).await;
        Self::on(control_plane, directory).await
    }

    /// The path of one of the built programs.
    pub async fn part(&self, name: &str) -> PathBuf {
        self.control_plane.lock().await.parts.join(name)
    }

    /// A kubeconfig of the API server, in which the tests' own client is, or as whom it then acts.
    pub async fn kubeconfig(&self, name: &str, user: Option<&str>) -> PathBuf {
        self.control_plane.lock().await.kubeconfig(name, user)
    }

    /// Another API server, beside that of all cases.
    pub async fn start_another(&self) -> Self {
        Self::start(self.rig_directory()).await
    }

    /// Another API server, beside that of all cases, whose Leases have an etcd of their own.
    pub async fn start_with_leases_apart(&self) -> Self {
        let directory = self.rig_directory();
        let control_plane = ControlPlane::start_with(&directory, true).await;
        Self::on(control_plane, directory).await
    }

    async fn on(control_plane: ControlPlane, directory: PathBuf) -> Self {
        let admin = control_plane.admin.clone();
        chart::install(&admin, &control_plane.parts, &chart::own()).await;
        let (tell, changes) = watch::channel(());
        let tell = Arc::new(tell);
        Self {
            volumes: follow(&admin, &tell).await,
            claims: follow(&admin, &tell).await,
            attachments: follow(&admin, &tell).await,
            handles: follow(&admin, &tell).await,
            instances: follow(&admin, &tell).await,
            directory,
            admin,
            changes,
            rigs: AtomicUsize::new(0),
            control_plane: Mutex::new(control_plane),
        }
    }

    /// Copies etcd's data. API server and etcd are away for a moment.
    pub async fn back_up(&self) {
        self.control_plane.lock().await.back_up().await;
    }

    /// Sets etcd back to the copy. What follows the objects here does not know of it: from now on ask the API server.
    pub async fn restore(&self) {
        self.control_plane.lock().await.restore().await;
    }

    /// Starts the API server anew. It is away for a moment, and has no events of before then.
    pub async fn restart_api_server(&self) {
        self.control_plane.lock().await.restart_api_server().await;
    }

    /// A directory for a rig. Short, for the sockets in it.
    pub(super) fn rig_directory(&self) -> PathBuf {
        let directory = self.directory.join(self.rigs.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// An object of [`SPACE`] as it was last seen.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(&ObjectRef::new(name).within(SPACE))
    }

    /// As [`Self::volume`].
    pub fn claim(&self, name: &str) -> Option<Arc<VolumeClaim>> {
        self.claims.get(&ObjectRef::new(name).within(SPACE))
    }

    /// As it was last seen.
    pub fn attachment(&self, name: &str) -> Option<Arc<Attachment>> {
        self.attachments.get(&ObjectRef::new(name))
    }

    /// The Attachment that a claim uses, as both were last seen.
    pub fn attachment_of(&self, claim: &str) -> Option<Arc<Attachment>> {
        let assignment = self.claim(claim)?.spec.assignment.clone()?;
        self.attachment(&assignment.attachment)
            .filter(|a| a.metadata.uid.as_deref() == Some(assignment.attachment_uid.as_str()))
    }

    /// Waits until `look` finds something; it is asked again after every change. Panics with what it `shows` when
    /// patience ends.
    pub async fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>, shows: impl Fn() -> String) -> T {
        let mut changes = self.changes.clone();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = look() {
                    return found;
                }
                // A look at something that is no object goes by time.
                let _ = tokio::time::timeout(Duration::from_millis(200), changes.changed()).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("never happened: {what}; instead:\n{}", shows()))
    }

    /// Removes all PersistentVolumes, whoever uses them.
    pub async fn remove_persistent_volumes(&self) {
        let admin = &self.admin;
        remove(&Api::<PersistentVolume>::all(admin.clone()), |_| Api::all(admin.clone())).await;
    }

    /// Removes all Pods, PersistentVolumeClaims and PersistentVolumes, finalizers or not.
    pub async fn remove_pods_and_their_volumes(&self) {
        let admin = &self.admin;
        self.remove_persistent_volumes().await;
        let pods = |ns: &str| Api::<Pod>::namespaced(admin.clone(), ns);
        remove(&Api::<Pod>::all(admin.clone()), pods).await;
        let claims = |ns: &str| Api::<PersistentVolumeClaim>::namespaced(admin.clone(), ns);
        remove(&Api::<PersistentVolumeClaim>::all(admin.clone()), claims).await;
    }

    /// Removes everything of moor that a case has left, finalizers or not, and its Nodes.
    pub async fn wipe(&self) {
        let admin = &self.admin;
        self.remove_pods_and_their_volumes().await;
        super::snapshot_kinds::undefine(admin).await;
        remove(&Api::<StorageClass>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<VolumeAttributesClass>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<Volume>::all(admin.clone()), |ns| Api::namespaced(admin.clone(), ns)).await;
        remove(&Api::<Snapshot>::all(admin.clone()), |ns| Api::namespaced(admin.clone(), ns)).await;
        remove(&Api::<VolumeClaim>::all(admin.clone()), |ns| Api::namespaced(admin.clone(), ns)).await;
        remove(&Api::<Attachment>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<VolumeHandle>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<PluginInstance>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<Plugin>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<Node>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        remove(&Api::<CSIDriver>::all(admin.clone()), |_| Api::all(admin.clone())).await;
        let capacities: Api<CSIStorageCapacity> = Api::namespaced(admin.clone(), NAMESPACE);
        remove(&capacities, |_| capacities.clone()).await;
        let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
        remove(&leases, |_| leases.clone()).await;
        // Cases give the same names to their own objects.
        let forgotten = || self.seen().is_empty().then_some(());
        self.until("the objects of the last case are seen to be gone", forgotten, || self.seen().join("\n"))
            .await;
    }

    /// Everything that the watches hold.
    fn seen(&self) -> Vec<String> {
        let mut seen = names(&self.volumes);
        seen.extend(names(&self.claims));
        seen.extend(names(&self.attachments));
        seen.extend(names(&self.handles));
        seen.extend(names(&self.instances));
        seen
    }
}

fn names<K>(store: &Store<K>) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state().iter().map(|object| format!("{} {}", K::kind(&()), object.name_any())).collect()
}

async fn follow<K>(admin: &Client, tell: &Arc<watch::Sender<()>>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = store();
    let tell = Arc::clone(tell);
    let events = watcher(Api::<K>::all(admin.clone()), watcher::Config::default()).default_backoff();
    let events = lag::behind(events, lag::of(lag::MIRROR, &K::plural(&())));
    let events = events.reflect(writer).for_each(move |_| {
        tell.send_replace(());
        std::future::ready(())
    });
    tokio::spawn(events);
    reader.wait_until_ready().await.unwrap();
    reader
}

async fn remove<K>(all: &Api<K>, api: impl Fn(&str) -> Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut listed = all.list(&ListParams::default()).await;
    // A connection that has been idle for long may be closed just when it is used again.
    if matches!(listed, Err(Error::Service(_) | Error::HyperError(_))) {
        listed = all.list(&ListParams::default()).await;
    }
    for object in listed.unwrap() {
        let (name, one) = (object.name_any(), api(&object.namespace().unwrap_or_default()));
        let freed = serde_json::json!({"metadata": {"finalizers": null}});
        let result = one.patch(&name, &PatchParams::default(), &Patch::Merge(freed)).await;
        missing_is_fine(result.map(drop));
        // No kubelet is there to say that a Pod has ended.
        let at_once = DeleteParams::default().grace_period(0);
        missing_is_fine(one.delete(&name, &at_once).await.map(drop));
    }
}

/// Nothing else is asked of something that is to go.
pub(super) fn missing_is_fine(result: Result<(), Error>) {
    match result {
        Ok(()) => {}
        Err(Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{error}"),
    }
}
