//! Records that the API server does not account for.

use std::sync::Arc;

use jiff::Timestamp;

use super::pass::Pass;
use super::view::View;
use crate::agent::calls::attempt::NotDone;
use crate::agent::calls::failure::Failure;
use crate::agent::restore::forgotten::{forced, orders};
use crate::api::instance::{FORCE_UNDO, UNDO_FORGOTTEN};
use crate::api::names::{DriverOn, instance_name};
use crate::api::{AttachmentUid, PluginInstance};
use crate::attachment::record::{Forgotten, Lapse, Record};
use crate::csi::Service;
use crate::k8s::events::EventReason;

impl Pass {
    pub(super) async fn read_revision(&mut self) -> Result<(), NotDone> {
        self.revision = Some(self.agent.revision().await?);
        Ok(())
    }

    pub(super) async fn mark_forgotten(
        &self,
        uid: &AttachmentUid,
        why: Lapse,
        view: &View,
    ) -> Result<(), NotDone> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        stored.record.forgotten = Some(Forgotten { why, since: Timestamp::now().as_second() });
        let record = stored.record.clone();
        self.agent.records.put_or_defer(stored).await;
        let note = said(&record, &self.agent.node_name, why);
        tracing::error!("{note}");
        self.agent.queues.instances.add(record.driver_name.clone());
        self.agent.lost.tell();
        if let Some(instance) = self.instance(&record.driver_name) {
            self.agent.recorder.tell(&instance, EventReason::Orphan, "Report", note);
        }
        Ok(())
    }

    pub(super) async fn recall(&self, uid: &AttachmentUid, view: &View) -> Result<(), NotDone> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        stored.record.forgotten = None;
        tracing::info!(attachment = stored.record.attachment_name, "the API server has it again");
        self.agent.queues.instances.add(stored.record.driver_name.clone());
        self.agent.records.put_or_defer(stored).await;
        self.agent.lost.tell();
        Ok(())
    }

    /// UIDs of the Attachments of this handle whose records are to be undone on order.
    pub(super) fn orders(&self, view: &View) -> Vec<AttachmentUid> {
        let driver =
            view.stored.values().find(|s| s.record.forgotten.is_some()).map(|s| &s.record.driver_name);
        let instance = driver.and_then(|driver| self.instance(driver));
        instance.map(|instance| orders(&instance)).unwrap_or_default().into_iter().map(Into::into).collect()
    }

    /// Whether somebody ordered by annotation that this record be undone by force, for which no claim is left to say
    /// so.
    pub(super) fn is_forced(&self, record: &Record) -> bool {
        let instance = self.instance(&record.driver_name);
        instance.is_some_and(|instance| forced(&instance).iter().any(|uid| *uid == *record.attachment_uid))
    }

    /// What waits to be undone and has no claim to say so is said on the PluginInstance.
    pub(super) fn tell_of_undo(&self, uid: &str, record: &Record, failure: &Failure) {
        let word = with_order(failure.to_string(), record, &self.agent.node_name);
        if self.agent.retries.keep_word(uid, word.clone()) {
            self.agent.queues.instances.add(record.driver_name.clone());
            if let Some(instance) = self.instance(&record.driver_name) {
                let note = format!("volume {}: {word}", record.volume_handle);
                self.agent.recorder.tell(&instance, EventReason::Orphan, "Undo", note);
            }
        }
    }

    /// A step that was tried is done.
    pub(super) fn went(&self, uid: &str, record: &Record) {
        if self.agent.retries.succeeded(uid, Service::Node) {
            self.agent.queues.instances.add(record.driver_name.clone());
        }
    }

    /// The PluginInstance of a driver on this node.
    pub(super) fn instance(&self, driver: &str) -> Option<Arc<PluginInstance>> {
        self.agent.caches.instances.get(&instance_name(DriverOn { driver, node: &self.agent.node_name }))
    }
}

/// The order that undoes by force.
pub(super) fn way_of_force(record: &Record, node: &str) -> String {
    let instance = instance_name(DriverOn { driver: &record.driver_name, node });
    format!("`kubectl annotate --overwrite plugininstance {instance} {FORCE_UNDO}={}`", record.attachment_uid)
}

/// Names the order that does not wait, where the failure does not: nothing else says by which UID it is given.
fn with_order(failure: String, record: &Record, node: &str) -> String {
    let order = way_of_force(record, node);
    if failure.contains(&order) { failure } else { format!("{failure}; {order} does not wait for that") }
}

fn said(record: &Record, node: &str, why: Lapse) -> String {
    let what = match why {
        Lapse::WentBack => "which the API server has forgotten (etcd was restored from a backup)",
        Lapse::LockRemoved => "whose Attachment was removed by hand",
    };
    format!("volume {} is in use on node {node}, {what}: {}", record.volume_handle, ways_out(record, node))
}

/// What ends a forgotten mount.
pub(super) fn ways_out(record: &Record, node: &str) -> String {
    format!(
        "it is undone by a reboot of the node, or by the order \
         `kubectl annotate --overwrite plugininstance {} {UNDO_FORGOTTEN}={}`",
        instance_name(DriverOn { driver: &record.driver_name, node }),
        record.attachment_uid
    )
}

/// What a claim waits for while a file that cannot be read names its volume, or may be of it since it names none; and what
/// ends that.
pub(super) fn beside_unreadable(at: DriverOn<'_>, uid: &AttachmentUid, named: bool) -> String {
    let DriverOn { driver, node } = at;
    let speaks = if named {
        "names this volume"
    } else {
        "does not say of which volume it is, nor does its Attachment, which is gone"
    };
    format!(
        "the record of Attachment {uid} on node {node} cannot be read and {speaks}, so that an earlier mount of this one may \
         be left there; a version of moor that can read it undoes that, or see to it that nothing of it is mounted there, as \
         after a reboot of the node, and dismiss the file by \
         `kubectl annotate --overwrite plugininstance {} {UNDO_FORGOTTEN}={uid}`",
        instance_name(DriverOn { driver, node })
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::records::store::tests::stored;

    /// Its claims and its Attachment are gone, so nobody can look the UID up.
    #[test]
    fn what_waits_says_by_which_order_it_does_not() {
        let record = stored("uid-1").record;
        let order =
            format!("{} {FORCE_UNDO}=uid-1`", instance_name(DriverOn { driver: "driver", node: "node-1" }));
        let once = with_order("no plugin answers".to_owned(), &record, "node-1");
        assert!(once.starts_with("no plugin answers; ") && once.contains(&order), "{once}");
        assert_eq!(with_order(once.clone(), &record, "node-1"), once, "said once");
    }

    #[test]
    fn a_claim_beside_a_file_that_nobody_can_read_says_what_to_do() {
        let order = format!(
            "plugininstance {} {UNDO_FORGOTTEN}=uid-1`",
            instance_name(DriverOn { driver: "driver", node: "node-1" })
        );
        let at = DriverOn { driver: "driver", node: "node-1" };
        for (named, word) in [(true, "names this volume"), (false, "its Attachment, which is gone")] {
            let told = beside_unreadable(at, &"uid-1".into(), named);
            assert!(told.contains(word) && told.ends_with(&order), "{told}");
        }
    }
}
