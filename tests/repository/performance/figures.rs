//! The figures of one run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The phases of a round, in their order.
pub const PHASES: [&str; 5] =
    ["make volumes", "make claims", "delete claims", "claims come and go", "delete volumes"];

/// What of a round says which one it is.
const KEYS: [&str; 5] = ["existing", "size", "build", "who", "phase"];

/// Of rounds that are alike one, whose numbers are the one in the middle, the smallest and the largest of all. A number that one
/// of them lacks is 0 there.
pub fn middle_of_run(run: &Value) -> Value {
    let builds: BTreeSet<_> =
        run["rounds"].as_array().unwrap().iter().map(|round| round["build"].to_string()).collect();
    assert!(builds.len() == 1, "the page is of one build, not of {builds:?}: make bench without COMPARE");
    let mut alike: BTreeMap<Vec<String>, Vec<&Value>> = BTreeMap::new();
    for round in run["rounds"].as_array().unwrap() {
        let key = KEYS.map(|key| match &round[key] {
            Value::Number(number) => format!("{number:0>12}"),
            other => other.to_string(),
        });
        alike.entry(key.into()).or_default().push(round);
    }
    let rounds: Vec<_> = alike.into_values().map(|rounds| middle_of_rounds(&rounds)).collect();
    let mut middle = run.clone();
    middle["rounds"] = rounds.into();
    for build in middle["writes"].as_object_mut().unwrap().values_mut() {
        for write in build.as_array_mut().unwrap() {
            for variant in write["variants"].as_object_mut().unwrap().values_mut() {
                *variant = middle_of(&variant.as_array().unwrap().iter().collect::<Vec<_>>());
            }
        }
    }
    middle
}

fn middle_of_rounds(rounds: &[&Value]) -> Value {
    let mut numbers: Vec<Value> = rounds.iter().map(|round| (*round).clone()).collect();
    for round in &mut numbers {
        let round = round.as_object_mut().unwrap();
        KEYS.iter().chain(&["round", "objects"]).for_each(|key| drop(round.remove(*key)));
    }
    let mut middle = middle_of(&numbers.iter().collect::<Vec<_>>());
    for key in KEYS.iter().chain(&["objects"]) {
        middle[*key] = rounds[0][*key].clone();
    }
    middle
}

fn middle_of(values: &[&Value]) -> Value {
    if values.iter().any(|value| value.is_object()) {
        let keys: BTreeSet<_> =
            values.iter().filter_map(|value| value.as_object()).flat_map(Map::keys).collect();
        let none = json!(0);
        let of =
            |key: &String| middle_of(&values.iter().map(|v| v.get(key).unwrap_or(&none)).collect::<Vec<_>>());
        return keys.into_iter().map(|key| (key.clone(), of(key))).collect::<Map<_, _>>().into();
    }
    let mut numbers: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap()).collect();
    numbers.sort_by(f64::total_cmp);
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let middle = f64::midpoint(numbers[(numbers.len() - 1) / 2], numbers[numbers.len() / 2]);
    [middle, first, last].map(|number| json!((number * 1000.0).round() / 1000.0)).to_vec().into()
}

/// JSON with a line for each round, and for each write.
pub fn lines(figures: &Value) -> String {
    let fields = figures.as_object().unwrap().iter().map(|(name, value)| {
        let value = match value {
            Value::Array(rounds) => listed(rounds),
            other => other.to_string(),
        };
        format!("{}: {value}", json!(name))
    });
    format!("{{\n{}\n}}\n", fields.collect::<Vec<_>>().join(",\n"))
}

fn listed(values: &[Value]) -> String {
    format!("[\n{}\n]", values.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n"))
}

/// The figures as they are kept.
pub struct Figures {
    pub all: Value,
}

/// moor, or the bare client that makes its writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Moor,
    Bare,
    /// The bare client, while as many watch as while moor runs.
    Watched,
}

impl Figures {
    pub fn of(all: Value) -> Self {
        Self { all }
    }

