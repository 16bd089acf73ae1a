//! Mounts that the API server does not account for (rule R7): found out, reported, and undone on order.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::agent::calls::retry::Retries;
use crate::agent::context::Agent;
use crate::agent::records::store::{Records, Stored, Unreadable};
use crate::api::PluginInstance;
use crate::api::conditions::{Desired, Reason};
use crate::api::instance::{
    FORCE_UNDO, ForgottenMount, MAX_CLAIMS, MAX_FORGOTTEN, MAX_FORGOTTEN_HANDLES, PluginInstanceStatus,
    UNDO_FORGOTTEN,
};
use crate::api::names::{DriverOn, agent_lease_name, instance_name};
use crate::attachment::record::Lapse;
use crate::heartbeat::Forgotten as Handles;
use crate::k8s::{ApiError, read};

/// Why a mount is reported, as it is printed.
fn reason(why: Lapse) -> &'static str {
    match why {
        Lapse::WentBack => "WentBack",
        Lapse::LockRemoved => "LockRemoved",
    }
}

/// What a driver's PluginInstance has to tell because no other object can: what is, or may be, mounted on this node
/// without an Attachment or a claim.
#[derive(Debug, Default)]
pub(crate) struct OfDriver {
    /// The mounts that the API server does not account for. A file that cannot be read may be of any driver.
    pub reported: Vec<ForgottenMount>,
    /// What waits to be undone and has no claim that could say so.
    pub untold: Vec<String>,
    /// The Plugin by which it was mounted, if anything may be that a record speaks of.
    pub plugin_name: Option<String>,
}

impl OfDriver {
    pub fn seen(records: &Records, retries: &Retries, driver: &str) -> Self {
        let mut found = Self::default();
        let mut waiting = Vec::new();
        records.visit(driver, |stored| {
            let record = &stored.record;
            if record.forgotten.is_some() {
                found.reported.push(of_record(stored));
            }
            if record.has_traces() {
                found.plugin_name = Some(record.plugin_name.clone());
                waiting.push((record.volume_handle.clone(), stored.waiting()));
            }
        });
        found.reported.sort_by(|one, other| one.attachment_uid.cmp(&other.attachment_uid));
        let unreadable = records.unreadable();
        let unreadable = unreadable.iter().filter(|u| u.driver_name == driver || u.driver_name.is_empty());
        found.reported.extend(unreadable.map(of_file));
        let words = waiting.iter().flat_map(|(handle, uids)| {
            let words = uids.iter().filter_map(|uid| retries.word(uid));
            words.map(move |word| format!("volume {handle}: {word}"))
        });
        found.untold = words.collect::<BTreeSet<String>>().into_iter().collect();
        found
    }

    /// Whether the driver's PluginInstance is needed, because only it can tell of something and take the order to
    /// undo it.
    pub fn needs_instance(&self) -> bool {
        !self.reported.is_empty() || self.plugin_name.is_some()
    }
}

/// Puts a report into a status: those for which there is no room are only named.
pub(crate) fn say(mut all: Vec<ForgottenMount>, status: &mut PluginInstanceStatus) {
    // Of what cannot be named nothing would be said.
    all.sort_by_key(|mount| !mount.handle_name.is_empty());
    let more = all.split_off(all.len().min(MAX_FORGOTTEN));
    let names = more.into_iter().map(|mount| mount.handle_name).filter(|name| !name.is_empty());
    status.forgotten_handles = names.take(MAX_FORGOTTEN_HANDLES).collect();
    status.forgotten = all;
}

fn of_record(stored: &Stored) -> ForgottenMount {
    let record = &stored.record;
    let claims = record.targets.values().map(|t| format!("{}/{}", t.namespace, t.name));
    let since = record.forgotten.and_then(|f| Timestamp::from_second(f.since).ok());
    ForgottenMount {
        handle_name: record.handle_name.clone(),
        volume_handle: record.volume_handle.clone(),
        attachment_uid: record.attachment_uid.to_string(),
        claims: claims.take(MAX_CLAIMS).collect(),
        reason: record.forgotten.map(|f| reason(f.why)).unwrap_or_default().to_owned(),
        since: since.map(Time),
    }
}

fn of_file(unreadable: &Unreadable) -> ForgottenMount {
    // What does not fit is no name of ours, and must not make the whole status be refused.
    let fitting = |text: &str, most: usize| if text.len() <= most { text.to_owned() } else { String::new() };
    ForgottenMount {
        handle_name: fitting(&unreadable.handle_name, 63),
        volume_handle: fitting(&unreadable.volume_handle, 1024),
        attachment_uid: unreadable.attachment_uid.chars().take(63).collect(),
        reason: crate::api::instance::UNREADABLE.into(),
        ..ForgottenMount::default()
    }
}

