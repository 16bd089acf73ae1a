//! What the node's decision looks at: caches, records, mounts, and the live reads of this pass.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::pass::Pass;
use super::presume::target_of;
use super::report::{Wait, left};
use super::view::View;
use crate::agent::caches::{BY_ATTACHMENT, BY_HANDLE};
use crate::agent::context::Agent;
use crate::agent::host::error::HostError;
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::agent::records::store::{Stored, Unreadable};
use crate::api::conditions::Reason;
use crate::api::{Attachment, AttachmentState, AttachmentUid, ClaimState, ClaimUid, VolumeClaim};
use crate::attachment::AttachmentSeen;
use crate::attachment::node_side::{LiveAttachment, Seen};
use crate::attachment::record::Done;
use crate::claim::ClaimSeen;
use crate::k8s::Cache;
use crate::k8s::cache::Cached;

impl Pass {
    /// Looks. What the mounts contradict in a record is corrected first.
    pub(super) async fn observe(&self) -> Result<View, HostError> {
        let agent = &*self.agent;
        // First: what comes to be while it looks is of the next look.
        let names = agent.asked.released_of(&self.handle);
        let attachments = self.attachments();
        let (mut stored, mounted) = self.records(agent).await?;
        // Also of one that was just found gone: its claims have to give it back.
        let uids: BTreeSet<&AttachmentUid> =
            attachments.keys().chain(stored.keys()).chain(self.live.keys()).collect();
        let claims = self.claims(agent, &uids, &stored);
        for stored in stored.values_mut() {
            self.see_flags(stored, &mounted, &claims, &attachments).await;
        }
        let live = self.live.iter().filter_map(|(uid, found)| {
            let seen = match found {
                None => LiveAttachment::Gone,
                // One that has ended since it was read is to be read again.
                Some(_) => LiveAttachment::Present(AttachmentSeen::of(attachments.get(uid)?)),
            };
            Some((uid.clone(), seen))
        });
        let gone = self.live_claims.iter().filter(|(_, found)| found.is_none());
        let unreadable = agent.records.unreadable();
        let live = sorted(live, |(uid, _)| uid.clone());
        let calls = claims.keys().filter_map(|uid| Some((uid.clone(), agent.asked.call(uid)?)));
        let asked = calls.collect();
        let mut view = View { seen: Seen::default(), claims, attachments, stored, asked };
        let is_here = |file: &&Unreadable| self.may_be_here(file, &view.attachments);
        let unrecorded = self.unrecorded(&view).await?;
        view.seen = Seen {
            node_uid: agent.node_uid.clone(),
            boot_id: agent.boot_id.clone(),
            claims: sorted(view.claims.values().map(|c| ClaimSeen::of(c)), |c| c.uid.clone()),
            attachments: sorted(view.attachments.values().map(|a| AttachmentSeen::of(a)), |a| a.uid.clone()),
            records: sorted(view.stored.values().map(|s| s.record.clone()), |r| r.attachment_uid.clone()),
            gone_claims: gone.map(|(uid, _)| uid.clone()).collect(),
            live_attachments: live,
            live_handle: self.live_handle.clone(),
            mounted,
            doubted: self.doubted(&view),
            revision: self.revision,
            orders: self.orders(&view),
            unreadable: unreadable.iter().map(|file| file.attachment_uid.clone()).chain(unrecorded).collect(),
            unreadable_here: unreadable
                .iter()
                .filter(is_here)
                .map(|file| file.attachment_uid.clone())
                .collect(),
            asked: sorted(view.asked.keys().cloned(), ClaimUid::clone),
            released: released(&names, &view),
            backing_off: Vec::new(),
            grows_later: Vec::new(),
            grows_only_unused: self.grows_only_unused(&view),
        };
        for name in names.iter().filter(|name| !view.has_target_of(name)) {
            // From now on no step of this worker publishes it, and none has.
            agent.asked.undone(name);
        }
        Ok(view)
    }

