use k8s_openapi::api::core::v1::ConfigMap;

use super::{
    super::scripted_tests::{Answer, Scripted},
    *,
};

fn object(finalizers: &[&str]) -> ConfigMap {
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7", "finalizers": finalizers,
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
    }}))
    .unwrap()
}

async fn scripted(answers: Vec<Answer>) -> (Scripted, Api<ConfigMap>, Writer) {
    let (server, client) = Scripted::start(answers).await;
    (server, Api::namespaced(client, "ns"), Writer::new(Metrics::new().0))
}

#[tokio::test]
async fn every_patch_carries_uid_and_version_beside_its_own_fields() {
    let answer = || Answer::Json(serde_json::to_value(object(&[])).unwrap());
    let (server, api, writer) = scripted(vec![answer(), answer()]).await;
    let target = Target::of(&object(&[]));
    writer.patch_status(&api, &target, json!({"state": "Taken", "nextRetry": null})).await.unwrap();
    writer.patch_main(&api, &target, json!({"metadata": {"finalizers": ["f"]}})).await.unwrap();
    let asked = server.asked();
    assert_eq!(
        asked[0].body,
        json!({
            "metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"state": "Taken", "nextRetry": null},
        })
    );
    assert!(asked[0].uri.starts_with("/api/v1/namespaces/ns/configmaps/c/status"));
    assert_eq!(asked[1].body, json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["f"]}}));
    let labels = WriteLabels { verb: "patch", kind: "ConfigMap".into(), subresource: "status" };
    assert_eq!(writer.metrics.api_writes.get_or_create(&labels).get(), 1);
}

#[tokio::test]
async fn without_uid_or_version_nothing_is_sent() {
    let (server, api, writer) = scripted(vec![]).await;
    for target in [
        Target { name: "c".into(), uid: "u".into(), resource_version: String::new() },
        Target { name: "c".into(), uid: String::new(), resource_version: "7".into() },
    ] {
        assert!(matches!(writer.patch_status(&api, &target, json!({})).await, Err(ApiError::Unguarded(_))));
        assert!(matches!(writer.patch_main(&api, &target, json!({})).await, Err(ApiError::Unguarded(_))));
    }
    assert!(matches!(writer.replace(&api, &ConfigMap::default()).await, Err(ApiError::Unguarded(_))));
    assert!(matches!(writer.delete(&api, "c", "", None).await, Err(ApiError::Unguarded(_))));
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn overload_is_not_repeated_behind_the_callers_back() {
    let (server, api, writer) =
        scripted(vec![Answer::Error(429, "TooManyRequests"), Answer::Error(503, "ServiceUnavailable")]).await;
    let target = Target::of(&object(&[]));
    for _ in 0..2 {
        assert!(matches!(writer.patch_main(&api, &target, json!({})).await, Err(ApiError::Other { .. })));
    }
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_taken_name_is_an_answer_and_no_error() {
    let (_, api, writer) =
        scripted(vec![Answer::Error(409, "AlreadyExists"), Answer::Error(409, "Conflict")]).await;
    assert_eq!(writer.create(&api, &object(&[])).await.unwrap(), Created::Exists);
    assert!(matches!(writer.create(&api, &object(&[])).await, Err(ApiError::Conflict(_))));
}

#[tokio::test]
async fn a_deletion_is_guarded_by_uid() {
    let success = json!({"kind": "Status", "status": "Success", "metadata": {}});
    let marked = serde_json::to_value(object(&["f"])).unwrap();
    let (server, api, writer) = scripted(vec![Answer::Json(success), Answer::Json(marked)]).await;
    assert_eq!(writer.delete(&api, "c", "u", None).await.unwrap(), Deleted::Gone);
    assert!(matches!(writer.delete(&api, "c", "u", Some("7")).await.unwrap(), Deleted::Marked(_)));
    let asked = server.asked();
    assert_eq!(asked[0].body["preconditions"], json!({"uid": "u"}));
    assert_eq!(asked[1].body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
}

/// A rule that spec does not change compares what is stored.
#[tokio::test]
async fn the_last_finalizer_of_what_our_types_do_not_tell_goes_from_the_stored_object() {
    let stored = |version: &str| {
        let mut object = serde_json::to_value(object(&["ours"])).unwrap();
        object["metadata"]["resourceVersion"] = version.into();
        object["data"] = json!({});
        object["later"] = json!({"flags": []});
        Answer::Json(object)
    };
    let none = || Answer::Json(serde_json::to_value(object(&[])).unwrap());
    let refused = || Answer::Error(422, "Invalid");
    let (server, api, writer) = scripted(vec![refused(), stored("7"), none(), refused(), stored("8")]).await;
    assert_eq!(writer.remove_finalizer(&api, &object(&["ours"]), "ours").await.unwrap(), None);
    let asked = server.asked();
    let methods: Vec<_> = asked.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["PUT", "GET", "PUT"]);
    let put = &asked[2].body;
    assert_eq!((&put["data"], &put["later"]), (&json!({}), &json!({"flags": []})));
    assert_eq!((&put["metadata"]["uid"], &put["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
    assert_eq!(put["metadata"].get("finalizers"), None);
    let changed = writer.remove_finalizer(&api, &object(&["ours"]), "ours").await;
    assert!(matches!(changed, Err(ApiError::Conflict(_))), "{changed:?}");
}

#[tokio::test]
async fn the_last_finalizer_goes_by_put_and_others_stay_by_patch() {
    let rest = serde_json::to_value(object(&["theirs"])).unwrap();
    let none = serde_json::to_value(object(&[])).unwrap();
    let (server, api, writer) = scripted(vec![Answer::Json(rest), Answer::Json(none)]).await;
    let left = writer.remove_finalizer(&api, &object(&["ours", "theirs"]), "ours").await.unwrap();
    assert_eq!(left.unwrap().finalizers(), ["theirs"]);
    assert_eq!(writer.remove_finalizer(&api, &object(&["ours"]), "ours").await.unwrap(), None);
    let asked = server.asked();
    assert_eq!((asked[0].method.as_str(), asked[1].method.as_str()), ("PATCH", "PUT"));
    assert_eq!(asked[0].body["metadata"]["finalizers"], json!(["theirs"]));
    assert_eq!(asked[1].body["metadata"]["uid"], "u");
    assert_eq!(asked[1].body["metadata"].get("finalizers"), None);
}
