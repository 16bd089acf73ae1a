//! Staging and publishing.

use super::pass::Pass;
use super::view::{View, path_failure, version};
use crate::agent::calls::arguments;
use crate::agent::calls::attempt::{Means, NotDone};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::retry::Step;
use crate::agent::host::directories;
use crate::agent::host::error::HostError;
use crate::agent::host::imprint;
use crate::agent::host::mount_flags::{self, Wanted};
use crate::agent::host::mounts::{self, Device};
use crate::agent::host::paths::HostPath;
use crate::agent::kubelet::asked::Call;
use crate::agent::records::store::Stored;
use crate::api::conditions::Reason;
use crate::api::instance::MAX_STAGED;
use crate::api::secrets::SecretFor;
use crate::api::{Attachment, AttachmentMode, AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::node_side::NodeStep;
use crate::attachment::record::{Done, Record, TargetRecord};
use crate::csi::{CallError, Meaning, Origin, Rpc};

impl Pass {
    pub(super) async fn stage(&mut self, uid: &AttachmentUid, view: &View) -> Result<(), NotDone> {
        const RPC: Rpc = Rpc::NodeStageVolume;
        let Some(attachment) = view.attachments.get(uid).cloned() else { return Ok(()) };
        let fixed = &attachment.spec.fixed;
        let (namespace, driver) = (&attachment.spec.volume.namespace, &fixed.driver_name);
        let due = self.due(RPC, driver);
        let _turn = due.turn().await?;
        let asked = asked_on(uid, view);
        let serving = self.agent.serving(RPC, driver)?;
        // kubelet reads the Secret once; an agent that was started since then reads it itself, if it may.
        let given = asked.and_then(|call| call.stage_secrets.clone());
        let named = attachment.secret(SecretFor::NodeStage);
        let read = async |named| self.agent.secrets(RPC, namespace, named).await.map(|(secrets, _)| secrets);
        let secrets = match given {
            // Somebody may have put it right after a call that failed, and kubelet, which was answered, does not read it again.
            Some(given) if named.is_some() && self.agent.retries.has_failed(&Step::of(&*attachment, RPC)) => {
                read(named).await.unwrap_or(given)
            }
            Some(given) => given,
            None => read(named).await?,
        };

        let mut before = self.record(&attachment, view)?;
        if before.record.staged == Done::No && before.record.targets.is_empty() {
            before.record.staging_path = self.staging_of(uid, asked)?.text();
        }
        let staging = HostPath::recorded(&before.record.staging_path);
        let mut stored = before.clone();
        stored.record.staged = Done::Maybe;
        self.know(&mut stored.record.revision, &*attachment);
        self.agent.records.put(stored.clone()).await?;
        let made = directories::make_staging(&staging)
            .await
            .map_err(|error| Failure::local(Reason::NodePathFailed, RPC, error.to_string()));

        let waiting = view.waiting_for(&NodeStep::Stage { attachment: uid.to_owned() });
        let args = arguments::node_stage(&attachment, &staging, secrets);
        let result = match made {
            Ok(()) => {
                let call = serving.plugin.node_stage_volume(args);
                let called =
                    self.call(&due, serving.plugin.process(), call, &waiting, Reason::Staging).await?;
                called.map_err(|e| (Failure::of_call(&e), Some(e)))
            }
            Err(failure) => Err((failure, None)),
        };
        if let Err((failure, error)) = result {
            // A look that fails leaves open what is there.
            let mounted = mounts::look(&staging).await.map_or(true, |found| found.is_some());
            stored.record.staged = after_failed_stage(&before, error.as_ref(), mounted);
            self.agent.records.put_or_defer(stored).await;
            return Err(failure.into());
        }
        // What is on disk says Maybe: after a crash the call is repeated, which is what CSI wants.
        stored.staging_device = mounts::look(&staging).await?.map(|d| d.text().to_owned());
        stored.staging_imprint = match stored.staging_device {
            Some(_) => imprint::of_mount(&staging).await?,
            None => None,
        };
        stored.record.staged = Done::Yes;
        stored.staged_once = true;
        self.agent.records.note(stored);
        self.agent.retries.clear(uid);
        Ok(())
    }

    pub(super) async fn try_publish(
        &mut self,
        claim: &ClaimUid,
        uid: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        const RPC: Rpc = Rpc::NodePublishVolume;
        let found = view.claims.get(claim).zip(view.attachments.get(uid));
        let Some((claim, attachment)) = found else { return Ok(()) };
        let fixed = &attachment.spec.fixed;
        let (namespace, driver) = (&attachment.spec.volume.namespace, &fixed.driver_name);
        let due = self.due(RPC, driver);
        let _turn = due.turn().await?;
        let asked = view.asked.get(&ClaimUid::of(&claim.metadata)).cloned();
        let given = asked.as_ref().and_then(|call| call.publish_secrets.clone());
        let secret = attachment.secret(SecretFor::NodePublish).filter(|_| given.is_none());
        let Means { serving, secrets, .. } = due.means(namespace, secret).await?;
        let secrets = given.unwrap_or(secrets);

        let before = self.record(attachment, view)?;
        let mut stored = before.clone();
        let target = self.add_target(&mut stored, claim, asked.as_deref())?;
        if stored.record.targets.values().any(|target| target.covered) {
            // The driver is to find what it has mounted.
            self.uncover(&mut stored, false).await.map_err(|error| in_use(RPC, &error))?;
        }
        self.know(&mut stored.record.revision, &**attachment);
        if stored.record != before.record {
            self.agent.records.put(stored.clone()).await?;
        }
        self.make_place(&target, claim).await?;

        let staging = HostPath::recorded(&stored.record.staging_path);
        let mut args = arguments::node_publish(attachment, claim, &staging, &target, secrets);
        args.request.volume_context.extend(asked.iter().flat_map(|call| call.context.clone()));
        let call = serving.plugin.node_publish_volume(args);
        let (process, waiting) = (serving.plugin.process(), std::slice::from_ref(claim));
        if let Err(error) = self.call(&due, process, call, waiting, Reason::Publishing).await? {
            if never_sent(&error) && !before.record.targets.contains_key(&ClaimUid::of(&claim.metadata)) {
                self.agent.records.put_or_defer(before).await;
            }
            return Err(Failure::of_call(&error).into());
        }
        let device = visible(mounts::look(&target).await?, &target)?;
        let raw = fixed.attachment_mode == AttachmentMode::BlockDevice;
        // Of a Pod kubelet lets no container write a device that the Pod has read-only, whatever the device allows.
        let is_open = raw && claim.spec.read_only && claim.spec.pod.is_none();
        if is_open && mounts::is_writable_device(&target).await? {
            return Err(writable_device(&target).into());
        }
        if let Some(wanted) = flags(attachment, claim) {
            // Half a publish (trap B11).
            let set = mount_flags::ensure(&self.agent.node_mounts, &target, wanted).await;
            set.map_err(|error| without_flags(&target, wanted, &error))?;
            stored.saw_flags(&ClaimUid::of(&claim.metadata), wanted);
        }
        let seen = imprint::of(&target, &device, raw).await?;
        if stored.is_driver_alone() {
            stored.kept_by_driver = self.elsewhere(seen.iter().chain(&stored.staging_imprint)).await;
        }
        // A look that failed is not made up for: by then a user can have it.
        stored.unused = false;
        directories::open_parent(&self.agent.paths, &target).await?;
        if let Some(recorded) = stored.record.targets.get_mut(&ClaimUid::of(&claim.metadata)) {
            recorded.published = Done::Yes;
            recorded.device = Some(device.text().to_owned());
            recorded.imprint = seen;
        }
        self.agent.records.put(stored).await?;
        self.agent.retries.clear(&ClaimUid::of(&claim.metadata));
        Ok(())
    }

    /// The record of an Attachment, or a new one.
    fn record(&self, attachment: &Attachment, view: &View) -> Result<Stored, Failure> {
        if let Some(stored) = view.stored.get(&AttachmentUid::of(&attachment.metadata)) {
            return Ok(stored.clone());
        }
        let driver = &attachment.spec.fixed.driver_name;
        if self.agent.records.number_of(driver) >= MAX_STAGED {
            return Err(Failure::too_many_volumes(Rpc::NodeStageVolume, self.agent.driver_here(driver)));
        }
        Ok(Stored { unused: true, ..self.new_record(attachment)? })
    }

    /// Where an Attachment is staged that is not yet: where kubelet wants it, which waits until nothing is staged there any
    /// more, or at a path of its own.
    fn staging_of(&self, uid: &AttachmentUid, asked: Option<&Call>) -> Result<HostPath, Failure> {
        match asked.and_then(|call| call.staging.clone()) {
            Some(of_kubelet) => Ok(of_kubelet),
            None => self.agent.paths.staging(uid).map_err(|error| path_failure(&error)),
        }
    }

    pub(super) fn new_record(&self, attachment: &Attachment) -> Result<Stored, Failure> {
        let uid = AttachmentUid::of(&attachment.metadata);
        let fixed = &attachment.spec.fixed;
        let staging = self.agent.paths.staging(&uid).map_err(|error| path_failure(&error))?;
        let record = Record {
            attachment_uid: uid,
            attachment_name: attachment.metadata.name.clone().unwrap_or_default(),
            handle_name: fixed.handle_name.clone(),
            driver_name: fixed.driver_name.clone(),
            plugin_name: fixed.plugin_name.clone(),
            volume_handle: attachment.spec.volume_handle.clone(),
            namespace: attachment.spec.volume.namespace.clone(),
            boot_id: self.agent.boot_id.clone(),
            stage: fixed.stage,
            staging_path: staging.text(),
            ..Record::default()
        };
        Ok(Stored { record, ..Stored::default() })
    }

    /// Raises a record's revision to what is known now, if the object is newer than that.
    pub(super) fn know<K: kube::Resource>(&self, revision: &mut u64, object: &K) {
        if version(object) > *revision {
            *revision = version(object).max(self.agent.known_revision());
        }
    }

    /// Puts a claim's target into the record as one that may be published, and returns its path.
    pub(super) fn add_target(
        &self,
        stored: &mut Stored,
        claim: &VolumeClaim,
        asked: Option<&Call>,
    ) -> Result<HostPath, Failure> {
        let uid = ClaimUid::of(&claim.metadata);
        if let Some(target) = stored.record.targets.get_mut(&uid) {
            target.published = Done::Maybe;
            self.know(&mut target.revision, claim);
            return Ok(HostPath::recorded(&target.path));
        }
        let path = match asked {
            Some(call) => call.target.clone(),
            None => self.agent.paths.target(&uid).map_err(|error| path_failure(&error))?,
        };
        self.add_target_at(stored, claim, &path);
        Ok(path)
    }

    /// Puts a target of a claim that has none yet into the record.
    pub(super) fn add_target_at(&self, stored: &mut Stored, claim: &VolumeClaim, path: &HostPath) {
        let mut target = TargetRecord {
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            path: path.text(),
            published: Done::Maybe,
            ..TargetRecord::default()
        };
        self.know(&mut target.revision, claim);
        stored.record.targets.insert(ClaimUid::of(&claim.metadata), target);
    }
}

/// kubelet's call for one of the claims that wait for an Attachment: one that says how kubelet has it staged, if there is one.
/// All that do have the same staging path.
fn asked_on<'a>(attachment: &AttachmentUid, view: &'a View) -> Option<&'a Call> {
    let claims = view.seen.claims.iter().filter(|claim| claim.uses() == Some(attachment));
    let calls = claims.filter_map(|claim| view.asked.get(&claim.uid)).map(|call| &**call);
    calls.max_by_key(|call| (call.stage_secrets.is_some(), call.staging.is_some()))
}

