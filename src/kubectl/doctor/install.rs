//! moor itself: Kubernetes, kinds, the controller, the agents, their versions, and the policies.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;

use super::facts::Facts;
use super::finding::Finding;
use super::leases::age;
use crate::api::all_crds;
use crate::api::conditions::first_few;

/// The oldest version of Kubernetes that moor runs on.
const OLDEST: (u32, u32) = (1, 32);
/// Name of the controller's Deployment and of its Lease, as the chart has them.
pub const CONTROLLER: &str = "moor-controller";
/// Name of the agents' DaemonSet.
pub const AGENT: &str = "moor-agent";
/// Label by which Pods of moor's own say what they are.
const COMPONENT: &str = "app.kubernetes.io/component";
/// Label with the version of the chart's moor.
const VERSION: &str = "app.kubernetes.io/version";
/// The version of this program.
const OWN: &str = env!("CARGO_PKG_VERSION");
/// Most names in a line.
pub const NAMED: usize = 5;
/// The policies of the chart, each of which is bound.
pub const POLICIES: [&str; 12] = [
    "moor-locks",
    "moor-grants",
    "moor-pod-claims",
    "moor-kept-volumes",
    "moor-claim-status",
    "moor-attachment-status",
    "moor-volume-status",
    "moor-snapshot-status",
    "moor-plugin-instances",
    "moor-controller-status",
    "moor-handle-status",
    "moor-agent-leases",
];

/// The first few of some names.
pub fn named<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    first_few(names.into_iter().map(String::as_str), NAMED)
}

/// All checks of this file.
pub fn check(facts: &Facts) -> Vec<Finding> {
    vec![
        kubernetes(facts),
        clock(facts),
        crds(facts),
        controller(facts),
        agents(facts),
        versions(facts),
        policies(facts),
    ]
}

fn kubernetes(facts: &Facts) -> Finding {
    const WHAT: &str = "Kubernetes";
    match &facts.version {
        Err(why) => Finding::not_checked(WHAT, why),
        Ok((major, minor, said)) if (*major, *minor) >= OLDEST => Finding::ok(WHAT, said),
        Ok((_, _, said)) => {
            let (major, minor) = OLDEST;
            Finding::fault(WHAT, format!("{said} is older than {major}.{minor}"), "upgrade the cluster first")
        }
    }
}

fn clock(facts: &Facts) -> Finding {
    const WHAT: &str = "this machine's clock";
    const MOST: i64 = 3;
    match &facts.clock {
        Err(why) => Finding::not_checked(WHAT, why),
        Ok(clock) if clock.ahead().as_secs().abs() <= MOST => {
            Finding::ok(WHAT, "is that of the API server, to a few seconds")
        }
        Ok(clock) => Finding::warning(
            WHAT,
            format!("is {} s ahead of the API server's", clock.ahead().as_secs()),
            "set it: ages on pages, and who is silent, are reckoned by it",
        ),
    }
}

fn crds(facts: &Facts) -> Finding {
    const WHAT: &str = "kinds";
    const REMEDY: &str = "upgrade the chart, or apply what `moor crd` of that version prints";
    let found = match &facts.crds {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(found) => found,
    };
    let (mut faults, mut newer) = (Vec::new(), Vec::new());
    let wanted = all_crds();
    for wanted in &wanted {
        let name = wanted.name_any();
        let Some(found) = found.iter().find(|found| found.name_any() == name) else {
            faults.push(format!("{name} is not there"));
            continue;
        };
        if found.metadata.deletion_timestamp.is_some() {
            faults.push(format!("{name} is being deleted, and with it all its objects"));
        }
        let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if !conditions.into_iter().any(|now| now.type_ == "Established" && now.status == "True") {
            faults.push(format!("{name} is not established"));
        }
        let (ours, theirs) = (fields(wanted), fields(found));
        let missing: Vec<_> = ours.difference(&theirs).cloned().collect();
        if !missing.is_empty() {
            faults.push(format!("{name} is older than this program: it lacks {}", named(&missing)));
        }
        let more: Vec<_> = theirs.difference(&ours).cloned().collect();
        if !more.is_empty() {
            newer.push(format!("{name} has {}", named(&more)));
        }
    }
    match (faults.is_empty(), newer.is_empty()) {
        (false, _) => Finding::fault(WHAT, faults.join("; "), REMEDY),
        (true, false) => Finding::warning(
            WHAT,
            format!("newer than this program: {}", named(&newer)),
            "get the kubectl-moor of the installed version",
        ),
        (true, true) => Finding::ok(WHAT, format!("all {}, as this program knows them", wanted.len())),
    }
}

