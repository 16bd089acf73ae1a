//! What the controller does about the volumes of Pods: claims that nodes' agents make for them, Volumes of PersistentVolumes,
//! and CSIDriver objects. No kubelet is here: the claims are made as an agent makes them.

mod csi_driver;
mod forgeries;
mod granted;
mod objects;
mod otherwise;

use crate::cases;
use crate::rig::Case;

/// The cases of this module.
pub const CASES: &[Case] = cases![
    granted::a_pod_gets_the_volume_of_a_persistent_volume,
    granted::two_pods_of_a_node_share_what_others_wait_for,
    granted::a_claim_goes_with_the_pod_that_it_waits_for,
    granted::a_claim_goes_with_the_node_that_it_was_granted_on,
    granted::the_first_persistent_volume_of_a_handle_stands,
    otherwise::what_another_persistent_volume_describes_is_not_mounted,
    otherwise::of_two_who_ask_at_once_one_is_refused,
    otherwise::a_persistent_volume_that_is_written_anew_counts,
    otherwise::what_a_plugin_that_goes_has_is_not_taken_up,
    forgeries::a_claim_that_lies_about_a_pod_is_never_granted,
    csi_driver::a_plugin_has_a_csi_driver_that_stays_as_it_should_be,
    csi_driver::one_that_is_changed_back_each_time_is_put_right_less_often,
    csi_driver::one_that_says_attach_is_told_of_and_replaced_only_by_order,
    csi_driver::what_another_installation_serves_is_left_to_it,
];
