use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::sleep;

use super::*;
use crate::k8s::lease::fake::FakeLeases;

const SECOND: Duration = Duration::from_secs(1);
const N1: &str = "moor-agent-n1";

fn lease(node_uid: &str, holder: &str, renewals: i64) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(N1.into()),
            annotations: Some(BTreeMap::from([(NODE_UID.to_owned(), node_uid.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(40),
            renew_time: jiff::Timestamp::from_second(renewals).ok().map(MicroTime),
            ..LeaseSpec::default()
        }),
    }
}

fn of(node_uid: &str) -> AgentOnNode {
    AgentOnNode { lease: N1.into(), node_uid: node_uid.into() }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_has_just_started_has_seen_nothing_expire() {
    let observer = LeaseObserver::default();
    observer.observe(&lease("u1", "pod", 1));
    sleep(39 * SECOND).await;
    assert_eq!(observer.silent_for(&of("u1")), None);
    sleep(11 * SECOND).await;
    assert_eq!(observer.silent_for(&of("u1")).map(|d| d.as_secs()), Some(10));
}

/// Whoever has the agent's token writes its Lease.
#[tokio::test(start_paused = true)]
async fn no_lease_lasts_longer_than_an_agent_asks_for() {
    let observer = LeaseObserver::default();
    let mut endless = lease("u1", "pod", 1);
    endless.spec.as_mut().unwrap().lease_duration_seconds = Some(i32::MAX);
    observer.observe(&endless);
    sleep(50 * SECOND).await;
    assert_eq!(observer.silent_for(&of("u1")).map(|d| d.as_secs()), Some(10));
    observer.forget(N1);
    assert_eq!(observer.silent_for(&of("u1")), None, "as one that was never seen");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_starts_the_wait_anew_but_seeing_it_again_does_not() {
    let observer = LeaseObserver::default();
    observer.observe(&lease("u1", "pod", 1));
    sleep(30 * SECOND).await;
    observer.observe(&lease("u1", "pod", 2));
    sleep(30 * SECOND).await;
    assert_eq!(observer.silent_for(&of("u1")), None);
    observer.observe(&lease("u1", "pod", 2));
    sleep(11 * SECOND).await;
    assert_eq!(observer.silent_for(&of("u1")).map(|d| d.as_secs()), Some(1));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_lease_expires_from_the_first_question_on() {
    let observer = LeaseObserver::default();
    assert_eq!(observer.silent_for(&of("u1")), None);
    sleep(41 * SECOND).await;
    assert!(observer.silent_for(&of("u1")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_new_machine_under_the_name_does_not_keep_the_old_one_alive() {
    let observer = LeaseObserver::default();
    observer.observe(&lease("u1", "pod", 1));
    sleep(20 * SECOND).await;
    observer.observe(&lease("u2", "pod", 2));
    sleep(25 * SECOND).await;
    assert!(observer.silent_for(&of("u1")).is_some());
    assert_eq!(observer.silent_for(&of("u2")), None);
}

#[tokio::test(start_paused = true)]
async fn a_live_read_corrects_a_stalled_watch() {
    let api = FakeLeases::new();
    let observer = LeaseObserver::default();
    observer.observe(&lease("u1", "pod", 1));
    sleep(100 * SECOND).await;
    assert!(observer.silent_for(&of("u1")).is_some());
    api.create(&lease("u1", "pod", 2)).await.unwrap();
    observer.refresh(&api, N1).await.unwrap();
    assert_eq!(observer.silent_for(&of("u1")), None);
    sleep(45 * SECOND).await;
    observer.refresh(&api, N1).await.unwrap();
    assert!(observer.silent_for(&of("u1")).is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_node_the_last_holder_counts() {
    let observer = LeaseObserver::default();
    observer.observe(&lease("u1", "pod", 1));
    sleep(20 * SECOND).await;
    observer.observe(&lease("u2", "pod", 2));
    sleep(25 * SECOND).await;
    assert_eq!(observer.expired_for(N1), None);
    sleep(16 * SECOND).await;
    assert_eq!(observer.expired_for(N1).map(|d| d.as_secs()), Some(1));
    assert_eq!(observer.expired_for("moor-agent-n2"), None, "the first question");
    sleep(41 * SECOND).await;
    assert!(observer.expired_for("moor-agent-n2").is_some());
}

#[tokio::test(start_paused = true)]
async fn only_a_renewal_that_was_seen_tells_that_an_agent_is_heard() {
    let observer = LeaseObserver::default();
    assert!(!observer.is_heard(&of("u1")));
    observer.observe(&lease("u1", "pod", 1));
    observer.observe(&lease("u1", "pod", 1));
    assert!(!observer.is_heard(&of("u1")), "it is there, and may have been for days");
    observer.observe(&lease("u1", "pod", 2));
    assert!(observer.is_heard(&of("u1")) && !observer.is_heard(&of("u2")));
    sleep(41 * SECOND).await;
    assert!(!observer.is_heard(&of("u1")));
}

/// Whoever looks now and then sees no silence that began and ended in between.
#[tokio::test(start_paused = true)]
async fn a_silence_that_has_ended_is_counted() {
    let observer = LeaseObserver::default();
    assert_eq!(observer.silences(N1), 0);
    observer.observe(&lease("u1", "pod", 1));
    sleep(39 * SECOND).await;
    observer.observe(&lease("u1", "pod", 2));
    assert_eq!(observer.silences(N1), 0, "it was renewed in time");
    sleep(41 * SECOND).await;
    observer.observe(&lease("u1", "pod", 2));
    assert_eq!(observer.silences(N1), 0, "it lasts");
    observer.observe(&lease("u1", "pod", 3));
    assert_eq!(observer.silences(N1), 1);
    sleep(41 * SECOND).await;
    observer.observe(&lease("u2", "pod", 4));
    assert_eq!(observer.silences(N1), 2, "whoever holds it is heard");
    sleep(39 * SECOND).await;
    observer.observe(&lease("u2", "pod", 5));
    observer.observe(&lease("u1", "pod", 6));
    assert_eq!(observer.silences(N1), 3, "the first machine is back");
}

/// A machine that was registered anew is heard under another UID than what was made on it before.
#[tokio::test(start_paused = true)]
async fn who_is_heard_under_another_uid_is_known_with_its_boot() {
    let observer = LeaseObserver::default();
    let on = |node_uid: &str, boot: &str, renewals| {
        let mut lease = lease(node_uid, "pod", renewals);
        lease.metadata.annotations.get_or_insert_default().insert(BOOT_ID.into(), boot.into());
        lease
    };
    let agent = |node_uid: &str, boot: &str| HeardAgent { node_uid: node_uid.into(), boot_id: boot.into() };
    assert_eq!(observer.heard_beside(&of("u1")), []);
    assert_eq!(observer.silent_for(&of("asked-for")), None);
    observer.observe(&on("u1", "b1", 1));
    assert_eq!(observer.heard_beside(&of("u1")), [], "neither itself nor one that was only asked for");
    sleep(20 * SECOND).await;
    observer.observe(&on("u2", "b1", 2));
    assert_eq!(observer.heard_beside(&of("u1")), [agent("u2", "b1")]);
    assert_eq!(observer.heard_beside(&of("u2")), [agent("u1", "b1")]);
    sleep(25 * SECOND).await;
    observer.observe(&on("u2", "b2", 3));
    assert_eq!(observer.heard_beside(&of("u1")), [agent("u2", "b2")], "it was booted");
    assert_eq!(observer.heard_beside(&of("u2")), [], "it is silent");
    sleep(41 * SECOND).await;
    assert_eq!(observer.heard_beside(&of("u1")), []);
}

/// The machine of the second may be that of the first's Node, which is not lost while it is heard (rule R4).
#[tokio::test(start_paused = true)]
async fn who_was_heard_a_moment_ago_is_remembered_beside_who_is_heard_now() {
    let observer = LeaseObserver::default();
    let uids = |observer: &LeaseObserver| {
        let heard = observer.heard_beside(&of("u1")).into_iter();
        heard.map(|agent| agent.node_uid).collect::<Vec<_>>()
    };
    for (second, uid) in [(1, "u1"), (2, "u2"), (3, "u3")] {
        observer.observe(&lease(uid, "pod", second));
        sleep(SECOND).await;
        observer.keep(N1, |uid| uid == "u1");
    }
    assert_eq!(uids(&observer), ["u2", "u3"]);
    for second in 4..20 {
        observer.observe(&lease(&format!("made-up-{second}"), "pod", second));
        sleep(SECOND).await;
        observer.keep(N1, |uid| uid == "u1");
    }
    assert_eq!(uids(&observer).len(), REMEMBERED, "a node may name one UID after another");
    sleep(41 * SECOND).await;
    observer.observe(&lease("u4", "pod", 90));
    observer.keep(N1, |uid| uid == "u1");
    assert_eq!(observer.seen.lock()[N1].nodes.len(), 2, "who is silent is forgotten");
}
