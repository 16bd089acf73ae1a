//! A record that cannot be read, or was lost. Of which Attachment it is the file's name says, or the path where something is
//! mounted, and that says the rest.

use std::sync::Arc;

use super::pass::Pass;
use super::view::{View, path_failure};
use crate::agent::calls::attempt::NotDone;
use crate::agent::host::mounts;
use crate::agent::host::paths::{HostPath, PathError, Paths};
use crate::agent::kubelet::target::{self, Target};
use crate::api::lock::DriverVolume;
use crate::api::{Attachment, AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::record::Done;
use crate::claim::ClaimSeen;
use crate::csi::Service;

/// Where a claim's target may be: a Pod's where kubelet has them, any other where its status says, if that is a place of this claim, as another version may have
/// published it elsewhere.
pub(super) fn target_of(paths: &Paths, claim: &VolumeClaim) -> Result<HostPath, PathError> {
    let uid = ClaimUid::of(&claim.metadata);
    let computed = paths.target(&uid)?;
    let kubelet = paths.kubelet();
    let of_pod = claim.spec.pod.as_ref();
    if let Some(of_pod) =
        of_pod.and_then(|pod| Target::of(kubelet.as_path(), pod, claim.spec.attachment_mode))
    {
        return Ok(of_pod.path);
    }
    let said = claim.status.as_ref().and_then(|status| status.target_path.as_deref()).map(HostPath::recorded);
    let is_its_own = |path: &HostPath| {
        paths.owns(path) && path.as_path().components().any(|part| part.as_os_str() == uid.as_str())
    };
    Ok(said.filter(is_its_own).unwrap_or(computed))
}

impl Pass {
    /// Where kubelet has an Attachment staged that a Pod's claim uses.
    pub(super) fn staging_of_kubelet(&self, attachment: &Attachment, view: &View) -> Option<HostPath> {
        let uid = AttachmentUid::of(&attachment.metadata);
        let users = view.claims.values().filter(|claim| ClaimSeen::of(claim).uses() == Some(&uid));
        let pods = users.filter_map(|claim| claim.spec.pod.as_ref());
        let persistent = pods.filter_map(|pod| Some((&pod.uid, pod.by_persistent_volume()?)));
        let (_, persistent_volume) = persistent.min()?;
        let fixed = &attachment.spec.fixed;
        let plugin = self.agent.caches.plugin_of(&fixed.driver_name);
        let name = plugin.as_ref().and_then(|plugin| plugin.kubelet_name()).unwrap_or(&fixed.driver_name);
        let kubelet = self.agent.paths.kubelet();
        let volume = DriverVolume { driver: name, handle: &attachment.spec.volume_handle };
        Some(target::staging(kubelet.as_path(), volume, persistent_volume, fixed.attachment_mode))
    }

    /// Writes a record in place of one that cannot be read or was lost, of all that it could speak of: the undo finds out
    /// what of it is there. A target of a claim that was removed by hand is not among it.
    pub(super) async fn presume(&self, uid: &AttachmentUid, view: &View) -> Result<(), NotDone> {
        let Some(attachment) = view.attachments.get(uid) else { return Ok(()) };
        let mut stored = self.new_record(attachment)?;
        let own = HostPath::recorded(&stored.record.staging_path);
        if let Some(of_kubelet) = self.staging_of_kubelet(attachment, view)
            && mounts::look(&own).await?.is_none()
        {
            stored.record.staging_path = of_kubelet.text();
        }
        stored.record.staged = if stored.record.stage { Done::Maybe } else { Done::No };
        self.know(&mut stored.record.revision, &**attachment);
        let used_by = |claim: &&Arc<VolumeClaim>| ClaimSeen::of(claim).uses() == Some(uid);
        for claim in view.claims.values().filter(used_by) {
            let path = target_of(&self.agent.paths, claim).map_err(|error| path_failure(&error))?;
            self.add_target_at(&mut stored, claim, &path);
        }
        tracing::warn!(
            attachment = uid.as_str(),
            "its record cannot be read or was lost: all that it could speak of is undone or made again"
        );
        self.agent.records.put(stored).await?;
        self.agent.retries.succeeded(uid, Service::Node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::api::VolumeClaimStatus;

    #[test]
    fn a_target_is_looked_for_where_its_claim_says_that_it_is() {
        let paths = Paths::below(Path::new("/k"));
        let now = paths.target("c-1").unwrap().text();
        let before = Paths::target_in(&paths.old_targets(), std::ffi::OsStr::new("c-1")).text();
        let of = |said: Option<&str>| {
            let mut claim = VolumeClaim::default();
            claim.metadata.uid = Some("c-1".into());
            let target_path = said.map(str::to_owned);
            claim.status = Some(VolumeClaimStatus { target_path, ..VolumeClaimStatus::default() });
            target_of(&paths, &claim).unwrap().text()
        };
        assert_eq!(of(None), now);
        assert_eq!(of(Some(&now)), now);
        assert_eq!(of(Some(&before)), before, "published by an earlier version");
        // Nothing else that a status says is touched.
        let others = paths.target("c-2").unwrap().text();
        let outside = format!("{now}/../../../c-1/target");
        for said in ["/etc/c-1/target", others.as_str(), outside.as_str()] {
            assert_eq!(of(Some(said)), now);
        }
        let mut bad = VolumeClaim::default();
        bad.metadata.uid = Some("..".into());
        assert!(target_of(&paths, &bad).is_err());
    }
}
