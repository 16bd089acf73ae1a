//! Who uses an Attachment, read from a Volume with many claims.

use serde_json::{Value, json};

use super::*;
use crate::k8s::scripted_tests::{Answer, Scripted};

fn claim(name: &str, uses: &str, forced: bool) -> Value {
    json!({
        "metadata": { "namespace": "ns", "name": name, "uid": name },
        "spec": {
            "volumeName": "data",
            "forceDetach": forced,
            "assignment": {
                "attachment": "a", "attachmentUID": uses, "nodeName": "node", "nodeUID": "node-uid"
            },
        },
    })
}

#[tokio::test]
async fn claims_are_read_as_etcd_has_them() {
    let mut let_go = claim("let-go", "u", false);
    let_go["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let_go["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    let items = [claim("stays", "u", true), claim("other", "x", true), claim("late", "u", false), let_go];
    let (server, client) = Scripted::start(vec![Answer::Json(json!({
        "kind": "VolumeClaimList", "apiVersion": "moor.dev/v1alpha1", "metadata": {"resourceVersion": "7"}, "items": items
    }))])
    .await;
    let users = live_users(&Api::namespaced(client, "ns"), "data", &"u".into()).await.unwrap();
    let seen: Vec<_> = users.iter().map(ClaimSeen::of).map(|c| (c.name, c.force)).collect();
    assert_eq!(seen, [("stays".to_owned(), true), ("late".to_owned(), false)]);
    let asked = server.asked();
    let [asked] = &asked[..] else { panic!("{asked:?}") };
    assert!(
        asked.uri.contains("spec.volumeName%3Ddata") && !asked.uri.contains("resourceVersion"),
        "{asked:?}"
    );
}