/// The paths of all fields of a kind's served versions.
fn fields(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let Ok(schema) = serde_json::to_value(schema) else { continue };
        walk(&schema, &version.name, &mut paths);
    }
    paths
}

fn walk(schema: &Value, at: &str, paths: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        // What every object has the API server may write out, or not.
        if ["apiVersion", "kind", "metadata"].contains(&name.as_str()) && !at.contains('.') {
            continue;
        }
        let path = format!("{at}.{name}");
        walk(property, &path, paths);
        paths.insert(path);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(below) {
            walk(schema, at, paths);
        }
    }
}

fn controller(facts: &Facts) -> Finding {
    const WHAT: &str = "controller";
    let (deployments, leases) = match (&facts.deployments, &facts.leases, &facts.clock) {
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Finding::not_checked(WHAT, why),
        (Ok(deployments), Ok(leases), Ok(_)) => (deployments, leases),
    };
    let Some(found) = deployments.iter().find(|found| found.name_any() == CONTROLLER) else {
        let said = format!("there is no Deployment {CONTROLLER} in namespace {}", facts.namespace);
        return Finding::fault(WHAT, said, "install the chart, or say where it is (--moor-namespace)");
    };
    let logs = format!("kubectl logs -n {} deploy/{CONTROLLER}", facts.namespace);
    let (wanted, ready) = replicas(found);
    let lease = leases.iter().find(|lease| lease.name_any() == CONTROLLER);
    let leader =
        lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone()).filter(|name| !name.is_empty());
    let age = lease.and_then(|lease| age(facts, lease));
    let lasts = lease.and_then(|lease| lease.spec.as_ref()?.lease_duration_seconds).map_or(0, i64::from);
    let replicas = format!("{ready} of {wanted} replicas are ready");
    match (leader, age) {
        (Some(leader), Some(age)) if age <= lasts && ready == wanted => {
            Finding::ok(WHAT, format!("{replicas}; {leader} leads"))
        }
        (Some(leader), Some(age)) if age <= lasts => {
            Finding::warning(WHAT, format!("{replicas}; {leader} leads"), format!("see why: {logs}"))
        }
        (Some(leader), Some(age)) => Finding::fault(
            WHAT,
            format!("{replicas}, and nobody leads: {leader} was last heard {age} s ago"),
            format!("see why: {logs}"),
        ),
        _ => Finding::fault(WHAT, format!("{replicas}, and nobody leads"), format!("see why: {logs}")),
    }
}

fn replicas(deployment: &Deployment) -> (i32, i32) {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    (wanted, ready)
}

/// The agents' DaemonSet.
pub fn agent_set(facts: &Facts) -> Option<&DaemonSet> {
    let found = facts.daemon_sets.as_ref().ok()?;
    found.iter().find(|found| {
        found.name_any() == AGENT && found.namespace().as_deref() == Some(facts.namespace.as_str())
    })
}

/// The Pods of a component that have not ended.
fn pods_of<'a>(pods: &'a [Pod], component: &str) -> impl Iterator<Item = &'a Pod> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    pods.iter().filter(move |pod| {
        let is_moors = pod.labels().get("app.kubernetes.io/name").is_some_and(|name| name == "moor");
        is_moors
            && pod.labels().get(COMPONENT).is_some_and(|found| found == component)
            && !matches!(phase(pod).as_deref(), Some("Succeeded" | "Failed"))
    })
}

/// The nodes that have a Pod of the agent, and whether it is ready.
pub fn agents_on(pods: &[Pod]) -> BTreeMap<String, bool> {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|now| now.type_ == "Ready" && now.status == "True")
    };
    let on = |pod: &Pod| Some((pod.spec.as_ref()?.node_name.clone()?, is_ready(pod)));
    pods_of(pods, "agent").filter_map(on).collect()
}

