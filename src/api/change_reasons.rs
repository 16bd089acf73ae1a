//! The reasons of conditions that say how a Volume was last made larger or otherwise. [`Reason`](super::reason::Reason) has them
//! with all others.

/// Declares an enum of words that has these beside its own.
macro_rules! with_change_reasons {
    ($(#[$attribute:meta])* pub enum $name:ident: $group:ty { $($own:tt)* }) => { with_plugin_reasons! {
    $(#[$attribute])*
    pub enum $name: $group {
        $($own)*
        Place { kinds: "Volume, Attachment", condition: EXPANDED, status: true } => {
            /// The volume has the size that is asked for. The message says whether kubelet still has to follow, for Pods that
            /// use it by a PersistentVolumeClaim.
            Expanded,
        }
        Place { kinds: "Volume", condition: EXPANDED, status: false } => {
            /// The volume is to grow, and its driver has EXPAND_VOLUME neither for its Controller nor for its Node service.
            CannotExpand,
            /// The driver only lets the volume grow while nobody uses it. It does when the claims that use it are deleted.
            ExpandsUnused,
            /// ControllerExpandVolume failed and is tried again. The message has the driver's words. A size that the driver
            /// cannot give may be lowered again.
            ExpandVolumeFailed,
            /// The storage has the size, and the nodes that the message names have not followed yet (NodeExpandVolume). Where no
            /// claim that may write uses the volume, that is done for the next one before it is Ready.
            NodesToFollow,
        }
        Place { kinds: "Volume, Attachment", condition: EXPANDED, status: false } => {
            /// NodeExpandVolume failed on a node and is tried again, also when the volume is mounted there the next time. The
            /// message has the driver's words. Claims use the volume all the while, with the size that it had there.
            NodeExpandFailed,
        }
        Place { kinds: "Volume", condition: MODIFIED, status: true } => {
            /// The driver has taken the mutable parameters that are asked for.
            Modified,
        }
        Place { kinds: "Volume", condition: MODIFIED, status: false } => {
            /// Other mutable parameters are asked for, and the driver has no MODIFY_VOLUME.
            CannotModify,
            /// Other mutable parameters are asked for, and the Plugin does not allow the namespace to choose any
            /// (spec.allow.parameterise).
            ModifyNotAllowed,
            /// ControllerModifyVolume failed and is tried again. The message has the driver's words. Parameters that it
            /// cannot follow (InvalidArgument) may be changed again.
            ModifyVolumeFailed,
        }
    }
    } };
}
pub(super) use with_change_reasons;
