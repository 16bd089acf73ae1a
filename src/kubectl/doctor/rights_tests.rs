use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::k8s::scripted_tests::{Answer, Scripted};
use crate::kubectl::doctor::finding::Mark;

/// Verb, group and resource of each right that the rules of a role grant in any case: what stands under a condition is left
/// out.
fn in_chart(file: &str, kind: &str) -> BTreeSet<[String; 3]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/moor/templates").join(file);
    let text = fs::read_to_string(path).unwrap();
    let mut depth = 0;
    let mut plain = String::new();
    for line in text.lines() {
        let order = line.trim().strip_prefix("{{-").map(str::trim_start);
        match order {
            Some(order) if order.starts_with("if ") || order.starts_with("with ") => depth += 1,
            Some(order) if order.starts_with("end") => depth -= 1,
            Some(_) => {}
            None if depth == 0 && !line.contains("{{") => plain.extend([line, "\n"]),
            None => {}
        }
    }
    let objects: Vec<Value> = serde_saphyr::from_multiple(&plain).unwrap();
    let secrets = |role: &Value| role["metadata"]["name"].as_str().unwrap().ends_with("-secrets");
    let roles = objects.iter().filter(|object| object["kind"] == kind && !secrets(object));
    let mut granted = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        let all = |key: &str| -> Vec<String> {
            rule[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        for group in all("apiGroups") {
            for resource in all("resources") {
                granted.extend(all("verbs").into_iter().map(|verb| [verb, group.clone(), resource.clone()]));
            }
        }
    }
    assert!(!granted.is_empty());
    granted
}

fn known(grants: &[Grant]) -> BTreeSet<[String; 3]> {
    rights(grants, None).map(|right| [right.verb, right.group, right.resource].map(str::to_owned)).collect()
}

#[test]
fn the_rights_are_those_that_the_chart_grants() {
    assert_eq!(known(CONTROLLER_EVERYWHERE), in_chart("rbac-controller.yaml", "ClusterRole"));
    assert_eq!(known(CONTROLLER_AT_HOME), in_chart("rbac-controller.yaml", "Role"));
    assert_eq!(known(AGENT_EVERYWHERE), in_chart("rbac-agent.yaml", "ClusterRole"));
    let mut at_home = in_chart("rbac-agent.yaml", "Role");
    // By the one role with policies, by the other without.
    at_home.extend(["create", "delete"].map(|verb| [verb, "moor.dev", "volumeclaims"].map(str::to_owned)));
    assert_eq!(known(AGENT_AT_HOME), at_home);
}

fn cluster(client: Client) -> Cluster {
    Cluster::of(client, "moor-system", "shop")
}

fn review(allowed: bool) -> Answer {
    Answer::Json(json!({ "metadata": {}, "spec": {}, "status": { "allowed": allowed } }))
}

#[tokio::test]
async fn an_account_is_asked_about_right_for_right() {
    let grants: &[Grant] = &[("moor.dev", &["volumes", "volumes/status"], &["patch"])];
    let wanted: Vec<_> = rights(grants, Some("moor-system")).collect();
    let (server, client) = Scripted::start(vec![review(true), review(true)]).await;
    let user = "system:serviceaccount:moor-system:moor-agent";
    let found = of_account(&cluster(client), "agents' rights", user, &wanted).await;
    assert_eq!((found.mark, found.said.as_str()), (Mark::Ok, "all 2 that the chart grants"));
    let specs: Vec<_> = server.asked().into_iter().map(|asked| asked.body["spec"].clone()).collect();
    assert!(
        specs
            .iter()
            .all(|spec| spec["user"] == user && spec["groups"][1] == "system:serviceaccounts:moor-system")
    );
    let of_status = json!({ "verb": "patch", "group": "moor.dev", "resource": "volumes", "subresource": "status",
        "namespace": "moor-system" });
    assert!(specs.iter().any(|spec| spec["resourceAttributes"] == of_status), "{specs:?}");
    let (_, client) = Scripted::start(vec![review(false), review(false)]).await;
    let found = of_account(&cluster(client), "agents' rights", user, &wanted).await;
    assert_eq!(found.mark, Mark::Fault);
    assert!(
        found.said.contains("may not do 2 of 2: patch volumes.moor.dev in moor-system, "),
        "{}",
        found.said
    );
    // Who may not ask has not asked.
    let (_, client) =
        Scripted::start(vec![Answer::Error(403, "Forbidden"), Answer::Error(403, "Forbidden")]).await;
    let found = of_account(&cluster(client), "agents' rights", user, &wanted).await;
    assert!(found.mark == Mark::NotChecked && found.said.contains("forbidden"), "{found:?}");
}
