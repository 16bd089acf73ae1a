use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{demand::Demand, store::Named, watches::Watches};
use super::{
    super::scripted_tests::{Answer, Scripted},
    *,
};

fn object(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
    }})
}

fn malformed(name: &str, version: u64) -> Value {
    let mut object = object(name, version);
    object["data"] = json!("not a map");
    object
}

fn list(version: u64, items: &[Value]) -> Answer {
    let metadata = json!({"resourceVersion": version.to_string()});
    Answer::Json(json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}))
}

fn event(type_: &str, object: &Value) -> Value {
    json!({"type": type_, "object": object})
}

/// What ends a stream whose version the API server no longer keeps.
fn too_old() -> Value {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "message": "too old", "code": 410});
    event("ERROR", &status)
}

fn bookmark(version: u64) -> Value {
    event(
        "BOOKMARK",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": version.to_string()}}),
    )
}

struct Fixture {
    server: Scripted,
    cache: Arc<Cache<ConfigMap>>,
    watching: JoinHandle<WentBack>,
    restarts: Restarts,
}

async fn watching(answers: Vec<Answer>) -> Fixture {
    let (server, client) = Scripted::start(answers).await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]));
    let selector = Some("metadata.namespace=ns".to_owned());
    let restarts = Restarts::default();
    let watching =
        tokio::spawn(watch(Api::namespaced(client, "ns"), selector, cache.clone(), 0, restarts.clone()));
    Fixture { server, cache, watching, restarts }
}

