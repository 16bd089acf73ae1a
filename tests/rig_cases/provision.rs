//! PersistentVolumeClaims that moor provisions, and PersistentVolumes that it reclaims.

mod bad_input;
mod crashes;
pub mod objects;
mod places;
mod reclaim;
mod secrets;
mod static_volumes;

use std::sync::Arc;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1::CreateVolumeRequest;
use prost::Message as _;
use serde_json::json;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Binder, Case, Cluster, Options, Rig};
pub(crate) use objects::class;

/// From the claim to its storage and back, with what the stock provisioner would have written in between.
async fn a_claim_gets_its_volume_and_gives_it_back(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let more = json!({ "parameters": { "key": "v", "csi.storage.k8s.io/fstype": "xfs" }, "mountOptions": ["noatime"] });
    rig.make_class(&class("fast", &more)).await;
    let uid = rig.make_pvc("data", "fast", json!({})).await;
    let pv = rig.until_bound("data").await;
    let name = format!("pvc-{uid}");
    assert_eq!(pv.metadata.name.as_deref(), Some(name.as_str()));
    let annotations = pv.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["pv.kubernetes.io/provisioned-by"], DRIVER);
    let finalizers = pv.metadata.finalizers.clone().unwrap();
    assert!(
        finalizers.contains(&"external-provisioner.volume.kubernetes.io/finalizer".to_owned()),
        "{finalizers:?}"
    );
    let spec = pv.spec.unwrap();
    assert_eq!(spec.claim_ref.unwrap().uid, Some(uid));
    assert_eq!(
        (spec.storage_class_name.as_deref(), spec.mount_options),
        (Some("fast"), Some(vec!["noatime".into()]))
    );
    assert_eq!(spec.capacity.unwrap()["storage"].0, "1Mi");
    let csi = spec.csi.unwrap();
    assert_eq!(
        (csi.driver.as_str(), csi.volume_handle.as_str(), csi.fs_type.as_deref()),
        (DRIVER, "vol-v", Some("xfs"))
    );
    assert_eq!(csi.volume_attributes.unwrap()["made-for"], "v");
    let calls = rig.journal.calls_of("v");
    let created = CreateVolumeRequest::decode(calls[0].call().unwrap().arguments.as_slice()).unwrap();
    assert_eq!(created.name, name, "the storage is found again by this name");
    assert!(!created.parameters.contains_key("csi.storage.k8s.io/fstype"), "{created:?}");

    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    assert_eq!((rig.count("v", Rpc::CreateVolume), rig.count("v", Rpc::DeleteVolume)), (1, 1));
    assert!(!rig.has_storage("v"), "the storage is left");
    rig.assert_nothing_left().await;
}

/// Everything that the PersistentVolume needs is on the Volume.
async fn the_class_may_go_while_the_volume_is_made(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let more =
        json!({ "parameters": { "key": "v" }, "mountOptions": ["noatime"], "reclaimPolicy": "Retain" });
    rig.make_class(&class("fast", &more)).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_pvc("data", "fast", json!({})).await;
    rig.until_called("v", Rpc::CreateVolume).await;
    rig.delete_class("fast").await;
    rig.restart(crate::rig::CONTROLLER);
    rig.fake.let_go("v", Rpc::CreateVolume);
    let spec = rig.until_bound("data").await.spec.unwrap();
    assert_eq!(spec.mount_options, Some(vec!["noatime".into()]));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    assert_eq!(spec.storage_class_name.as_deref(), Some("fast"));
}

