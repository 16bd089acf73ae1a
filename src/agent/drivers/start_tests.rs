//! What the registry says of drivers that start, alone and beside others that run.

use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;

use super::tests::{Driver, Fixture, any, client_for, fixture, serve, until};
use super::*;

/// It has its time before that is told, whichever way it says it.
#[tokio::test]
async fn a_plugin_that_is_not_ready_is_unhealthy_and_can_still_be_called() {
    starts(false).await;
    starts(true).await;
}

async fn starts(probe_fails: bool) {
    let Fixture { directory, registry, .. } = fixture();
    let driver = Driver { name: "a.test".into(), probe_fails, ..Driver::default() };
    driver.not_ready.store(true, Ordering::SeqCst);
    let _server = serve(&driver, &directory.path().join("a/csi.sock"));
    until("connected", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    let health = any(&registry).unwrap().health;
    assert_eq!(health, Health::default());
    until("unhealthy", || {
        registry.poke("a.test");
        any(&registry).is_some_and(|e| e.health.error.is_some())
    })
    .await;
    driver.not_ready.store(false, Ordering::SeqCst);
    registry.poke("a.test");
    until("healthy", || any(&registry).is_some_and(|e| e.health.healthy)).await;
    assert_eq!(driver.asked.load(Ordering::SeqCst), 1, "read once per connection");
}

/// What moor runs comes first where it answers, and a socket that a process has left behind shuts nobody out.
#[tokio::test]
async fn a_driver_of_somebody_else_serves_while_moors_own_does_not_answer() {
    let Fixture { directory, registry, .. } = fixture();
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    let (theirs, own) = (directory.path().join("a/csi.sock"), directory.path().join("moor.p/csi.sock"));
    let _theirs = serve(&driver, &theirs);
    let serving = || {
        let best = registry.best("a.test", Service::Node, &Where::First(own.clone()))?;
        best.serving.is_some().then_some(best.path)
    };
    until("theirs serves", || serving() == Some(theirs.clone())).await;
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    let mute = UnixListener::bind(&own).unwrap();
    until("it is seen", || registry.state.lock().sockets.contains_key(&own)).await;
    until("theirs serves on", || registry.is_settled() && serving() == Some(theirs.clone())).await;
    drop(mute);
    let half = serve(&Driver { ill: true, ..driver.clone() }, &own);
    let says_name = || registry.unread("a.test", &own).is_some();
    until("it says its name alone", says_name).await;
    assert_eq!(serving(), Some(theirs.clone()));
    drop(half);
    let server = serve(&driver, &own);
    until("moor's own serves", || serving() == Some(own.clone())).await;
    drop(server);
    until("theirs serves again", || serving() == Some(theirs.clone())).await;
    assert!(own.exists());
}
