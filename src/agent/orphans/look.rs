//! Compares a driver's listing with the objects, read live after it, and has what two listings in a row have shown reported.
//!
//! The agent does it whose instance makes the driver's controller calls, and makes no other call for it than the listings: nothing
//! is deleted, whatever is found.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;

use super::compare::{self, Recognised, Recognition};
use super::known::Report;
use super::ledger::{Entries, Entry, Index};
use super::said::Said;
use crate::agent::calls::attempt::NotDone;
use crate::agent::calls::failure::Failure;
use crate::agent::context::Agent;
use crate::api::conditions::whole_second;
use crate::api::names::instance_name;
use crate::api::plugin::Balancing;
use crate::api::secrets::SecretName;
use crate::api::storage::StorageKind;
use crate::api::{Plugin, Snapshot, Volume, VolumeHandle};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{Listed, Listing, Rpc};
use crate::k8s::ApiError;
use crate::k8s::read::{Readable, look_through};
use crate::plugin::secrets::for_listing;

/// Snapshots per page of a listing.
const PAGE: u32 = 500;

/// A comparison of one kind of a driver's storage that is begun.
pub(crate) struct Round {
    kind: StorageKind,
    /// The driver's Plugin.
    plugin: Arc<Plugin>,
    /// Name of its instance here.
    instance: String,
    entries: Entries,
    index: Index,
}

impl Round {
    /// Begins one, if the driver lists this and the agent here is the one that compares it.
    pub fn begin(agent: &Agent, driver: &str, kind: StorageKind) -> Option<Self> {
        let (rpc, needs) = match kind {
            StorageKind::Volume => (Rpc::ListVolumes, "LIST_VOLUMES"),
            StorageKind::Snapshot => (Rpc::ListSnapshots, "LIST_SNAPSHOTS"),
        };
        let serving = agent.serving(rpc, driver).ok()?;
        if !serving.fingerprint.capabilities.controller_has(needs) {
            agent.orphans.with(driver, kind, |compared| compared.report = Report::NotListed);
            return None;
        }
        let (plugin, instance) = (agent.caches.plugin_of(driver)?, instance_name(agent.driver_here(driver)));
        let is_ours = match plugin.balancing() {
            Balancing::SingleActive => plugin.active().is_some_and(|active| active.instance == instance),
            Balancing::Spread | Balancing::PerTopology => {
                let observed = agent.caches.instances.get(&instance)?;
                observed.status.as_ref().is_some_and(|status| status.controller)
            }
        };
        let entries = agent.orphans.ledger.entries(driver, kind);
        let index = Index::of(&entries);
        is_ours.then_some(Self { kind, plugin, instance, entries, index })
    }

