//! The watches of a process.

use std::sync::Arc;
use std::time::Duration;

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;

use super::cache::{Cache, Cached};
use super::demand::Demand;
use super::watch::{Restarts, Watch, WentBack, watch};

/// Time between looks whether a kind is defined by now that was not.
const UNDEFINED: Duration = Duration::from_secs(10);

/// The watches of a process.
pub struct Watches {
    client: Client,
    restarts: Restarts,
    running: JoinSet<WentBack>,
}

impl Watches {
    /// None yet.
    #[must_use]
    pub fn new(client: Client, restarts: Restarts) -> Self {
        Self { client, restarts, running: JoinSet::new() }
    }

    /// Feeds a cache of one source with all objects of its kind.
    pub fn all<K: Cached>(&mut self, cache: &Arc<Cache<K>>) {
        self.of(Api::all(self.client.clone()), None, cache, 0);
    }

    /// Feeds a cache of one source with what is in this namespace.
    pub fn in_namespace<K>(&mut self, namespace: &str, cache: &Arc<Cache<K>>)
    where
        K: Cached + Resource<Scope = NamespaceResourceScope>,
    {
        self.of(Api::namespaced(self.client.clone(), namespace), None, cache, 0);
    }

    /// Feeds a cache of one source with all objects of a kind that the cluster may not have, or not yet: then there are none.
    pub fn if_defined<K: Cached>(&mut self, cache: &Arc<Cache<K>>) {
        let mut watch = Watch::new(Api::all(self.client.clone()), None, Arc::clone(cache), 0);
        watch.undefined = Some(UNDEFINED);
        self.running.spawn(watch.run(self.restarts.clone()));
    }

    /// As [`Self::of`], but that nothing is watched before anything is listed, or wanted: each watch makes each write of its kind
    /// cost the API server more, and most processes are never asked for what these would bring.
    pub fn on_demand<K: Cached>(
        &mut self,
        api: Api<K>,
        fields: Option<String>,
        (cache, source): (&Arc<Cache<K>>, u8),
        demand: &Demand,
    ) {
        let mut watch = Watch::new(api, fields, Arc::clone(cache), source);
        watch.demand = Some(demand.clone());
        self.running.spawn(watch.run(self.restarts.clone()));
    }

    /// Begins [`watch`].
    pub fn of<K: Cached>(&mut self, api: Api<K>, fields: Option<String>, cache: &Arc<Cache<K>>, source: u8) {
        self.running.spawn(watch(api, fields, Arc::clone(cache), source, self.restarts.clone()));
    }

    /// The tasks. One that ends has found that the API server's history went back.
    #[must_use]
    pub fn running(self) -> JoinSet<WentBack> {
        self.running
    }
}
