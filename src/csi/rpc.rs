//! The CSI calls that moor makes, by name.

use std::fmt;

/// One of CSI's services. A driver may serve them from several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Every process has it.
    Identity,
    /// The one that speaks to the storage.
    Controller,
    /// The one that works on its node.
    Node,
}

/// One CSI call. The variants are the protocol's own method names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rpc {
    /// Identity: name and version.
    GetPluginInfo,
    /// Identity: which services there are.
    GetPluginCapabilities,
    /// Identity: is it ready.
    Probe,
    /// Controller: which optional calls there are.
    ControllerGetCapabilities,
    /// Controller: make a volume.
    CreateVolume,
    /// Controller: inverse of CreateVolume.
    DeleteVolume,
    /// Controller: attach a volume to a node.
    ControllerPublishVolume,
    /// Controller: inverse of ControllerPublishVolume.
    ControllerUnpublishVolume,
    /// Controller: can a volume be used like this.
    ValidateVolumeCapabilities,
    /// Controller: one page of all volumes.
    ListVolumes,
    /// Controller: how much more can be created.
    GetCapacity,
    /// Controller: make a snapshot.
    CreateSnapshot,
    /// Controller: inverse of CreateSnapshot.
    DeleteSnapshot,
    /// Controller: one page of all snapshots.
    ListSnapshots,
    /// Controller: enlarge a volume.
    ControllerExpandVolume,
    /// Controller: change a volume's mutable parameters.
    ControllerModifyVolume,
    /// Node: which optional calls there are.
    NodeGetCapabilities,
    /// Node: its id, limit and topology.
    NodeGetInfo,
    /// Node: make a volume ready once per node.
    NodeStageVolume,
    /// Node: inverse of NodeStageVolume.
    NodeUnstageVolume,
    /// Node: show a volume at a target path.
    NodePublishVolume,
    /// Node: inverse of NodePublishVolume.
    NodeUnpublishVolume,
    /// Node: how full a volume is.
    NodeGetVolumeStats,
    /// Node: enlarge the file system of a volume.
    NodeExpandVolume,
}

impl Rpc {
    /// Every call, for tables.
    pub const ALL: [Self; 24] = [
        Self::GetPluginInfo,
        Self::GetPluginCapabilities,
        Self::Probe,
        Self::ControllerGetCapabilities,
        Self::CreateVolume,
        Self::DeleteVolume,
        Self::ControllerPublishVolume,
        Self::ControllerUnpublishVolume,
        Self::ValidateVolumeCapabilities,
        Self::ListVolumes,
        Self::GetCapacity,
        Self::CreateSnapshot,
        Self::DeleteSnapshot,
        Self::ListSnapshots,
        Self::ControllerExpandVolume,
        Self::ControllerModifyVolume,
        Self::NodeGetCapabilities,
        Self::NodeGetInfo,
        Self::NodeStageVolume,
        Self::NodeUnstageVolume,
        Self::NodePublishVolume,
        Self::NodeUnpublishVolume,
        Self::NodeGetVolumeStats,
        Self::NodeExpandVolume,
    ];

    /// The method name, as in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GetPluginInfo => "GetPluginInfo",
            Self::GetPluginCapabilities => "GetPluginCapabilities",
            Self::Probe => "Probe",
            Self::ControllerGetCapabilities => "ControllerGetCapabilities",
            Self::CreateVolume => "CreateVolume",
            Self::DeleteVolume => "DeleteVolume",
            Self::ControllerPublishVolume => "ControllerPublishVolume",
            Self::ControllerUnpublishVolume => "ControllerUnpublishVolume",
            Self::ValidateVolumeCapabilities => "ValidateVolumeCapabilities",
            Self::ListVolumes => "ListVolumes",
            Self::GetCapacity => "GetCapacity",
            Self::CreateSnapshot => "CreateSnapshot",
            Self::DeleteSnapshot => "DeleteSnapshot",
            Self::ListSnapshots => "ListSnapshots",
            Self::ControllerExpandVolume => "ControllerExpandVolume",
            Self::ControllerModifyVolume => "ControllerModifyVolume",
            Self::NodeGetCapabilities => "NodeGetCapabilities",
            Self::NodeGetInfo => "NodeGetInfo",
            Self::NodeStageVolume => "NodeStageVolume",
            Self::NodeUnstageVolume => "NodeUnstageVolume",
            Self::NodePublishVolume => "NodePublishVolume",
            Self::NodeUnpublishVolume => "NodeUnpublishVolume",
            Self::NodeGetVolumeStats => "NodeGetVolumeStats",
            Self::NodeExpandVolume => "NodeExpandVolume",
        }
    }

    /// The service that has the call.
    #[must_use]
    pub fn service(self) -> Service {
        match self {
            Self::GetPluginInfo | Self::GetPluginCapabilities | Self::Probe => Service::Identity,
            Self::ControllerGetCapabilities
            | Self::CreateVolume
            | Self::DeleteVolume
            | Self::ControllerPublishVolume
            | Self::ControllerUnpublishVolume
            | Self::ValidateVolumeCapabilities
            | Self::ListVolumes
            | Self::GetCapacity
            | Self::CreateSnapshot
            | Self::DeleteSnapshot
            | Self::ListSnapshots
            | Self::ControllerExpandVolume
            | Self::ControllerModifyVolume => Service::Controller,
            Self::NodeGetCapabilities
            | Self::NodeGetInfo
            | Self::NodeStageVolume
            | Self::NodeUnstageVolume
            | Self::NodePublishVolume
            | Self::NodeUnpublishVolume
            | Self::NodeGetVolumeStats
            | Self::NodeExpandVolume => Service::Node,
        }
    }

    /// The call changes nothing, so a failed one leaves nothing unknown behind.
    #[must_use]
    pub fn is_question(self) -> bool {
        match self {
            Self::GetPluginInfo
            | Self::GetPluginCapabilities
            | Self::Probe
            | Self::ControllerGetCapabilities
            | Self::ValidateVolumeCapabilities
            | Self::ListVolumes
            | Self::GetCapacity
            | Self::ListSnapshots
            | Self::NodeGetCapabilities
            | Self::NodeGetInfo
            | Self::NodeGetVolumeStats => true,
            Self::CreateVolume
            | Self::DeleteVolume
            | Self::ControllerPublishVolume
            | Self::ControllerUnpublishVolume
            | Self::CreateSnapshot
            | Self::DeleteSnapshot
            | Self::ControllerExpandVolume
            | Self::ControllerModifyVolume
            | Self::NodeStageVolume
            | Self::NodeUnstageVolume
            | Self::NodePublishVolume
            | Self::NodeUnpublishVolume
            | Self::NodeExpandVolume => false,
        }
    }

    /// The call undoes another one.
    #[must_use]
    pub fn is_inverse(self) -> bool {
        matches!(
            self,
            Self::DeleteVolume
                | Self::DeleteSnapshot
                | Self::ControllerUnpublishVolume
                | Self::NodeUnstageVolume
                | Self::NodeUnpublishVolume
        )
    }
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
