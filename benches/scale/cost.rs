//! What processes take: CPU time as the kernel counts it, requests as the API server counts them, bytes as etcd does.

use std::collections::BTreeMap;
use std::fs;

use kube::Client;
use serde_json::{Map, Value, json};

use crate::rig::metrics::{of_server, samples};

/// By verb and resource, with the subresource.
pub type Requests = BTreeMap<(String, String), f64>;

/// Whose CPU time is told, in the order of the table.
pub const PARTS: [&str; 4] = ["controller", "agents", "API server", "etcd"];

/// What all counters say at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Requests that were answered with success.
    pub taken: Requests,
    /// Requests that were answered otherwise.
    pub refused: Requests,
    pub etcd_bytes: f64,
}

/// Reads the counters of the API server and of etcd. Telling them costs the API server something, so this stands outside
/// of what [`cpu`] is read around.
pub async fn counted(api_server: &Client, etcd: &Client) -> Counters {
    let (taken, refused) = requests(&of_server(api_server).await);
    let etcd_bytes = samples(&of_server(etcd).await, "etcd_disk_wal_write_bytes_total").map(|(_, v)| v).sum();
    Counters { taken, refused, etcd_bytes }
}

/// CPU time of a process so far, in milliseconds.
pub fn cpu(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    #[allow(clippy::cast_precision_loss, reason = "ticks of a process that ends today")]
    let milliseconds = |ticks: u64| ticks as f64 * 1000.0 / rustix::param::clock_ticks_per_second() as f64;
    milliseconds(ticks(&stat))
}

/// utime and stime in the text of /proc/PID/stat.
fn ticks(stat: &str) -> u64 {
    // The name, in parentheses, may contain anything. The state is the third field, utime the 14th, stime the 15th.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Requests that were answered with success, and the others. Leases and watches have a time of their own, and what has no
/// resource is no object.
fn requests(text: &str) -> (Requests, Requests) {
    let (mut taken, mut refused) = (Requests::new(), Requests::new());
    for (labels, value) in samples(text, "apiserver_request_total") {
        let of = |label| labels.get(label).copied().unwrap_or_default();
        let (verb, resource, subresource) = (of("verb"), of("resource"), of("subresource"));
        if verb == "WATCH" || resource.is_empty() || resource == "leases" {
            continue;
        }
        let resource =
            if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
        let counts = if of("code").starts_with('2') { &mut taken } else { &mut refused };
        *counts.entry((verb.to_owned(), resource)).or_default() += value;
    }
    (taken, refused)
}

/// What was counted from one moment to a later one, without what is zero.
pub fn difference(before: &Requests, after: &Requests) -> Requests {
    let since =
        after.iter().map(|(key, count)| (key.clone(), count - before.get(key).copied().unwrap_or_default()));
    since.filter(|(_, count)| *count != 0.0).collect()
}

/// Whether a request of this verb writes.
pub fn is_write(verb: &str) -> bool {
    !matches!(verb, "GET" | "LIST")
}

/// For people and for JSON: `PATCH volumes/status`.
pub fn to_json(requests: &Requests) -> Value {
    let named = requests.iter().map(|((verb, resource), count)| (format!("{verb} {resource}"), json!(count)));
    Value::Object(named.collect::<Map<_, _>>())
}

/// What is read here is text that others write: said by examples before anything is measured.
pub fn check() {
    let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 9 0 123 456 789";
    assert_eq!(ticks(stat), 175);
    let text = "# TYPE apiserver_request_total counter\n\
        apiserver_request_total{code=\"200\",resource=\"volumes\",subresource=\"status\",verb=\"PATCH\"} 7\n\
        apiserver_request_total{code=\"409\",resource=\"volumes\",subresource=\"status\",verb=\"PATCH\"} 2\n\
        apiserver_request_total{code=\"200\",resource=\"leases\",subresource=\"\",verb=\"PUT\"} 9\n\
        etcd_disk_wal_write_bytes_total 1.5e+06\n";
    let key = ("PATCH".to_owned(), "volumes/status".to_owned());
    assert_eq!(requests(text), (Requests::from([(key.clone(), 7.0)]), Requests::from([(key, 2.0)])));
    let bytes: Vec<f64> = samples(text, "etcd_disk_wal_write_bytes_total").map(|(_, value)| value).collect();
    assert_eq!(bytes, [1_500_000.0]);
}
