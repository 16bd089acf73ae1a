use k8s_openapi::api::core::v1::ConfigMap;

use super::{
    super::scripted_tests::{Answer, Scripted},
    *,
};
use crate::api::{ClaimState, VolumeClaim, VolumeClaimSpec, VolumeClaimStatus};

fn object(finalizers: &[&str]) -> ConfigMap {
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7", "finalizers": finalizers,
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
    }}))
    .unwrap()
}

async fn scripted(answers: Vec<Answer>) -> (Scripted, Api<ConfigMap>, Writer) {
    let (server, client) = Scripted::start(answers).await;
    (server, Api::namespaced(client.clone(), "ns"), Writer::new(client, Metrics::new().0))
}

fn claim() -> VolumeClaim {
    let mut claim = VolumeClaim::new("c", VolumeClaimSpec::default());
    claim.metadata.uid = Some("u".into());
    claim.metadata.resource_version = Some("7".into());
    claim.status = Some(VolumeClaimStatus { attempts: Some(3), ..VolumeClaimStatus::default() });
    claim
}

#[tokio::test]
async fn every_patch_carries_uid_and_version_beside_its_own_fields() {
    let answer = || Answer::Json(serde_json::to_value(claim()).unwrap());
    let (server, client) = Scripted::start(vec![answer(), answer()]).await;
    let (api, writer) =
        (Api::<VolumeClaim>::namespaced(client.clone(), "ns"), Writer::new(client, Metrics::new().0));
    let (seen, mut held) = (claim(), claim());
    let status = VolumeClaimStatus { state: ClaimState::Taken, ..VolumeClaimStatus::default() };
    writer.merge_status(&api, &seen, &status).await.unwrap();
    held.finalizers_mut().push("f".into());
    writer.merge(&api, &seen, &held).await.unwrap();
    let asked = server.asked();
    assert_eq!(
        asked[0].body,
        json!({
            "metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"state": "Taken", "attempts": null},
        })
    );
    assert!(asked[0].uri.starts_with("/apis/moor.dev/v1alpha1/namespaces/ns/volumeclaims/c/status"));
    assert_eq!(asked[1].body, json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["f"]}}));
    let labels = WriteLabels { verb: "patch", kind: "VolumeClaim".into(), subresource: "status" };
    assert_eq!(writer.metrics.api_writes.get_or_create(&labels).get(), 1);
}

#[tokio::test]
async fn what_does_not_change_is_not_sent() {
    let (server, client) = Scripted::start(vec![]).await;
    let (api, writer) =
        (Api::<VolumeClaim>::namespaced(client.clone(), "ns"), Writer::new(client, Metrics::new().0));
    let none = VolumeClaim { status: None, ..claim() };
    assert_eq!(writer.merge_status(&api, &none, &VolumeClaimStatus::default()).await.unwrap(), None);
    assert_eq!(writer.merge(&api, &claim(), &claim()).await.unwrap(), None);
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn without_uid_or_version_nothing_is_sent() {
    let (server, api, writer) = scripted(vec![]).await;
    let unguarded = |seen: &dyn Fn(&mut ConfigMap)| {
        let mut seen_so = object(&[]);
        seen(&mut seen_so);
        seen_so
    };
    for seen in [
        unguarded(&|seen| seen.metadata.uid = None),
        unguarded(&|seen| seen.metadata.resource_version = None),
    ] {
        assert!(matches!(writer.merge(&api, &seen, &object(&["f"])).await, Err(ApiError::Unguarded(_))));
    }
    assert!(matches!(writer.replace(&api, &ConfigMap::default()).await, Err(ApiError::Unguarded(_))));
    assert!(matches!(writer.delete(&api, "c", Preconditions::default()).await, Err(ApiError::Unguarded(_))));
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn overload_is_not_repeated_behind_the_callers_back() {
    let (server, api, writer) =
        scripted(vec![Answer::Error(429, "TooManyRequests"), Answer::Error(503, "ServiceUnavailable")]).await;
    for _ in 0..2 {
        let answer = writer.merge(&api, &object(&[]), &object(&["f"])).await;
        assert!(matches!(answer, Err(ApiError::Other { .. })));
    }
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn the_difference_is_a_merge_patch() {
    let before = json!({ "a": 1, "b": { "x": 1, "y": 2 }, "c": [1], "d": 4 });
    let after = json!({ "a": 1, "b": { "x": 1, "z": 3 }, "c": [2], "e": 5 });
    let patch = json!({ "b": { "y": null, "z": 3 }, "c": [2], "d": null, "e": 5 });
    assert_eq!(difference(&before, &after), Some(patch));
    assert_eq!(difference(&before, &before), None);
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
    assert_eq!(
        writer
            .delete(&api, "c", Preconditions { uid: Some("u".into()), resource_version: None })
            .await
            .unwrap(),
        Deleted::Gone
    );
    assert!(matches!(
        writer
            .delete(&api, "c", Preconditions { uid: Some("u".into()), resource_version: Some("7".into()) })
            .await
            .unwrap(),
        Deleted::Marked(_)
    ));
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
    writer.remove_finalizer(&api, &object(&["ours"]), "ours").await.unwrap();
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
    writer.remove_finalizer(&api, &object(&["ours"]), "ours").await.unwrap();
    assert_eq!(writer.remove_finalizer(&api, &object(&["theirs"]), "ours").await.unwrap(), None);
    let asked = server.asked();
    assert_eq!((asked[0].method.as_str(), asked[1].method.as_str()), ("PATCH", "PUT"));
    assert_eq!(asked[0].body["metadata"]["finalizers"], json!(["theirs"]));
    assert_eq!(asked[1].body["metadata"]["uid"], "u");
    assert_eq!(asked[1].body["metadata"].get("finalizers"), None);
}

/// The API server hangs up in the middle of such a body, and what it says may never be read.
#[tokio::test]
async fn what_is_longer_than_the_api_server_reads_is_refused_and_not_sent() {
    let (server, client) = Scripted::start(vec![]).await;
    let (api, writer) =
        (Api::<VolumeClaim>::namespaced(client.clone(), "ns"), Writer::new(client, Metrics::new().0));
    let path = "v".repeat(3 * 1024 * 1024);
    let status = VolumeClaimStatus { target_path: Some(path), ..VolumeClaimStatus::default() };
    let error = writer.merge_status(&api, &claim(), &status).await.unwrap_err();
    let refusal = error.refusal().unwrap_or_default();
    assert!(refusal.ends_with("and the API server reads 3145728"), "{error}");
    assert!(server.asked().is_empty());
}
