//! The CSI calls that moor makes, by name.

use std::fmt;

use super::proto::csi::v1 as wire;

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

/// What a call does to the world.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Question,
    /// It makes or changes something.
    Change,
    /// It undoes another call.
    Inverse,
}

/// A request message, which says by its type what call it is for and what message answers it.
pub(super) trait CallRequest: prost::Message + Clone + fmt::Debug + 'static {
    /// The call.
    const RPC: Rpc;
    /// The message that answers it.
    type Answer: prost::Message + Default + fmt::Debug + 'static;
    /// The driver's id of what the call has made, by its answer.
    fn made(answer: &Self::Answer) -> Option<&str>;
}

macro_rules! rpcs {
    (@grpc $service:ident) => {
        stringify!($service)
    };
    (@grpc $service:ident $grpc:ident) => {
        stringify!($grpc)
    };
    ($($(#[$doc:meta])+ $name:ident: $service:ident $(/ $grpc:ident)? $kind:ident, $request:ident -> $answer:ident $(made by $made:ident)?;)+) => {
        /// One CSI call. The variants are the protocol's own method names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rpc {
            $($(#[$doc])+ $name,)+
        }

        impl Rpc {
            /// Every call, for tables.
            pub const ALL: [Self; 29] = [$(Self::$name),+];

            /// The method name, as in the protocol.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Where a server of the protocol has the method.
            pub(crate) fn path(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("/csi.v1.", rpcs!(@grpc $service $($grpc)?), "/", stringify!($name)),)+
                }
            }

            const fn facts(self) -> (Service, Kind) {
                match self {
                    $(Self::$name => (Service::$service, Kind::$kind),)+
                }
            }
        }

        $(impl CallRequest for wire::$request {
            const RPC: Rpc = Rpc::$name;
            type Answer = wire::$answer;

            fn made(answer: &Self::Answer) -> Option<&str> {
                let made: &[fn(&Self::Answer) -> Option<&str>] = &[$($made)?];
                made.iter().find_map(|made| made(answer))
            }
        })+
    };
}

rpcs! {
    /// Identity: name and version.
    GetPluginInfo: Identity Question, GetPluginInfoRequest -> GetPluginInfoResponse;
    /// Identity: which services there are.
    GetPluginCapabilities: Identity Question, GetPluginCapabilitiesRequest -> GetPluginCapabilitiesResponse;
    /// Identity: is it ready.
    Probe: Identity Question, ProbeRequest -> ProbeResponse;
    /// Controller: which optional calls there are.
    ControllerGetCapabilities: Controller Question, ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse;
    /// Controller: make a volume.
    CreateVolume: Controller Change, CreateVolumeRequest -> CreateVolumeResponse made by volume_of;
    /// Controller: inverse of CreateVolume.
    DeleteVolume: Controller Inverse, DeleteVolumeRequest -> DeleteVolumeResponse;
    /// Controller: attach a volume to a node.
    ControllerPublishVolume: Controller Change, ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse;
    /// Controller: inverse of ControllerPublishVolume.
    ControllerUnpublishVolume: Controller Inverse, ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse;
    /// Controller: make a volume larger.
    ControllerExpandVolume: Controller Change, ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    /// Controller: change the parameters of a volume that may be changed.
    ControllerModifyVolume: Controller Change, ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse;
    /// Controller: can a volume be used like this.
    ValidateVolumeCapabilities: Controller Question, ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse;
    /// Controller: one page of all volumes.
    ListVolumes: Controller Question, ListVolumesRequest -> ListVolumesResponse;
    /// Controller: how a volume is.
    ControllerGetVolume: Controller Question, ControllerGetVolumeRequest -> ControllerGetVolumeResponse;
    /// Controller: how much room there is.
    GetCapacity: Controller Question, GetCapacityRequest -> GetCapacityResponse;
    /// Controller: keep what a volume holds.
    CreateSnapshot: Controller Change, CreateSnapshotRequest -> CreateSnapshotResponse made by snapshot_of;
    /// Controller: inverse of CreateSnapshot.
    DeleteSnapshot: Controller Inverse, DeleteSnapshotRequest -> DeleteSnapshotResponse;
    /// Controller: one page of all snapshots, or the one of an id.
    ListSnapshots: Controller Question, ListSnapshotsRequest -> ListSnapshotsResponse;
    /// GroupController: which optional calls there are. It is a service of its own in CSI, and the same process's everywhere.
    GroupControllerGetCapabilities: Controller / GroupController Question, GroupControllerGetCapabilitiesRequest -> GroupControllerGetCapabilitiesResponse;
    /// GroupController: keep what several volumes hold at one moment.
    CreateVolumeGroupSnapshot: Controller / GroupController Change, CreateVolumeGroupSnapshotRequest -> CreateVolumeGroupSnapshotResponse made by group_of;
    /// GroupController: inverse of CreateVolumeGroupSnapshot.
    DeleteVolumeGroupSnapshot: Controller / GroupController Inverse, DeleteVolumeGroupSnapshotRequest -> DeleteVolumeGroupSnapshotResponse;
    /// GroupController: the group of an id.
    GetVolumeGroupSnapshot: Controller / GroupController Question, GetVolumeGroupSnapshotRequest -> GetVolumeGroupSnapshotResponse;
    /// Node: which optional calls there are.
    NodeGetCapabilities: Node Question, NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse;
    /// Node: its id, limit and topology.
    NodeGetInfo: Node Question, NodeGetInfoRequest -> NodeGetInfoResponse;
    /// Node: how full a volume is.
    NodeGetVolumeStats: Node Question, NodeGetVolumeStatsRequest -> NodeGetVolumeStatsResponse;
    /// Node: make a volume ready once per node.
    NodeStageVolume: Node Change, NodeStageVolumeRequest -> NodeStageVolumeResponse;
    /// Node: inverse of NodeStageVolume.
    NodeUnstageVolume: Node Inverse, NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse;
    /// Node: show a volume at a target path.
    NodePublishVolume: Node Change, NodePublishVolumeRequest -> NodePublishVolumeResponse;
    /// Node: inverse of NodePublishVolume.
    NodeUnpublishVolume: Node Inverse, NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse;
    /// Node: have a volume that was made larger be as large where it is used.
    NodeExpandVolume: Node Change, NodeExpandVolumeRequest -> NodeExpandVolumeResponse;
}

fn volume_of(answer: &wire::CreateVolumeResponse) -> Option<&str> {
    answer.volume.as_ref().map(|volume| volume.volume_id.as_str())
}

fn snapshot_of(answer: &wire::CreateSnapshotResponse) -> Option<&str> {
    answer.snapshot.as_ref().map(|snapshot| snapshot.snapshot_id.as_str())
}

fn group_of(answer: &wire::CreateVolumeGroupSnapshotResponse) -> Option<&str> {
    answer.group_snapshot.as_ref().map(|group| group.group_snapshot_id.as_str())
}

impl Rpc {
    /// The service that has the call.
    #[must_use]
    pub fn service(self) -> Service {
        self.facts().0
    }

    /// The call changes nothing, so a failed one leaves nothing unknown behind.
    #[must_use]
    pub fn is_question(self) -> bool {
        self.facts().1 == Kind::Question
    }

    /// The call makes or changes something.
    pub(super) fn is_change(self) -> bool {
        self.facts().1 == Kind::Change
    }

    /// After the call there may be more room at the storage, or less (`Rpc::GetCapacity`).
    #[must_use]
    pub fn changes_room(self) -> bool {
        matches!(
            self,
            Self::CreateVolume
                | Self::DeleteVolume
                | Self::ControllerExpandVolume
                | Self::CreateSnapshot
                | Self::DeleteSnapshot
                | Self::CreateVolumeGroupSnapshot
                | Self::DeleteVolumeGroupSnapshot
        )
    }

    /// The call undoes another one.
    #[must_use]
    pub fn is_inverse(self) -> bool {
        self.facts().1 == Kind::Inverse
    }
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
