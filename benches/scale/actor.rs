//! Who moor's processes are to the API server: each has the token of a Pod.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use kube::Client;
use serde_json::json;

use crate::cluster::post;
use crate::rig::NAMESPACE;
use crate::rig::control_plane::ControlPlane;

/// Who a process of moor is to the API server.
pub struct Actor {
    pub client: Client,
    pub kubeconfig: PathBuf,
    /// Where it serves /readyz.
    pub port: u16,
    pub pod_uid: String,
}

impl Actor {
    /// Makes the Pod of a process on a node, and a token that is bound to it.
    pub async fn make(
        control_plane: &ControlPlane,
        user: &Client,
        name: &str,
        account: &str,
        node: &str,
    ) -> Self {
        let spec = json!({
            "serviceAccountName": account,
            "nodeName": node,
            "containers": [{"name": "moor", "image": "moor"}],
        });
        let pod = json!({"metadata": {"name": format!("moor-{name}")}, "spec": spec});
        let pod = post(user, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod).await;
        let (pod_name, pod_uid) = (&pod["metadata"]["name"], pod["metadata"]["uid"].as_str().unwrap());
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid});
        // Longer than any run takes.
        let request = json!({"spec": {"audiences": [], "expirationSeconds": 86400, "boundObjectRef": bound}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let answer = post(user, &path, &request).await;
        let token = answer["status"]["token"].as_str().unwrap();
        Self {
            client: control_plane.client_of(token),
            kubeconfig: control_plane.kubeconfig_of(name, token),
            port: own_port(),
            pod_uid: pod_uid.to_owned(),
        }
    }
}

/// A port that nobody else has: below those that the kernel gives to connections, in a network namespace of our own.
pub fn own_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