    /// UID of the object that this was made for, or registered by, of what the driver lists.
    pub fn recognise<'a>(&self, id: &'a str, others: impl Iterator<Item = &'a str>) -> Option<String> {
        self.index.find(id, others).cloned()
    }

    /// Compares what the driver lists as its volumes.
    pub async fn volumes(
        self,
        agent: &Arc<Agent>,
        driver: &str,
        listed: Listing<Option<String>>,
    ) -> Result<bool, ApiError> {
        let recognised = |(id, found): (String, Listed<Option<String>>)| {
            Some((id, Recognised { bytes: found.bytes, uid: found.mark? }))
        };
        self.settle(agent, driver, &listed.into_iter().filter_map(recognised).collect()).await
    }

    /// Lists the driver's snapshots, and compares them.
    pub async fn snapshots(self, agent: &Arc<Agent>, driver: &str) -> Result<bool, NotDone> {
        let serving = agent.serving(Rpc::ListSnapshots, driver)?;
        let secret = self.plugin.spec.secrets.as_ref().and_then(for_listing);
        let named = secret.as_deref().map(SecretName::OfPlugin);
        let (secrets, _) = agent.secrets(Rpc::ListSnapshots, "", named).await?;
        let pick = |snapshot: &wire::Snapshot| self.recognise(&snapshot.snapshot_id, std::iter::empty());
        let call = serving.plugin.list_snapshots(PAGE, &secrets, pick);
        let listed = agent.call(driver, Rpc::ListSnapshots, call).await;
        let listed = listed.map_err(|error| Failure::of_call(&error))?;
        let recognised = listed
            .into_iter()
            .map(|(id, found)| (id, Recognised { bytes: found.bytes, uid: found.mark }))
            .collect();
        Ok(self.settle(agent, driver, &recognised).await?)
    }

    /// Compares what was listed. Returns whether anything is otherwise than at the listing before.
    async fn settle(self, agent: &Arc<Agent>, driver: &str, listed: &Recognition) -> Result<bool, ApiError> {
        let objects = match self.kind {
            StorageKind::Volume => said_by::<Volume>(agent).await?,
            StorageKind::Snapshot => said_by::<Snapshot>(agent).await?,
        };
        let mut orphans = compare::without_object(listed, &self.entries, &objects);
        if self.kind == StorageKind::Volume && !orphans.is_empty() {
            look_through(&agent.api::<VolumeHandle>(), |handle| {
                if handle.spec.driver_name == driver {
                    orphans.remove(&handle.spec.volume_handle);
                }
                ControlFlow::Continue(())
            })
            .await?;
        }
        let of_driver: Vec<&Said> = objects.iter().filter(|said| Self::is_of(agent, driver, said)).collect();
        let judged = of_driver.iter().copied().filter(|said| self.is_judged(said));
        let now = whole_second(Timestamp::now());
        let since = self.since(agent, driver);
        let is_news = agent.orphans.with(driver, self.kind, |compared| {
            let missing = compare::without_storage(listed, &self.entries, judged, &compared.before);
            let found = (listed, &self.entries);
            let (named, count) =
                compare::orphans(self.kind, &orphans, &compared.orphans, &since, &now, found);
            let report = Report::Found(named, count, compare::missing(&missing, &compared.missing, &objects));
            let is_news =
                compared.report != report || compared.orphans != orphans || compared.missing != missing;
            let standing = of_driver.iter().filter(|said| said.stands);
            compared.before =
                standing.filter_map(|said| Some((said.uid.clone(), said.id.clone()?))).collect();
            (compared.orphans, compared.missing, compared.report) = (orphans, missing, report);
            is_news
        });
        self.keep(agent, driver, listed, &of_driver, &objects).await;
        agent.queues.instances.add(driver.to_owned());
        Ok(is_news)
    }

    /// Remembers what there is, and forgets what is neither listed nor anybody's any more.
    async fn keep(
        &self,
        agent: &Arc<Agent>,
        driver: &str,
        listed: &Recognition,
        of_driver: &[&Said],
        objects: &[Said],
    ) {
        let ledger = &agent.orphans.ledger;
        for said in of_driver {
            ledger.take_in(driver, said);
        }
        let is_listed = |entry: &Entry| entry.ids().any(|id| listed.contains_key(id));
        let there: HashSet<&str> =
            listed.values().map(|found| &*found.uid).chain(objects.iter().map(|said| &*said.uid)).collect();
        let by_id = self.entries.iter().filter(|(_, entry)| is_listed(entry)).map(|(uid, _)| uid);
        let is_gone = |(uid, entry): &(&String, &Entry)| !there.contains(uid.as_str()) && !is_listed(entry);
        let gone = self.entries.iter().filter(is_gone).map(|(uid, _)| uid);
        ledger.settle(driver, self.kind, by_id, gone);
        let keeper = agent.clone();
        let written = tokio::task::spawn_blocking(move || keeper.orphans.ledger.write()).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(driver, %error, "the ledger of what is moor's cannot be written");
        }
    }

    /// Whether an object is of this driver, as far as it or its Plugin says.
    fn is_of(agent: &Agent, driver: &str, said: &Said) -> bool {
        match &said.driver {
            Some(of) => of == driver,
            None => {
                agent.caches.plugins.get(&said.plugin).is_some_and(|plugin| plugin.driver_name() == driver)
            }
        }
    }

    /// Whether this listing has to have an object's storage in it: where several instances work at once, each lists what it can reach.
    fn is_judged(&self, said: &Said) -> bool {
        self.plugin.balancing() == Balancing::SingleActive || said.caller.as_deref() == Some(&*self.instance)
    }

    /// Since when orphans are reported already, by their ids.
    fn since(&self, agent: &Agent, driver: &str) -> BTreeMap<String, Time> {
        let told = self.plugin.status.iter().flat_map(|status| &status.orphans);
        let observed = agent.caches.instances.get(&instance_name(agent.driver_here(driver)));
        let reported = observed.as_ref().and_then(|observed| observed.status.as_ref()?.storage.as_ref());
        let reported = reported.into_iter().flat_map(|report| &report.orphans);
        let of_kind = told.chain(reported).filter(|orphan| orphan.kind == self.kind);
        of_kind.map(|orphan| (orphan.handle.clone(), orphan.since.clone())).collect()
    }
}

/// What all objects of a kind say, by a quorum LIST made now (rule R1).
async fn said_by<K: Readable>(agent: &Agent) -> Result<Vec<Said>, ApiError>
where
    Said: for<'a> From<&'a K>,
{
    let mut all = BTreeMap::new();
    look_through(&Api::<K>::all(agent.client.clone()), |object| {
        let said = Said::from(&object);
        all.insert(said.uid.clone(), said);
        ControlFlow::Continue(())
    })
    .await?;
    Ok(all.into_values().collect())
}
