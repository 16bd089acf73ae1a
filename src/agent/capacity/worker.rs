//! Asks a driver how much room it has: each question that the leader has put into its PluginInstance, again and again
//! (`--capacity-interval`) and after every call that may have changed it.
//!
//! Nothing depends on an answer but where the scheduler places Pods, so a question takes no turn from calls that somebody
//! waits for, and is asked on the word of a cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::said::take_in;
use crate::agent::context::Agent;
use crate::api::AccessMode;
use crate::api::AttachmentMode;
use crate::api::instance::{Capacity, CapacityRequest};
use crate::api::names::instance_name;
use crate::csi::capability::{SingleNode, to_proto};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{CallError, Origin, Rpc, Service};
use crate::k8s::Next;

/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest error that is kept, in characters: there may be one for each question.
const MAX_ERROR: usize = 256;

/// Asks one driver, and says when to do it again.
pub(crate) async fn work(agent: Arc<Agent>, driver: String) -> Next {
    let observed = agent.caches.instances.get(&instance_name(agent.driver_here(&driver)));
    let Some(observed) = observed.filter(|observed| !observed.spec.capacity_requests.is_empty()) else {
        agent.capacities.heard(&driver, BTreeMap::new());
        return Next::Done;
    };
    if !agent.may_call_driver(&driver, Service::Controller) {
        return Next::After(PAUSE);
    }
    let mut answers = agent.capacities.of(&driver, &observed);
    let mut has_failed = false;
    for (name, request) in &observed.spec.capacity_requests {
        // One that comes back wakes this again.
        let Ok(serving) = agent.serving(Rpc::GetCapacity, &driver) else { break };
        let call = serving.plugin.get_capacity(asked(request, serving.fingerprint.controller_modes));
        let answer = agent.call(&driver, Rpc::GetCapacity, call).await;
        if let Err(error) = &answer {
            tracing::warn!(driver, class = request.storage_class_name, "{error}");
            // What will not be otherwise next time is asked again with the others.
            has_failed |= !error.meaning().is_settled_failure();
        }
        if answer.as_ref().is_err_and(is_silence) {
            break;
        }
        take_in(&mut answers, name, answer.map(size).map_err(|error| words(&error)));
        if !agent.may_call() {
            break;
        }
    }
    if agent.capacities.heard(&driver, answers) {
        agent.queues.instances.add(driver);
    }
    if has_failed {
        return Next::Retry;
    }
    if agent.capacity_interval.is_zero() {
        return Next::Done;
    }
    // Agents begin together.
    Next::After(agent.capacity_interval.mul_f64(0.9 + 0.2 * rand::random::<f64>()))
}

/// Whether the driver has said nothing, and so will say nothing to the next question either.
fn is_silence(error: &CallError) -> bool {
    match error.origin {
        Origin::Dial | Origin::Connection | Origin::Deadline => true,
        Origin::Argument | Origin::Reply | Origin::Driver => false,
    }
}

fn size(answer: wire::GetCapacityResponse) -> Capacity {
    Capacity {
        available_capacity: Some(answer.available_capacity),
        maximum_volume_size: answer.maximum_volume_size,
        last_error: None,
    }
}

fn words(error: &CallError) -> String {
    error.to_string().chars().take(MAX_ERROR).collect()
}

/// GetCapacity. What is not known of the volumes to come is left out: a class says how they are used by naming a file system.
fn asked(request: &CapacityRequest, modes: SingleNode) -> wire::GetCapacityRequest {
    let of = |fs_type: &String| {
        to_proto(AccessMode::SingleNodeWriter, AttachmentMode::FileSystem, Some(fs_type), &[], modes)
    };
    wire::GetCapacityRequest {
        volume_capabilities: request.fs_type.iter().map(of).collect(),
        parameters: request.parameters.clone(),
        accessible_topology: Some(wire::Topology { segments: request.segments.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_asked_about_the_class_in_its_place() {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let mut request = CapacityRequest {
            storage_class_name: "class".into(),
            fs_type: None,
            parameters: map("k", "v"),
            segments: map("zone", "a"),
        };
        let plain = asked(&request, SingleNode::WriterOnly);
        assert!(plain.volume_capabilities.is_empty());
        assert_eq!(plain.parameters, map("k", "v"));
        assert_eq!(plain.accessible_topology.unwrap().segments, map("zone", "a"));
        request.fs_type = Some("xfs".into());
        let [capability] = &asked(&request, SingleNode::WriterOnly).volume_capabilities[..] else {
            panic!("one capability")
        };
        assert_eq!(crate::csi::sizes::capability(capability), Ok(()));
    }
}
