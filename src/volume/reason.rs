//! Why a Volume is not Ready, in words that name what is missing and what to do.

use super::source::SourceLack;
use crate::api::FINALIZER;
use crate::api::conditions::Reason;
use crate::plugin::allow::NotAllowed;
use crate::plugin::secrets::NoSecretName;

/// Why a Volume waits. Every variant becomes a condition reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeWaiting {
    /// No such Plugin.
    PluginNotFound {
        /// Name that the Volume gives.
        plugin: String,
    },
    /// The Plugin is being deleted.
    PluginEnds {
        /// Name that the Volume gives.
        plugin: String,
    },
    /// An older Plugin has the driver.
    DuplicateDriver {
        /// Name that the Volume gives.
        plugin: String,
        /// Name of the older one.
        older: String,
    },
    /// Its namespace may not have what it asks for.
    NotAllowed(NotAllowed),
    /// No instance of the Plugin can make the call.
    NoInstance {
        /// Name of the Plugin.
        plugin: String,
        /// What is needed of it.
        needs: &'static str,
    },
    /// It is made where its first claim is, and there is none that has a node.
    FirstClaim {
        /// Name of the Volume.
        volume: String,
    },
    /// The instance that makes all controller calls cannot make it.
    ActiveNotThere {
        /// Name of the Plugin.
        plugin: String,
        /// Name of the PluginInstance.
        instance: String,
    },
    /// The driver that was asked before is not known, or not there any more: another one knows other volumes.
    DriverNotThere {
        /// Name of the Plugin.
        plugin: String,
        /// What that driver has, or may have.
        left: Left,
    },
    /// The driver cannot create volumes.
    CannotCreate {
        /// Name of the Plugin.
        plugin: String,
    },
    /// Its storage is to be deleted, and no instance of the driver is known that could.
    CannotDelete {
        /// Name of the Plugin.
        plugin: String,
    },
    /// Another Volume owns the handle.
    DuplicateHandle {
        /// namespace/name of the owner.
        owner: String,
    },
    /// The VolumeHandle was closed because the Volume is being deleted, and no deletion of it is known.
    HandleClosed {
        /// Name of the VolumeHandle.
        handle: String,
    },
    /// A PersistentVolume stands for the volume, or may do so.
    HandleInPersistentVolume {
        /// Its name.
        name: String,
        /// The field of its spec that says so.
        field: &'static str,
        /// It names the same volume, and not only one that may be the same.
        certain: bool,
    },
    /// The same of a volume whose deletion was ordered, which is not carried out meanwhile.
    OrderedInPersistentVolume {
        /// Its name.
        name: String,
        /// The field of its spec that says so.
        field: &'static str,
    },
    /// CreateVolume answered a handle that a PersistentVolume names.
    AnswerInPersistentVolume {
        /// Its name.
        name: String,
    },
    /// A PersistentVolume names what is to be deleted, so it is left.
    StorageLeft {
        /// Its name.
        name: String,
    },
    /// The agent that is to make the Volume's next call is not heard.
    AgentNotHeard {
        /// Name of its node.
        node: String,
        /// Name of the PluginInstance beside it.
        instance: String,
        /// Name of the Plugin.
        plugin: String,
        /// Whether there is no such Plugin, so that nobody can take the call over.
        plugin_gone: bool,
    },
    /// It is to grow, and its driver has no call for that.
    CannotExpand {
        /// Name of the Plugin.
        plugin: String,
    },
    /// It is to grow, which its driver does not do while it is used.
    ExpandsUnused {
        /// A claim, or an Attachment where none is known.
        by: String,
    },
    /// It is to be deleted, and Pods can still come to it.
    Exported {
        /// namespace/name of the PersistentVolumeClaim.
        claim: String,
    },
    /// It is to be modified, and its driver has no call for that.
    CannotModify {
        /// Name of the Plugin.
        plugin: String,
    },
    /// It is to be modified, and its namespace may not have that.
    ModifyNotAllowed(NotAllowed),
    /// What its Plugin says of its Secrets is no name.
    Secret(NoSecretName),
    /// It cannot be made from what it names, or not yet.
    Source(SourceLack),
    /// It is to be deleted, and something is being made of it.
    Copied {
        /// Kind and name of that.
        by: String,
    },
    /// Claims still use the volume that is to be deleted.
    InUse {
        /// A claim, or an Attachment where none is known.
        by: String,
    },
}

