//! Making, deleting and reading the objects of users.

use std::fmt::Debug;

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use moor::api::conditions::{Condition, READY};
use moor::api::{Attachment, ClaimState, Plugin, Volume, VolumeClaim, VolumeHandle, VolumeState};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::missing_is_fine;
use super::fake::DRIVER;
use super::{Journal, LOOK, Rig, SPACE};

/// A Volume to be created, which the fake driver knows as `key`.
pub fn volume(key: &str) -> Volume {
    volume_of(key, &json!({"capacity": "1Mi", "parameters": {"key": key}}))
}

/// A Volume that names a handle which exists.
pub fn registered(key: &str, handle: &str) -> Volume {
    volume_of(key, &json!({"volumeHandle": handle}))
}

fn volume_of(name: &str, more: &Value) -> Volume {
    let mut spec = json!({"pluginName": DRIVER});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": SPACE}, "spec": spec})).unwrap()
}

/// A claim for a Volume on a node.
pub fn volume_claim(name: &str, volume: &str, node: &str) -> VolumeClaim {
    let spec = json!({"volumeName": volume, "nodeName": node});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": SPACE}, "spec": spec})).unwrap()
}

/// What a Plugin declares of Pods in which a driver is of this image.
pub fn pod_template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "driver", "image": image}]}})
}

/// The Ready condition.
pub fn condition(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == READY)
}

impl Rig {
    /// Makes the Plugin; after [`Self::delete_plugin`] it is another one of the same name.
    pub async fn make_plugin(&self) {
        // As many at once as a test likes.
        let all = json!({"namespaces": ["*"]});
        let allow = json!({"register": all, "deleteRegistered": all});
        let spec = json!({"controllerConcurrency": 1000, "balancing": "Spread", "allow": allow});
        self.make_plugin_named(DRIVER, spec).await;
    }

    /// Makes a Plugin, whose driver the test brings or not.
    pub async fn make_plugin_named(&self, name: &str, spec: Value) {
        let plugin = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.plugin_api().create(&PostParams::default(), &plugin).await.unwrap();
    }

    /// Deletes the Plugin, by force where it is in use. The driver's processes go on.
    pub async fn delete_plugin(&self) {
        let plugins = self.plugin_api();
        missing_is_fine(plugins.delete(DRIVER, &DeleteParams::default()).await.map(drop));
        let force = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        missing_is_fine(plugins.patch(DRIVER, &PatchParams::default(), &force).await.map(drop));
        assert!(plugins.get_opt(DRIVER).await.unwrap().is_none(), "something holds the Plugin");
    }

    /// Changes the Plugin's spec, and waits until the leader goes by it: what is asked for next it may hear of first.
    pub async fn patch_plugin(&self, spec: Value) {
        let plugins = self.plugin_api();
        let patch = Patch::Merge(json!({"spec": spec}));
        let wanted =
            plugins.patch(DRIVER, &PatchParams::default(), &patch).await.unwrap().metadata.generation;
        let look = |plugin: &Plugin| {
            let seen = plugin.status.as_ref()?.observed_generation;
            (seen >= wanted).then_some(())
        };
        self.until_plugin(DRIVER, "is seen as it is", look).await;
    }

    pub fn plugin_api(&self) -> Api<Plugin> {
        Api::all(self.cluster.admin.clone())
    }

    /// The version that the etcd of moor's kinds is at.
    pub async fn revision(&self) -> u64 {
        let volumes = self.volume_api().list_metadata(&ListParams::default().limit(1)).await.unwrap();
        volumes.metadata.resource_version.unwrap().parse().unwrap()
    }

    pub fn volume_api(&self) -> Api<Volume> {
        Api::namespaced(self.cluster.admin.clone(), SPACE)
    }

    pub fn claim_api(&self) -> Api<VolumeClaim> {
        Api::namespaced(self.cluster.admin.clone(), SPACE)
    }

    /// Makes a Volume.
    pub async fn make_volume(&self, volume: &Volume) {
        self.volume_api().create(&PostParams::default(), volume).await.unwrap();
    }

    /// Makes a claim.
    pub async fn make_claim(&self, claim: &VolumeClaim) {
        self.claim_api().create(&PostParams::default(), claim).await.unwrap();
    }

    /// Asks for a Volume to be deleted.
    pub async fn delete_volume(&self, name: &str) {
        missing_is_fine(self.volume_api().delete(name, &DeleteParams::default()).await.map(drop));
    }

    /// Asks for a claim to be deleted.
    pub async fn delete_claim(&self, name: &str) {
        missing_is_fine(self.claim_api().delete(name, &DeleteParams::default()).await.map(drop));
    }

