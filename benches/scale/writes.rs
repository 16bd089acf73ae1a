//! What each write about a Volume and its claim costs the API server, and what of that is due to what the chart installs.
//!
//! Each variant has an API server of its own, and the bare client makes the same writes on all of them, by turns: one write about
//! all objects, then the next one.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::bare::{Chain, Client};
use crate::cluster::{Build, Cluster, path_of};
use crate::report::{aligned, middle};
use crate::rounds::{Load, Phase, chains, request_of};

/// What part of [`crate::cost::PARTS`] is measured.
const API_SERVER: &str = "API server";

/// How many watch each kind where watchers are counted.
const WATCHERS: usize = 10;

/// One way to install moor's kinds.
struct Variant {
    name: &'static str,
    change: fn(&mut Vec<Value>),
    /// How many watch each kind of users.
    watchers: usize,
}

/// Each but the first two without what the one before is without.
const VARIANTS: [Variant; 5] = [
    Variant { name: "10 watchers", change: |_| {}, watchers: WATCHERS },
    Variant { name: "as installed", change: |_| {}, watchers: 0 },
    Variant { name: "no policies", change: without_policies, watchers: 0 },
    Variant { name: "no rules", change: without_rules, watchers: 0 },
    Variant { name: "no schema", change: without_schema, watchers: 0 },
];

/// What one write took on one API server.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// CPU time of the API server, in milliseconds per write.
    cpu: f64,
    per_second: f64,
}

/// One write, with its costs in all rounds by variant.
pub struct Write {
    phase: Phase,
    /// Who makes it, verb and resource.
    label: String,
    costs: [Vec<Cost>; VARIANTS.len()],
}

/// Starts an API server for each variant of a build, and has the client make its writes about so many objects on each of them, so
/// many times over. One round before is to warm up.
pub async fn measure(
    directory: &Path,
    build: &Build,
    client: &Arc<Client>,
    load: Load,
    rounds: usize,
) -> Vec<Write> {
    let mut clusters = Vec::new();
    for variant in &VARIANTS {
        let name = format!("{}, {}", build.name, variant.name);
        let build = Build { name, change: variant.change, ..build.clone() };
        let cluster = Arc::new(Cluster::start(directory, build, 1).await);
        watch(&cluster, variant.watchers);
        clusters.push(cluster);
    }
    let mut writes = Vec::new();
    for round in 0..=rounds {
        let costs = one_round(&clusters, client, load).await;
        if round == 0 {
            writes.extend(costs.into_iter().map(|(phase, label, _)| Write {
                phase,
                label,
                costs: Default::default(),
            }));
            continue;
        }
        for (write, (.., of_all)) in writes.iter_mut().zip(costs) {
            write.costs.iter_mut().zip(of_all).for_each(|(costs, cost)| costs.push(cost));
        }
    }
    writes
}

/// Has so many watch each kind of users for as long as the bench runs.
fn watch(cluster: &Cluster, watchers: usize) {
    for kind in ["volumes", "volumeclaims"] {
        for _ in 0..watchers {
            let client = cluster.user.clone();
            tokio::spawn(async move {
                let uri = format!("{}?watch=true", path_of(kind));
                let request = http::Request::get(uri).body(Vec::new()).unwrap();
                let events = client.request_events::<IgnoredAny>(request).await.unwrap();
                let mut events = std::pin::pin!(events);
                while events.try_next().await.unwrap().is_some() {}
            });
        }
    }
}

/// The writes in their order, each about all objects on each API server before the next one: what costs them the same is then
/// measured at the same time, and no connection is idle for as long as its ends keep one.
async fn one_round(
    clusters: &[Arc<Cluster>],
    client: &Arc<Client>,
    load: Load,
) -> Vec<(Phase, String, Vec<Cost>)> {
    let mut all: Vec<_> = clusters.iter().map(|cluster| (cluster, chains(cluster, load.objects))).collect();
    let node = clusters[0].nodes[0].clone();
    let mut costs = Vec::new();
    for phase in Phase::PARTS {
        let mut of_all = Vec::new();
        for (cluster, chains) in &mut all {
            let cost = about_all(cluster, load, chains, move |cluster, mut chain| async move {
                let (method, body) = request_of(phase, chain.name(), chain.node());
                let answer = cluster.ask(method, phase.kind(), chain.name(), &body).await;
                chain.learn(phase.kind(), answer);
                chain
            });
            of_all.push(cost.await);
        }
        let method = request_of(phase, "", "").0;
        costs.push((phase, format!("user {method} {}", phase.kind()), of_all));
        for (number, step) in client.steps(&node, phase).iter().enumerate() {
            let mut of_all = Vec::new();
            for (cluster, chains) in &mut all {
                let cost = about_all(cluster, load, chains, |cluster, mut chain| {
                    let client = client.clone();
                    async move {
                        client.make(&cluster, (phase, number), &mut chain).await;
                        chain
                    }
                });
                of_all.push(cost.await);
            }
            costs.push((phase, step.shown(), of_all));
        }
    }
    costs
}