/// Nobody wants what is being made any more. Whoever asks under the same name next gets a volume of their own.
async fn a_claim_that_goes_while_its_volume_is_made_leaves_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    rig.make_class(&class("fast", &json!({ "parameters": { "key": "v" } }))).await;
    rig.make_class(&class("other", &json!({ "parameters": { "key": "w" } }))).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    let first = rig.make_pvc("data", "fast", json!({})).await;
    rig.until_called("v", Rpc::CreateVolume).await;
    rig.delete_pvc("data").await;
    let second = rig.make_pvc("data", "other", json!({})).await;
    rig.fake.let_go("v", Rpc::CreateVolume);
    let pv = rig.until_bound("data").await;
    assert_eq!(pv.metadata.name, Some(format!("pvc-{second}")));
    rig.until_volume_of_claim_gone(&first).await;
    assert!(!rig.has_storage("v"), "the storage is left");
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// Its class and its annotation are those of another one, or nobody was asked.
async fn the_claim_of_another_provisioner_is_not_touched(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    rig.make_class(&class("theirs", &json!({ "provisioner": "other.example.com" }))).await;
    rig.make_class(&class("fast", &json!({ "parameters": { "key": "v" } }))).await;
    rig.make_pvc("foreign", "theirs", json!({})).await;
    rig.until_asked("foreign").await;
    // The annotation names moor's driver and the class does not.
    let mixed = json!({ "volume.kubernetes.io/storage-provisioner": DRIVER });
    rig.make_annotated_pvc("mixed", "theirs", mixed).await;
    // Whoever comes after them is served, so they have been looked at.
    rig.make_pvc("data", "fast", json!({})).await;
    rig.until_bound("data").await;
    let before = [rig.read_pvc("foreign").await, rig.read_pvc("mixed").await];
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    let after = [rig.read_pvc("foreign").await, rig.read_pvc("mixed").await];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
    }
    let written = rig.journal.since(0, |e| e.write().is_some_and(|w| w.kind == "persistentvolumeclaims"));
    assert!(written.is_empty(), "{written:?}");
    assert!(rig.events_of("foreign").await.is_empty() && rig.events_of("mixed").await.is_empty());
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_claim_gets_its_volume_and_gives_it_back,
    the_class_may_go_while_the_volume_is_made,
    a_claim_that_goes_while_its_volume_is_made_leaves_nothing,
    the_claim_of_another_provisioner_is_not_touched,
    places::a_claim_that_waits_for_its_consumer_gets_its_volume_there,
    places::allowed_topologies_are_kept_to,
    places::a_full_place_is_left_for_another,
    places::a_chosen_node_that_does_not_exist_is_taken_off,
    reclaim::the_policy_at_the_end_counts,
    reclaim::a_policy_that_is_changed_after_the_claim_is_gone_counts,
    reclaim::the_last_of_two_decides,
    reclaim::one_that_is_removed_by_force_leaves_its_storage,
    reclaim::one_that_is_removed_by_force_stays_with_its_pod,
    reclaim::an_order_to_nobody_has_deleted_nothing,
    reclaim::a_deletion_that_fails_is_told,
    static_volumes::one_goes_as_its_policy_says,
    static_volumes::whoever_thinks_better_of_it_in_time_keeps_the_storage,
    static_volumes::one_of_the_stock_provisioner_is_reclaimed,
    static_volumes::the_last_of_those_with_one_handle_decides,
    static_volumes::a_foreign_handle_has_nothing_deleted,
    static_volumes::a_name_of_its_own_at_kubelets_changes_nothing,
    static_volumes::one_that_was_taken_up_before_its_drivers_controller_came_is_reclaimed,
    bad_input::what_cannot_be_provisioned_says_so_and_makes_nothing,
    bad_input::what_the_driver_refuses_is_told_in_its_words_and_leaves_nothing,
    bad_input::a_claim_waits_for_its_class_and_says_so,
    bad_input::what_another_namespace_has_is_not_copied,
    bad_input::a_namespace_that_may_have_nothing_made_is_told,
    bad_input::a_provisioner_beside_moor_is_told_of,
    secrets::those_of_a_class_reach_the_driver_and_nobody_else,
    bad_input::nobody_else_says_what_a_volume_is_provisioned_for,
    crashes::the_leader_may_die_at_every_write,
    crashes::the_api_server_may_go_away_at_every_write,
    crashes::the_leader_may_die_at_every_write_about_a_static_volume,
];
