//! The objects that are edited, and what must be as before when an edit was taken back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moor::api::SnapshotState;
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::bad_input::manifest::{Who, ask};
use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, LOOK, Options, Rig, SPACE, volume, volume_claim};
use crate::snapshots::objects::snapshot;

/// What lists the objects that moor has and makes, as the API server calls them.
const COLLECTIONS: [&str; 12] = [
    "/apis/moor.dev/v1alpha1/plugins",
    "/apis/moor.dev/v1alpha1/plugininstances",
    "/apis/moor.dev/v1alpha1/volumes",
    "/apis/moor.dev/v1alpha1/snapshots",
    "/apis/moor.dev/v1alpha1/volumeclaims",
    "/apis/moor.dev/v1alpha1/volumehandles",
    "/apis/moor.dev/v1alpha1/attachments",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/daemonsets",
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims",
];

/// Fields that say when and how often something was said, and not what. The last order that a Volume's calls were made for stays in
/// its assignment, and so does the number of its last edit.
const PASSING: [&str; 12] = [
    "resourceVersion",
    "generation",
    "managedFields",
    "observedGeneration",
    "creationTimestamp",
    "lastTransitionTime",
    "nextRetry",
    "since",
    "operation",
    "edit",
    "heartbeat",
    "uid",
];

/// How long an edit may take to be answered, and to be taken back: nobody has to come back or to end for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A volume that is used, with a snapshot, and all that moor has made for it.
pub struct Scene {
    pub rig: Arc<Rig>,
    /// The path of the object that is edited.
    pub path: String,
    before: BTreeMap<String, Value>,
}

/// What became of a request.
pub type Answer = Result<Value, kube::core::Status>;

impl Scene {
    /// Makes everything. The object that is edited is the first of its kind.
    pub async fn make(cluster: &Arc<Cluster>, plural: &str) -> Self {
        let options = Options { snapshots: true, clones: true, modify: true, ..Options::default() };
        let rig = Rig::start(cluster, options).await;
        rig.make_volume(&volume("v")).await;
        rig.make_claim(&volume_claim("c", "v", "node-2")).await;
        rig.until_ready("c").await;
        rig.make_snapshot(&snapshot("s", "v")).await;
        rig.until_snapshot("s", SnapshotState::Ready).await;
        let collection = COLLECTIONS.iter().find(|path| path.ends_with(&format!("/{plural}"))).unwrap();
        let mut scene = Self { rig, path: String::new(), before: BTreeMap::new() };
        let first = scene.list(collection).await.into_iter().next().unwrap();
        let name = first["metadata"]["name"].as_str().unwrap();
        scene.path = match first["metadata"]["namespace"].as_str() {
            Some(namespace) => {
                let (group, plural) = collection.rsplit_once('/').unwrap();
                format!("{group}/namespaces/{namespace}/{plural}/{name}")
            }
            None => format!("{collection}/{name}"),
        };
        scene.settle_once().await;
        scene.before = scene.state().await;
        scene
    }

