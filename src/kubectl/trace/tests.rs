use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use serde_json::json;

use super::super::args::TraceOf;
use super::super::connect::Cluster;
use super::super::error::KubectlError;
use super::super::objects_tests::scene;
use super::super::scene::Scope;
use super::agents::{AgentPod, Answer as Said, ask, find};
use super::page;
use super::wanted::Wanted;
use crate::k8s::exec::tests::{ERROR, OUT, STATUS, SUCCESS, kubelet};
use crate::k8s::scripted_tests::{Answer, Scripted};
use crate::trace::{Call, End, Told};

fn wanted(of: &TraceOf) -> Result<Wanted, KubectlError> {
    Wanted::of(&scene(), of, &Scope::In("shop".into()))
}

fn at(millisecond: i64) -> MicroTime {
    let midnight: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    MicroTime(midnight + jiff::SignedDuration::from_millis(millisecond))
}

fn call(began: i64, rpc: &str, end: impl Into<Option<End>>) -> Call {
    let (driver, of) = ("d.example".to_owned(), vec!["vol-1".to_owned()]);
    Call {
        began: at(began),
        rpc: rpc.into(),
        driver,
        of,
        made: None,
        request: format!("{rpc}Request"),
        end: end.into(),
    }
}

fn ended(milliseconds: u64, code: &str, message: &str) -> End {
    let answer = if code == "Ok" { "Response".to_owned() } else { String::new() };
    End { milliseconds, code: Some(code.into()), message: message.into(), answer }
}

fn set<const N: usize>(all: [&str; N]) -> std::collections::BTreeSet<String> {
    all.map(str::to_owned).into()
}

fn cluster(client: Client) -> Cluster {
    Cluster::of(client, "moor-system", "shop")
}

#[test]
fn of_a_volume_all_that_it_is_known_by_is_asked_for_where_it_was() {
    let of_volume = wanted(&TraceOf::Volume("data".into())).unwrap();
    assert_eq!(of_volume.titles, ["Volume shop/data"]);
    assert_eq!(of_volume.drivers, set(["d.example"]));
    assert_eq!(of_volume.ids, set(["vol-1", "moor-uid-data", "snap-1", "moor-uid-before"]));
    assert_eq!(of_volume.nodes, set(["node-1"]));
    let of_snapshot = wanted(&TraceOf::Snapshot("before".into())).unwrap();
    assert_eq!(of_snapshot.ids, set(["snap-1", "moor-uid-before"]));
    assert!(of_snapshot.drivers.is_empty() && of_snapshot.nodes.is_empty());
    let of_id = wanted(&TraceOf::Handle("vol-9".into())).unwrap();
    assert_eq!((of_id.ids, of_id.nodes), (set(["vol-9"]), set([])));
    let error = wanted(&TraceOf::Volume("gone".into())).unwrap_err().to_string();
    assert_eq!(error, "there is no Volume gone in namespace shop");
}

