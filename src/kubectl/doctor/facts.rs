//! What the checks look at. Nothing else of them reads from the API server, but the reviews of rights.

use std::collections::BTreeSet;

use axum::http::Request;
use axum::http::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::client::Body;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};

use super::super::connect::Cluster;
use crate::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim};
use crate::k8s::read::{Readable, list_live};

/// What was read, or why it was not.
pub type Seen<T> = Result<T, String>;

/// The clock of an API server as one of its answers told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerClock {
    /// The time that it said, to the second.
    pub said: Timestamp,
    /// The time here when the answer had come.
    pub here: Timestamp,
}

/// Everything that is looked at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The namespace in which moor is said to be.
    pub namespace: String,
    pub clock: Seen<ServerClock>,
    /// Major and minor version of the API server, and its own word for it.
    pub version: Seen<(u32, u32, String)>,
    pub crds: Seen<Vec<CustomResourceDefinition>>,
    /// Of moor's namespace.
    pub deployments: Seen<Vec<Deployment>>,
    /// Whether DaemonSets of all namespaces are seen, or of moor's alone.
    pub sees_everywhere: bool,
    pub daemon_sets: Seen<Vec<DaemonSet>>,
    /// Of moor's namespace.
    pub pods: Seen<Vec<Pod>>,
    /// Of moor's namespace.
    pub leases: Seen<Vec<Lease>>,
    pub nodes: Seen<Vec<Node>>,
    pub csi_drivers: Seen<Vec<CSIDriver>>,
    /// Names of the policies, and of those policies that are bound.
    pub policies: Seen<(BTreeSet<String>, BTreeSet<String>)>,
    pub plugins: Seen<Vec<Plugin>>,
    pub instances: Seen<Vec<PluginInstance>>,
    pub volumes: Seen<Vec<Volume>>,
    pub snapshots: Seen<Vec<Snapshot>>,
    pub claims: Seen<Vec<VolumeClaim>>,
    pub attachments: Seen<Vec<Attachment>>,
}

impl Facts {
    /// Reads all of it, one after the other.
    pub async fn read(cluster: &Cluster) -> Self {
        let (client, namespace) = (&cluster.client, cluster.moor_namespace.clone());
        let everywhere = all::<DaemonSet>(client).await;
        let sees_everywhere = everywhere.is_ok();
        let daemon_sets = match everywhere {
            Ok(found) => Ok(found),
            // Who may look into moor's namespace alone sees moor's own.
            Err(_) => within(client, &namespace).await,
        };
        Self {
            clock: clock(client).await,
            version: version(client).await,
            crds: all(client).await,
            deployments: within(client, &namespace).await,
            sees_everywhere,
            daemon_sets,
            pods: within(client, &namespace).await,
            leases: within(client, &namespace).await,
            nodes: all(client).await,
            csi_drivers: all(client).await,
            policies: policies(client).await,
            plugins: all(client).await,
            instances: all(client).await,
            volumes: all(client).await,
            snapshots: all(client).await,
            claims: all(client).await,
            attachments: all(client).await,
            namespace,
        }
    }

    /// The time by the API server's clock; by that of this machine, where that is not known.
    pub fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or_else(|_| Timestamp::now(), |clock| clock.said)
    }
}

impl ServerClock {
    /// By how much this machine's clock is ahead of it, to a second and as long as the answer took.
    pub fn ahead(&self) -> SignedDuration {
        self.here.duration_since(self.said)
    }
}

async fn all<K: Readable>(client: &Client) -> Seen<Vec<K>> {
    list_live(&Api::<K>::all(client.clone()), None).await.map_err(|error| error.to_string())
}

async fn within<K>(client: &Client, namespace: &str) -> Seen<Vec<K>>
where
    K: Readable + Resource<Scope = NamespaceResourceScope>,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    list_live(&api, None).await.map_err(|error| error.to_string())
}

async fn policies(client: &Client) -> Seen<(BTreeSet<String>, BTreeSet<String>)> {
    let policies = all::<ValidatingAdmissionPolicy>(client).await?;
    let bindings = all::<ValidatingAdmissionPolicyBinding>(client).await?;
    let bound = bindings.into_iter().filter_map(|binding| binding.spec?.policy_name).collect();
    Ok((policies.iter().map(ResourceExt::name_any).collect(), bound))
}

async fn version(client: &Client) -> Seen<(u32, u32, String)> {
    let info = client.apiserver_version().await.map_err(|error| format!("GET /version: {error}"))?;
    let number = |text: &str| text.trim_end_matches('+').parse().ok();
    match (number(&info.major), number(&info.minor)) {
        (Some(major), Some(minor)) => Ok((major, minor, info.git_version)),
        _ => Err(format!("the API server says that it is {}", info.git_version)),
    }
}

async fn clock(client: &Client) -> Seen<ServerClock> {
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| format!("GET /version: {error}"))?;
    let here = Timestamp::now();
    let said = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let said = said.ok_or("the API server's answers have no Date")?;
    let said = rfc2822::parse(said).map_err(|error| format!("the API server's Date is {said}: {error}"))?;
    Ok(ServerClock { said: said.timestamp(), here })
}