    /// Nothing is decided while the mounts cannot be looked at: says so on the claims for which there is something to do,
    /// whatever they say of an earlier step.
    pub(super) async fn report_unseen(&self, error: &HostError) {
        let attachments = self.attachments();
        let records = self.agent.records.of_handle(&self.handle).into_iter();
        let stored: HashMap<_, _> = records.map(|s| (s.record.attachment_uid.clone(), s)).collect();
        let uids: BTreeSet<&AttachmentUid> = attachments.keys().chain(stored.keys()).collect();
        for claim in self.claims(&self.agent, &uids, &stored).into_values() {
            let seen = ClaimSeen::of(&claim);
            let done = if seen.deleted { ClaimState::NodeDetached } else { ClaimState::Ready };
            let Some(uid) = seen.uses().filter(|_| seen.state < done) else { continue };
            if left(&claim, attachments.get(uid)).is_none() {
                let message = format!(
                    "nothing is done for the claim on node {} before this succeeds: {error}",
                    self.agent.node_name
                );
                self.report_waiting(&claim, Wait::new(Reason::NodePathFailed, message)).await;
            }
        }
    }

    /// Whether a file may speak of this volume. One of which nothing can be read is of that of its Attachment, if that is
    /// still there, or of that for which a record was presumed.
    fn may_be_here(&self, file: &Unreadable, attachments: &HashMap<AttachmentUid, Arc<Attachment>>) -> bool {
        let Some(one) = attachments.values().next() else { return false };
        let (agent, uid) = (&*self.agent, &file.attachment_uid);
        let attachment = agent.caches.attachments.by_uid(uid);
        let has_one = attachment.is_some_and(|found| found.spec.node_name == agent.node_name);
        let is_known = has_one || agent.records.get(uid).is_some();
        file.may_be_of(&one.spec.fixed, is_known)
    }

