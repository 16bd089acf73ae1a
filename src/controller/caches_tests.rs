//! By what objects are found in the caches.

use serde_json::json;

use super::super::objects_tests::{attachment, claim};
use super::*;

/// Neither a beginning nor the other namespace's Volume of that name (trap T24, T51, T58).
#[test]
fn claims_are_found_by_the_whole_name_and_namespace_of_their_volume() {
    let cache = claim_cache();
    for (namespace, name, volume) in
        [("a", "1", "test"), ("a", "2", "testing"), ("b", "3", "test"), ("a", "4", "tes")]
    {
        cache.apply(claim(namespace, name, volume));
    }
    let names = |namespace, volume| {
        let found = cache.by_index(BY_VOLUME, &format!("{namespace}/{volume}"));
        found.iter().map(|c| c.metadata.name.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("a", "test"), ["1"]);
    assert_eq!(names("a", "testing"), ["2"]);
    assert_eq!(names("b", "test"), ["3"]);
    assert!(names("b", "testing").is_empty());
}

/// What a node's limit is compared with: every volume of that driver there once, also while it leaves (trap L9).
#[test]
fn the_volumes_of_a_driver_on_a_node_are_counted_by_their_attachments() {
    let cache = attachment_cache();
    let mut leaving = attachment("1", "driver", "node-1");
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    leaving.metadata.deletion_timestamp = Some(now);
    leaving.metadata.finalizers = Some(vec![crate::api::FINALIZER.into()]);
    cache.apply(leaving);
    cache.apply(attachment("2", "driver", "node-1"));
    cache.apply(attachment("3", "other", "node-1"));
    cache.apply(attachment("4", "driver", "node-10"));
    let load = |driver, node| cache.by_index(BY_PLACE, &format!("{driver}/{node}")).len();
    assert_eq!((load("driver", "node-1"), load("other", "node-1"), load("driver", "node-2")), (2, 1, 0));
}

/// Nobody takes back that the node is silent on one that moor has let go, so it would be looked at for as long as others hold it.
#[test]
fn a_claim_that_is_let_go_is_not_looked_at_because_its_node_was_silent() {
    let told = |finalizer: &str, deleted: Option<&str>| {
        let mut told = claim("a", "1", "v");
        let condition = json!({
            "type": SILENT, "status": "True", "reason": "NoHeartbeat", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"
        });
        told.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        let meta = json!({"name": "1", "finalizers": [finalizer], "deletionTimestamp": deleted});
        told.metadata = serde_json::from_value(meta).unwrap();
        is_told_of_silence(&told)
    };
    let now = Some("2020-01-01T00:00:00Z");
    assert!(told(crate::api::FINALIZER, None));
    assert!(told(crate::api::FINALIZER, now));
    assert!(told("example.com/backup", None), "the finalizer is put on with the grant");
    assert!(!told("example.com/backup", now));
}
