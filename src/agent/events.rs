//! Which change of an object, a process or the disk starts which worker.
//!
//! A change of what a worker wrote itself (attempts, conditions, messages) wakes nobody: that would make a failure its
//! own reason to try again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::caches::{BY_ATTACHMENT, Caches};
use super::calls::begun::Begun;
use super::calls::retry::Retries;
use super::capacity::said;
use super::drivers::place;
use super::drivers::registry::Surroundings;
use super::kubelet::asked::Asked;
use super::lost_mounts::LostMounts;
use super::orphans::known::Orphans;
use super::queues::Queues;
use super::records::store::Records;
use super::restore::forgotten;
use crate::api::claim::Assignment;
use crate::api::conditions::Reason;
use crate::api::names::INLINE;
use crate::api::workload::PLUGIN;
use crate::api::{
    Attachment, AttachmentState, AttachmentUid, ClaimState, ClaimUid, Snapshot, SnapshotState, Volume,
    VolumeClaim, VolumeStatus,
};
use crate::k8s::Cache;
use crate::metrics::Metrics;
use crate::plugin::workload::Directories;
use crate::volume::modification;

/// Time in which several changes of one plugin become one write.
const SETTLE: Duration = Duration::from_millis(100);
/// The health timeout of a driver whose Plugin is not known.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// Puts changes into queues.
pub(crate) struct Events {
    pub node_name: String,
    pub directories: Directories,
    pub caches: Caches,
    pub records: Arc<Records>,
    pub retries: Arc<Retries>,
    pub begun: Arc<Begun>,
    pub queues: Arc<Queues>,
    pub lost: Arc<LostMounts>,
    pub asked: Arc<Asked>,
    pub metrics: Metrics,
    /// Time to the first audit of a driver that answers; zero is never.
    pub audit_interval: Duration,
    pub orphans: Arc<Orphans>,
}

impl Events {
    /// Registers with the caches; before their watches start.
    pub fn listen(self: &Arc<Self>) {
        let me = self.clone();
        self.caches.claims.on_change(move |old, new| {
            if let Some(claim) = new.or(old).filter(|claim| claim.spec.pod.is_some()) {
                me.asked.wake(&ClaimUid::of(&claim.metadata));
            }
            if differs(old, new, of_claim) {
                for claim in [old, new].into_iter().flatten() {
                    me.claim(claim);
                }
            }
            if let (Some(gone), None) = (old, new) {
                let uid = gone.metadata.uid.as_deref().unwrap_or_default();
                me.clear(uid);
            }
        });
        let me = self.clone();
        self.caches.attachments.on_change(move |old, new| {
            if differs(old, new, of_attachment) {
                for attachment in [old, new].into_iter().flatten() {
                    me.attachment(attachment);
                }
            } else if differs(old, new, shown_of_attachment)
                && let Some(attachment) = new
            {
                me.attachment_on_node(attachment);
            }
            let taken = new.is_none_or(|now| now.spec.lost.is_some()) && old.is_some();
            if let Some(attachment) = new.or(old).filter(|_| taken) {
                me.left_over(attachment);
            }
            if let (Some(gone), None) = (old, new) {
                let uid = gone.metadata.uid.as_deref().unwrap_or_default();
                me.clear(uid);
                // Of one without a record nothing but its claims is left to go by.
                for claim in me.caches.claims.by_index(BY_ATTACHMENT, uid) {
                    me.claim(&claim);
                }
            }
        });
        self.listen_to_called();
        let me = self.clone();
        self.caches.plugins.on_change(move |old, new| {
            if let Some(plugin) = new {
                me.orphans.see_plugin(plugin);
            }
            for plugin in [old, new].into_iter().flatten() {
                me.queues.instances.add(plugin.driver_name().to_owned());
                me.queues.kubelet.add(plugin.driver_name().to_owned());
            }
            me.queues.kubelet.add(INLINE.to_owned());
            // Of several with one name at kubelets the oldest has it, and then the next.
            if new.is_none() || differs(old, new, |plugin| plugin.spec.kubernetes.clone()) {
                for other in me.caches.plugins.all() {
                    me.queues.kubelet.add(other.driver_name().to_owned());
                }
            }
        });
        let me = self.clone();
        self.caches.pods.on_change(move |old, new| {
            let plugin = new.or(old).and_then(|pod| me.caches.plugins.get(pod.label(PLUGIN)?));
            if let Some(plugin) = plugin {
                me.queues.instances.add(plugin.driver_name().to_owned());
            }
        });
        let me = self.clone();
        self.caches.instances.on_change(move |old, new| {
            for instance in [old, new].into_iter().flatten() {
                me.queues.instances.add_after(instance.spec.driver_name.clone(), SETTLE);
            }
            if let (Some(instance), None) | (None, Some(instance)) = (old, new) {
                me.queues.kubelet.add_after(instance.spec.driver_name.clone(), SETTLE);
            }
            if differs(old, new, said::asks)
                && let Some(instance) = new
            {
                me.queues.capacities.add(instance.spec.driver_name.clone());
            }
            if differs(old, new, |instance| (forgotten::orders(instance), forgotten::forced(instance))) {
                for uid in new.map(|instance| forgotten::orders(instance)).unwrap_or_default() {
                    if let Some(stored) = me.records.get(&uid.into()) {
                        // What failed before is another step under this order.
                        for uid in stored.waiting() {
                            me.retries.clear(&uid);
                        }
                        me.queues.nodes.add(stored.record.handle_name);
                    }
                }
            }
        });
    }

