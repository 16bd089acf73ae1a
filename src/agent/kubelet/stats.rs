//! kubelet's NodeGetVolumeStats: how full a volume is, by the driver where it says that, else by the kernel.

use tonic::{Code, Status};

use super::driver::Driver;
use super::mounted::volume_path;
use crate::agent::host::error::HostError;
use crate::agent::host::mounts;
use crate::agent::host::usage::{self, Amount};
use crate::csi::capability::NodeCapability;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_usage::Unit;
use crate::csi::{Rpc, Service, sizes};

impl Driver {
    /// Says how full a volume is that is mounted on this node.
    pub async fn stats(
        &self,
        request: wire::NodeGetVolumeStatsRequest,
    ) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        let sized = sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::optional_path("staging_target_path", &request.staging_target_path));
        sized.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (volume, path) = (&request.volume_id, volume_path(&request.volume_path)?);
        let nothing = || Status::not_found(format!("volume {volume} is not mounted at {path} on this node"));
        let stored = self.agent.records.of_handle(&self.handle_name(volume));
        let is_there = |path: &str| {
            stored.iter().any(|s| {
                s.record.staging_path == path || s.record.targets.values().any(|target| target.path == path)
            })
        };
        if !is_there(&request.volume_path) {
            return Err(nothing());
        }
        let device = mounts::look(&path).await.map_err(|error| not_seen(&error))?.ok_or_else(nothing)?;
        let has = NodeCapability::GetVolumeStats.as_str_name();
        if self.fingerprint()?.capabilities.node.iter().any(|name| name == has) {
            return self.stats_of_driver(request).await;
        }
        let usage = if mounts::is_device(&path).await.map_err(|error| not_seen(&error))? {
            let total = usage::of_device(&path, device.text()).await.map_err(|error| not_seen(&error))?;
            // What of a device is in use nobody can tell.
            vec![wire::VolumeUsage { total: signed(total), unit: Unit::Bytes.into(), ..Default::default() }]
        } else {
            let found = usage::of_file_system(&path).await.map_err(|error| not_seen(&error))?;
            vec![amount(found.bytes, Unit::Bytes), amount(found.inodes, Unit::Inodes)]
        };
        Ok(wire::NodeGetVolumeStatsResponse { usage, volume_condition: None })
    }

    async fn stats_of_driver(
        &self,
        request: wire::NodeGetVolumeStatsRequest,
    ) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        let serving = self.agent.process_of(&self.name, Service::Node);
        let serving = serving.ok_or_else(|| Status::unavailable("the driver does not answer"))?;
        let call = serving.plugin.node_get_volume_stats(request);
        let answer = self.agent.call(&self.name, Rpc::NodeGetVolumeStats, call).await;
        answer.map_err(|error| Status::new(error.code, error.message))
    }
}

fn amount(amount: Amount, unit: Unit) -> wire::VolumeUsage {
    wire::VolumeUsage {
        available: signed(amount.available),
        total: signed(amount.total),
        used: signed(amount.used),
        unit: unit.into(),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// kubelet counts on a look in time and asks again.
fn not_seen(error: &HostError) -> Status {
    Status::new(Code::Unavailable, error.to_string())
}
