//! A node in wrong hands: what its agent's token can do when somebody else uses it.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};
use moor::api::conditions::IN_ORDER;
use moor::api::names::{DriverOn, instance_name};
use moor::api::{Attachment, Plugin, PluginInstance, Volume, VolumeClaim, VolumeHandle};
use serde_json::{Value, json};

use super::fake::DRIVER;
use super::proxy::Role;
use super::{NAMESPACE, Rig, SPACE};

/// The token of a node's agent, used by hand.
pub struct Rogue {
    client: Client,
    node: String,
    node_uid: String,
}

impl Rig {
    /// Takes the token of the agent on this node. The agent itself goes on, if it runs.
    pub async fn rogue(&self, node: &str) -> Rogue {
        let path = self.kubeconfigs.lock().unwrap()[node].clone();
        let kubeconfig = Kubeconfig::read_from(path).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let node_uid = self.read_node(node).await.metadata.uid.unwrap();
        Rogue { client: Client::try_from(config).unwrap(), node: node.to_owned(), node_uid }
    }

    /// A node that is nothing but a Node object and the token of an agent on it.
    pub async fn rogue_alone(&self, node: &str) -> Rogue {
        self.make_node(node).await;
        self.open_door(node, &Role::Agent(node)).await;
        self.rogue(node).await
    }

    /// Waits until the condition InstancesInOrder of the driver's Plugin says no, with these words in its message.
    pub async fn until_out_of_order(&self, words: &[&str]) -> String {
        let look = |plugin: &Plugin| {
            let status = plugin.status.as_ref()?;
            let said = status.conditions.iter().find(|c| c.type_ == IN_ORDER && c.status == "False")?;
            let answers = status.observed_generation == plugin.metadata.generation;
            (answers && words.iter().all(|word| said.message.contains(word))).then(|| said.message.clone())
        };
        self.until_plugin(DRIVER, &format!("says {words:?}"), look).await
    }
}

impl Rogue {
    /// Makes a PluginInstance of its node under any name.
    pub async fn make_instance(&self, name: &str, driver: &str) -> Result<PluginInstance, Error> {
        let object = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "pluginName": DRIVER,
                "driverName": driver,
                "nodeName": self.node,
                "nodeUID": self.node_uid,
                "agent": self.node,
                "socketPath": "/none",
            },
        }));
        self.instances().create(&PostParams::default(), &object.unwrap()).await
    }

    /// Makes a Lease of this name.
    pub async fn make_lease(&self, name: &str) -> Result<Lease, Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let lease = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        leases.create(&PostParams::default(), &lease).await
    }

    /// Writes into the status of a PluginInstance.
    pub async fn say(&self, instance: &str, status: Value) -> Result<PluginInstance, Error> {
        let patch = Patch::Merge(json!({"status": status}));
        self.instances().patch_status(instance, &PatchParams::default(), &patch).await
    }

    /// Writes into the status of its own PluginInstance of the driver.
    pub async fn say_of_driver(&self, status: Value) {
        self.say(&instance_name(DriverOn { driver: DRIVER, node: &self.node }), status).await.unwrap();
    }

    /// Writes into the status of a Volume.
    pub async fn say_of_volume(&self, name: &str, status: Value) -> Result<Volume, Error> {
        let volumes: Api<Volume> = Api::namespaced(self.client.clone(), SPACE);
        let patch = Patch::Merge(json!({"status": status}));
        volumes.patch_status(name, &PatchParams::default(), &patch).await
    }

    /// Writes into the status of an Attachment.
    pub async fn say_of_attachment(&self, name: &str, status: Value) -> Result<Attachment, Error> {
        let patch = Patch::Merge(json!({"status": status}));
        Api::all(self.client.clone()).patch_status(name, &PatchParams::default(), &patch).await
    }

    /// Writes into the status of a VolumeHandle.
    pub async fn say_of_handle(&self, name: &str, status: Value) -> Result<VolumeHandle, Error> {
        let patch = Patch::Merge(json!({"status": status}));
        Api::all(self.client.clone()).patch_status(name, &PatchParams::default(), &patch).await
    }

    /// Makes PluginInstances of this driver under one name until the UID of one comes first among all.
    pub async fn make_first_instance(&self, driver: &str) -> String {
        let name = instance_name(DriverOn { driver, node: &self.node });
        for _ in 0..200 {
            let made = self.make_instance(&name, driver).await.unwrap();
            let all = self.instances().list(&ListParams::default()).await.unwrap();
            let first = all.iter().map(|i| i.metadata.uid.clone()).min();
            if first == Some(made.metadata.uid) {
                return name;
            }
            self.instances().delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        }
        panic!("no UID comes first");
    }

    /// The claims of a namespace, by its token.
    pub fn claims(&self, namespace: &str) -> Api<VolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// What the scheduler is told of drivers' room, by its token.
    pub fn capacities(&self) -> Api<CSIStorageCapacity> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn instances(&self) -> Api<PluginInstance> {
        Api::all(self.client.clone())
    }
}
