//! kubelet's NodePublishVolume for what is published already. With requiresRepublish in the CSIDriver object kubelet makes it
//! about once a minute, for the sake of the tokens that come along (kubernetes `csi_plugin.go`, `RequiresRemount`).

use std::sync::Arc;

use tokio::time::Instant;

use super::answer::Unanswered;
use super::driver::{Driver, Wish};
use super::mounted::{About, NotMade};
use crate::agent::calls::arguments;
use crate::api::{ClaimUid, VolumeClaim};
use crate::csi::Rpc;
use crate::csi::proto::csi::v1 as wire;

impl Driver {
    /// Hands what kubelet has brought to the driver, in the call of before with everything else as it was; of a driver that
    /// does not ask for that nothing is called. Nothing is recorded or written: the mount stays what it was, whatever comes
    /// of it.
    pub(super) async fn publish_anew(
        &self,
        wish: &Wish,
        request: wire::NodePublishVolumeRequest,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let plugin = self.agent.caches.plugin_of(&self.name);
        if !plugin.is_some_and(|plugin| plugin.spec.kubernetes.csi_driver.requires_republish) {
            return Ok(());
        }
        let secrets = request.secrets;
        let (context, me) = (wish.context.clone(), self.clone());
        let at = (About::Target, wish.target.path.clone());
        let called =
            self.about_mounted(Rpc::NodePublishVolume, &request.volume_id, at, by, move |plugin, mounted| {
                let claim = me.claim_of(&mounted.claim)?;
                let (staging, target) = (mounted.staging(), mounted.target());
                let mut args =
                    arguments::node_publish(&mounted.attachment, &claim, &staging, &target, secrets);
                args.request.volume_context.extend(context);
                Ok(async move { plugin.node_publish_volume(args).await })
            });
        // Never the last word: kubelet would take the mount for gone.
        called.await.map_err(|not_made| Unanswered::Again(not_made.to_string()))
    }

    /// The claim as the first call was made for it.
    fn claim_of(&self, uid: &ClaimUid) -> Result<Arc<VolumeClaim>, NotMade> {
        let claim = self.agent.caches.claims.by_uid(uid);
        claim.ok_or_else(|| NotMade::Again("the VolumeClaim of the volume is not there".to_owned()))
    }
}