/// Makes one write about all objects.
async fn about_all<F: Future<Output = Chain> + Send + 'static>(
    cluster: &Arc<Cluster>,
    load: Load,
    chains: &mut Vec<Chain>,
    make: impl Fn(Arc<Cluster>, Chain) -> F,
) -> Cost {
    let (cpu_before, started) = (cluster.cpu()[API_SERVER], Instant::now());
    let all = std::mem::take(chains).into_iter();
    let tasks = all.map(|chain| tokio::spawn(make(cluster.clone(), chain)));
    let mut tasks = futures::stream::iter(tasks).buffer_unordered(load.at_once);
    while let Some(chain) = tasks.next().await {
        chains.push(chain.unwrap());
    }
    #[allow(clippy::cast_precision_loss, reason = "counts of objects")]
    let objects = load.objects as f64;
    let cpu = (cluster.cpu()[API_SERVER] - cpu_before) / objects;
    Cost { cpu, per_second: objects / started.elapsed().as_secs_f64() }
}

fn without_policies(objects: &mut Vec<Value>) {
    objects.retain(|object| !object["kind"].as_str().unwrap_or_default().starts_with("ValidatingAdmission"));
}

fn without_rules(objects: &mut Vec<Value>) {
    without_policies(objects);
    for object in objects {
        each_schema(object, &|schema| drop(schema.remove("x-kubernetes-validations")));
    }
}

/// Leaves of each schema its type, and below that whatever somebody writes.
fn without_schema(objects: &mut Vec<Value>) {
    without_rules(objects);
    for versions in objects.iter_mut().filter_map(|object| object.pointer_mut("/spec/versions")) {
        for version in versions.as_array_mut().into_iter().flatten() {
            let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema/properties") else { continue };
            for part in ["spec", "status"] {
                schema[part] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            }
            // A field that is selected by has to be in the schema.
            version.as_object_mut().unwrap().remove("selectableFields");
        }
    }
}

/// Does this with each object in a CustomResourceDefinition that may be a schema, and with all below it.
fn each_schema(object: &mut Value, change: &impl Fn(&mut serde_json::Map<String, Value>)) {
    match object {
        Value::Object(schema) => {
            change(schema);
            schema.values_mut().for_each(|below| each_schema(below, change));
        }
        Value::Array(all) => all.iter_mut().for_each(|below| each_schema(below, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Above the table.
const CAPTION: &str = "\
Milliseconds of the API server's CPU time per write, median of the rounds. 10 watchers: beside, so many of Volumes and of VolumeClaims.
no rules: without policies and without the CEL rules of the CRDs. no schema: also with specs and statuses that are of any form.
";

/// A line for each write, and a sum.
pub fn table(writes: &[Write]) -> String {
    let mut lines = vec![vec!["phase".to_owned(), "write".to_owned()]];
    lines[0].extend(VARIANTS.iter().map(|variant| variant.name.to_owned()));
    let cells = |of: &dyn Fn(usize) -> f64| {
        (0..VARIANTS.len()).map(|at| format!("{:.2}", of(at))).collect::<Vec<_>>()
    };
    for write in writes {
        let mut line = vec![write.phase.name().to_owned(), write.label.clone()];
        line.extend(cells(&|at| write.cpu(at)));
        lines.push(line);
    }
    let mut sum = vec!["all".to_owned(), format!("{} writes", writes.len())];
    sum.extend(cells(&|at| writes.iter().map(|write| write.cpu(at)).sum()));
    lines.push(sum);
    CAPTION.to_owned() + "\n" + &aligned(&lines)
}

/// Every figure of every round.
pub fn to_json(writes: &[Write]) -> Value {
    let variants = |write: &Write| -> Value {
        let of = |(variant, costs): (&Variant, &Vec<Cost>)| {
            let rounds =
                costs.iter().map(|cost| json!({"cpuMilliseconds": cost.cpu, "perSecond": cost.per_second}));
            (variant.name.to_owned(), rounds.collect())
        };
        Value::Object(VARIANTS.iter().zip(&write.costs).map(of).collect())
    };
    let write = |write: &Write| json!({"phase": write.phase.name(), "write": write.label, "variants": variants(write)});
    writes.iter().map(write).collect()
}

impl Write {
    fn cpu(&self, variant: usize) -> f64 {
        middle(self.costs[variant].iter().map(|cost| cost.cpu))[0]
    }
}
