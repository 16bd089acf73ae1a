//! kubelet's NodeGetVolumeStats: how full a volume is, by the driver where it says that, else by the kernel.

use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use super::driver::Driver;
use super::mounted::volume_path;
use crate::agent::caches::BY_HANDLE;
use crate::agent::host::error::HostError;
use crate::agent::host::mounts::{self, Device};
use crate::agent::host::paths::HostPath;
use crate::agent::host::usage::{self, Amount};
use crate::csi::capability::NodeCapability;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_usage::Unit;
use crate::csi::{FollowUp, Rpc, Service, sizes};

impl Driver {
    /// Says how full a volume is that is mounted on this node.
    pub async fn stats(
        &self,
        request: wire::NodeGetVolumeStatsRequest,
        by: Instant,
    ) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        let sized = sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::optional_path("staging_target_path", &request.staging_target_path));
        sized.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let path = volume_path(&request.volume_path)?;
        let has = NodeCapability::GetVolumeStats.as_str_name();
        if !self.fingerprint()?.capabilities.node.iter().any(|name| name == has) {
            return usage(&path, &self.mounted_at(&request.volume_id, &path).await?).await;
        }
        let me = self.clone();
        // The call goes on when `by` comes: the driver does, too, and no other call is to run beside it.
        let running = tokio::spawn(async move { me.stats_of_driver(request, &path, by).await });
        match timeout_at(by, running).await {
            Ok(said) => said.unwrap_or_else(|ended| Err(Status::unavailable(ended.to_string()))),
            Err(_) => Err(Status::unavailable("the driver has not said yet how full the volume is")),
        }
    }

    /// Asks the driver, beside no other call for the volume on this node: kubelet asks for every Pod apart, and for all of
    /// them at once.
    async fn stats_of_driver(
        &self,
        request: wire::NodeGetVolumeStatsRequest,
        path: &HostPath,
        by: Instant,
    ) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        let handle = self.handle_name(&request.volume_id);
        // Nobody waits here for whom no answer is of use any more.
        let _lane = timeout_at(by, self.agent.asked.lane(&handle))
            .await
            .map_err(|_| Status::unavailable("another call for the volume is running"))?;
        self.mounted_at(&request.volume_id, path).await?;
        let serving = self.agent.process_of(&self.name, Service::Node);
        let serving = serving.ok_or_else(|| Status::unavailable("the driver does not answer"))?;
        let attachments = self.agent.caches.attachments.by_index(BY_HANDLE, &handle);
        let flags = attachments.iter().flat_map(|a| a.spec.fixed.mount_options.mount_flags.clone());
        let call = serving.plugin.node_get_volume_stats(FollowUp { request, earlier_flags: flags.collect() });
        let answer = self.agent.call(&self.name, Rpc::NodeGetVolumeStats, call).await;
        answer.map_err(|error| Status::new(error.code, error.message))
    }

    /// The device of a volume that a record has at this path.
    async fn mounted_at(&self, volume: &str, path: &HostPath) -> Result<Device, Status> {
        let nothing = || Status::not_found(format!("volume {volume} is not mounted at {path} on this node"));
        let stored = self.agent.records.of_handle(&self.handle_name(volume));
        let is_there = stored.iter().any(|s| {
            let mut targets = s.record.targets.values();
            s.record.staging_path == path.text() || targets.any(|target| target.path == path.text())
        });
        if !is_there {
            return Err(nothing());
        }
        mounts::look(path).await.map_err(|error| not_seen(&error))?.ok_or_else(nothing)
    }
}

/// How full it is as the kernel says.
async fn usage(path: &HostPath, device: &Device) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
    let usage = if mounts::is_device(path).await.map_err(|error| not_seen(&error))? {
        let total = usage::of_device(path, device.text()).await.map_err(|error| not_seen(&error))?;
        // What of a device is in use nobody can tell.
        vec![wire::VolumeUsage { total: signed(total), unit: Unit::Bytes.into(), ..Default::default() }]
    } else {
        let found = usage::of_file_system(path).await.map_err(|error| not_seen(&error))?;
        vec![amount(found.bytes, Unit::Bytes), amount(found.inodes, Unit::Inodes)]
    };
    Ok(wire::NodeGetVolumeStatsResponse { usage, volume_condition: None })
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
