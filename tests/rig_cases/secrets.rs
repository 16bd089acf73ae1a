//! Secrets of a driver's calls: whose they are, that they are read for each call anew, and that nobody sees them.

mod canary;
mod plugin;
mod rotation;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use prost::Message;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::{Call, Case, Cluster, Rig};
pub use canary::places;

/// A namespace of administrators.
const ADMIN: &str = "kube-system";

type Data = BTreeMap<String, String>;

/// Every call that takes secrets along.
const CALLS: [Rpc; 13] = [
    Rpc::CreateVolume,
    Rpc::ValidateVolumeCapabilities,
    Rpc::ControllerExpandVolume,
    Rpc::ControllerModifyVolume,
    Rpc::DeleteVolume,
    Rpc::ControllerPublishVolume,
    Rpc::ControllerUnpublishVolume,
    Rpc::CreateSnapshot,
    Rpc::ListSnapshots,
    Rpc::DeleteSnapshot,
    Rpc::NodeStageVolume,
    Rpc::NodePublishVolume,
    Rpc::NodeExpandVolume,
];

/// What a call took along; None of a call that takes no secrets.
fn taken(call: &Call) -> Option<Data> {
    macro_rules! secrets {
        ($($rpc:ident => $request:ident),+ $(,)?) => {
            match call.rpc {
                $(Rpc::$rpc => {
                    let request = wire::$request::decode(call.arguments.as_slice()).unwrap();
                    Some(Data::clone(&request.secrets))
                })+
                _ => None,
            }
        };
    }
    secrets! {
        CreateVolume => CreateVolumeRequest,
        ValidateVolumeCapabilities => ValidateVolumeCapabilitiesRequest,
        ControllerExpandVolume => ControllerExpandVolumeRequest,
        ControllerModifyVolume => ControllerModifyVolumeRequest,
        DeleteVolume => DeleteVolumeRequest,
        ControllerPublishVolume => ControllerPublishVolumeRequest,
        ControllerUnpublishVolume => ControllerUnpublishVolumeRequest,
        CreateSnapshot => CreateSnapshotRequest,
        ListSnapshots => ListSnapshotsRequest,
        DeleteSnapshot => DeleteSnapshotRequest,
        NodeStageVolume => NodeStageVolumeRequest,
        NodePublishVolume => NodePublishVolumeRequest,
        NodeExpandVolume => NodeExpandVolumeRequest,
    }
}

fn word(of: &str) -> Data {
    Data::from([("word".to_owned(), of.to_owned())])
}

/// The words that all calls of these kinds about a key took along, each once.
fn words(rig: &Rig, key: &str, rpcs: &[Rpc]) -> Vec<String> {
    let calls = rig.journal.calls_of(key);
    let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| rpcs.contains(&call.rpc));
    let mut all: Vec<_> = calls.map(|call| taken(call).unwrap().remove("word").unwrap_or_default()).collect();
    assert!(!all.is_empty(), "{rpcs:?} of {key} were not called");
    all.sort();
    all.dedup();
    all
}

/// Secrets that a case has made. There is one cluster for all cases.
struct Made<'a> {
    cluster: &'a Cluster,
    names: Vec<(String, String)>,
}

impl<'a> Made<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, names: Vec::new() }
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.cluster.admin.clone(), namespace)
    }

    /// Makes one with this word in it.
    async fn make(&mut self, namespace: &str, name: &str, word: &str) {
        let secret = json!({ "metadata": { "name": name }, "stringData": { "word": word } });
        let secret = serde_json::from_value(secret).unwrap();
        self.api(namespace).create(&PostParams::default(), &secret).await.unwrap();
        self.names.push((namespace.to_owned(), name.to_owned()));
    }

    async fn remove(self) {
        for (namespace, name) in &self.names {
            self.api(namespace).delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

impl Rig {
    /// Has the Plugin name these Secrets and no others.
    async fn name_secrets(&self, secrets: Value) {
        for secrets in [Value::Null, secrets] {
            self.patch_plugin(json!({ "secrets": secrets })).await;
        }
    }

    /// Why the API server does not take these Secrets of the Plugin.
    async fn refused(&self, secrets: Value) -> String {
        let patch = Patch::Merge(json!({ "spec": { "secrets": secrets } }));
        let plugin = crate::rig::fake::DRIVER;
        let refused = self.plugin_api().patch(plugin, &PatchParams::default(), &patch).await;
        refused.map(drop).unwrap_err().to_string()
    }
}

pub const CASES: &[Case] = cases![
    plugin::those_of_the_plugin_count_where_a_volume_names_none,
    plugin::one_counts_for_every_kind_of_call,
    plugin::undo_goes_by_what_was_named_when_it_began,
    plugin::nobody_reaches_anothers_secret_by_a_name,
    plugin::those_of_kubernetes_volumes_come_from_class_and_plugin,
    rotation::every_call_takes_what_is_there_when_it_begins,
    canary::no_secret_is_to_be_seen_anywhere,
];
