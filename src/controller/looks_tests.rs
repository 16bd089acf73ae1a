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

fn page(items: &[Value], next: &str) -> Answer {
    let metadata = json!({ "resourceVersion": "7", "continue": next });
    Answer::Json(json!({
        "kind": "VolumeClaimList", "apiVersion": "moor.dev/v1alpha1", "metadata": metadata, "items": items
    }))
}

#[tokio::test]
async fn claims_are_read_page_by_page_and_count_as_they_were_last() {
    let mut let_go = claim("let-go", "u", false);
    let_go["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let_go["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    let (server, client) = Scripted::start(vec![
        page(&[claim("stays", "u", false), claim("leaves", "u", true), claim("other", "x", true)], "more"),
        Answer::Error(410, "Expired"),
        page(&[claim("stays", "u", true), claim("leaves", "x", true)], "more"),
        page(&[claim("late", "u", false), let_go], ""),
    ])
    .await;
    let users = live_users(&Api::namespaced(client, "ns"), "data", &"u".into()).await.unwrap();
    let seen: Vec<_> = users.iter().map(ClaimSeen::of).map(|c| (c.name, c.force)).collect();
    assert_eq!(seen, [("stays".to_owned(), true), ("late".to_owned(), false)]);
    let asked = server.asked();
    let of_volume = |uri: &str| uri.contains("limit=500") && uri.contains("spec.volumeName%3Ddata");
    assert!(asked.len() == 4 && asked.iter().all(|asked| of_volume(&asked.uri)), "{asked:?}");
}