    /// Sets spec.forceDetach of a claim.
    pub async fn force_detach(&self, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"forceDetach": true}}));
        self.claim_api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A claim as it is now. The [`super::Cluster`] may not have seen it yet.
    pub async fn read_claim(&self, name: &str) -> VolumeClaim {
        self.claim_api().get(name).await.unwrap()
    }

    /// The Attachment that a claim uses now. The [`super::Cluster`] may not have seen it yet.
    pub async fn read_attachment_of(&self, claim: &str) -> Attachment {
        let assignment = self.read_claim(claim).await.spec.assignment.expect("the claim is granted");
        let all: Api<Attachment> = Api::all(self.cluster.admin.clone());
        let found = all.get(&assignment.attachment).await.unwrap();
        assert_eq!(found.metadata.uid.as_deref(), Some(assignment.attachment_uid.as_str()));
        found
    }

    pub fn handle_api(&self) -> Api<VolumeHandle> {
        Api::all(self.cluster.admin.clone())
    }

    /// The VolumeHandle of a Volume.
    pub async fn handle_of(&self, volume: &str) -> Option<VolumeHandle> {
        let listed = self.handle_api().list(&ListParams::default()).await.unwrap();
        listed.items.into_iter().find(|handle| handle.spec.volume.name == volume)
    }

    /// Whether the calls about a Volume are made by the agent of this node.
    pub async fn is_called_by(&self, volume: &str, agent: &str) -> bool {
        let handle = self.handle_of(volume).await.expect("the Volume is Ready");
        handle.spec.controller.is_some_and(|c| c.agent == agent)
    }

    /// Waits until a claim has a condition with this type, status and reason. Returns its message.
    pub async fn until_told(&self, claim: &str, type_: &str, status: &str, reason: &str) -> String {
        let look = || {
            let conditions = self.cluster.claim(claim)?.status.as_ref()?.conditions.clone();
            let found = conditions.into_iter().find(|c| c.type_ == type_)?;
            (found.status == status && found.reason == reason).then_some(found.message)
        };
        let what = format!("claim {claim} says {type_}={status} for the reason {reason}");
        self.cluster.until(&what, look, || self.story(claim)).await
    }

    /// Waits until a claim is Ready, and says where it is mounted.
    pub async fn until_ready(&self, claim: &str) -> String {
        let look = || {
            let status = self.cluster.claim(claim)?.status.clone()?;
            (status.state == ClaimState::Ready).then_some(status.target_path)?
        };
        self.cluster.until(&format!("claim {claim} is Ready"), look, || self.story(claim)).await
    }

    /// Waits until a Volume is Ready.
    pub async fn until_volume_ready(&self, name: &str) {
        let look = || {
            let state = self.cluster.volume(name)?.status.as_ref()?.state;
            (state == VolumeState::Ready).then_some(())
        };
        self.cluster.until(&format!("Volume {name} is Ready"), look, || self.story(name)).await;
    }

    /// Waits until a claim is gone.
    pub async fn until_claim_gone(&self, name: &str) {
        let seen = || self.cluster.claim(name).is_some();
        self.until_gone(&format!("claim {name} is gone"), name, &self.claim_api(), seen).await;
    }

    /// Waits until a Volume is gone.
    pub async fn until_volume_gone(&self, name: &str) {
        let seen = || self.cluster.volume(name).is_some();
        self.until_gone(&format!("Volume {name} is gone"), name, &self.volume_api(), seen).await;
    }

    /// Waits until an object of this name is gone. `is_seen` says whether a watch still has it.
    pub async fn until_gone<K>(&self, what: &str, name: &str, api: &Api<K>, is_seen: impl Fn() -> bool)
    where
        K: Clone + Debug + DeserializeOwned,
    {
        loop {
            let look = || (!is_seen()).then_some(());
            self.cluster.until(what, look, || self.story(name)).await;
            // A watch that has not seen it come has not seen it go either.
            if api.get_opt(name).await.unwrap().is_none() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deletes these claims, then these Volumes, and waits until nothing is left of anything.
    pub async fn remove(&self, claims: &[impl AsRef<str>], volumes: &[impl AsRef<str>]) {
        for claim in claims {
            self.delete_claim(claim.as_ref()).await;
        }
        for claim in claims {
            self.until_claim_gone(claim.as_ref()).await;
        }
        for volume in volumes {
            self.delete_volume(volume.as_ref()).await;
        }
        for volume in volumes {
            self.until_volume_gone(volume.as_ref()).await;
        }
        self.assert_nothing_left().await;
    }

    /// All that is known of a Volume and a claim of this name, for a failed test's report.
    pub fn story(&self, name: &str) -> String {
        let claim = self.cluster.claim(name);
        let attachments: Vec<_> = self
            .cluster
            .attachments
            .state()
            .into_iter()
            .filter(|a| a.spec.volume_handle == format!("vol-{name}"))
            .map(|a| summary(&a))
            .collect();
        format!(
            "claim: {:?}\nvolume: {:?}\nattachments: {attachments:?}\n{}",
            claim.map(|c| (
                c.metadata.deletion_timestamp.is_some(),
                c.spec.assignment.clone(),
                c.status.clone()
            )),
            self.cluster.volume(name).map(|v| (v.metadata.deletion_timestamp.is_some(), v.status.clone())),
            Journal::text(&self.journal.calls_of(name)),
        )
    }
}

fn summary(attachment: &Attachment) -> String {
    let meta = &attachment.metadata;
    let status = attachment.status.as_ref();
    format!(
        "{:?} on {} deleted={} {:?} {:?}",
        meta.name,
        attachment.spec.node_name,
        meta.deletion_timestamp.is_some(),
        status.map(|s| s.state),
        status.and_then(|s| s.last_error.clone()),
    )
}