    pub fn numbers(&self, option: &str) -> Vec<u64> {
        self.all["options"][option].as_array().unwrap().iter().filter_map(Value::as_u64).collect()
    }

    pub fn number(&self, option: &str) -> u64 {
        self.all["options"][option].as_u64().unwrap()
    }

    /// The rounds beside so many claims, of a size and a phase.
    pub fn round(&self, who: Who, existing: u64, size: u64, phase: &str) -> Option<&Value> {
        let who = match who {
            Who::Moor => "moor",
            Who::Bare => "bare",
            Who::Watched => "watched",
        };
        let is_it = |round: &&Value| {
            round["existing"] == existing
                && round["size"] == size
                && round["phase"] == phase
                && round["who"] == who
        };
        self.all["rounds"].as_array().unwrap().iter().find(is_it)
    }

    /// What was measured beside claims that stay.
    pub fn beside(&self, existing: u64) -> Option<&Value> {
        self.all["existing"].get(existing.to_string())?.as_object()?.values().next()
    }

    /// The most memory that any controller and any agent had.
    pub fn peak_memory(&self) -> &Value {
        self.all["peakMemory"].as_object().unwrap().values().next().unwrap()
    }
}

/// The value in the middle, the smallest and the largest.
pub fn spread(figure: &Value) -> [f64; 3] {
    [0, 1, 2].map(|at| figure[at].as_f64().unwrap())
}

pub fn middle(figure: &Value) -> f64 {
    spread(figure)[0]
}

/// Whether a request, as VERB RESOURCE, is a write.
pub fn is_write(request: &str) -> bool {
    ["POST", "PUT", "PATCH", "DELETE"].iter().any(|verb| request.starts_with(verb))
}

/// Writes of a round per object that were taken, or reads that found something.
pub fn requests(round: &Value, writes: bool) -> f64 {
    sum(&round["requestsPerObject"], |request| is_write(request) == writes)
}

/// Requests of a round per object that were not answered with success.
pub fn refused(round: &Value) -> f64 {
    sum(&round["refusedRequestsPerObject"], |_| true)
}

fn sum(requests: &Value, counts: impl Fn(&str) -> bool) -> f64 {
    let requests = requests.as_object().unwrap().iter().filter(|(request, _)| counts(request));
    requests.fold(0.0, |sum, (_, count)| sum + middle(count))
}

/// Milliseconds of CPU time of one part per object.
pub fn cpu(round: &Value, part: &str) -> f64 {
    middle(&round["cpuMillisecondsPerObject"][part])
}

/// What takes CPU time.
pub const PARTS: [&str; 4] = ["controller", "agents", "API server", "etcd"];

#[test]
fn the_middle_of_rounds() {
    let round = |number: u64, seconds: f64, requests: Value| {
        json!({"existing": 0, "size": 10, "build": "moor", "who": "moor", "phase": "make claims", "round": number,
            "objects": 10, "seconds": seconds, "requestsPerObject": requests})
    };
    let rounds = [
        round(1, 3.0, json!({"GET volumes": 1.0})),
        round(2, 1.0, json!({})),
        round(3, 2.0, json!({"GET volumes": 4.0, "PATCH volumes": 1.5})),
    ];
    let of = json!({"rounds": rounds, "writes": {}});
    let middle = middle_of_run(&of);
    let found = &middle["rounds"][0];
    assert_eq!(middle["rounds"].as_array().unwrap().len(), 1);
    assert_eq!(found["seconds"], json!([2.0, 1.0, 3.0]));
    assert_eq!(found["requestsPerObject"]["GET volumes"], json!([1.0, 0.0, 4.0]));
    assert_eq!(
        (requests(found, true).to_string(), requests(found, false).to_string()),
        ("0".into(), "1".into())
    );
    let figures = Figures::of(middle);
    assert!(figures.round(Who::Moor, 0, 10, "make claims").is_some());
    assert!(figures.round(Who::Bare, 0, 10, "make claims").is_none());
}
