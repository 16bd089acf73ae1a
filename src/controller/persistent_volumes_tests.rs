//! What it costs to know that no PersistentVolume stands for a volume.

use futures::future::join_all;
use serde_json::{Value, json};

use super::*;
use crate::k8s::scripted_tests::{Answer, Scripted};

fn persistent_volume(name: &str, handle: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "csi": { "driver": "d", "volumeHandle": handle } } })
}

fn list(items: &[Value]) -> Answer {
    let metadata = json!({ "resourceVersion": "7" });
    Answer::Json(
        json!({ "kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": metadata, "items": items }),
    )
}

async fn start(answers: Vec<Answer>) -> (Scripted, PersistentVolumes) {
    let (server, client) = Scripted::start(answers).await;
    (server, PersistentVolumes::new(client))
}

fn asked(server: &Scripted) -> Vec<String> {
    server.asked().into_iter().map(|asked| asked.uri).collect()
}

fn volume(driver: &str, handle: &str) -> CsiSource {
    CsiSource { driver: driver.into(), volume_handle: handle.into() }
}

async fn name_of(all: &PersistentVolumes, handle: &str) -> Option<String> {
    all.naming(&volume("d", handle), None).await.unwrap().map(|naming| naming.name)
}

#[tokio::test]
async fn they_are_read_as_etcd_has_them() {
    let all = [persistent_volume("a", "1"), persistent_volume("b", "2"), persistent_volume("c", "3")];
    let (server, all) = start(vec![list(&all)]).await;
    assert_eq!(name_of(&all, "2").await.as_deref(), Some("b"));
    let asked = asked(&server);
    let [asked] = &asked[..] else { panic!("{asked:?}") };
    assert!(!asked.contains("limit") && !asked.contains("resourceVersion"), "{asked}");
}

/// The second reading begins after all of them have asked, so it speaks for all of them; the first does not.
#[tokio::test]
async fn one_reading_serves_all_who_wait_when_it_begins() {
    let (server, all) = start(vec![list(&[]), list(&[persistent_volume("late", "9")])]).await;
    let handles: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let found = join_all(handles.iter().map(|handle| name_of(&all, handle))).await;
    assert_eq!(asked(&server).len(), 2);
    let named: Vec<usize> = (0..100).filter(|n| found[*n].is_some()).collect();
    assert_eq!(named, [9]);
}

#[tokio::test]
async fn the_one_that_was_found_is_asked_for_before_all_are_read_again() {
    let found = || persistent_volume("a", "1");
    let gone = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m",
        "details": { "name": "a", "kind": "persistentvolumes" } });
    let answers = vec![list(&[found()]), Answer::Json(found()), Answer::Status(404, gone), list(&[])];
    let (server, all) = start(answers).await;
    for name in [Some("a"), Some("a"), None] {
        assert_eq!(name_of(&all, "1").await.as_deref(), name);
    }
    let one = |uri: &String| uri.ends_with("/persistentvolumes/a");
    assert_eq!(asked(&server).iter().map(one).collect::<Vec<_>>(), [false, true, true, false]);
}

/// A disk that an in-tree source names by its name alone may be another project's. The PersistentVolume that CSI migration,
/// or somebody who hands the disk over, makes later names it for certain, and only that one keeps DeleteVolume away from
/// what the driver has made.
#[tokio::test]
async fn one_that_only_may_stand_for_it_hides_none_that_certainly_does() {
    const DRIVER: &str = "pd.csi.storage.gke.io";
    const HANDLE: &str = "projects/p/zones/z/disks/disk-1";
    let in_tree =
        || json!({ "metadata": { "name": "a" }, "spec": { "gcePersistentDisk": { "pdName": "disk-1" } } });
    let csi = json!({ "metadata": { "name": "b" }, "spec": { "csi": { "driver": DRIVER, "volumeHandle": HANDLE } } });
    let answers = vec![list(&[in_tree()]), list(&[in_tree(), csi.clone()]), Answer::Json(csi)];
    let (_server, all) = start(answers).await;
    let found = async || {
        all.naming(&volume(DRIVER, HANDLE), None).await.unwrap().map(|naming| (naming.name, naming.certain))
    };
    assert_eq!(found().await, Some(("a".into(), false)));
    for _ in ["read again", "remembered"] {
        assert_eq!(found().await, Some(("b".into(), true)));
    }
}

/// Under the name that is remembered there may be another one by now.
#[tokio::test]
async fn one_that_is_not_certain_any_more_is_not_answered_from_memory() {
    let (driver, handle) = ("pd.csi.storage.gke.io", "projects/p/zones/z/disks/disk-1");
    let csi = |name: &str| json!({ "metadata": { "name": name }, "spec": { "csi": { "driver": driver, "volumeHandle": handle } } });
    let in_tree =
        || json!({ "metadata": { "name": "a" }, "spec": { "gcePersistentDisk": { "pdName": "disk-1" } } });
    let answers = vec![list(&[csi("a")]), Answer::Json(in_tree()), list(&[in_tree(), csi("b")])];
    let (_server, all) = start(answers).await;
    for name in ["a", "b"] {
        assert_eq!(all.naming(&volume(driver, handle), None).await.unwrap().unwrap().name, name);
    }
}

#[tokio::test]
async fn a_failure_is_told_to_all_who_waited() {
    let (server, all) = start(vec![list(&[]), Answer::Error(500, "InternalError")]).await;
    let results = join_all((0..10).map(|n| {
        let (all, handle) = (&all, format!("{n}"));
        async move { all.naming(&volume("d", &handle), None).await.is_err() }
    }))
    .await;
    assert_eq!((results.iter().filter(|failed| **failed).count(), asked(&server).len()), (9, 2));
}

#[tokio::test]
async fn one_who_is_interrupted_holds_up_nobody() {
    let (server, all) = start(vec![list(&[])]).await;
    // Nobody reads while somebody else has the turn: both wait, and the first stops waiting.
    let turn = all.turn.lock().await;
    let mut first = Box::pin(name_of(&all, "1"));
    let mut second = Box::pin(name_of(&all, "2"));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    drop(first);
    drop(turn);
    assert_eq!(second.await, None);
    assert_eq!(asked(&server).len(), 1);
}

/// Of one name only the PersistentVolume with the UID does not count, where one is given.
#[tokio::test]
async fn the_one_that_is_excepted_is_the_very_one() {
    let found = |uid: &str| {
        let mut one = persistent_volume("own", "1");
        one["metadata"]["uid"] = uid.into();
        list(&[one])
    };
    for (there, uid, counts) in [("a", Some("a"), false), ("b", Some("a"), true), ("b", None, false)] {
        let (_server, all) = start(vec![found(there)]).await;
        let except = Except { name: "own".to_owned(), uid: uid.map(str::to_owned) };
        let naming = all.naming(&volume("d", "1"), Some(&except)).await.unwrap();
        assert_eq!(naming.is_some(), counts, "{there} {uid:?}");
    }
}
