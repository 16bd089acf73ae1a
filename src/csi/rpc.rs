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

macro_rules! rpcs {
    ($($(#[$doc:meta])+ $name:ident: $service:ident $kind:ident;)+) => {
        /// One CSI call. The variants are the protocol's own method names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rpc {
            $($(#[$doc])+ $name,)+
        }

        impl Rpc {
            /// Every call, for tables.
            pub const ALL: [Self; 16] = [$(Self::$name),+];

            /// The method name, as in the protocol.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            const fn facts(self) -> (Service, Kind) {
                match self {
                    $(Self::$name => (Service::$service, Kind::$kind),)+
                }
            }
        }
    };
}

rpcs! {
    /// Identity: name and version.
    GetPluginInfo: Identity Question;
    /// Identity: which services there are.
    GetPluginCapabilities: Identity Question;
    /// Identity: is it ready.
    Probe: Identity Question;
    /// Controller: which optional calls there are.
    ControllerGetCapabilities: Controller Question;
    /// Controller: make a volume.
    CreateVolume: Controller Change;
    /// Controller: inverse of CreateVolume.
    DeleteVolume: Controller Inverse;
    /// Controller: attach a volume to a node.
    ControllerPublishVolume: Controller Change;
    /// Controller: inverse of ControllerPublishVolume.
    ControllerUnpublishVolume: Controller Inverse;
    /// Controller: can a volume be used like this.
    ValidateVolumeCapabilities: Controller Question;
    /// Controller: one page of all volumes.
    ListVolumes: Controller Question;
    /// Node: which optional calls there are.
    NodeGetCapabilities: Node Question;
    /// Node: its id, limit and topology.
    NodeGetInfo: Node Question;
    /// Node: make a volume ready once per node.
    NodeStageVolume: Node Change;
    /// Node: inverse of NodeStageVolume.
    NodeUnstageVolume: Node Inverse;
    /// Node: show a volume at a target path.
    NodePublishVolume: Node Change;
    /// Node: inverse of NodePublishVolume.
    NodeUnpublishVolume: Node Inverse;
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