impl Fixture {
    async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..500 {
            if done(self) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{what}: {:?} after {:?}", self.names(), self.server.asked());
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.cache.all().iter().map(|object| object.name_any()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn it_lists_by_quorum_and_watches_from_there() {
    let fixture = watching(vec![
        list(20, &[object("a", 5), object("b", 6)]),
        Answer::Open(vec![event("ADDED", &object("c", 21)), event("DELETED", &object("a", 22))]),
    ])
    .await;
    fixture.until("events", |f| f.names() == ["b", "c"]).await;
    assert!(fixture.cache.is_synced());
    let asked: Vec<String> = fixture.server.asked().into_iter().map(|asked| asked.uri).collect();
    assert!(!asked[0].contains("limit") && !asked[0].contains("resourceVersion"), "{}", asked[0]);
    assert!(asked[0].contains("fieldSelector=metadata.namespace%3Dns"), "{}", asked[0]);
    assert!(asked[1].contains("watch=true") && asked[1].contains("resourceVersion=20"), "{}", asked[1]);
    assert!(asked[1].contains("allowWatchBookmarks=true"));
}

/// By it nothing is concluded from what somebody else has answered, nor after the stream has ended.
#[tokio::test]
async fn everything_is_there_up_to_where_the_stream_is() {
    let fixture = watching(vec![
        list(20, &[object("a", 5)]),
        Answer::Open(vec![event("ADDED", &object("b", 50)), bookmark(60)]),
    ])
    .await;
    fixture.until("the bookmark", |f| f.cache.has_all_up_to(60)).await;
    let written = serde_json::from_value(object("b", 70)).unwrap();
    fixture.cache.apply(written);
    assert_eq!(fixture.cache.highest(), 70);
    assert!(!fixture.cache.has_all_up_to(61), "somebody else's may have come before it");

    let fixture =
        watching(vec![list(20, &[object("a", 5)]), Answer::Events(vec![]), Answer::Open(vec![])]).await;
    fixture.until("the second stream", |f| f.server.asked().len() > 2 && f.cache.has_all_up_to(20)).await;
    let fixture = watching(vec![list(20, &[object("a", 5)]), Answer::Events(vec![])]).await;
    fixture.until("the end of the stream", |f| f.server.asked().len() > 2).await;
    assert!(!fixture.cache.has_all_up_to(20));

    let fixture = watching(vec![list(20, &[object("a", 5), malformed("b", 6)]), Answer::Open(vec![])]).await;
    fixture.until("the stream", |f| f.server.asked().len() > 1).await;
    fixture.until("what cannot be read", |f| !f.cache.unreadable().is_empty()).await;
    assert!(!fixture.cache.has_all_up_to(20), "it may say anything");
}

#[tokio::test]
async fn nothing_is_watched_before_it_is_wanted() {
    let (empty, one) = (list(20, &[]), list(30, &[object("a", 25)]));
    let (server, client) = Scripted::start(vec![empty, list(30, &[]), one, Answer::Open(vec![])]).await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]));
    let demand = Demand::default();
    let mut watches = Watches::new(client.clone(), Restarts::default());
    watches.on_demand(Api::namespaced(client, "ns"), None, (&cache, 0), &demand);
    cache.synced().await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(server.asked().len(), 1, "it was listed once, and that there is nothing is known");
    assert_eq!(cache.stalled_for(), Duration::ZERO, "nothing is expected of it");
    demand.rise();
    for _ in 0..500 {
        if server.asked().len() == 4 {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let asked: Vec<String> = server.asked().into_iter().map(|asked| asked.uri).collect();
    assert!(asked[3].contains("watch=true") && asked[3].contains("resourceVersion=30"), "{asked:?}");
    assert_eq!(cache.all().len(), 1);
    assert!(cache.stalled_for() > Duration::ZERO, "now its silence counts");
}

#[tokio::test]
async fn what_is_listed_is_wanted() {
    let answers = vec![list(20, &[object("a", 5)]), Answer::Open(vec![event("ADDED", &object("b", 21))])];
    let (_server, client) = Scripted::start(answers).await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]));
    let demand = Demand::default();
    let mut watches = Watches::new(client.clone(), Restarts::default());
    watches.on_demand(Api::namespaced(client, "ns"), None, (&cache, 0), &demand);
    demand.risen().await;
    while cache.all().len() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_nobody_reads_is_not_kept() {
    let fixture = watching(vec![list(20, &[object("a", 5)]), Answer::Open(vec![])]).await;
    fixture.cache.synced().await;
    let stored = fixture.cache.get_in(Named { namespace: "ns", name: "a" }).unwrap();
    assert_eq!(stored.metadata.managed_fields, None);
    assert_eq!(stored.annotations().keys().collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn the_end_of_what_is_not_kept_is_told() {
    let answers = vec![
        list(20, &[object("a", 5)]),
        Answer::Open(vec![event("MODIFIED", &object("a", 21)), event("DELETED", &object("a", 22))]),
    ];
    let (server, client) = Scripted::start(answers).await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]).that_keeps(|_| false));
    let told: Arc<parking_lot::Mutex<Vec<(bool, bool)>>> = Arc::default();
    let heard = Arc::clone(&told);
    cache.on_change(move |before, after| heard.lock().push((before.is_some(), after.is_some())));
    let restarts = Restarts::default();
    let watching =
        tokio::spawn(watch(Api::namespaced(client, "ns"), None, cache.clone(), 0, restarts.clone()));
    let fixture = Fixture { server, cache, watching, restarts };
    fixture.until("its end is told", |_| !told.lock().is_empty()).await;
    assert_eq!(*told.lock(), [(true, false)]);
    assert!(fixture.names().is_empty());
}