/// What a driver has left, or may have left, of a Volume that has no VolumeHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// CreateVolume was called, or may have been, and nobody knows what came of it.
    Perhaps,
    /// CreateVolume made what is of no use.
    Rejected,
    /// The volume.
    Unlocked,
}

impl Left {
    fn words(self) -> &'static str {
        match self {
            Self::Perhaps => {
                "CreateVolume may have been called, and it is not known whether it made a volume"
            }
            Self::Rejected => "CreateVolume made a volume that is of no use (see status.rejected)",
            Self::Unlocked => "the driver has the volume, and there is no VolumeHandle for it",
        }
    }
}

/// What goes on with the calls of an agent that is not heard, other than the agent itself (rule R2).
#[must_use]
pub fn taken_over(plugin: &str, plugin_gone: bool) -> String {
    if plugin_gone {
        return format!(
            "or is taken over by another one when Plugin {plugin}, which does not exist, is created again with the same \
             driver"
        );
    }
    format!(
        "or when no call can be running there any more, which takes minutes, or no time if the machine is off and its Node \
         has the taint node.kubernetes.io/out-of-service: then another healthy instance of Plugin {plugin} takes over; if \
         there is none, start the driver on another node"
    )
}

impl VolumeWaiting {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::PluginNotFound { .. } | Self::PluginEnds { .. } => Reason::PluginNotFound,
            Self::DuplicateDriver { .. } => Reason::DuplicateDriver,
            Self::NotAllowed(_) => Reason::NotAllowed,
            Self::NoInstance { .. }
            | Self::ActiveNotThere { .. }
            | Self::DriverNotThere { .. }
            | Self::CannotDelete { .. } => Reason::NoInstance,
            Self::FirstClaim { .. } => Reason::WaitsForFirstClaim,
            Self::CannotCreate { .. } => Reason::CannotCreate,
            Self::DuplicateHandle { .. } => Reason::DuplicateHandle,
            Self::HandleClosed { .. } => Reason::HandleClosed,
            Self::HandleInPersistentVolume { .. }
            | Self::OrderedInPersistentVolume { .. }
            | Self::AnswerInPersistentVolume { .. } => Reason::HandleInPersistentVolume,
            Self::StorageLeft { .. } => Reason::StorageLeft,
            Self::AgentNotHeard { .. } => Reason::AgentNotHeard,
            Self::CannotExpand { .. } => Reason::CannotExpand,
            Self::ExpandsUnused { .. } => Reason::ExpandsUnused,
            Self::CannotModify { .. } => Reason::CannotModify,
            Self::ModifyNotAllowed(_) => Reason::ModifyNotAllowed,
            Self::Secret(_) => Reason::SecretUnreadable,
            Self::Source(_) => Reason::SourceNotUsable,
            Self::Exported { .. } | Self::InUse { .. } | Self::Copied { .. } => Reason::InUse,
        }
    }

    /// The condition's message.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::PluginNotFound { plugin } => {
                format!("Plugin {plugin} does not exist; the volume proceeds when it is created")
            }
            Self::PluginEnds { plugin } => format!(
                "Plugin {plugin} is being deleted and takes no new volume; this one proceeds when it is created again"
            ),
            Self::DuplicateDriver { plugin, older } => format!(
                "Plugin {older} is older than Plugin {plugin} and has the same driver; delete one of the two Plugins, or \
                 make this volume anew with pluginName {older}"
            ),
            Self::NotAllowed(lack) => lack.message(),
            Self::NoInstance { plugin, needs } => format!(
                "no instance of Plugin {plugin} is healthy and {needs}; see `kubectl get plugininstances`"
            ),
            Self::ActiveNotThere { plugin, instance } => format!(
                "PluginInstance {instance} makes all controller calls of Plugin {plugin} (status.active) and cannot make them now; it \
                 goes on when it is, or another one does when none of its calls can be running any more: end its process, or \
                 give its Node the taint node.kubernetes.io/out-of-service if its machine is off. A driver whose instances \
                 may work at once needs no such wait with spec.balancing Spread"
            ),
            Self::FirstClaim { volume } => format!(
                "the volume is made where its first claim is (spec.binding): create a VolumeClaim with volumeName {volume}; one \
                 that is there has no node yet, and says why"
            ),
            Self::CannotDelete { plugin } => format!(
                "spec.deletionPolicy is Delete, and no instance of Plugin {plugin} is healthy that serves the Controller \
                 service, so nobody can call DeleteVolume: start the driver with it, or set spec.deletionPolicy to Retain, \
                 which leaves the volume in the storage"
            ),
            Self::DriverNotThere { plugin, left } => format!(
                "{}, and Plugin {plugin} does not have the driver that was asked (any more); create the Plugin with that \
                 driver again, or delete this Volume with spec.deletionPolicy Retain, which leaves in the storage what \
                 that driver made",
                left.words()
            ),
            Self::CannotCreate { plugin } => format!(
                "the driver of Plugin {plugin} cannot create volumes (no CREATE_DELETE_VOLUME, or spec.roles of the \
                 Plugin leaves its Controller service out); register an existing one with spec.volumeHandle"
            ),
            Self::DuplicateHandle { owner } => {
                format!("Volume {owner} has the same driver and handle; delete one of the two Volumes")
            }
            Self::HandleClosed { handle } => format!(
                "VolumeHandle {handle} was closed because this volume is being deleted, and the volume is not: etcd may have \
                 been restored, or somebody has written into it; delete the volume, or take spec.closedFor off the \
                 VolumeHandle and put {FINALIZER} among its finalizers"
            ),
            Self::HandleInPersistentVolume { name, field, certain } => shared(name, field, *certain),
            Self::OrderedInPersistentVolume { name, field } => format!(
                "PersistentVolume {name} names the same driver and handle, or may do so (spec.{field}), and DeleteVolume was \
                 ordered before that was seen. The storage is deleted as soon as that PersistentVolume is gone; with \
                 spec.deletionPolicy Retain it is left"
            ),
            Self::AnswerInPersistentVolume { name } => format!(
                "CreateVolume answered the handle of a volume that PersistentVolume {name} names, which is not this \
                 Volume's to use; look at the driver and at the node that made the call, and delete this Volume: the \
                 storage is left as it is"
            ),
            Self::StorageLeft { name } => format!(
                "PersistentVolume {name} names the same driver and handle, so the volume is not deleted from the storage: \
                 from now on it is that PersistentVolume's alone"
            ),
            Self::AgentNotHeard { node, instance, plugin, plugin_gone } => format!(
                "the agent of node {node}, which is to make this volume's next call (PluginInstance {instance}), is not \
                 heard; the volume proceeds when it is heard again, {}",
                taken_over(plugin, *plugin_gone)
            ),
            Self::CannotExpand { plugin } => format!(
                "the driver of Plugin {plugin} has EXPAND_VOLUME neither for its Controller nor for its Node service, so \
                 the volume keeps its size; lower spec.capacity to status.capacity"
            ),
            Self::ExpandsUnused { by } => format!(
                "the driver does not let the volume grow while it is used; it grows when nothing uses it any more, and now \
                 {by} does"
            ),
            Self::CannotModify { plugin } => format!(
                "the driver of Plugin {plugin} has no MODIFY_VOLUME, so the volume stays as it is; set spec.mutableParameters \
                 back to status.mutableParameters"
            ),
            Self::ModifyNotAllowed(lack) => {
                lack.message_or("set it back to status.mutableParameters, or take it away")
            }
            Self::Secret(lack) => lack.to_string(),
            Self::Source(lack) => lack.to_string(),
            Self::Copied { by } => format!(
                "deletion waits for {by}, which is being made of this volume: it goes on when that is done, or is deleted"
            ),
            Self::InUse { by } => {
                format!("deletion waits for {by}; end the Pods and delete the claims that use this volume")
            }
            Self::Exported { claim } => format!(
                "deletion waits for PersistentVolumeClaim {claim}, by which Pods use this volume: it is deleted first; the \
                 condition Exported says what that waits for"
            ),
        }
    }
}

fn shared(name: &str, field: &str, certain: bool) -> String {
    if certain {
        return format!(
            "PersistentVolume {name} names the same driver and handle (spec.{field}); two orchestrators must not share a \
             volume: delete it (reclaim policy Retain) first"
        );
    }
    format!(
        "PersistentVolume {name} has a volume of the same driver in spec.{field}, under a name that does not tell whether it \
         is this one; two orchestrators must not share a volume: delete it (reclaim policy Retain), or make it anew with \
         spec.csi"
    )
}
