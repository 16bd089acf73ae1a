//! The nodes: whether agents are heard, their clocks, and whether mounts can reach the host.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::ResourceExt as _;

use super::super::words::full_name;
use super::facts::Facts;
use super::finding::Finding;
use super::install::{CONTROLLER, agent_set, agents_on, named};
use super::leases::{age, renewed, written};
use crate::api::VolumeClaim;
use crate::api::conditions::{READY, Reason, find};
use crate::api::names::{AGENTS, agent_lease_name};

/// How far a node's clock may be from the API server's, in seconds.
const APART: i64 = 5;
/// What a Pod's mounts need to be seen by the host.
const BIDIRECTIONAL: &str = "Bidirectional";

/// All checks of this file.
pub fn check(facts: &Facts) -> Vec<Finding> {
    vec![heard(facts), clocks(facts), propagation(facts), mounts(facts)]
}

fn heard(facts: &Facts) -> Finding {
    const WHAT: &str = "agents' Leases";
    let (leases, pods) = match (&facts.leases, &facts.pods, &facts.clock) {
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Finding::not_checked(WHAT, why),
        (Ok(leases), Ok(pods), Ok(_)) => (leases, pods),
    };
    let on = agents_on(pods);
    let silent: Vec<_> = on
        .keys()
        .filter_map(|node| {
            let name = agent_lease_name(node);
            let Some(lease) = leases.iter().find(|lease| lease.name_any() == name) else {
                return Some(format!("{node} has none"));
            };
            let lasts = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).map_or(0, i64::from);
            match age(facts, lease) {
                Some(age) if age <= lasts => None,
                Some(age) => Some(format!("{node}: renewed {age} s ago, lasts {lasts} s")),
                None => Some(format!("{node}: never renewed")),
            }
        })
        .collect();
    if on.is_empty() {
        return Finding::not_checked(WHAT, "no agent has a Pod");
    }
    if silent.is_empty() {
        return Finding::ok(WHAT, format!("all {} agents with a Pod are heard", on.len()));
    }
    let remedy =
        format!("kubectl logs -n {} of the agents there: can they reach the API server?", facts.namespace);
    Finding::fault(WHAT, format!("silent: {}", named(&silent)), remedy)
}

/// A Lease says when it was renewed by its writer's clock, and the API server beside it when that was written.
fn clocks(facts: &Facts) -> Finding {
    const WHAT: &str = "clocks of nodes";
    let leases = match &facts.leases {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(leases) => leases,
    };
    let (mut apart, mut compared) = (Vec::new(), 0);
    let of_moor = |lease: &&Lease| lease.name_any().starts_with(AGENTS) || lease.name_any() == CONTROLLER;
    for lease in leases.iter().filter(of_moor) {
        let Some((renewed, written)) = renewed(lease).zip(written(lease)) else { continue };
        compared += 1;
        let ahead = renewed.duration_since(written).as_secs();
        if ahead.abs() > APART {
            let name = lease.name_any();
            let whose = name.strip_prefix(AGENTS).unwrap_or("the controller's").to_owned();
            apart.push(format!(
                "{whose} is {} s {}",
                ahead.abs(),
                if ahead > 0 { "ahead" } else { "behind" }
            ));
        }
    }
    let how = "by the API server's time of each Lease's last renewal, to 2 s";
    match (compared, apart.is_empty()) {
        (0, _) => Finding::not_checked(WHAT, "no Lease says when the API server took its last renewal"),
        (count, true) => Finding::ok(WHAT, format!("all {count} within {APART} s, {how}")),
        (_, false) => Finding::warning(
            WHAT,
            format!("{}, {how}", named(&apart)),
            "have the nodes keep time (NTP): certificates and tokens are judged by it, and times in status and traces are theirs",
        ),
    }
}

fn propagation(facts: &Facts) -> Finding {
    const WHAT: &str = "mount propagation";
    if let Err(why) = &facts.daemon_sets {
        return Finding::not_checked(WHAT, why);
    }
    let Some(spec) = agent_set(facts).and_then(|set| set.spec.as_ref()?.template.spec.as_ref()) else {
        return Finding::not_checked(WHAT, "the agents' DaemonSet is not there");
    };
    let wrong = wrong_with(spec);
    if wrong.is_empty() {
        let dir = spec.containers.first().and_then(kubelet_dir).unwrap_or_default();
        return Finding::ok(
            WHAT,
            format!(
                "agents declare {dir} {BIDIRECTIONAL}; the Pods of drivers that moor does not run are not looked at"
            ),
        );
    }
    Finding::fault(
        WHAT,
        wrong.join("; "),
        "put the agents' DaemonSet as the chart has it: mounts do not reach Pods otherwise",
    )
}

fn kubelet_dir(container: &Container) -> Option<String> {
    let args = container.args.iter().flatten();
    args.filter_map(|arg| arg.strip_prefix("--kubelet-dir=")).next_back().map(str::to_owned)
}

/// What keeps the mounts of such agents from the host.
fn wrong_with(spec: &PodSpec) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(container) = spec.containers.iter().find(|container| container.name == "agent") else {
        return vec!["the agents' Pods have no container agent".into()];
    };
    let dir = kubelet_dir(container).unwrap_or_else(|| "/var/lib/kubelet".into());
    let mount = container.volume_mounts.iter().flatten().find(|mount| mount.mount_path == dir);
    match mount {
        None => {
            wrong.push(format!("{dir}, which is --kubelet-dir, is not mounted into agents at the same path"));
        }
        Some(mount) => {
            if mount.mount_propagation.as_deref() != Some(BIDIRECTIONAL) {
                let has = mount.mount_propagation.as_deref().unwrap_or("None");
                wrong.push(format!("{dir} has mountPropagation {has}, not {BIDIRECTIONAL}"));
            }
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let path = volume.and_then(|volume| volume.host_path.as_ref()).map(|path| path.path.as_str());
            if path != Some(dir.as_str()) {
                wrong.push(format!(
                    "{dir} is {} of the host, not the same path",
                    path.unwrap_or("no directory")
                ));
            }
        }
    }
    if container.security_context.as_ref().and_then(|context| context.privileged) != Some(true) {
        wrong.push(format!("agents are not privileged, without which nothing is {BIDIRECTIONAL}"));
    }
    if spec.host_pid != Some(true) {
        wrong.push("agents have no hostPID, so that they do not find the node's own mounts".into());
    }
    wrong
}

/// What agents have found when a driver said that it had mounted.
fn mounts(facts: &Facts) -> Finding {
    const WHAT: &str = "mounts";
    let claims = match &facts.claims {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(claims) => claims,
    };
    let is_unseen = |claim: &&VolumeClaim| {
        let conditions = claim.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
        find(conditions, READY).is_some_and(|ready| ready.reason == Reason::MountNotVisible.as_str())
    };
    let unseen: BTreeSet<_> =
        claims.iter().filter(is_unseen).map(|claim| full_name(&claim.metadata)).collect();
    if unseen.is_empty() {
        return Finding::ok(WHAT, format!("none of {} claims says MountNotVisible", claims.len()));
    }
    Finding::fault(
        WHAT,
        format!("MountNotVisible: {}", named(&unseen)),
        "the driver's Pod needs kubelet's directory as a hostPath with mountPropagation Bidirectional, and to be privileged",
    )
}