#[tokio::test]
async fn a_malformed_object_is_reported_and_stalls_nothing() {
    let mends = |name, version| event("MODIFIED", &object(name, version));
    let (_server, client) = Scripted::start(vec![
        list(20, &[malformed("a", 5), object("b", 6), malformed("d", 7), malformed("e", 8)]),
        Answer::Open(vec![
            event("MODIFIED", &malformed("b", 21)),
            mends("d", 22),
            event("DELETED", &object("e", 23)),
            event("ADDED", &object("c", 24)),
        ]),
    ])
    .await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]));
    tokio::spawn(watch(Api::namespaced(client, "ns"), None, cache.clone(), 0, Restarts::default()));
    for _ in 0..500 {
        sleep(Duration::from_millis(10)).await;
        if cache.get_in(Named { namespace: "ns", name: "c" }).is_some() {
            break;
        }
    }
    let mut unreadable: Vec<_> = cache.unreadable().into_iter().filter_map(|u| u.metadata.name).collect();
    unreadable.sort();
    assert_eq!(unreadable, ["a", "b"], "neither what was mended nor what is gone");
    let known = cache.get_in(Named { namespace: "ns", name: "b" }).unwrap();
    assert_eq!(known.resource_version().unwrap(), "6", "what was known of it stays");
    assert!(cache.get_in(Named { namespace: "ns", name: "c" }).is_some());
}

#[tokio::test]
async fn a_stream_that_ends_is_resumed_from_the_last_event_or_bookmark() {
    let fixture = watching(vec![
        list(20, &[object("a", 5)]),
        Answer::Events(vec![event("ADDED", &object("b", 21)), bookmark(30)]),
        Answer::Open(vec![event("ADDED", &object("c", 31))]),
    ])
    .await;
    fixture.until("resumed", |f| f.names() == ["a", "b", "c"]).await;
    let asked = fixture.server.asked();
    assert!(asked[2].uri.contains("resourceVersion=30"), "{}", asked[2].uri);
}

#[tokio::test]
async fn an_expired_version_is_listed_anew_and_what_is_absent_is_dropped() {
    let fixture = watching(vec![
        list(20, &[object("a", 5), object("b", 6)]),
        Answer::Open(vec![too_old()]),
        list(40, &[]),
        list(40, &[object("b", 6)]),
        Answer::Open(vec![]),
    ])
    .await;
    fixture.until("relisted", |f| f.names() == ["b"]).await;
    fixture.until("watching", |f| f.server.asked().len() == 5).await;
    assert!(fixture.server.asked()[4].uri.contains("resourceVersion=40"));
}

#[tokio::test]
async fn what_has_to_be_listed_is_listed_whatever_fails_before() {
    let fixture = watching(vec![
        list(20, &[object("a", 5), object("b", 6)]),
        Answer::Open(vec![too_old()]),
        Answer::Error(503, "ServiceUnavailable"),
        list(40, &[]),
        list(40, &[object("b", 6)]),
        Answer::Open(vec![]),
    ])
    .await;
    fixture.until("relisted", |f| f.names() == ["b"]).await;
}