    /// Has each thing happened once that leaves a word behind when it is taken back.
    async fn settle_once(&self) {
        let volume = &format!("/apis/moor.dev/v1alpha1/namespaces/{SPACE}/volumes/v");
        let plugin = &format!("/apis/moor.dev/v1alpha1/plugins/{DRIVER}");
        let found = "/status/foundBalancing";
        let flags = "/spec/assignment/granted/mountFlags";
        let expanded = "/status/expansionFailure";
        let parameters = "/status/mutableParameters";
        // What is asked for, and where it is seen that this was done: by what is there then.
        let edits = [
            (plugin, json!({ "balancing": null }), found, true),
            (plugin, json!({ "balancing": "Spread" }), found, true),
            (volume, json!({ "mountOptions": { "mountFlags": ["noatime"] } }), flags, true),
            (volume, json!({ "mountOptions": null }), flags, false),
            // What a driver has that has refused other ones nobody knows, so whoever goes back to these asks for them again.
            (volume, json!({ "mutableParameters": { "tier": "gold" } }), parameters, true),
            (volume, json!({ "capacity": "2Mi" }), expanded, false),
            (volume, json!({ "capacity": "1Mi" }), expanded, false),
        ];
        for (path, edit, place, is_there) in edits {
            let patched = self.ask("PATCH", path, &json!({ "spec": edit })).await;
            patched.unwrap_or_else(|refused| panic!("{edit}: {}", refused.message));
            let end = Instant::now() + PATIENCE;
            while self.until_answered(path).await.pointer(place).is_some() != is_there {
                assert!(Instant::now() < end, "{edit} is never done: {:#}", self.read().await);
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    async fn list(&self, collection: &str) -> Vec<Value> {
        let listed = self.ask("GET", collection, &Value::Null).await.unwrap();
        listed["items"].as_array().cloned().unwrap_or_default()
    }

    /// Asks as somebody who may do everything but what the policies keep for moor.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        ask(&self.rig.cluster.admin, Who::User, method, path, body).await
    }

    /// Everything that there is, without what says only when.
    async fn state(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for collection in COLLECTIONS {
            for mut object in self.list(collection).await {
                forget_passing(&mut object);
                let metadata = &object["metadata"];
                let name = format!("{collection} {} {}", metadata["namespace"], metadata["name"]);
                all.insert(name, object);
            }
        }
        all
    }

    /// The object that is edited, as it is.
    pub async fn read(&self) -> Value {
        self.ask("GET", &self.path, &Value::Null).await.unwrap()
    }

    /// Waits until moor has said something of the object as it is. Objects that have no such word are not answered.
    pub async fn until_answered(&self, path: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let object = self.ask("GET", path, &Value::Null).await.unwrap();
            let of = &object["metadata"]["generation"];
            let conditions = object["status"]["conditions"].as_array();
            let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
            if ready.is_some_and(|ready| &ready["observedGeneration"] == of) {
                return object;
            }
            assert!(Instant::now() < end, "generation {of} is not answered: {object:#}");
            tokio::time::sleep(LOOK / 4).await;
        }
    }

    /// Waits until everything is as it was before all edits.
    pub async fn until_as_before(&self, after: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.state().await;
            if now == self.before {
                return;
            }
            assert!(
                Instant::now() < end,
                "{after} was taken back, and is not as before:\n{}",
                self.differing(&now)
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    fn differing(&self, now: &BTreeMap<String, Value>) -> String {
        let names: std::collections::BTreeSet<_> = self.before.keys().chain(now.keys()).collect();
        let other = names.into_iter().filter(|name| self.before.get(*name) != now.get(*name));
        let shown = |object: Option<&Value>| object.map_or("absent".to_owned(), Value::to_string);
        let lines = other.map(|name| {
            format!("{name}\n  before: {}\n  now:    {}", shown(self.before.get(name)), shown(now.get(name)))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Does what a Plugin that declares Pods no more says: they run on while its driver is needed, until somebody who knows better
    /// takes them away.
    pub async fn remove_workloads(&self) {
        for collection in ["/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets"] {
            for object in self.list(collection).await {
                let metadata = &object["metadata"];
                let (group, plural) = collection.rsplit_once('/').unwrap();
                let (namespace, name) =
                    (metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
                let path = format!("{group}/namespaces/{namespace}/{plural}/{name}");
                self.ask("DELETE", &path, &Value::Null).await.unwrap();
            }
        }
    }

    /// Nothing was taken from the volume's user, and then everything goes in order.
    pub async fn end(self) {
        let rig = &self.rig;
        for rpc in [
            Rpc::NodeUnpublishVolume,
            Rpc::NodeUnstageVolume,
            Rpc::ControllerUnpublishVolume,
            Rpc::DeleteVolume,
            Rpc::DeleteSnapshot,
        ] {
            assert_eq!(rig.count("v", rpc) + rig.count("s", rpc), 0, "{rpc} was called");
        }
        for rpc in
            [Rpc::CreateVolume, Rpc::ControllerPublishVolume, Rpc::NodeStageVolume, Rpc::NodePublishVolume]
        {
            assert_eq!(rig.count("v", rpc), 1, "{rpc}");
        }
        rig.delete_snapshot("s").await;
        rig.until_snapshot_gone("s").await;
        rig.remove(&["c"], &["v"]).await;
    }
}

fn forget_passing(object: &mut Value) {
    match object {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(forget_passing);
            // Conditions stand in the order in which they were first said.
            if let Some(Value::Array(conditions)) = fields.get_mut("conditions") {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget_passing),
        _ => {}
    }
}
