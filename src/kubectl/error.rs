//! Why there is no page.

use std::io;

use kube::config::{InferConfigError, KubeconfigError};
use thiserror::Error;

use crate::k8s::ApiError;

/// Why nothing was shown, or nothing done.
#[derive(Debug, Error)]
pub enum KubectlError {
    /// Neither a kubeconfig nor a service account was found.
    #[error("no cluster to talk to: give --kubeconfig, or set KUBECONFIG ({0})")]
    NoConfig(#[source] InferConfigError),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    BadKubeconfig(#[source] KubeconfigError),
    /// The configuration cannot be used.
    #[error("the cluster configuration cannot be used: {0}")]
    BadConfig(#[source] kube::Error),
    /// The cluster does not know moor's kinds.
    #[error("the cluster has no {kind} of moor.dev: is moor installed there? ({source})")]
    NotInstalled {
        /// The kind that was asked for.
        kind: String,
        /// The API server's words.
        #[source]
        source: Box<ApiError>,
    },
    /// The user may not read it.
    #[error(
        "{0}; ask for the role moor-view (for Events: view), or give a namespace in which you have it with -n"
    )]
    Forbidden(#[source] ApiError),
    /// It could not be read.
    #[error(transparent)]
    Read(ApiError),
    /// There is no such object.
    #[error("there is no {kind} {name} in {place}")]
    NotThere {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Where it was looked for.
        place: String,
    },
    /// moor knows nothing of a node.
    #[error(
        "moor has no driver, no volume and no agent on a node {node}, and no claim of {place} is for it{unseen}"
    )]
    NothingOnNode {
        /// Name of the node.
        node: String,
        /// Where claims were looked for.
        place: String,
        /// What could not be seen, each behind a semicolon.
        unseen: String,
    },
    /// The installation is not as it should be.
    #[error("faults: {0}")]
    Faults(usize),
    /// Calls are of something else.
    #[error(
        "{0}: give a Volume's name, or snapshot and the name of a Snapshot, or handle and a driver's id of a volume"
    )]
    NoSuchTrace(String),
    /// The agents' Pods could not be found.
    #[error(
        "{source}; the calls are in the memory of the agents: to read them takes the rights to list pods and to create and get pods/exec in namespace {namespace}, which whoever has is root on the nodes"
    )]
    NoAgents {
        /// Namespace of moor.
        namespace: String,
        /// The API server's words.
        #[source]
        source: Box<ApiError>,
    },
    /// The claim is not deleted.
    #[error(
        "VolumeClaim {name} is not being deleted, and spec.forceDetach counts only for a claim that is. Nothing was \
         changed. If nobody is to use the volume there any more, delete it first: kubectl delete volumeclaim {claim} \
         --namespace {namespace} --wait=false"
    )]
    NotDeleted {
        /// The claim as namespace/name.
        name: String,
        /// Its name.
        claim: String,
        /// Its namespace.
        namespace: String,
    },
    /// The claim was never granted.
    #[error(
        "VolumeClaim {0} has no volume on any node, so there is nothing to undo by force. It goes by itself when the \
         controller has seen that it is deleted"
    )]
    NotGranted(String),
    /// The order is for one claim.
    #[error("a claim is of one namespace: name it with -n, and leave -A out")]
    OneNamespace,
    /// The order could not be written.
    #[error("cannot set spec.forceDetach of VolumeClaim {0}: {1}")]
    NotGiven(String, #[source] Box<ApiError>),
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Print(#[source] io::Error),
}
