use serde_json::{Value, json};

use super::super::scripted_tests::{Answer, Scripted};
use super::*;
use crate::api::{ClaimState, VolumeClaim, VolumeClaimSpec, VolumeClaimStatus};
use crate::metrics::Metrics;

fn claim(version: &str, volume: &str) -> VolumeClaim {
    let mut claim =
        VolumeClaim::new("c", VolumeClaimSpec { volume_name: volume.into(), ..Default::default() });
    claim.metadata.namespace = Some("ns".into());
    claim.metadata.uid = Some("u".into());
    claim.metadata.resource_version = Some(version.into());
    claim
}

fn json_of(claim: &VolumeClaim) -> Answer {
    Answer::Json(serde_json::to_value(claim).unwrap())
}

fn missing() -> Answer {
    let details = json!({ "name": "c", "kind": "volumeclaims" });
    let status =
        json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m" });
    let mut status: Value = status;
    status["details"] = details;
    Answer::Status(404, status)
}

/// A cache that has version 7, and a writer that is answered so.
async fn scripted(answers: Vec<Answer>) -> (Scripted, Writer, Cache<VolumeClaim>) {
    let (server, client) = Scripted::start(answers).await;
    let cache = Cache::new(&["claims"]);
    cache.apply(claim("7", "v"));
    (server, Writer::new(client, Metrics::new().0), cache)
}

fn taken() -> VolumeClaimStatus {
    VolumeClaimStatus { state: ClaimState::Taken, ..VolumeClaimStatus::default() }
}

fn version(cache: &Cache<VolumeClaim>) -> Option<String> {
    cache.by_uid("u").and_then(|claim| claim.metadata.resource_version.clone())
}

#[tokio::test]
async fn what_was_written_is_in_the_cache() {
    let (server, writer, cache) = scripted(vec![json_of(&claim("8", "v"))]).await;
    assert!(writer.update_status(&cache, &claim("7", "v"), &taken()).await.unwrap());
    assert_eq!(version(&cache).as_deref(), Some("8"));
    assert!(!writer.update(&cache, &claim("8", "v"), &claim("8", "v")).await.unwrap(), "nothing to write");
    assert_eq!(server.asked().len(), 1);
}

/// Neither the answer of a write nor what a conflict has shown: no event would take it out again. Nor does what was there before
/// stay, on which the same would be planned.
#[tokio::test]
async fn what_no_watch_selects_is_not_in_the_cache() {
    let elsewhere = || json_of(&claim("9", "w"));
    for refused in [false, true] {
        let conflict = refused.then_some(Answer::Error(409, "Conflict"));
        let answers = conflict.into_iter().chain([elsewhere()]).collect();
        let (_, writer, cache) = scripted(answers).await;
        let cache = cache.with_selection("v", |claim, volume| claim.spec.volume_name == volume);
        let written = writer.update_status(&cache, &claim("7", "v"), &taken()).await;
        assert_eq!(matches!(written, Err(ApiError::Conflict(_))), refused, "{written:?}");
        assert_eq!(version(&cache), None);
    }
}

/// Its watch has told more of it than the answer.
#[tokio::test]
async fn what_came_back_stays_in_the_cache() {
    let (_, writer, cache) = scripted(vec![json_of(&claim("9", "w"))]).await;
    let cache = cache.with_selection("v", |claim, volume| claim.spec.volume_name == volume);
    cache.apply(claim("10", "v"));
    assert!(writer.update_status(&cache, &claim("7", "v"), &taken()).await.unwrap());
    assert_eq!(version(&cache).as_deref(), Some("10"));
}

#[tokio::test]
async fn what_is_gone_leaves_the_cache() {
    let (_, writer, cache) = scripted(vec![missing()]).await;
    assert!(writer.update_status(&cache, &claim("7", "v"), &taken()).await.unwrap());
    assert_eq!(version(&cache), None);
}

#[tokio::test]
async fn after_a_conflict_the_cache_has_what_is_there_now() {
    let conflict = || Answer::Error(409, "Conflict");
    let (_, writer, cache) =
        scripted(vec![conflict(), json_of(&claim("9", "v")), conflict(), missing()]).await;
    let written = writer.update_status(&cache, &claim("7", "v"), &taken()).await;
    assert!(matches!(written, Err(ApiError::Conflict(_))));
    assert_eq!(version(&cache).as_deref(), Some("9"));
    let written = writer.update(&cache, &claim("9", "v"), &claim("9", "w")).await;
    assert!(matches!(written, Err(ApiError::Conflict(_))));
    assert_eq!(version(&cache), None);
}

#[tokio::test]
async fn who_has_the_name_is_in_the_cache() {
    let taken = Answer::Error(409, "AlreadyExists");
    let (_, writer, cache) = scripted(vec![taken, json_of(&claim("9", "v"))]).await;
    assert!(!writer.create_in(&cache, &claim("", "v")).await.unwrap());
    assert_eq!(version(&cache).as_deref(), Some("9"));
}
