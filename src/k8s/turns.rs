//! Events of drivers that have become well or ill.

use kube::Resource;

use super::events::{EventReason, Recorder};
use crate::api::conditions::Condition;
use crate::api::turn::{Turn, turned};

impl Recorder {
    /// Publishes that a driver has become well or ill, if that is so between what the conditions of its object said
    /// `before` and what they say now.
    pub async fn publish_turn<K>(&self, object: &K, before: &[Condition], after: &[Condition])
    where
        K: Resource<DynamicType = ()>,
    {
        let Some((turn, note)) = turned(before, after) else { return };
        let reason = match turn {
            Turn::Well => EventReason::Healthy,
            Turn::Ill => EventReason::Unhealthy,
        };
        self.publish(object, reason, "Probe", note).await;
    }
}
