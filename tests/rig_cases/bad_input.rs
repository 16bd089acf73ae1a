//! What users and administrators do wrong: every time a clear condition, no unsafe call, nothing lost.

mod edits;
mod empty;
mod fixed;
mod handles;
pub mod manifest;
mod names;
mod refused;
mod table;
mod taken;

use std::sync::Arc;

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};
use moor::csi::Rpc;

/// A Volume is deleted while a claim uses it, and another claim comes.
async fn a_volume_is_deleted_while_it_is_claimed(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("first", "v", "node-2")).await;
    let path = rig.until_ready("first").await;
    std::fs::write(format!("{path}/data"), "precious").unwrap();

    rig.delete_volume("v").await;
    let said = rig.until_volume_says("v", "InUse", &[]).await;
    assert!(said.contains("default/first"), "{said}");
    rig.make_claim(&volume_claim("late", "v", "node-2")).await;
    rig.until_claim_says("late", "VolumeDeleted").await;
    assert_eq!(std::fs::read_to_string(format!("{path}/data")).unwrap(), "precious");
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 0);

    rig.delete_claim("first").await;
    rig.until_volume_gone("v").await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), 1, "the late claim was never published");
    let said = rig.until_claim_says("late", "VolumeNotFound").await;
    assert!(said.contains("proceeds when it is created"), "{said}");
    rig.delete_claim("late").await;
    rig.assert_nothing_left().await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_volume_is_deleted_while_it_is_claimed,
    handles::two_volumes_name_one_handle,
    handles::a_persistent_volume_names_the_handle,
    empty::what_is_empty_goes_like_what_is_absent,
    empty::a_plugin_of_just_a_name_is_one,
    names::names_that_no_object_has_are_refused,
    names::a_claim_for_a_node_that_is_not_there_says_so,
    fixed::what_an_attachment_stands_for_stays,
    edits::words_that_are_none_are_refused,
    edits::a_claim_is_set_back,
    edits::a_claim_is_called_detached,
    edits::a_volume_forgets_its_handle,
    edits::a_volume_is_given_the_handle_of_another,
    edits::an_attachment_is_called_detached,
    edits::an_attachment_is_removed_before_it_was_attached,
    refused::the_api_server_answers_every_row_as_it_is_written,
    taken::every_row_gets_its_condition_as_it_is_written,
];
