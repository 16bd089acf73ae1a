//! kubelet's NodePublishVolume: a claim for the Pod, and the wait until it is mounted.
//!
//! The call waits for as long as kubelet does. After an error kubelet waits itself, up to two minutes and longer each
//! time, so a hand-over that ends meanwhile would be noticed late.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ObjectMeta;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::answer::{FinalCode, NoClaim, Unanswered};
use super::asked::{Call, InFlight};
use super::driver::{Driver, Wish, WishedVolume};
use super::target::Target;
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::api::conditions::{READY, Reason, find};
use crate::api::{ClaimState, ClaimUid, FINALIZER, VolumeClaim, VolumeHandle, names};
use crate::attachment::record::Done;
use crate::csi::proto::csi::v1 as wire;
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Named, read};

/// Time that is kept back from kubelet's deadline, so that kubelet hears why.
const IN_TIME: Duration = Duration::from_secs(5);
/// kubelet's own deadline for a call (kubernetes `csi_plugin.go`, `csiTimeout`), where it sends none.
const LONGEST: Duration = Duration::from_secs(120);
/// Pause between looks at a claim of an earlier call that is being undone.
const LOOK: Duration = Duration::from_millis(250);
/// After this long the Pod is told what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// By then whoever looks at the Pod is to know, the look that comes next included.
const KNOWN_BY: Duration = Duration::from_secs(3);
const _: () = assert!(PATIENCE.as_millis() + LOOK.as_millis() < KNOWN_BY.as_millis());

/// When a call of kubelet's is to be answered at the latest.
pub(super) fn answer_by(timeout: Option<Duration>) -> Instant {
    Instant::now() + timeout.unwrap_or(LONGEST).min(LONGEST).saturating_sub(IN_TIME)
}

impl Driver {
    /// Publishes a volume for a Pod, by way of a VolumeClaim.
    pub async fn publish(
        &self,
        request: wire::NodePublishVolumeRequest,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let wish = self.wish(&request)?;
        let _turn = self.turn(&wish.claim_name, by).await?;
        if self.is_published(&wish.target, &wish.claim_name).await {
            return self.publish_anew(&wish, request, by).await;
        }
        self.publish_first(wish, request, by).await
    }

    /// Publishes what is not published yet. Whoever calls this has the claim's turn.
    pub(super) async fn publish_first(
        &self,
        wish: Wish,
        request: wire::NodePublishVolumeRequest,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let asked = &self.agent.asked;
        if !self.agent.may_call() {
            let node = &self.agent.node_name;
            let why = format!(
                "moor's agent on node {node} has not reached the API server for too long, and grants nothing by itself"
            );
            return Err(Unanswered::Again(why));
        }
        // Its claim is watched from now on, also before it is granted.
        self.agent.caches.pods_ask.rise();
        // A write that is under way when the time is up may be made all the same: the next call finds its claim.
        let claim = timeout_at(by, self.claim(&wish)).await;
        let claim = claim.map_err(|_| {
            let name = &wish.claim_name;
            Unanswered::Again(format!(
                "VolumeClaim {name} was not made in time; an earlier one may still be undone"
            ))
        })??;
        let call = Call {
            claim_name: wish.claim_name.clone(),
            target: wish.target.path.clone(),
            staging: Some(request.staging_target_path)
                .filter(|path| !path.is_empty())
                .map(|path| HostPath::recorded(&path)),
            stage_secrets: asked.stage_secrets(&self.kubelet_name, &request.volume_id),
            publish_secrets: match &wish.volume {
                WishedVolume::OfHandle(_) => Some(request.secrets),
                WishedVolume::Named(_) => None,
            },
            context: wish.context.clone(),
            changed: tokio::sync::Notify::new(),
        };
        let uid = ClaimUid::of(&claim.metadata);
        let in_flight = asked.begin(uid.clone(), call);
        // Nothing is made of a claim that was granted before somebody waits for it. One that is granted from now on is told.
        let granted = self.agent.caches.claims.by_uid(&uid).and_then(|claim| claim.spec.assignment.clone());
        if let Some(assignment) = granted {
            self.agent.queues.nodes.add(assignment.handle_name);
        }
        self.wait(&in_flight, &wish, &claim, by).await
    }

