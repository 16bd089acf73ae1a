//! The nodes of a rig: directories on this machine, Node objects, and what becomes of them.

use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::api::Plugin;
use moor::api::names::agent_lease_name;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::json;

use super::cluster::missing_is_fine;
use super::fake::DRIVER;
use super::proxy::Role;
use super::{NAMESPACE, Rig};

impl Rig {
    /// A new machine with its Node, driver and agent.
    pub async fn add_node(&self, node: &str, controller: bool) {
        self.nodes.lock().unwrap().insert(node.to_owned());
        self.make_node(node).await;
        self.boot(node);
        self.fake.serve(node, &self.plugin_dir(node), controller);
        self.open_door(node, &Role::Agent(node)).await;
        self.run(node);
    }

    /// Makes the Node object.
    pub async fn make_node(&self, node: &str) {
        let object = serde_json::from_value(json!({"metadata": {"name": node}})).unwrap();
        self.node_api().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Deletes the Node object. Machine and processes go on.
    pub async fn delete_node(&self, node: &str) {
        missing_is_fine(self.node_api().delete(node, &DeleteParams::default()).await.map(drop));
    }

    /// Says of a node that it is off, or that it is in service again.
    pub async fn mark_out_of_service(&self, node: &str, off: bool) {
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
        let taints = if off { vec![taint] } else { Vec::new() };
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        self.node_api().patch(node, &PatchParams::default(), &patch).await.unwrap();
        if off {
            // From here on moor may detach what this node has staged.
            self.fake.backend().lost.insert(node.to_owned());
        }
    }

    /// Cordons a node, or takes that back.
    pub async fn cordon(&self, node: &str, cordoned: bool) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
        self.node_api().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Gives the Node a label, or takes it off.
    pub async fn label_node(&self, node: &str, key: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        self.node_api().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The Node as it is now.
    pub async fn read_node(&self, node: &str) -> Node {
        self.node_api().get(node).await.unwrap()
    }

    fn node_api(&self) -> Api<Node> {
        Api::all(self.cluster.admin.clone())
    }

    /// Gives the machine another boot id, as a boot does.
    pub fn boot(&self, node: &str) {
        let file = self.boot_id_file(node);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir_all(self.plugin_dir(node)).unwrap();
        let times = fs::read_to_string(&file).ok().and_then(|id| id.rsplit('-').next()?.parse().ok());
        let times: u32 = times.map_or(0, |times: u32| times + 1);
        fs::write(&file, format!("{node}-boot-{times}")).unwrap();
    }

    /// The power of the machine goes: its agent and driver end, nothing stays mounted. Its disk keeps what is on it.
    pub fn crash_node(&self, node: &str) {
        self.kill(node);
        self.fake.stop(node, &self.plugin_dir(node));
        self.fake.backend().forget_node(node);
        // No mount outlives the power. There is none if the agent was never up.
        let _ = unmount(self.targets_dir(node), UnmountFlags::DETACH);
    }

    /// The end of [`Self::crash_node`].
    pub fn boot_node(&self, node: &str, controller: bool) {
        self.boot(node);
        self.fake.serve(node, &self.plugin_dir(node), controller);
        self.run(node);
    }

    /// Lets the Lease of a stopped agent end now instead of in 40 s. The leader sees it as expired a second later.
    pub async fn expire_lease(&self, node: &str) {
        let leases: Api<Lease> = Api::namespaced(self.cluster.admin.clone(), NAMESPACE);
        let short = json!({"spec": {"leaseDurationSeconds": 1}});
        let name = agent_lease_name(node);
        leases.patch(&name, &PatchParams::default(), &Patch::Merge(short)).await.unwrap();
    }

    /// Waits until the leader has seen all of these as healthy: what it knows of instances decides how it takes a Volume, and
    /// it may hear of that first.
    pub async fn until_counted(&self, nodes: &[(&str, bool)]) {
        let controllers = nodes.iter().filter(|(_, controller)| *controller).count();
        let wanted = [nodes.len(), controllers].map(|so_many| i64::try_from(so_many).unwrap());
        let look = |plugin: &Plugin| {
            let status = plugin.status.as_ref()?;
            ([status.nodes_healthy, status.controllers_healthy] == wanted).then_some(())
        };
        self.until_plugin(DRIVER, "counts all instances", look).await;
    }

    /// Waits until the driver on a node is known as healthy.
    pub async fn until_served(&self, node: &str) {
        let instance = || {
            let all = self.cluster.instances.state();
            all.into_iter().find(|i| i.spec.node_name == node && i.spec.driver_name == DRIVER)
        };
        let served = || instance().filter(|i| i.status.as_ref().is_some_and(|status| status.healthy));
        let what = format!("the driver on {node} is healthy");
        self.cluster.until(&what, served, || format!("{:?}", instance())).await;
    }

    pub fn kubelet_dir(&self, node: &str) -> PathBuf {
        self.directory.join(node)
    }

    pub fn plugin_dir(&self, node: &str) -> PathBuf {
        self.kubelet_dir(node).join("plugins")
    }

    /// Where the driver's process on a node listens.
    pub fn driver_socket(&self, node: &str) -> PathBuf {
        super::fake::socket(&self.plugin_dir(node))
    }

    /// A folder for whatever else a case needs.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The folder of all targets.
    pub fn targets_dir(&self, node: &str) -> PathBuf {
        self.plugin_dir(node).join("kubernetes.io/csi/moor.dev/targets")
    }

    pub fn state_dir(&self, node: &str) -> PathBuf {
        self.directory.join(format!("{node}.state"))
    }

    pub fn boot_id_file(&self, node: &str) -> PathBuf {
        self.directory.join(format!("{node}.state")).join("boot-id")
    }
}