fn agents(facts: &Facts) -> Finding {
    const WHAT: &str = "agents";
    if let Err(why) = &facts.daemon_sets {
        return Finding::not_checked(WHAT, why);
    }
    let Some(set) = agent_set(facts) else {
        let said = format!("there is no DaemonSet {AGENT} in namespace {}", facts.namespace);
        return Finding::fault(WHAT, said, "install the chart, or say where it is (--moor-namespace)");
    };
    let status = set.status.clone().unwrap_or_default();
    let (wanted, ready) = (status.desired_number_scheduled, status.number_ready);
    let said = format!("{ready} of {wanted} are ready");
    let on = match &facts.pods {
        Err(why) => return Finding::not_checked(WHAT, format!("{said}; on which nodes is not seen: {why}")),
        Ok(pods) => agents_on(pods),
    };
    let ill: Vec<_> = on.iter().filter(|(_, ready)| !**ready).map(|(node, _)| node.clone()).collect();
    if ready < wanted || wanted == 0 {
        let place = if ill.is_empty() { String::new() } else { format!("; not on {}", named(&ill)) };
        let logs = format!("kubectl describe pods -n {} -l {COMPONENT}=agent", facts.namespace);
        return Finding::fault(
            WHAT,
            format!("{said}{place}"),
            format!("no volume moves there; see why: {logs}"),
        );
    }
    match &facts.nodes {
        Err(why) => {
            Finding::not_checked(WHAT, format!("{said}; whether every node has one is not seen: {why}"))
        }
        Ok(nodes) => {
            let without: Vec<_> =
                nodes.iter().map(kube::ResourceExt::name_any).filter(|node| !on.contains_key(node)).collect();
            if without.is_empty() {
                return Finding::ok(WHAT, format!("{said}, one on every node"));
            }
            let said = format!("{said}; no agent is for {} nodes: {}", without.len(), named(&without));
            Finding::warning(
                WHAT,
                said,
                "if volumes are to be used there, see agent.nodeSelector and agent.tolerations of the chart",
            )
        }
    }
}

/// Whether all run the same, and what this program is of.
fn versions(facts: &Facts) -> Finding {
    const WHAT: &str = "versions";
    let pods = match &facts.pods {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(pods) => pods,
    };
    let mut running: BTreeMap<(String, String), usize> = BTreeMap::new();
    for pod in ["controller", "agent"].iter().flat_map(|component| pods_of(pods, component)) {
        let version = pod.labels().get(VERSION).cloned().unwrap_or_default();
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut own =
            containers.filter(|container| ["controller", "agent"].contains(&container.name.as_str()));
        let image = own.next().and_then(|container| container.image.clone()).unwrap_or_default();
        *running.entry((version, image)).or_default() += 1;
    }
    let all: Vec<_> = running
        .iter()
        .map(|((version, image), count)| format!("{count} Pods of {version} ({image})"))
        .collect();
    let mut versions = running.keys().map(|(version, _)| version.as_str());
    match (running.len(), versions.next()) {
        (1, Some(OWN)) => Finding::ok(WHAT, format!("{}, as this program", named(&all))),
        (1, Some(_)) => Finding::warning(
            WHAT,
            format!("{}; this program is of {OWN}", named(&all)),
            "get the kubectl-moor of the installed version",
        ),
        (0, _) => {
            let said = format!("no Pod of moor is in namespace {}", facts.namespace);
            Finding::fault(WHAT, said, "install the chart, or say where it is (--moor-namespace)")
        }
        _ => Finding::warning(
            WHAT,
            named(&all),
            "wait for the upgrade to end, or see why Pods are not replaced",
        ),
    }
}

fn policies(facts: &Facts) -> Finding {
    const WHAT: &str = "admission policies";
    let (there, bound) = match &facts.policies {
        Err(why) => return Finding::not_checked(WHAT, why),
        Ok(found) => found,
    };
    let is_whole = |name: &&str| there.contains(*name) && bound.contains(*name);
    let missing: Vec<_> = POLICIES.into_iter().filter(|name| !is_whole(name)).map(str::to_owned).collect();
    match missing.len() {
        0 => Finding::ok(WHAT, format!("all {} are there and bound", POLICIES.len())),
        count if count == POLICIES.len() => Finding::warning(
            WHAT,
            "none is there: whoever may write moor's kinds can break what moor relies on, a node among them",
            "install the chart with admission.enabled=true",
        ),
        _ => Finding::fault(WHAT, format!("missing, or not bound: {}", named(&missing)), "upgrade the chart"),
    }
}