    /// Attachments of which something is to be undone, and is mounted, and that have no record: the state directory was
    /// lost, or the agent was given another one. Of what is made anew a record is written before that.
    async fn unrecorded(&self, view: &View) -> Result<Vec<AttachmentUid>, HostError> {
        let mut found = Vec::new();
        for (of, attachment) in &view.attachments {
            for path in self.places(of, attachment, view) {
                if mounts::look(&path).await?.is_some() {
                    found.push(of.clone());
                    break;
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Where something of an Attachment would be mounted that has no record, and is left here by a claim or as a whole. By a
    /// UID that makes no path nothing was ever mounted.
    fn places(&self, of: &AttachmentUid, attachment: &Attachment, view: &View) -> Vec<HostPath> {
        let seen = AttachmentSeen::of(attachment);
        let users: Vec<_> = view.claims.values().filter(|c| ClaimSeen::of(c).uses() == Some(of)).collect();
        let leaves =
            seen.deleted || seen.lost || users.iter().any(|c| c.metadata.deletion_timestamp.is_some());
        let is_done = seen.state >= AttachmentState::NodeDetached;
        if view.stored.contains_key(of) || !leaves || is_done || seen.node != self.agent.node_name {
            return Vec::new();
        }
        let paths = &self.agent.paths;
        let is_recorded = |claim: &VolumeClaim| {
            view.stored.values().any(|s| s.record.targets.contains_key(&ClaimUid::of(&claim.metadata)))
        };
        let targets = users.into_iter().filter(|c| !is_recorded(c)).map(|c| target_of(paths, c));
        let of_kubelet = self.staging_of_kubelet(attachment, view).map(Ok);
        std::iter::once(paths.staging(of)).chain(of_kubelet).chain(targets).flatten().collect()
    }

    /// What the records speak of and the API server has not shown since its history went back.
    fn doubted(&self, view: &View) -> Vec<String> {
        let records = &self.agent.records;
        let mut doubted: Vec<String> = Vec::new();
        for (attachment, one) in &view.stored {
            for uid in records.doubted(one) {
                let is_there = if *attachment == uid.as_str() {
                    view.attachments.contains_key(attachment)
                } else {
                    let claim = view.claims.get(&ClaimUid::from(uid.as_str()));
                    claim.is_some_and(|c| ClaimSeen::of(c).uses() == Some(attachment))
                };
                if is_there {
                    records.settle(&uid);
                }
            }
            doubted.extend(records.doubted(one));
        }
        sorted(doubted.into_iter(), String::clone)
    }

    /// Attachments of the handle on this node: the newer of cache and live read.
    fn attachments(&self) -> HashMap<AttachmentUid, Arc<Attachment>> {
        let cache = &self.agent.caches.attachments;
        let mine = cache.by_index(BY_HANDLE, &self.handle).into_iter();
        let mine = mine.filter(|a| a.spec.node_name == self.agent.node_name);
        let mut found = mine.map(|a| (AttachmentUid::of(&a.metadata), a)).collect();
        take_in_read(&mut found, &self.live, cache);
        found
    }

    /// Records of the handle, as far as the mounts bear them out, and UIDs of the claims that are mounted as recorded.
    async fn records(
        &self,
        agent: &Agent,
    ) -> Result<(HashMap<AttachmentUid, Stored>, Vec<ClaimUid>), HostError> {
        let mut found = HashMap::new();
        let mut mounted = Vec::new();
        for mut stored in agent.records.of_handle(&self.handle) {
            let mut changed = stored.enter_boot(&agent.boot_id);
            if changed {
                agent.records.settle_all(&stored);
                agent.queues.instances.add(stored.record.driver_name.clone());
            }
            self.leave_covers(&mut stored).await;
            if stored.record.staged == Done::Yes && stored.staging_device.is_some() {
                let device = mounts::look(&HostPath::recorded(&stored.record.staging_path)).await?;
                if device.as_ref().map(mounts::Device::text) != stored.staging_device.as_deref() {
                    stored.record.staged = Done::Maybe;
                    changed = true;
                }
            }
            for (claim, target) in &stored.record.targets {
                if target.published != Done::Yes {
                    continue;
                }
                let device = mounts::look(&HostPath::recorded(&target.path)).await?;
                if device.is_some_and(|d| Some(d.text()) == target.device.as_deref()) {
                    mounted.push(claim.clone());
                }
            }
            if changed {
                agent.records.note(stored.clone());
            }
            found.insert(stored.record.attachment_uid.clone(), stored);
        }
        Ok((found, mounted))
    }

    fn claims(
        &self,
        agent: &Agent,
        attachments: &BTreeSet<&AttachmentUid>,
        stored: &HashMap<AttachmentUid, Stored>,
    ) -> HashMap<ClaimUid, Arc<VolumeClaim>> {
        let assigned = attachments.iter().flat_map(|uid| agent.caches.claims.by_index(BY_ATTACHMENT, uid));
        let recorded = stored.values().flat_map(|s| s.record.targets.keys());
        let recorded = recorded.filter_map(|uid| agent.caches.claims.by_uid(uid));
        // Also one whose Attachment is not known yet.
        let named = agent.caches.claims.by_index(BY_HANDLE, &self.handle);
        let cached = assigned.chain(recorded).chain(named);
        let mut found: HashMap<ClaimUid, Arc<VolumeClaim>> =
            cached.map(|c| (ClaimUid::of(&c.metadata), c)).collect();
        take_in_read(&mut found, &self.live_claims, &agent.caches.claims);
        found
    }
}

/// Brings what was read live among what the cache has: the newer of the two, and none of what has ended since.
fn take_in_read<U: Clone + Eq + Hash, K: Cached>(
    found: &mut HashMap<U, Arc<K>>,
    read: &HashMap<U, Option<Arc<K>>>,
    cache: &Cache<K>,
) {
    for (uid, read) in read {
        match read.as_ref().and_then(|read| cache.newest(read)) {
            Some(newest) => found.insert(uid.clone(), newest),
            None => found.remove(uid),
        };
    }
}

/// Pods' claims that kubelet has unpublished, also those of which only a record is left.
fn released(names: &BTreeSet<String>, view: &View) -> Vec<ClaimUid> {
    let claims =
        view.claims.iter().map(|(uid, claim)| (uid, claim.metadata.name.as_deref().unwrap_or_default()));
    let recorded =
        view.stored.values().flat_map(|s| s.record.targets.iter().map(|(uid, t)| (uid, t.name.as_str())));
    let all = claims.chain(recorded).filter(|(_, name)| names.contains(*name));
    all.map(|(uid, _)| uid.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

fn sorted<T, K: Ord>(items: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_by_key(key);
    items
}
