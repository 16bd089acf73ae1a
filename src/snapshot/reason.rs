//! Why a Snapshot is not Ready, in words that name what is missing and what to do.

use crate::api::conditions::Reason;
use crate::plugin::allow::NotAllowed;
use crate::plugin::secrets::NoSecretName;

/// Why a Snapshot waits. Every variant becomes a condition reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotWaiting {
    /// No Volume of the name that it gives.
    NoVolume {
        /// The name.
        volume: String,
        /// The field that gives it.
        field: &'static str,
    },
    /// The Volume of that name is being deleted.
    VolumeEnds(String),
    /// The Volume is not Ready.
    VolumeNotReady(String),
    /// No such Plugin.
    PluginNotFound(String),
    /// The Plugin is being deleted.
    PluginEnds(String),
    /// An older Plugin has the driver.
    DuplicateDriver {
        /// Name of the Plugin.
        plugin: String,
        /// Name of the older one.
        older: String,
    },
    /// Its namespace may not have what it asks for.
    NotAllowed(NotAllowed),
    /// What its Plugin says of its Secret is no name.
    Secret(NoSecretName),
    /// The driver takes no snapshots.
    CannotSnapshot(String),
    /// The driver takes none of several volumes at one moment.
    CannotSnapshotGroup(String),
    /// A Volume of a group is of another Plugin than the first one.
    PluginsDiffer {
        /// Name of the Volume.
        volume: String,
        /// The Plugin of the first one.
        plugin: String,
    },
    /// These two Volumes of a group are at different places, each of which an instance of its own reaches.
    PlacesDiffer(String, String),
    /// These two Volumes of a group name different Secrets.
    SecretsDiffer(String, String),
    /// An agent says that the driver has a group without one member of each volume.
    NotWhole,
    /// No instance of the Plugin can make the call.
    NoInstance(String),
    /// Nobody makes the controller calls of the volume.
    NoCaller(String),
    /// The agent that is to make the next call is not heard.
    AgentNotHeard {
        /// Name of its node.
        node: String,
        /// Name of the Plugin.
        plugin: String,
    },
    /// Something is made of what is to be deleted.
    InUse(String),
    /// Another Snapshot stands for what the driver has answered, or for what is to be deleted.
    Shared(String),
    /// It names what another Snapshot is about to have deleted.
    HandleEnds(String),
    /// It is to be deleted, and no instance of the driver is known that could.
    CannotDelete(String),
}

impl SnapshotWaiting {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoVolume { .. } => Reason::VolumeNotFound,
            Self::VolumeEnds(_) => Reason::VolumeDeleted,
            Self::VolumeNotReady(_) => Reason::VolumeNotReady,
            Self::PluginNotFound(_) | Self::PluginEnds(_) => Reason::PluginNotFound,
            Self::DuplicateDriver { .. } => Reason::DuplicateDriver,
            Self::NotAllowed(_) => Reason::NotAllowed,
            Self::Secret(_) => Reason::SecretUnreadable,
            Self::CannotSnapshot(_) | Self::CannotSnapshotGroup(_) => Reason::CannotSnapshot,
            Self::PluginsDiffer { .. } | Self::PlacesDiffer(..) | Self::SecretsDiffer(..) => {
                Reason::VolumesDiffer
            }
            Self::NotWhole => Reason::AnswerRefused,
            Self::NoInstance(_) | Self::NoCaller(_) | Self::CannotDelete(_) => Reason::NoInstance,
            Self::AgentNotHeard { .. } => Reason::AgentNotHeard,
            Self::InUse(_) => Reason::InUse,
            Self::Shared(_) | Self::HandleEnds(_) => Reason::SnapshotShared,
        }
    }

    /// The condition's message.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::NoVolume { volume, field } => format!(
                "{field}: this namespace has no Volume {volume}; create it, or delete this Snapshot and create one with \
                 the right name"
            ),
            Self::VolumeEnds(volume) => format!(
                "Volume {volume} is being deleted, and nothing was begun before: no snapshot is taken of it; delete this \
                 Snapshot"
            ),
            Self::VolumeNotReady(volume) => {
                format!(
                    "Volume {volume} is not Ready: its own condition says why; the snapshot is taken when it is"
                )
            }
            Self::PluginNotFound(plugin) => format!("Plugin {plugin} does not exist: create it"),
            Self::PluginEnds(plugin) => {
                format!(
                    "Plugin {plugin} is being deleted and begins nothing new: create it again when it is gone"
                )
            }
            Self::DuplicateDriver { plugin, older } => format!(
                "Plugin {plugin} has the same driver as the older Plugin {older}, which has it instead: delete one of the two"
            ),
            Self::NotAllowed(lack) if lack.field == "spec.snapshotHandle" => {
                lack.message_or("take a snapshot of a Volume with spec.volumeName instead")
            }
            Self::NotAllowed(lack) => lack.message(),
            Self::Secret(lack) => lack.to_string(),
            Self::CannotSnapshot(plugin) => format!(
                "the driver of Plugin {plugin} takes no snapshots (no CREATE_DELETE_SNAPSHOT); a copy of a Volume is made by a \
                 Volume with spec.source.volumeName, where the driver has CLONE_VOLUME"
            ),
            Self::CannotSnapshotGroup(plugin) => format!(
                "the driver of Plugin {plugin} takes no snapshots of several volumes at one moment (no \
                 CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT); take one of each Volume with spec.volumeName"
            ),
            Self::PluginsDiffer { volume, plugin } => format!(
                "spec.volumeNames: Volume {volume} is of another Plugin than {plugin}, and a driver keeps what its own volumes hold; \
                 delete this Snapshot and create one for each Plugin"
            ),
            Self::PlacesDiffer(one, other) => format!(
                "spec.volumeNames: Volumes {one} and {other} are at different places, and each instance of the Plugin makes the calls \
                 of one place (balancing PerTopology): delete this Snapshot and create one for each place"
            ),
            Self::SecretsDiffer(one, other) => format!(
                "spec.volumeNames: Volumes {one} and {other} name different Secrets, and a group is one call: delete this Snapshot and \
                 create one whose spec.secretName says which"
            ),
            Self::NotWhole => "status.members has not one member of each Volume, which the driver cannot have answered: look at \
                               the node that makes the calls"
                .to_owned(),
            Self::NoInstance(plugin) => format!(
                "no instance of Plugin {plugin} serves the Controller service: see kubectl get plugininstances"
            ),
            Self::NoCaller(volume) => format!(
                "no instance makes the controller calls of Volume {volume} yet, and who does takes its snapshots; one is chosen when \
                 an instance of its Plugin serves the Controller service"
            ),
            Self::AgentNotHeard { node, plugin } => format!(
                "the agent of node {node} is to make the next call and is not heard; another instance of Plugin {plugin} takes \
                 over when no call of it can be running"
            ),
            Self::InUse(by) => {
                format!("{by} is being made of it: it goes afterwards, or when that one does")
            }
            Self::Shared(by) => format!(
                "{by} stands for the same snapshot of the driver, so nothing is made of it here, and it is not deleted under that \
                 one: it is this Snapshot's when that one is gone; spec.deletionPolicy Retain leaves it to that one"
            ),
            Self::HandleEnds(by) => format!(
                "spec.snapshotHandle: {by} stands for the same snapshot of the driver and is being deleted with it; delete this \
                 Snapshot"
            ),
            Self::CannotDelete(plugin) => format!(
                "no instance of Plugin {plugin} is known that could delete the snapshot; it is when one serves the Controller \
                 service, and spec.deletionPolicy Retain gives it up"
            ),
        }
    }
}
