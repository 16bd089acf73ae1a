//! Asks agents for their calls, by `moor trace` in their Pods.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::super::connect::Cluster;
use super::super::error::KubectlError;
use super::wanted::Wanted;
use crate::k8s::ApiError;
use crate::k8s::exec::{Command, ExecError, exec};
use crate::k8s::read::list_live;
use crate::trace::Told;

/// The label by which the chart tells its components apart, and that of agents.
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "agent");
/// The label of all Pods of moor's own.
const NAME: (&str, &str) = ("app.kubernetes.io/name", "moor");
/// Name of the agent's container.
const CONTAINER: &str = "agent";
/// Agents that are asked at a time.
const AT_A_TIME: usize = 16;
/// The most that is read of one agent, in bytes: more than it says of one volume and its snapshots.
const LONGEST: u64 = 16 << 20;

/// The Pod of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPod {
    pub node: String,
    pub pod: String,
}

/// What came of asking one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub node: String,
    pub said: Result<Told, String>,
}

/// The agents that have a Pod.
pub async fn find(cluster: &Cluster) -> Result<Vec<AgentPod>, KubectlError> {
    let namespace = cluster.moor_namespace.clone();
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), &namespace);
    match list_live(&pods, None).await {
        Ok(pods) => Ok(pods.iter().filter_map(agent_of).collect()),
        Err(source @ ApiError::Forbidden { .. }) => {
            Err(KubectlError::NoAgents { namespace, source: Box::new(source) })
        }
        Err(error) => Err(KubectlError::Read(error)),
    }
}

fn agent_of(pod: &Pod) -> Option<AgentPod> {
    let labels = pod.metadata.labels.as_ref()?;
    let has = |(name, value): (&str, &str)| labels.get(name).is_some_and(|found| found == value);
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let is_over = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(is_over, Some("Succeeded" | "Failed"));
    let pod = pod.metadata.name.clone()?;
    (has(COMPONENT) && has(NAME) && !is_over).then_some(AgentPod { node, pod })
}

/// Asks those that have or had to do with it; `all`, and where none is known, everybody.
pub async fn ask(cluster: &Cluster, wanted: &Wanted, pods: &[AgentPod], all: bool) -> Vec<Answer> {
    let everybody: BTreeSet<String> = pods.iter().map(|agent| agent.node.clone()).collect();
    let nodes = if all || wanted.nodes.is_empty() {
        everybody.union(&wanted.nodes).cloned().collect()
    } else {
        wanted.nodes.clone()
    };
    let asked = nodes.into_iter().flat_map(|node| {
        let mut there: Vec<_> =
            pods.iter().filter(|agent| agent.node == node).map(|agent| Some(agent.pod.clone())).collect();
        if there.is_empty() {
            there.push(None);
        }
        there.into_iter().map(move |pod| (node.clone(), pod))
    });
    let asked = asked.map(|(node, pod)| async {
        let said = match pod {
            Some(pod) => one(cluster, wanted, &pod).await,
            None => Err(format!("no agent has a Pod there, in namespace {}", cluster.moor_namespace)),
        };
        Answer { node, said }
    });
    stream::iter(asked).buffered(AT_A_TIME).collect().await
}

async fn one(cluster: &Cluster, wanted: &Wanted, pod: &str) -> Result<Told, String> {
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.moor_namespace);
    let command = Command { pod, container: CONTAINER, words: words(wanted), limit: LONGEST };
    let printed = exec(&pods, command).await.map_err(|error| {
        let hint = match &error {
            ExecError::Api(ApiError::Forbidden { .. }) => {
                let namespace = &cluster.moor_namespace;
                format!("; it takes the rights create and get on pods/exec in namespace {namespace}")
            }
            _ => String::new(),
        };
        format!("Pod {pod}: {error}{hint}")
    })?;
    serde_json::from_slice(&printed)
        .map_err(|error| format!("Pod {pod}: this version of kubectl-moor cannot read its answer: {error}"))
}

/// What an agent is asked. Ids are written by drivers, so that one may look like a flag.
fn words(wanted: &Wanted) -> Vec<String> {
    let mut words: Vec<String> = ["moor", "trace", "--output=json"].map(str::to_owned).into();
    let mut drivers = wanted.drivers.iter();
    if let (Some(driver), None) = (drivers.next(), drivers.next()) {
        words.push(format!("--driver={driver}"));
    }
    words.push("--".into());
    words.extend(wanted.ids.iter().cloned());
    words
}