/// What is known after a failed NodeStageVolume: a final answer means that there is nothing to
/// unstage, unless it was staged before; a call that was never sent changes nothing; else nobody knows. What is mounted
/// is believed more than any answer (rule R9): it is unstaged before the volume is detached.
fn after_failed_stage(before: &Stored, error: Option<&CallError>, mounted: bool) -> Done {
    let told = match error {
        None => before.record.staged,
        Some(error) if never_sent(error) => before.record.staged,
        Some(error) if error.meaning().is_settled_failure() && !before.staged_once => Done::No,
        Some(_) => Done::Maybe,
    };
    if told == Done::No && mounted { Done::Maybe } else { told }
}

/// Not Ready before the host sees it (rule R8): the driver's word is about its own mount namespace (trap B13).
fn visible(found: Option<Device>, target: &HostPath) -> Result<Device, Failure> {
    found.ok_or_else(|| {
        let message = format!(
            "the driver says that it is published, and nothing is mounted at {target}: its Pod needs a \
             hostPath volume of kubelet's directory with mountPropagation Bidirectional"
        );
        Failure::contradicted(Reason::MountNotVisible, Rpc::NodePublishVolume, message)
    })
}

/// The flags that a claim's own mount is to have on the node; nothing for a device, which takes writes whatever way leads
/// to it.
pub(super) fn flags(attachment: &Attachment, claim: &VolumeClaim) -> Option<Wanted> {
    let is_mount = attachment.spec.fixed.attachment_mode == AttachmentMode::FileSystem;
    is_mount.then(|| Wanted::by(arguments::publish_flags(attachment, claim), claim.spec.read_only))
}

