//! Which pass an event asks for.

use super::*;
use crate::api::attachment::{AttachmentSpec, Fixed};
use crate::api::claim::VolumeClaimSpec;
use crate::api::plugin::PluginSpec;
use crate::api::volume::VolumeSpec;

fn claim(namespace: &str, name: &str, volume: &str) -> VolumeClaim {
    let spec = VolumeClaimSpec { volume_name: volume.into(), ..VolumeClaimSpec::default() };
    let mut claim = VolumeClaim::new(name, spec);
    claim.metadata.namespace = Some(namespace.into());
    claim.metadata.uid = Some(format!("{namespace}-{name}"));
    claim.metadata.resource_version = Some("1".into());
    claim
}

fn attachment(name: &str, driver: &str, node: &str) -> Attachment {
    let fixed = Fixed { driver_name: driver.into(), ..Fixed::default() };
    let spec = AttachmentSpec { node_name: node.into(), fixed, ..AttachmentSpec::default() };
    let mut attachment = Attachment::new(name, spec);
    attachment.metadata.uid = Some(name.into());
    attachment.metadata.resource_version = Some("1".into());
    attachment
}

/// Neither a beginning nor the other namespace's Volume of that name (T24, T51, T58).
#[test]
fn claims_are_found_by_the_whole_name_and_namespace_of_their_volume() {
    let cache = claim_cache();
    for (namespace, name, volume) in
        [("a", "1", "test"), ("a", "2", "testing"), ("b", "3", "test"), ("a", "4", "tes")]
    {
        cache.apply(claim(namespace, name, volume));
    }
    let names = |namespace, volume| {
        let found = cache.by_index(BY_VOLUME, &volume_key(namespace, volume));
        found.iter().map(|c| c.metadata.name.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("a", "test"), ["1"]);
    assert_eq!(names("a", "testing"), ["2"]);
    assert_eq!(names("b", "test"), ["3"]);
    assert!(names("b", "testing").is_empty());
}

/// Also a Volume that is not there yet (L18, T67).
#[tokio::test]
async fn a_claim_wakes_its_own_volume_only() {
    let (cache, queue) = (claim_cache(), Arc::default());
    cache.apply(claim("a", "1", "one"));
    cache.apply(claim("a", "2", "two"));
    connect_claims(&cache, &queue);
    let mut changed = claim("a", "1", "one");
    changed.metadata.resource_version = Some("2".into());
    cache.apply(changed);
    assert_eq!(queue.len(), 1);
    let woken = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&woken);
    let work = move |key| {
        seen.lock().unwrap().push(key);
        std::future::ready(crate::k8s::Next::Done)
    };
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(crate::k8s::queue::run(queue.clone(), 1, work, async {
        let _ = stopping.await;
    }));
    while woken.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    stop.send(()).unwrap();
    running.await.unwrap();
    assert_eq!(*woken.lock().unwrap(), [key_of("a", "one")]);
}

/// The younger Plugin of a driver says whose it is, and its Volumes wait for that to end. One was removed by hand.
#[test]
fn plugins_of_one_driver_wake_each_other() {
    let plugin = |name: &str, version: &str, driver: &str| {
        let spec = PluginSpec { driver_name: Some(driver.into()), ..PluginSpec::default() };
        let mut plugin = Plugin::new(name, spec);
        plugin.metadata.uid = Some(name.into());
        plugin.metadata.resource_version = Some(version.into());
        plugin
    };
    let woken = |change: &dyn Fn(&Cache<Plugin>)| {
        let (plugins, volumes) = (Arc::new(Cache::new(&["plugins"])), Arc::new(volume_cache()));
        for name in ["older", "younger"] {
            plugins.apply(plugin(name, "1", "driver"));
        }
        plugins.apply(plugin("other", "1", "other"));
        let spec = VolumeSpec { plugin_name: "younger".into(), ..VolumeSpec::default() };
        let mut waits = Volume::new("waits", spec);
        waits.metadata.uid = Some("waits".into());
        waits.metadata.resource_version = Some("1".into());
        volumes.apply(waits);
        let attachments = Arc::new(attachment_cache());
        let mut left = attachment("left", "driver", "node-1");
        left.spec.fixed.plugin_name = "younger".into();
        left.spec.volume.name = "removed".into();
        attachments.apply(left);
        let queue: Arc<Queue<Key>> = Arc::default();
        connect_plugins(&plugins, OfPlugin { queue: queue.clone(), volumes, attachments });
        change(&plugins);
        queue.len()
    };
    let (both_and_volumes, itself) = (4, 1);
    assert_eq!(woken(&|plugins| plugins.remove_confirmed("older")), both_and_volumes);
    assert_eq!(woken(&|plugins| plugins.apply(plugin("older", "2", "renamed"))), both_and_volumes);
    assert_eq!(woken(&|plugins| plugins.apply(plugin("older", "2", "driver"))), itself, "its status");
    assert_eq!(woken(&|plugins| plugins.remove_confirmed("other")), itself);
}

/// What a node's limit is compared with: every volume of that driver there once, also while it leaves (L9).
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
    let load = |driver, node| cache.by_index(BY_DRIVER_NODE, &volume_key(driver, node)).len();
    assert_eq!((load("driver", "node-1"), load("other", "node-1"), load("driver", "node-2")), (2, 1, 0));
}