    /// Registers with the caches of what has calls of its own.
    fn listen_to_called(self: &Arc<Self>) {
        let me = self.clone();
        self.caches.volumes.on_change(move |old, new| {
            let uid = old.or(new).and_then(|v| v.metadata.uid.clone()).unwrap_or_default();
            if let Some(volume) = new
                && let Some(plugin) = me.caches.plugins.get(&volume.spec.plugin_name)
                && me.orphans.see_volume(plugin.driver_name(), volume)
            {
                me.audit(plugin.driver_name(), SETTLE);
            }
            match new {
                None => {
                    me.retries.clear(&uid);
                    me.begun.ended(&uid);
                }
                Some(_) if differs(old, new, of_volume) => me.queues.volumes.add(uid),
                Some(_) => {}
            }
        });
        let me = self.clone();
        self.caches.snapshots.on_change(move |old, new| {
            let uid = old.or(new).and_then(|s| s.metadata.uid.clone()).unwrap_or_default();
            if let Some(snapshot) = new
                && let Some(assignment) = &snapshot.spec.assignment
                && me.orphans.see_snapshot(&assignment.driver_name, snapshot)
            {
                me.audit(&assignment.driver_name, SETTLE);
            }
            match new {
                None => {
                    me.retries.clear(&uid);
                }
                Some(_) if differs(old, new, of_snapshot) => me.queues.snapshots.add(uid),
                Some(_) => {}
            }
        });
    }

    /// Wakes the workers for all records, after the first lists: no event speaks of an Attachment that went while the
    /// agent was away.
    pub fn wake_records(&self) {
        for handle in self.records.handles() {
            self.queues.nodes.add(handle);
        }
    }

    /// Wakes what depends on the disk with the records, which takes no writes any more, or takes them again.
    pub fn state_disk_changed(&self, writable: bool) {
        for instance in self.caches.instances.all() {
            self.queues.instances.add(instance.spec.driver_name.clone());
        }
        if writable {
            for handle in self.records.deferred_handles() {
                self.queues.nodes.add(handle);
            }
            for uid in self.retries.reason_is_over(Reason::StateNotWritable) {
                self.due(&uid);
            }
        }
    }

    /// Forgets why the steps of an object failed that is gone.
    fn clear(&self, uid: &str) {
        for driver in forgotten::clear(&self.retries, &self.records, uid) {
            self.queues.instances.add(driver);
        }
    }

    fn audit(&self, driver: &str, delay: Duration) {
        if !self.audit_interval.is_zero() {
            self.queues.audits.add_after(driver.to_owned(), delay);
        }
    }

    fn claim(&self, claim: &VolumeClaim) {
        let Some(assignment) = claim.spec.assignment.as_ref().filter(|a| a.node_name == self.node_name)
        else {
            return;
        };
        let recorded = |uid: &AttachmentUid| self.records.get(uid).map(|stored| stored.record.handle_name);
        if let Some(handle) = handle_of(assignment, &self.caches.attachments, recorded) {
            self.queues.nodes.add(handle);
        }
    }

    /// Takes in that an Attachment is lost or gone: what this node still has of it has to be known before the volume
    /// is granted here again.
    fn left_over(&self, attachment: &Attachment) {
        let uid = AttachmentUid::of(&attachment.metadata);
        if self.records.get(&uid).is_some_and(|stored| stored.record.has_traces()) {
            self.lost.tell();
        }
    }

    fn attachment(&self, attachment: &Attachment) {
        let handle = attachment.spec.fixed.handle_name.clone();
        if attachment.spec.controller.as_ref().is_some_and(|c| c.agent == self.node_name) {
            self.queues.handles.add(handle);
        }
        self.attachment_on_node(attachment);
    }

    fn attachment_on_node(&self, attachment: &Attachment) {
        if attachment.spec.node_name == self.node_name {
            self.queues.nodes.add(attachment.spec.fixed.handle_name.clone());
        }
    }

