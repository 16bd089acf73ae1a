//! Lists what pages are made of. Nothing else here reads from the API server.

use std::collections::BTreeSet;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::connect::Cluster;
use super::error::KubectlError;
use super::scene::{Agent, Scene, Scope};
use super::words::full_name;
use crate::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim, VolumeHandle};
use crate::k8s::ApiError;
use crate::k8s::read::{Readable, list_live};
use crate::k8s::unreadable::Sent;

/// Everything of moor's in these namespaces, and what has none. Who may read only what has a namespace gets that, and is
/// told what is missing.
pub(super) async fn scene(cluster: &Cluster, scope: &Scope, now: Timestamp) -> Result<Scene, KubectlError> {
    let mut unseen = Vec::new();
    let (volumes, snapshots, claims) = tokio::try_join!(
        required(of_namespaces::<Volume>(cluster, scope)),
        required(of_namespaces::<Snapshot>(cluster, scope)),
        required(of_namespaces::<VolumeClaim>(cluster, scope)),
    )?;
    let (plugins, instances, attachments, handles) = tokio::try_join!(
        optional(of_cluster::<Plugin>(cluster)),
        optional(of_cluster::<PluginInstance>(cluster)),
        optional(of_cluster::<Attachment>(cluster)),
        optional(of_cluster::<VolumeHandle>(cluster)),
    )?;
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), &cluster.moor_namespace);
    let agents = match list_live(&leases, None).await {
        Ok(leases) => Some(leases.iter().filter_map(Agent::of).collect::<Vec<_>>()),
        Err(error @ ApiError::Forbidden { .. }) => {
            unseen.push(format!("whether agents are heard: {error}"));
            None
        }
        Err(error) => return Err(KubectlError::Read(error)),
    };
    let agents = agents.filter(|found| !found.is_empty()).or_else(|| {
        if unseen.is_empty() {
            let namespace = &cluster.moor_namespace;
            unseen.push(format!(
                "whether agents are heard: none has a Lease in namespace {namespace}: is that moor's (--moor-namespace)?"
            ));
        }
        None
    });
    let mut hidden = BTreeSet::new();
    let mut read = |plural: &str, told: Vec<String>| {
        if !told.is_empty() {
            hidden.insert(plural.to_owned());
        }
        unseen.extend(told);
    };
    Ok(Scene {
        now,
        plugins: plugins.tell(&mut read),
        instances: instances.tell(&mut read),
        volumes: volumes.tell(&mut read),
        snapshots: snapshots.tell(&mut read),
        claims: claims.tell(&mut read),
        attachments: attachments.tell(&mut read),
        handles: handles.tell(&mut read),
        agents,
        unseen,
        hidden,
    })
}

/// The Snapshots of these namespaces, and what could not be seen.
pub(super) async fn snapshots(
    cluster: &Cluster,
    scope: &Scope,
) -> Result<(Vec<Snapshot>, Vec<String>), KubectlError> {
    let mut unseen = Vec::new();
    let listed = required(of_namespaces(cluster, scope)).await?;
    let all = listed.tell(&mut |_, told| unseen.extend(told));
    Ok((all, unseen))
}

/// The Events of these namespaces, and of those beside them in which something else has its Events; and what could not be seen.
/// Anybody who may write Events may write one that cannot be read: it hides no other.
pub(super) async fn events(
    cluster: &Cluster,
    scope: &Scope,
    beside: &BTreeSet<String>,
) -> Result<(Vec<Event>, Vec<String>), KubectlError> {
    let mut listed = required(listed(events_of(cluster, scope))).await?;
    let Some(own) = scope.namespace() else { return Ok((listed.all, listed.unseen)) };
    for namespace in beside.iter().filter(|namespace| *namespace != own) {
        let scope = Scope::In(namespace.clone());
        // Those of the own namespace are worth something without.
        let more = optional(self::listed(events_of(cluster, &scope))).await?;
        listed.all.extend(more.all);
        listed.unseen.extend(more.unseen);
    }
    Ok((listed.all, listed.unseen))
}

fn events_of(cluster: &Cluster, scope: &Scope) -> Api<Sent<Event>> {
    match scope {
        Scope::All => Api::all(cluster.client.clone()),
        Scope::In(namespace) => Api::namespaced(cluster.client.clone(), namespace),
    }
}

/// What was listed of a kind, and what is to be said about the rest.
struct Listed<K> {
    all: Vec<K>,
    unseen: Vec<String>,
}

impl<K: Resource<DynamicType = ()>> Listed<K> {
    fn tell(self, told: &mut impl FnMut(&str, Vec<String>)) -> Vec<K> {
        told(&K::plural(&()), self.unseen);
        self.all
    }
}

async fn of_namespaces<K>(cluster: &Cluster, scope: &Scope) -> Result<Listed<K>, ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let client = cluster.client.clone();
    listed(match scope {
        Scope::All => Api::all(client),
        Scope::In(namespace) => Api::namespaced(client, namespace),
    })
    .await
}

async fn of_cluster<K>(cluster: &Cluster) -> Result<Listed<K>, ApiError>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    listed(Api::all(cluster.client.clone())).await
}

/// One object that this version cannot read does not hide the others.
async fn listed<K: Readable>(api: Api<Sent<K>>) -> Result<Listed<K>, ApiError> {
    let mut listed = Listed { all: Vec::new(), unseen: Vec::new() };
    for Sent(object) in list_live(&api, None).await? {
        match object {
            Ok(object) => listed.all.push(object),
            Err(unreadable) => {
                let (kind, name) = (K::kind(&()), full_name(&unreadable.metadata));
                listed.unseen.push(format!("{kind} {name}, which this version of kubectl-moor cannot read"));
            }
        }
    }
    Ok(listed)
}

/// What the page is about: without it there is none.
async fn required<T>(list: impl Future<Output = Result<T, ApiError>>) -> Result<T, KubectlError> {
    list.await.map_err(|error| match error {
        ApiError::Forbidden { .. } => KubectlError::Forbidden(error),
        error => missing(error),
    })
}

/// What the page can do without, where it may not be read.
async fn optional<K: Resource<DynamicType = ()>>(
    list: impl Future<Output = Result<Listed<K>, ApiError>>,
) -> Result<Listed<K>, KubectlError> {
    match list.await {
        Err(error @ ApiError::Forbidden { .. }) => {
            Ok(Listed { all: Vec::new(), unseen: vec![format!("{}: {error}", K::plural(&()))] })
        }
        listed => listed.map_err(missing),
    }
}

/// A 404 of a list means that the kind is not known.
fn missing(error: ApiError) -> KubectlError {
    let kind = match &error {
        ApiError::Other { request, source } if is_404(source) => request.kind.clone(),
        _ => return KubectlError::Read(error),
    };
    KubectlError::NotInstalled { kind, source: Box::new(error) }
}

fn is_404(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
