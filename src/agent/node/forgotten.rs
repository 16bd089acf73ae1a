//! Records that the API server does not account for.

use std::sync::Arc;

use jiff::Timestamp;

use super::observe::View;
use super::{Pass, Trouble};
use crate::api::instance::UNDO_FORGOTTEN;
use crate::api::names::instance_name;
use crate::attachment::record::{Forgotten, Lapse, Record};
use crate::k8s::events::Reason;

impl Pass {
    pub(super) async fn read_revision(&mut self) -> Result<(), Trouble> {
        self.revision = Some(self.agent.revision().await?);
        Ok(())
    }

    pub(super) async fn mark_forgotten(&self, uid: &str, why: Lapse, view: &View) -> Result<(), Trouble> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        stored.record.forgotten = Some(Forgotten { why, since: Timestamp::now().as_second() });
        let record = stored.record.clone();
        self.agent.records.put_or_defer(stored).await;
        let note = said(&record, &self.agent.node_name, why);
        tracing::error!("{note}");
        self.agent.queues.instances.add(record.driver_name.clone());
        let instance = instance_name(&self.agent.node_name, &record.driver_name);
        if let Some(instance) = self.agent.instances.get("", &instance) {
            self.agent.tell(&instance, Reason::Orphan, "Report", note);
        }
        Ok(())
    }

    pub(super) async fn recall(&self, uid: &str, view: &View) -> Result<(), Trouble> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        stored.record.forgotten = None;
        tracing::info!(attachment = stored.record.attachment_name, "the API server has it again");
        self.agent.queues.instances.add(stored.record.driver_name.clone());
        self.agent.records.put_or_defer(stored).await;
        Ok(())
    }

    /// UIDs of the Attachments of this handle whose records are to be undone on order.
    pub(super) fn orders(
        &self,
        view: &std::collections::HashMap<String, crate::agent::records::Stored>,
    ) -> Vec<String> {
        let driver = view.values().find(|s| s.record.forgotten.is_some()).map(|s| &s.record.driver_name);
        let name = driver.map(|driver| instance_name(&self.agent.node_name, driver));
        let instance = name.and_then(|name| self.agent.instances.get("", &name));
        instance.map(|i: Arc<_>| crate::agent::forgotten::orders(&i)).unwrap_or_default()
    }
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
        instance_name(node, &record.driver_name),
        record.attachment_uid
    )
}