    /// Whether the volume was published at this path in this boot, for a claim of this very name, and is mounted: then
    /// nobody has to be asked. Neither its claim nor its Attachment is on its way out; what a restored etcd has forgotten is
    /// kept.
    pub(super) async fn is_published(&self, wanted: &Target, claim_name: &str) -> bool {
        let agent = &self.agent;
        let Some((stored, target)) = agent.records.of_claim_at(claim_name, &wanted.path) else {
            return false;
        };
        let attachment = agent.caches.attachments.by_uid(&stored.record.attachment_uid);
        let stands = attachment.map_or(stored.record.is_kept(), |attachment| attachment.stands());
        let is_done = target.published == Done::Yes && stored.record.boot_id == agent.boot_id;
        let named = Named { namespace: &target.namespace, name: &target.name };
        let ends = agent.caches.claims.get_in(named).is_some_and(|claim| has_ended(&claim));
        if !stands || !is_done || ends || agent.asked.is_released(claim_name) {
            return false;
        }
        let seen = mounts::look(&wanted.path).await;
        seen.is_ok_and(|seen| seen.is_some_and(|device| Some(device.text()) == target.device.as_deref()))
    }

    /// Makes the claim, or finds the one of an earlier call.
    async fn claim(&self, wish: &Wish) -> Result<Arc<VolumeClaim>, Unanswered> {
        let agent = &self.agent;
        let (namespace, volume_name) = self.volume(wish).await?;
        let mut spec = wish.spec.clone();
        spec.volume_name = volume_name;
        let claim = VolumeClaim {
            metadata: ObjectMeta {
                name: Some(wish.claim_name.clone()),
                namespace: Some(namespace.clone()),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        };
        loop {
            if agent.asked.is_released(&wish.claim_name) {
                // kubelet has given up what an earlier call was for, and the API server does not know it yet.
                sleep(LOOK).await;
                continue;
            }
            let is_new = agent
                .writer
                .create_in(&agent.caches.claims, &claim)
                .await
                .map_err(|error| not_reached(&error))?;
            // What was made or read just now is in the cache, and what was there before may be too.
            let named = Named { namespace: &namespace, name: &wish.claim_name };
            match agent.caches.claims.get_in(named) {
                Some(found) if found.metadata.deletion_timestamp.is_none() => {
                    if is_new || is_same(&found, &claim) {
                        return Ok(found);
                    }
                    // The volume has become another one since an earlier call: its Volume was made anew.
                    self.end(&found).await;
                    sleep(LOOK).await;
                }
                // That of an earlier call, which is being undone; or gone by now.
                Some(_) | None => sleep(LOOK).await,
            }
        }
    }

    /// Namespace and name of a claim's Volume.
    async fn volume(&self, wish: &Wish) -> Result<(String, String), Unanswered> {
        let agent = &self.agent;
        let handle_name = match &wish.volume {
            WishedVolume::OfHandle(name) => name,
            WishedVolume::Named(name) => {
                let namespace = wish.spec.pod.as_ref().map(|pod| pod.namespace.clone()).unwrap_or_default();
                return Ok((namespace, name.clone()));
            }
        };
        let handle =
            agent.get_live::<VolumeHandle>(handle_name).await.map_err(|error| not_reached(&error))?;
        Ok(match handle {
            Some(handle) => (handle.spec.volume.namespace, handle.spec.volume.name),
            // The controller makes the Volume of the PersistentVolume when a claim asks for it.
            None => (agent.namespace.clone(), names::imported_volume(handle_name)),
        })
    }

    /// Waits until the claim is mounted, or will not be.
    async fn wait(
        &self,
        in_flight: &InFlight<'_>,
        wish: &Wish,
        claim: &VolumeClaim,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let uid = ClaimUid::of(&claim.metadata);
        let begun = Instant::now();
        let mut told: Option<String> = None;
        loop {
            if self.agent.asked.is_released(&wish.claim_name) {
                let why = format!("kubelet has given {} up meanwhile", wish.target.path);
                return Err(Unanswered::TakenBack(why));
            }
            // It was in the cache when the call began.
            let now = self.agent.caches.claims.by_uid(&uid);
            let Some(seen) = now.as_deref().filter(|now| now.metadata.deletion_timestamp.is_none()) else {
                return Err(Unanswered::TakenBack(format!("VolumeClaim {} was deleted", wish.claim_name)));
            };
            let state = seen.status.as_ref().map(|status| status.state).unwrap_or_default();
            match state {
                ClaimState::Ready if self.is_published(&wish.target, &wish.claim_name).await => return Ok(()),
                ClaimState::Lost | ClaimState::NodeDetached => {
                    self.end(seen).await;
                    return Err(Unanswered::TakenBack(format!("VolumeClaim {} has ended", wish.claim_name)));
                }
                ClaimState::Ready | ClaimState::Pending | ClaimState::Taken => {}
            }
            if let Some(why) = not_entitled(seen) {
                return Err(self.take_back(seen, why, by).await);
            }
            if let Some(why) = in_vain(seen, &wish.volume) {
                self.end(seen).await;
                return Err(Unanswered::TakenBack(why));
            }
            let words = waits_for(seen);
            if let Some(news) = news(words.as_deref(), told.as_deref(), begun.elapsed()) {
                self.tell_pod(seen, news);
                told = Some(news.to_owned());
            }
            let next =
                if told.is_some() { by } else { by.min((begun + PATIENCE).max(Instant::now() + LOOK)) };
            if Instant::now() >= by {
                let words = words.unwrap_or_else(|| "it is being mounted".into());
                return Err(Unanswered::Again(format!("waits for the volume: {words}")));
            }
            tokio::select! {
                () = in_flight.call.changed.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Deletes a claim that its Pod may not have. Only when it is gone kubelet is told so for good.
    async fn take_back(&self, claim: &VolumeClaim, why: String, by: Instant) -> Unanswered {
        match timeout_at(by, self.until_gone(claim)).await {
            Ok(Ok(gone)) => Unanswered::last_word(gone, FinalCode::PermissionDenied, why),
            Ok(Err(error)) => {
                Unanswered::Again(format!("{why}; and its VolumeClaim is there still: {error}"))
            }
            Err(_) => Unanswered::Again(format!("{why}; and its VolumeClaim is there still")),
        }
    }

    /// Deletes a claim and waits until it is gone.
    async fn until_gone(&self, claim: &VolumeClaim) -> Result<NoClaim, ApiError> {
        let agent = &self.agent;
        agent.writer.delete_in(&agent.caches.claims, claim).await?;
        let api = agent.writer.api::<VolumeClaim>(claim.metadata.namespace.as_deref().unwrap_or_default());
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        loop {
            let found = read::get_live(&api, name).await?;
            if let Some(gone) = NoClaim::in_place_of(&ClaimUid::of(&claim.metadata), found.as_ref()) {
                return Ok(gone);
            }
            sleep(LOOK).await;
        }
    }

    /// Deletes a claim that has ended, so that kubelet's next call makes another one.
    async fn end(&self, claim: &VolumeClaim) {
        if let Err(error) = self.agent.writer.delete_in(&self.agent.caches.claims, claim).await {
            tracing::warn!("{error}; the next call of kubelet's tries again");
        }
    }

    /// Says on the Pod what it waits for.
    fn tell_pod(&self, claim: &VolumeClaim, words: &str) {
        let Some(pod) = &claim.spec.pod else { return };
        let about = k8s_openapi::api::core::v1::Pod {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectMeta::default()
            },
            ..Default::default()
        };
        let note = format!("{}: {words}", pod.volume());
        self.agent.recorder.tell(&Arc::new(about), EventReason::WaitsForVolume, "Mount", note);
    }
}

/// What the Pod is to be told now: the words for what it waits for, once it has waited for long enough that a hand-over which
/// goes well is over, and again when they are others.
fn news<'a>(words: Option<&'a str>, told: Option<&str>, waited: Duration) -> Option<&'a str> {
    words.filter(|words| waited >= PATIENCE && told != Some(*words))
}

/// Whether a claim that has the name asks for the same. One that was granted stays as it was asked for, whatever its Volume says
/// since.
fn is_same(found: &VolumeClaim, wanted: &VolumeClaim) -> bool {
    let (found, wanted) = (&found.spec, &wanted.spec);
    let is_as_wanted = found.access_mode == wanted.access_mode
        && found.attachment_mode == wanted.attachment_mode
        && found.mount_options == wanted.mount_options;
    found.pod == wanted.pod
        && found.volume_name == wanted.volume_name
        && found.node_name == wanted.node_name
        && (found.assignment.is_some() || is_as_wanted)
}

/// Whether a claim is undone, or will be: what is mounted of it is there no longer soon.
fn has_ended(claim: &VolumeClaim) -> bool {
    let state = claim.status.as_ref().map(|status| status.state).unwrap_or_default();
    claim.metadata.deletion_timestamp.is_some()
        || matches!(state, ClaimState::Lost | ClaimState::NodeDetached)
}

/// Why the controller does not grant the Pod the volume, if it has said so.
fn not_entitled(claim: &VolumeClaim) -> Option<String> {
    let conditions = &claim.status.as_ref()?.conditions;
    let refusal = Reason::PodNotEntitled;
    let refused = conditions.iter().find(|c| c.reason == refusal.as_str())?;
    Some(refused.message.clone())
}

/// Why the claim waits for a Volume that it does not get: that is on its way out, or was when the claim was made. When kubelet asks
/// next another Volume may have the storage. One of a PersistentVolume is made anew under its name, and is waited for.
fn in_vain(claim: &VolumeClaim, wished: &WishedVolume) -> Option<String> {
    let ready = find(&claim.status.as_ref()?.conditions, READY)?;
    let is = |reason: Reason| ready.reason == reason.as_str();
    let had_one = matches!(wished, WishedVolume::OfHandle(_));
    let is_gone = is(Reason::VolumeDeleted) || (had_one && is(Reason::VolumeNotFound));
    let comes_back = names::handle_of_import(&claim.spec.volume_name).is_some();
    (is_gone && !comes_back).then(|| ready.message.clone())
}

/// What the claim waits for, in its own words, and since when somebody on a node has the volume.
fn waits_for(claim: &VolumeClaim) -> Option<String> {
    let status = claim.status.as_ref()?;
    let ready = find(&status.conditions, READY)?;
    if ready.status == "True" {
        return None;
    }
    let holder = status.waiting_for.as_ref().filter(|holder| holder.node_name.is_some());
    let since = holder.and_then(|holder| holder.since.as_ref());
    let since = since.map(|since| format!(". Held since {}", since.0));
    Some(format!("{}{}", ready.message, since.unwrap_or_default()))
}

/// The API server's words about a claim that it does not take may hold mount flags, which may be secret.
#[allow(clippy::wildcard_enum_match_arm, reason = "of the others the words are said as they are")]
pub(super) fn not_reached(error: &ApiError) -> Unanswered {
    Unanswered::Again(match error {
        ApiError::Invalid { request, message: _ } => format!(
            "{request}: the API server does not take it; look at the access modes and mount options of the \
             PersistentVolume, or of the Volume that the Pod names"
        ),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::lock;

    #[test]
    fn a_pod_is_told_once_per_story_and_not_of_what_passes_at_once() {
        let soon = PATIENCE.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(news(Some("held"), None, soon), None);
        assert_eq!(news(Some("held"), None, PATIENCE), Some("held"));
        assert_eq!(news(Some("held"), Some("held"), KNOWN_BY), None);
        assert_eq!(news(Some("the driver says no"), Some("held"), KNOWN_BY), Some("the driver says no"));
        assert_eq!(news(None, None, KNOWN_BY), None, "nobody has said what is wrong");
    }

    #[test]
    fn a_volume_on_its_way_out_is_waited_for_where_it_comes_back() {
        let waits = |volume: &str, reason: Reason, wished: WishedVolume| {
            let ready = serde_json::json!({ "type": READY, "status": "False", "reason": reason.as_str(), "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            let claim = serde_json::json!({ "apiVersion": "moor.dev/v1alpha1", "kind": "VolumeClaim", "metadata": {},
                "spec": { "volumeName": volume }, "status": { "conditions": [ready] } });
            in_vain(&serde_json::from_value(claim).unwrap(), &wished).is_none()
        };
        let (named, had) = (|| WishedVolume::Named("v".into()), || WishedVolume::OfHandle("h".into()));
        assert!(!waits("v", Reason::VolumeDeleted, named()) && !waits("v", Reason::VolumeDeleted, had()));
        assert!(!waits("v", Reason::VolumeNotFound, had()) && waits("v", Reason::VolumeNotFound, named()));
        let handle = lock::handle_name(lock::DriverVolume { driver: "d", handle: "h" });
        assert!(waits(&names::imported_volume(&handle), Reason::VolumeDeleted, had()));
        assert!(waits("v", Reason::Held, had()));
    }
}