#[test]
fn calls_of_all_nodes_are_told_by_their_time() {
    let told = |node: &str, calls: Vec<Call>| Told { node: node.into(), since: at(0), calls };
    let other = Call { driver: "e".into(), ..call(1, "DeleteVolume", None) };
    let answers = vec![
        Said {
            node: "node-2".into(),
            said: Ok(told(
                "node-1 it says",
                vec![
                    call(2500, "NodeStageVolume", ended(1500, "Internal", "no\u{1b}[2J disk")),
                    call(9000, "NodeStageVolume", None),
                    other,
                ],
            )),
        },
        Said {
            node: "node-1".into(),
            said: Ok(told("node-1", vec![call(7, "ControllerPublishVolume", ended(12, "Ok", ""))])),
        },
        Said { node: "node-3".into(), said: Err("no agent has a Pod there".into()) },
    ];
    let wanted = wanted(&TraceOf::Volume("data".into())).unwrap();
    let text = "\
Calls about Volume shop/data, by d.example
  BEGAN                     NODE    CALL                     TOOK  OUTCOME     SAID
  2026-01-01T00:00:00.007Z  node-1  ControllerPublishVolume  12ms  Ok
  2026-01-01T00:00:02.500Z  node-2  NodeStageVolume          1.5s  Internal    no\\u{1b}[2J disk
  2026-01-01T00:00:09.000Z  node-2  NodeStageVolume                is running

Asked
  node-2 (which knows of calls since 2026-01-01T00:00:00Z)
  node-1 (which knows of calls since 2026-01-01T00:00:00Z)

Not reached: their calls are not here
  node-3: no agent has a Pod there
";
    assert_eq!(page::of(&wanted, answers.clone(), false).to_string(), text);
    let text = page::of(&wanted, answers, true).to_string();
    let messages = "\
Requests and answers
  2026-01-01T00:00:00.007Z node-1 ControllerPublishVolume
    > ControllerPublishVolumeRequest
    < Response
  2026-01-01T00:00:02.500Z node-2 NodeStageVolume
    > NodeStageVolumeRequest
    < no\\u{1b}[2J disk
";
    assert!(text.contains(messages), "{text}");
}

/// A node that was taken over may say what it likes.
#[test]
fn an_agent_may_say_as_much_as_it_likes() {
    let many =
        vec![call(1, &"R".repeat(70_000), ended(1, &"c".repeat(70_000), &"\u{1b}".repeat(70_000))); 3000];
    let told = Told { node: "n".into(), since: at(0), calls: many };
    let wanted = wanted(&TraceOf::Volume("data".into())).unwrap();
    let page = page::of(&wanted, vec![Said { node: "n".into(), said: Ok(told) }], false).to_string();
    assert!(page.lines().count() < 2010 && page.contains("(1000 earlier calls are left out)"));
    assert!(page.len() < 30_000_000 && !page.contains('\u{1b}'), "{}", page.len());
}

fn pod(name: &str, node: &str, component: &str, phase: &str) -> serde_json::Value {
    let labels = json!({ "app.kubernetes.io/name": "moor", "app.kubernetes.io/component": component });
    json!({ "metadata": { "name": name, "labels": labels }, "spec": { "containers": [], "nodeName": node },
        "status": { "phase": phase } })
}

#[tokio::test]
async fn agents_are_found_by_their_pods() {
    let items = [
        pod("a", "node-1", "agent", "Running"),
        pod("b", "node-1", "controller", "Running"),
        pod("c", "node-2", "agent", "Failed"),
    ];
    let listed = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    let (_, client) = Scripted::start(vec![Answer::Json(listed), Answer::Error(403, "Forbidden")]).await;
    let cluster = cluster(client);
    let agent = AgentPod { node: "node-1".into(), pod: "a".into() };
    assert_eq!(find(&cluster).await.unwrap(), [agent]);
    let words = find(&cluster).await.unwrap_err().to_string();
    assert!(words.contains("list pods and to create and get pods/exec in namespace moor-system"), "{words}");
}

async fn asked(client: Client, wanted: &Wanted, all: bool) -> Vec<Said> {
    let agent = |node: &str| AgentPod { node: node.into(), pod: format!("agent-{node}") };
    ask(&cluster(client), wanted, &[agent("node-1"), agent("node-2")], all).await
}

#[tokio::test]
async fn who_has_to_do_with_it_is_asked_in_his_pod() {
    let told = Told { node: "node-1".into(), since: at(0), calls: vec![call(1, "NodeStageVolume", None)] };
    let text = serde_json::to_string(&told).unwrap();
    let (client, served) = kubelet(vec![(OUT, text), (STATUS, SUCCESS.into())]).await;
    let wanted = wanted(&TraceOf::Volume("data".into())).unwrap();
    let answers = asked(client, &wanted, false).await;
    assert_eq!(answers, [Said { node: "node-1".into(), said: Ok(told) }]);
    let uri = served.await.unwrap();
    for part in
        ["/pods/agent-node-1/exec?", "container=agent", "command=moor&command=trace&command=--output%3Djson"]
    {
        assert!(uri.contains(part), "{uri}");
    }
    assert!(uri.contains("command=--driver%3Dd.example&command=--&command=moor-uid-before"), "{uri}");
}

#[tokio::test]
async fn who_is_not_reached_is_named_with_the_reason() {
    let mut wanted = wanted(&TraceOf::Volume("data".into())).unwrap();
    let failure = r#"{"status":"Failure","message":"exit code 2"}"#;
    let says = vec![(ERROR, "moor: trace: no agent gives out".to_owned()), (STATUS, failure.to_owned())];
    let answers = asked(kubelet(says).await.0, &wanted, false).await;
    assert_eq!(answers[0].said.as_ref().unwrap_err(), "Pod agent-node-1: moor: trace: no agent gives out");
    let (_, client) = Scripted::start(vec![Answer::Error(403, "Forbidden")]).await;
    let answers = asked(client, &wanted, false).await;
    let words = answers[0].said.as_ref().unwrap_err();
    assert!(
        words.ends_with("it takes the rights create and get on pods/exec in namespace moor-system"),
        "{words}"
    );
    let answers =
        asked(kubelet(vec![(OUT, "{}".into()), (STATUS, SUCCESS.into())]).await.0, &wanted, false).await;
    assert!(answers[0].said.as_ref().unwrap_err().contains("cannot read its answer"));
    wanted.nodes = set(["node-9"]);
    let answers = asked(kubelet(Vec::new()).await.0, &wanted, false).await;
    assert_eq!(answers[0].said.as_ref().unwrap_err(), "no agent has a Pod there, in namespace moor-system");
    // Whom nobody is known to have to do with it is asked of everybody.
    wanted.nodes = set([]);
    let (_, client) =
        Scripted::start(vec![Answer::Error(403, "Forbidden"), Answer::Error(403, "Forbidden")]).await;
    let nodes: Vec<_> = asked(client, &wanted, false).await.into_iter().map(|answer| answer.node).collect();
    assert_eq!(nodes, ["node-1", "node-2"]);
}
