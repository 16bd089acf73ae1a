//! How long a call may take. At its deadline a call ends here, whatever the driver does.

use std::time::Duration;

use super::rpc::Rpc;

/// The time each kind of call gets.
///
/// An ended call is not undone: its outcome is unknown, and it is repeated with the same arguments (CSI, Timeouts).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Probe, GetPluginInfo and all three capability calls. A driver answers these from memory. 5 s.
    pub identity: Duration,
    /// NodeGetInfo, for which cloud drivers ask their metadata service. 15 s.
    pub node_info: Duration,
    /// ValidateVolumeCapabilities, GetCapacity, ControllerGetVolume and NodeGetVolumeStats. 30 s.
    pub question: Duration,
    /// One page of ListVolumes or ListSnapshots. 1 min.
    pub list: Duration,
    /// CreateVolume, DeleteVolume, ControllerExpandVolume, ControllerModifyVolume, CreateSnapshot and DeleteSnapshot. 5 min.
    pub volume: Duration,
    /// ControllerPublishVolume and ControllerUnpublishVolume. 2 min.
    pub controller_publish: Duration,
    /// NodeStageVolume and NodeExpandVolume, which may have to make a file system or enlarge one, and NodeUnstageVolume.
    /// 2 min.
    pub stage: Duration,
    /// NodePublishVolume and NodeUnpublishVolume. 1 min.
    pub publish: Duration,
}

/// What both roles are told about calls. Given by the environment too, as the chart does.
#[derive(Clone, Debug, clap::Args)]
pub struct CallArgs {
    /// Longest time that one CSI call may take, in seconds: more for a driver that is slow. Controller and agents have
    /// to agree on it.
    #[arg(long, env = "MOOR_LONGEST_CALL", default_value = "300", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub longest_call: u64,
}

impl CallArgs {
    /// How long each CSI call may take.
    #[must_use]
    pub fn deadlines(&self) -> Deadlines {
        Deadlines::with_longest(Duration::from_secs(self.longest_call))
    }
}

/// The usual time of CreateVolume, the longest call.
const USUAL_LONGEST: u64 = 300;

impl Default for Deadlines {
    fn default() -> Self {
        Self::with_longest(Duration::from_secs(USUAL_LONGEST))
    }
}

impl Deadlines {
    /// With another longest call than the 5 min of `volume`. A shorter one cuts every deadline that is above it. A
    /// longer one is for a driver that is slow: calls that change something then get more in the same proportion,
    /// and those that only ask do not.
    #[must_use]
    pub fn with_longest(longest: Duration) -> Self {
        let factor = longest.div_duration_f64(Duration::from_secs(USUAL_LONGEST)).max(1.0);
        let asks = |usual| Duration::from_secs(usual).min(longest);
        let changes = |usual| asks(usual).mul_f64(factor);
        Self {
            identity: asks(5),
            node_info: asks(15),
            question: asks(30),
            list: asks(60),
            // Not multiplied: what the two roles agree on is this very number.
            volume: longest,
            controller_publish: changes(120),
            stage: changes(120),
            publish: changes(120),
        }
    }

    /// The time `rpc` gets.
    #[must_use]
    pub fn of(&self, rpc: Rpc) -> Duration {
        match rpc {
            Rpc::GetPluginInfo
            | Rpc::GetPluginCapabilities
            | Rpc::Probe
            | Rpc::ControllerGetCapabilities
            | Rpc::GroupControllerGetCapabilities
            | Rpc::NodeGetCapabilities => self.identity,
            Rpc::NodeGetInfo => self.node_info,
            Rpc::ValidateVolumeCapabilities
            | Rpc::GetCapacity
            | Rpc::ControllerGetVolume
            | Rpc::NodeGetVolumeStats => self.question,
            Rpc::ListVolumes | Rpc::ListSnapshots | Rpc::GetVolumeGroupSnapshot => self.list,
            Rpc::CreateVolume
            | Rpc::DeleteVolume
            | Rpc::ControllerExpandVolume
            | Rpc::ControllerModifyVolume
            | Rpc::CreateSnapshot
            | Rpc::DeleteSnapshot
            | Rpc::CreateVolumeGroupSnapshot
            | Rpc::DeleteVolumeGroupSnapshot => self.volume,
            Rpc::ControllerPublishVolume | Rpc::ControllerUnpublishVolume => self.controller_publish,
            Rpc::NodeStageVolume | Rpc::NodeUnstageVolume | Rpc::NodeExpandVolume => self.stage,
            Rpc::NodePublishVolume | Rpc::NodeUnpublishVolume => self.publish,
        }
    }

    /// No call of a lost agent is still running after this time (rule R2).
    #[must_use]
    pub fn longest(&self) -> Duration {
        Rpc::ALL.into_iter().map(|rpc| self.of(rpc)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_deadline_covers_every_call() {
        let deadlines = Deadlines { stage: Duration::from_secs(540), ..Deadlines::default() };
        assert_eq!(deadlines.longest(), Duration::from_secs(540));
        assert!(Rpc::ALL.into_iter().all(|rpc| deadlines.of(rpc) <= deadlines.longest()));
    }

    #[test]
    fn both_roles_agree_on_the_longest_call_whatever_it_is() {
        for seconds in [1, 4, 59, 299, 300, 301, 900, 3600] {
            let longest = Duration::from_secs(seconds);
            assert_eq!(Deadlines::with_longest(longest).longest(), longest);
        }
        assert_eq!(Deadlines::with_longest(Duration::from_secs(300)), Deadlines::default());
    }

    #[test]
    fn a_slow_driver_gets_more_time_for_changes_and_not_for_answers() {
        let (usual, slow) = (Deadlines::default(), Deadlines::with_longest(Duration::from_secs(900)));
        assert_eq!(slow.stage, Duration::from_secs(360));
        assert_eq!((slow.identity, slow.question), (usual.identity, usual.question));
    }

    #[test]
    fn a_short_longest_call_cuts_every_deadline() {
        let short = Deadlines::with_longest(Duration::from_secs(3));
        assert!(Rpc::ALL.into_iter().all(|rpc| short.of(rpc) == Duration::from_secs(3)));
    }
}