    fn due(&self, uid: &str) {
        if let Some(claim) = self.caches.claims.by_uid(uid) {
            self.claim(&claim);
        }
        if let Some(attachment) = self.caches.attachments.by_uid(uid) {
            self.attachment(&attachment);
        } else if let Some(stored) = self.records.get(&uid.into()) {
            self.queues.nodes.add(stored.record.handle_name);
        }
        if self.caches.volumes.by_uid(uid).is_some() {
            self.queues.volumes.add(uid.to_owned());
        }
        if self.caches.snapshots.by_uid(uid).is_some() {
            self.queues.snapshots.add(uid.to_owned());
        }
    }
}

impl Surroundings for Events {
    fn named_sockets(&self) -> Vec<PathBuf> {
        let plugins = self.caches.plugins.all().into_iter();
        let named = plugins.filter_map(|p| self.directories.named_socket(p.spec.socket_path.as_deref()?));
        let pods = self.caches.controller_pods(None).into_iter();
        named.chain(pods.map(|uid| place::in_pod(&self.directories.kubelet, &uid))).collect()
    }

    fn place_of(&self, path: &Path) -> PathBuf {
        place::place_of(&self.directories.kubelet, path)
    }

    fn health_timeout(&self, driver: &str) -> Duration {
        let seconds = self.caches.plugin_of(driver).map(|p| p.spec.health_timeout_seconds);
        seconds.and_then(|s| u64::try_from(s).ok()).map_or(HEALTH_TIMEOUT, Duration::from_secs)
    }

    fn unanswered(&self, folders: usize) {
        self.metrics.folders_unanswered.set(i64::try_from(folders).unwrap_or(i64::MAX));
    }

    fn panicked(&self) {
        self.metrics.panics.inc();
    }

    fn changed(&self, driver: &str, serving: bool) {
        self.queues.instances.add_after(driver.to_owned(), SETTLE);
        self.queues.kubelet.add_after(driver.to_owned(), SETTLE);
        if serving {
            self.audit(driver, self.audit_interval);
            self.queues.capacities.add(driver.to_owned());
            for uid in self.retries.plugin_is_back(driver) {
                self.due(&uid);
            }
        }
    }
}

/// Name of the VolumeHandle that a claim is about. Where an earlier version assigned the claim, its Attachment says it,
/// or what this node has recorded of that. Without either nothing is here for the claim, and the Attachment wakes its
/// worker when it comes.
fn handle_of(
    assignment: &Assignment,
    attachments: &Cache<Attachment>,
    recorded: impl FnOnce(&AttachmentUid) -> Option<String>,
) -> Option<String> {
    if !assignment.handle_name.is_empty() {
        return Some(assignment.handle_name.clone());
    }
    let uid = &assignment.attachment_uid;
    attachments.by_uid(uid).map(|a| a.spec.fixed.handle_name.clone()).or_else(|| recorded(uid))
}

/// Whether an object arrived, left, changed in what decides, or may have left one of two watches.
fn differs<K, P: PartialEq>(old: Option<&Arc<K>>, new: Option<&Arc<K>>, projection: fn(&K) -> P) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new) || projection(old) != projection(new),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

type Life = (Option<String>, Option<i64>, Option<Timestamp>);

fn life(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Life {
    (meta.uid.clone(), meta.generation, meta.deletion_timestamp.as_ref().map(|t| t.0))
}

fn of_claim(claim: &VolumeClaim) -> (Life, Option<(ClaimState, Option<AttachmentUid>)>) {
    let status = claim.status.as_ref().map(|s| (s.state, s.yielded.clone()));
    (life(&claim.metadata), status)
}

fn of_attachment(attachment: &Attachment) -> (Life, Option<AttachmentState>) {
    (life(&attachment.metadata), attachment.status.as_ref().map(|s| s.state))
}

/// What the node's claims show while they wait for the Attachment. Whoever wrote it is not woken by it.
fn shown_of_attachment(attachment: &Attachment) -> Option<(Option<i64>, Option<String>)> {
    let status = attachment.status.as_ref()?;
    Some((status.attempts, status.last_error.as_ref().map(|e| e.code.clone())))
}

/// Also the parameters that are due next: when a modification of unknown outcome has ended, others may have been asked for meanwhile.
fn of_volume(volume: &Volume) -> impl PartialEq + use<> {
    let may_delete = |s: &VolumeStatus| s.rejected.as_ref().is_some_and(|r| r.may_delete);
    let status = volume.status.as_ref().map(|s| (s.state, may_delete(s)));
    (life(&volume.metadata), status, modification::due(volume).cloned())
}

fn of_snapshot(snapshot: &Snapshot) -> (Life, SnapshotState) {
    (life(&snapshot.metadata), snapshot.state())
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