/// What the flags are is not said: they may hold secrets.
fn without_flags(target: &HostPath, wanted: Wanted, why: &HostError) -> Failure {
    let (reason, message) = if wanted.is_read_only() {
        let message = format!(
            "the claim is read-only, and what the driver has mounted at {target} can be written to on the node: {why}"
        );
        (Reason::MountWritable, message)
    } else {
        let message = format!("mount flags of the claim are missing at {target} on the node: {why}");
        (Reason::MountFlagsMissing, message)
    };
    Failure::contradicted(reason, Rpc::NodePublishVolume, message)
}

fn writable_device(target: &HostPath) -> Failure {
    let message = format!(
        "the claim is read-only, and the driver has published a device at {target} that takes writes; delete the claim \
         and make one without spec.readOnly if that is wanted"
    );
    Failure::contradicted(Reason::DeviceWritable, Rpc::NodePublishVolume, message)
}

pub(super) fn in_use(rpc: Rpc, error: &HostError) -> Failure {
    Failure::local(Reason::TargetInUse, rpc, error.to_string())
}

fn never_sent(error: &CallError) -> bool {
    error.meaning() == Meaning::NeverSent || error.origin == Origin::Argument
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::records::store::tests::stored;

    fn error(code: tonic::Code, origin: Origin) -> CallError {
        CallError { rpc: Rpc::NodeStageVolume, code, message: String::new(), origin }
    }

    fn before(staged: Done, once: bool) -> Stored {
        let mut stored = stored("a");
        stored.record.staged = staged;
        stored.staged_once = once;
        stored
    }

    #[test]
    fn a_final_stage_error_is_not_unstaged() {
        let refused = error(tonic::Code::InvalidArgument, Origin::Driver);
        assert_eq!(after_failed_stage(&before(Done::No, false), Some(&refused), false), Done::No);
        assert_eq!(after_failed_stage(&before(Done::Maybe, false), Some(&refused), false), Done::No);
    }

    #[test]
    fn a_final_stage_error_that_left_a_mount_is_unstaged() {
        for (origin, code) in
            [(Origin::Driver, tonic::Code::DataLoss), (Origin::Argument, tonic::Code::InvalidArgument)]
        {
            let refused = error(code, origin);
            assert_eq!(after_failed_stage(&before(Done::No, false), Some(&refused), true), Done::Maybe);
        }
    }

    #[test]
    fn an_unknown_stage_outcome_is_unstaged() {
        for unknown in [
            error(tonic::Code::DeadlineExceeded, Origin::Deadline),
            error(tonic::Code::Unavailable, Origin::Connection),
            error(tonic::Code::Aborted, Origin::Driver),
        ] {
            assert_eq!(after_failed_stage(&before(Done::No, false), Some(&unknown), false), Done::Maybe);
        }
    }

    /// B13.
    #[tokio::test]
    async fn a_publish_that_the_host_does_not_see_is_a_failure_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let target = HostPath::recorded(dir.path().to_str().unwrap());
        let failure = visible(mounts::look(&target).await.unwrap(), &target).unwrap_err();
        assert_eq!((failure.reason, failure.meaning), (Reason::MountNotVisible, Meaning::StillRunning));
        assert!(failure.message.contains(&target.text()) && failure.message.contains("Bidirectional"));
        let there = HostPath::recorded("/proc");
        assert!(visible(mounts::look(&there).await.unwrap(), &there).is_ok());
    }

    #[test]
    fn a_call_that_was_not_sent_changes_nothing() {
        for unsent in [
            error(tonic::Code::Unavailable, Origin::Dial),
            error(tonic::Code::InvalidArgument, Origin::Argument),
        ] {
            for known in [Done::No, Done::Maybe] {
                assert_eq!(after_failed_stage(&before(known, false), Some(&unsent), false), known);
            }
        }
    }

    #[test]
    fn what_was_staged_once_stays_to_be_unstaged() {
        let refused = error(tonic::Code::Internal, Origin::Driver);
        assert_eq!(after_failed_stage(&before(Done::Maybe, true), Some(&refused), false), Done::Maybe);
    }
}