/// Forgets why steps of an object failed. Returns the drivers whose PluginInstance shows it.
pub(crate) fn clear(retries: &Retries, records: &Records, uid: &str) -> BTreeSet<String> {
    if !retries.clear(uid) {
        return BTreeSet::new();
    }
    let shown = records.with_traces().into_iter().filter(|stored| stored.waiting().contains(uid));
    shown.map(|stored| stored.record.driver_name).collect()
}

/// The condition Undone, which says what waits to be undone.
pub(crate) fn undone(untold: &[String]) -> Desired {
    match untold {
        [] => Desired::new(Reason::NothingWaits, "nothing waits to be undone of which no claim tells"),
        [one] => Desired::new(Reason::UndoWaits, one),
        [first, more @ ..] => {
            Desired::new(Reason::UndoWaits, format!("{first}; and {} more wait", more.len()))
        }
    }
}

/// UIDs of the Attachments whose forgotten mounts somebody ordered to be undone.
pub(crate) fn orders(instance: &PluginInstance) -> Vec<String> {
    let mut all = dismissals(instance);
    all.extend(forced(instance));
    all
}

/// UIDs of the Attachments whose files somebody ordered to be put away. The order that does not wait is about mounts: it
/// says nothing of a file that may speak of some.
pub(crate) fn dismissals(instance: &PluginInstance) -> Vec<String> {
    named_in(instance, UNDO_FORGOTTEN)
}

/// UIDs of the Attachments whose mounts somebody ordered to be undone by force.
pub(crate) fn forced(instance: &PluginInstance) -> Vec<String> {
    named_in(instance, FORCE_UNDO)
}

fn named_in(instance: &PluginInstance, annotation: &str) -> Vec<String> {
    let text = instance.metadata.annotations.as_ref().and_then(|a| a.get(annotation));
    let uids = text.map(String::as_str).unwrap_or_default().split([',', ' ']);
    uids.filter(|uid| !uid.is_empty()).map(str::to_owned).collect()
}

impl Agent {
    /// The VolumeHandles of all that is reported, of whichever driver.
    pub fn forgotten_handles(&self) -> Handles {
        let recorded = self.records.forgotten().into_iter().map(|stored| stored.record.handle_name);
        let unreadable = self.records.unreadable().into_iter().map(|file| of_file(&file).handle_name);
        Handles::of(recorded.chain(unreadable))
    }

    /// A revision that the API server had reached for moor's kinds, as far as this node knows. Leases may have an etcd of
    /// their own, which counts for itself: a Lease is compared with a Lease only.
    pub fn known_revision(&self) -> u64 {
        self.caches.highest_revision()
    }

    /// The API server's revision now. If its history is not the one that this node knows, everything is doubted from
    /// here on and the agent ends.
    pub async fn revision(&self) -> Result<u64, ApiError> {
        let known = self.known_revision();
        let went_back = self.history.went_back(&self.leases, &agent_lease_name(&self.node_name)).await?;
        let now = read::revision(&self.api::<PluginInstance>()).await?;
        if now < known || went_back {
            tracing::error!(known, now, "the API server's history went back: etcd was restored");
            self.doubt();
            self.went_back.notify_one();
        }
        Ok(now)
    }

    /// Fails with what is missing, until everything that is mounted here was said.
    pub fn settled(&self) -> Result<(), String> {
        match self.settling.left() {
            None => return Ok(()),
            Some(0) => {}
            Some(left) => return Err(format!("{left} volumes are yet to be compared with a restored etcd")),
        }
        let drivers: BTreeSet<_> =
            self.records.forgotten().into_iter().map(|stored| stored.record.driver_name).collect();
        for driver in drivers {
            let instance = self
                .caches
                .instances
                .get(&instance_name(DriverOn { driver: &driver, node: &self.node_name }));
            // Without Plugin or instance only the Lease says it, and that is what waits here.
            let (Some(_), Some(instance)) = (self.caches.plugin_of(&driver), instance) else { continue };
            let report = || OfDriver::seen(&self.records, &self.retries, &driver).reported;
            if !instance.status.as_ref().is_some_and(|status| says(status, report())) {
                return Err(format!("what a restored etcd has forgotten of {driver} is yet to be reported"));
            }
        }
        self.settling.end();
        Ok(())
    }

    /// The API server's history went back. What it does not have may be in use here. No call is started and no Lease renewed
    /// any more while that is written down, which may take as long as the disk takes.
    pub fn doubt(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.history.end();
        if let Err(error) = self.records.doubt_all() {
            // The Lease's version is kept then, so that the next process finds it out again.
            tracing::error!("{error}");
            return;
        }
        self.history.restart().unwrap_or_else(|error| tracing::error!("forget the Lease's version: {error}"));
    }
}

/// Whether a status already says this report, as it is cut and sorted for a status.
fn says(status: &PluginInstanceStatus, report: Vec<ForgottenMount>) -> bool {
    let mut said = PluginInstanceStatus::default();
    say(report, &mut said);
    (&status.forgotten, &status.forgotten_handles) == (&said.forgotten, &said.forgotten_handles)
}

#[cfg(test)]
#[path = "forgotten_tests.rs"]
mod tests;
