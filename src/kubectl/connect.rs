//! The cluster that the command line names, and what of it is looked at.

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::args::ReachArgs;
use super::error::KubectlError;
use super::scene::Scope;
use crate::k8s::client::client_of;

/// A connection, and the namespaces that count.
pub(super) struct Cluster {
    pub client: Client,
    /// The namespace of moor itself.
    pub moor_namespace: String,
    /// The namespace that the flags or the context name.
    namespace: String,
    /// Whether a flag names it.
    is_named: bool,
    all_namespaces: bool,
}

impl Cluster {
    /// A cluster of which one namespace counts.
    #[cfg(test)]
    pub fn of(client: Client, moor_namespace: &str, namespace: &str) -> Self {
        let (moor_namespace, namespace) = (moor_namespace.to_owned(), namespace.to_owned());
        Self { client, moor_namespace, namespace, is_named: true, all_namespaces: false }
    }

    /// Everything, unless a namespace was named.
    pub fn everything(&self) -> Scope {
        if self.is_named { self.home() } else { Scope::All }
    }

    /// The namespace, unless all were asked for.
    pub fn here(&self) -> Scope {
        if self.all_namespaces { Scope::All } else { self.home() }
    }

    /// The namespace.
    pub fn home(&self) -> Scope {
        Scope::In(self.namespace.clone())
    }
}

/// Reads the configuration. Does not connect yet.
pub(super) async fn connect(args: &ReachArgs) -> Result<Cluster, KubectlError> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let config = match (&args.kubeconfig, &args.context) {
        (Some(path), _) => {
            let read = Kubeconfig::read_from(path).map_err(KubectlError::BadKubeconfig)?;
            Config::from_custom_kubeconfig(read, &options).await.map_err(KubectlError::BadKubeconfig)?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(KubectlError::BadKubeconfig)?,
        (None, None) => Config::infer().await.map_err(KubectlError::NoConfig)?,
    };
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    Ok(Cluster {
        client: client_of(config).map_err(KubectlError::BadConfig)?,
        moor_namespace: args.moor_namespace.clone(),
        namespace,
        is_named: args.namespace.is_some(),
        all_namespaces: args.all_namespaces,
    })
}
