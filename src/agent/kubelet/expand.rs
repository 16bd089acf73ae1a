//! kubelet's NodeExpandVolume: a volume that was made larger is to be as large for its Pods, before the first of them starts
//! or while they use it.

use tokio::time::Instant;
use tonic::Status;

use super::driver::Driver;
use super::mounted::{About, NotMade, volume_path};
use crate::agent::calls::arguments;
use crate::csi::capability::NodeCapability;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{Rpc, sizes};

impl Driver {
    /// Has the driver do it, each time that kubelet asks: what is as large already the driver leaves as it is.
    pub async fn expand(
        &self,
        request: wire::NodeExpandVolumeRequest,
        by: Instant,
    ) -> Result<wire::NodeExpandVolumeResponse, Status> {
        let sized = sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::optional_path("staging_target_path", &request.staging_target_path))
            .and_then(|()| sizes::range(request.capacity_range.as_ref()))
            .and_then(|()| sizes::map("secrets", &request.secrets));
        sized.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let has = NodeCapability::ExpandVolume.as_str_name();
        if !self.fingerprint()?.capabilities.node.iter().any(|name| name == has) {
            return Err(Status::unimplemented(format!("driver {} has no NodeExpandVolume", self.name)));
        }
        let (range, secrets) = (request.capacity_range, request.secrets);
        let at = (About::Volume, volume_path(&request.volume_path)?);
        let expanded =
            self.about_mounted(Rpc::NodeExpandVolume, &request.volume_id, at, by, move |plugin, mounted| {
                let (staging, target) = (mounted.staging(), mounted.target());
                let request = arguments::node_expand(&mounted.attachment, &staging, &target, range, secrets);
                Ok(async move { plugin.node_expand_volume(request).await })
            });
        let capacity_bytes = expanded.await.map_err(NotMade::with_code)?;
        Ok(wire::NodeExpandVolumeResponse { capacity_bytes })
    }
}