#[tokio::test]
async fn a_first_list_that_breaks_off_is_repeated_whatever_fails_before() {
    let begun = format!(r#"{{"items":[{}],"metadata""#, object("a", 5));
    let fixture = watching(vec![
        Answer::Text(begun),
        Answer::Error(503, "ServiceUnavailable"),
        list(20, &[]),
        list(20, &[object("b", 6)]),
        Answer::Open(vec![]),
    ])
    .await;
    fixture.until("listed", |f| f.names() == ["b"]).await;
    assert!(fixture.cache.is_synced());
}

#[tokio::test]
async fn a_failed_list_is_repeated() {
    let fixture = watching(vec![
        Answer::Error(500, "InternalError"),
        list(20, &[object("a", 5)]),
        Answer::Open(vec![]),
    ])
    .await;
    fixture.until("listed", |f| f.names() == ["a"]).await;
    let labels = KindLabels { kind: "ConfigMap".into() };
    assert_eq!(fixture.restarts.get_or_create(&labels).get(), 1);
}

#[tokio::test]
async fn a_server_whose_history_went_back_ends_the_watch() {
    let fixture = watching(vec![
        list(20, &[object("a", 5)]),
        Answer::Events(vec![event("ADDED", &object("b", 50))]),
        Answer::Error(410, "Expired"),
        list(30, &[object("a", 5), object("restored", 7)]),
    ])
    .await;
    let text = fixture.watching.await.unwrap().to_string();
    assert!(text.contains("lists version 30, older than 50"), "{text}");
    let restored = Named { namespace: "ns", name: "restored" };
    assert!(fixture.cache.get_in(restored).is_none(), "what is listed must not be taken in");
}

#[tokio::test]
async fn a_broken_stream_is_not_taken_up_from_a_version_of_the_future() {
    let fixture = watching(vec![
        list(20, &[object("a", 5)]),
        Answer::Events(vec![event("ADDED", &object("b", 50))]),
        Answer::Error(503, "ServiceUnavailable"),
        list(30, &[]),
    ])
    .await;
    let text = fixture.watching.await.unwrap().to_string();
    assert!(text.contains("lists version 30, older than 50"), "{text}");
    let asked = fixture.server.asked().pop().unwrap().uri;
    assert!(asked.contains("limit=1") && !asked.contains("resourceVersion"), "{asked}");
}

#[tokio::test]
async fn a_bookmark_of_the_past_is_looked_into() {
    let fixture = watching(vec![
        list(20, &[object("a", 5)]),
        Answer::Open(vec![event("ADDED", &object("b", 50)), bookmark(40)]),
        list(45, &[]),
    ])
    .await;
    let text = fixture.watching.await.unwrap().to_string();
    assert!(text.contains("lists version 45, older than 50"), "{text}");

    // A server that only lags.
    let fixture = watching(vec![
        list(20, &[object("a", 5)]),
        Answer::Open(vec![event("ADDED", &object("b", 50)), bookmark(40), event("ADDED", &object("c", 60))]),
        list(50, &[]),
    ])
    .await;
    fixture.until("goes on", |f| f.names() == ["a", "b", "c"]).await;
}

#[tokio::test]
async fn an_own_write_made_during_the_list_is_not_taken_for_history_going_back() {
    let (_server, client) = Scripted::start(vec![]).await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]));
    tokio::spawn(watch(Api::namespaced(client, "ns"), None, cache.clone(), 0, Restarts::default()));
    sleep(Duration::from_millis(50)).await;
    cache.apply(serde_json::from_value(object("mine", 60)).unwrap());
    cache.finish_list(&HashSet::new(), 40, 0);
    assert!(cache.get_in(Named { namespace: "ns", name: "mine" }).is_some(), "newer than the list");
}

#[tokio::test]
async fn a_kind_that_is_not_there_is_looked_for_and_has_no_objects_meanwhile() {
    let (server, client) = Scripted::start(vec![
        Answer::Error(404, "NotFound"),
        list(20, &[object("a", 5)]),
        Answer::Events(vec![event("ADDED", &object("b", 21))]),
        // Somebody takes it away, with all that there was of it.
        Answer::Error(404, "NotFound"),
        list(30, &[]),
        list(30, &[object("c", 29)]),
    ])
    .await;
    let cache: Arc<Cache<ConfigMap>> = Arc::new(Cache::new(&["all"]));
    let left: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let told = left.clone();
    cache.on_change(move |before, after| {
        if let (Some(gone), None) = (before, after) {
            told.lock().unwrap().push(gone.name_any());
        }
    });
    let watch = Watch::new(Api::namespaced(client, "ns"), None, cache.clone(), 0);
    let watch = Watch { undefined: Some(Duration::from_millis(50)), ..watch };
    let restarts = Restarts::default();
    let watching = tokio::spawn(watch.run(restarts.clone()));
    cache.synced().await;
    assert!(cache.all().is_empty(), "nothing waits for the kind");
    let fixture = Fixture { server, cache, watching, restarts };
    fixture.until("the kind is back", |fixture| fixture.names() == ["c"]).await;
    left.lock().unwrap().sort();
    assert_eq!(*left.lock().unwrap(), ["a", "b"]);
    assert_eq!(fixture.restarts.get_or_create(&KindLabels { kind: "ConfigMap".into() }).get(), 0);
    fixture.watching.abort();
}
