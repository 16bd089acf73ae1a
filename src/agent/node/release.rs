//! After a mount is gone: the volume is given on only when nobody uses it on this node any more
//! (docs/adr/0010-the-kernel-says-when-a-volume-is-free.md).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::forgotten::way_of_force;
use super::pass::Pass;
use super::view::View;
use crate::agent::calls::attempt::NotDone;
use crate::agent::calls::failure::{Failure, Fence};
use crate::agent::host::error::HostError;
use crate::agent::host::imprint;
use crate::agent::host::paths::HostPath;
use crate::agent::host::users::{self, Question, Recorded, Users};
use crate::agent::records::store::Stored;
use crate::api::conditions::first_few;
use crate::api::instance::FORCE_UNDO;
use crate::api::{AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::record::{Done, Imprint, Left, Record};
use crate::csi::Service;
use crate::k8s::events::EventReason;

impl Pass {
    /// Looks who uses what was unmounted of one claim, while others stay, or of the whole Attachment. Done when nobody
    /// does, or when who does is not to be waited for.
    pub(super) async fn find_users(
        &self,
        uid: &AttachmentUid,
        claim: Option<&ClaimUid>,
        view: &View,
    ) -> Result<(), NotDone> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        let mut left = stored.record.left.clone();
        if let Some(claim) = claim {
            left.retain(|of, _| **of == **claim);
        }
        let path = some_of(&left);
        let targets = stored.record.targets.values().map(|target| target.path.clone());
        let staged = (stored.record.staged != Done::No).then(|| stored.record.staging_path.clone());
        let question = Question {
            left,
            by_right: targets.chain(staged).collect(),
            folders: self.agent.paths.of_volumes().map(|folder| folder.text()).into(),
            recorded: self.recorded(),
            staged: stored.record.staged != Done::No && stored.staging_imprint.is_some(),
            unstaged: stored.record.staged == Done::No,
            writers: claim.is_some(),
            kept_by_driver: stored.kept_by_driver.clone().unwrap_or_default(),
            driver: self.driver_process(&stored.record.driver_name),
        };
        let unmounted = question.left.clone();
        // A container of one writer looks like that of another.
        let told_apart = claim.is_none_or(|claim| view.writes_alone(claim, &stored));
        let found = if told_apart {
            users::find(question, &self.agent.node_mounts).await
        } else {
            Ok(Users::default())
        };
        let concerned = view.leaving(uid, claim);
        let order = self.order(&concerned, &stored.record);
        let untold = concerned.is_empty();
        let attached = view.attachments.get(uid).is_some_and(|attachment| attachment.spec.fixed.attach);
        let fence = if attached { Fence::Detach } else { Fence::None };
        if let Some(note) = given_up(&path, found, fence, &order)? {
            tracing::warn!("{note}");
            for claim in concerned {
                self.agent.recorder.tell(&claim, EventReason::Forced, "Unpublish", note.clone());
            }
            if let Some(instance) = self.instance(&stored.record.driver_name).filter(|_| untold) {
                self.agent.recorder.tell(&instance, EventReason::Forced, "Unpublish", note);
            }
        }
        if told_apart {
            self.remove_targets(&unmounted, &stored.record, view).await;
        }
        if let Some(claim) = claim {
            stored.record.left.remove(claim.as_str());
        } else {
            // A raw device is not mounted on the staging path. It is looked at once more when the driver has given it up.
            if stored.record.staged != Done::No && stored.staging_imprint.is_none() {
                let raw = unmounted.into_values().map(|left| left.imprint).find(|imprint| imprint.raw);
                stored.staging_imprint = raw;
            }
            stored.record.left.clear();
        }
        self.went(claim.map_or(uid.as_str(), ClaimUid::as_str), &stored.record);
        // Not on disk: after a restart it is looked at again.
        self.agent.records.note(stored);
        Ok(())
    }

    /// The directories of moor's own that the records of what is mounted speak of, when they are asked for.
    fn recorded(&self) -> Recorded {
        let records = self.agent.records.clone();
        Recorded::new(move || {
            records.with_traces().iter().flat_map(|stored| directories(&stored.record)).collect()
        })
    }

    /// Removes the targets that were kept because somebody else had something mounted on them.
    async fn remove_targets(&self, unmounted: &BTreeMap<String, Left>, record: &Record, view: &View) {
        let of_claims = unmounted.iter().filter(|(uid, _)| **uid != *record.attachment_uid);
        let of_claims = of_claims.map(|(uid, left)| (ClaimUid::from(uid.as_str()), left));
        for (claim, left) in of_claims.filter(|(claim, _)| !record.targets.contains_key(claim)) {
            let removed = self.remove_target(&claim, &HostPath::recorded(&left.path), view).await;
            removed.unwrap_or_else(|error| tracing::warn!("{error}"));
        }
    }

    /// Who may order that nobody is waited for: the deleted claims that wait, all of them; without any an administrator.
    fn order(&self, concerned: &[Arc<VolumeClaim>], record: &Record) -> Order {
        if concerned.is_empty() {
            let way = format!("{} orders it", way_of_force(record, &self.agent.node_name));
            return Order { by: FORCE_UNDO, way, given: self.is_forced(record) };
        }
        let way = "spec.forceDetach is set on all deleted claims that wait for it".to_owned();
        let given = concerned.iter().all(|claim| claim.spec.force_detach);
        Order { by: "spec.forceDetach", way, given }
    }

    /// Where else on the node these are mounted, which nobody but the driver can have yet; nothing if that cannot be seen.
    pub(super) async fn elsewhere(&self, imprints: impl Iterator<Item = &Imprint>) -> Option<Vec<String>> {
        let (node, kubelet) = (&self.agent.node_mounts, self.agent.paths.kubelet());
        let found = imprint::elsewhere(node, kubelet, imprints.cloned().collect()).await;
        found.inspect_err(|error| tracing::warn!("{error}")).ok()
    }

    /// The process of the driver that mounts on this node, if it runs and can be seen.
    pub(super) fn driver_process(&self, driver: &str) -> Option<i32> {
        self.agent.process_of(driver, Service::Node)?.plugin.process().map(|process| process.id())
    }
}

/// The directories of moor's own that a record speaks of.
fn directories(record: &Record) -> Vec<String> {
    let targets = record.targets.values().filter_map(|target| Path::new(&target.path).parent());
    let staged = (record.staged != Done::No).then(|| record.staging_path.clone());
    targets.map(|above| above.to_string_lossy().into_owned()).chain(staged).collect()
}

/// The first of the paths, and how many more there are: who uses what was there, and what ends the wait, have to fit into
/// the condition too.
fn some_of(left: &BTreeMap<String, Left>) -> String {
    first_few(left.values().map(|left| left.path.as_str()), 1)
}

/// The order to give up what is in use.
#[derive(Debug)]
struct Order {
    /// Where it is given.
    by: &'static str,
    /// How, in words that follow "or".
    way: String,
    given: bool,
}

/// What is said of a volume that is given up by force without a word of the kernel that nobody uses it.
fn given_up(
    path: &str,
    found: Result<Users, HostError>,
    fence: Fence,
    order: &Order,
) -> Result<Option<String>, Failure> {
    let (failure, why) = match found {
        Ok(users) if users.is_empty() => return Ok(None),
        Ok(users) => (Failure::in_use(path, &users, &order.way, fence), format!("it is in use by {users}")),
        Err(error) => (
            Failure::users_unknown(path, &error, &order.way, fence),
            format!("nobody has looked who uses it, for that failed: {error}"),
        ),
    };
    if !order.given {
        return Err(failure);
    }
    Ok(Some(format!("{}: what was mounted at {path} is given up while {why}; {fence}", order.by)))
}

impl View {
    /// A claim may have written, and those that stay on its Attachment only read.
    fn writes_alone(&self, claim: &ClaimUid, stored: &Stored) -> bool {
        let reads = |uid: &ClaimUid| self.claims.get(uid).is_some_and(|claim| claim.spec.read_only);
        !reads(claim) && stored.record.targets.keys().all(reads)
    }
}

impl Stored {
    /// What was mounted at a path is not any more, and may be in use all the same.
    pub(super) fn leave(&mut self, uid: &str, path: &HostPath, imprint: Option<Imprint>) {
        if let Some(imprint) = imprint {
            self.record.left.insert(uid.to_owned(), Left { path: path.text(), imprint });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::calls::failure::Pace;
    use crate::api::conditions::{Desired, Reason, set};
    use jiff::Timestamp;

    fn hangs() -> Result<Users, HostError> {
        Err(HostError::Hangs("/sys/dev/block/8:16".into()))
    }

    fn used() -> Users {
        let mut users = Users::default();
        users.add_unseen("8:16");
        users
    }

    fn order(given: bool) -> Order {
        Order { by: "spec.forceDetach", way: "spec.forceDetach is set".into(), given }
    }

    #[test]
    fn nobody_is_not_spoken_of() {
        for given in [false, true] {
            assert_eq!(given_up("/t", Ok(Users::default()), Fence::None, &order(given)), Ok(None));
        }
    }

    #[test]
    fn a_look_that_fails_keeps_the_volume_and_names_the_way_out() {
        let failure = given_up("/t", hangs(), Fence::Detach, &order(false)).unwrap_err();
        assert_eq!((failure.reason, failure.pace), (Reason::UsersUnknown, Pace::Steady));
        for word in ["/t", "8:16", "or spec.forceDetach is set"] {
            assert!(failure.message.contains(word), "{word}: {failure}");
        }
    }

    #[test]
    fn force_passes_a_look_that_fails_and_says_what_it_skipped() {
        let note = given_up("/t", hangs(), Fence::Detach, &order(true)).unwrap().unwrap();
        assert!(note.contains("8:16") && note.contains("nobody has looked"), "{note}");
    }

    /// Whoever forces has to know whether the next node writes beside this one.
    #[test]
    fn force_says_what_keeps_this_node_from_writing() {
        for (fence, word) in [(Fence::None, "no call follows"), (Fence::Detach, "only if its driver")] {
            let failure = given_up("/t", Ok(used()), fence, &order(false)).unwrap_err();
            let note = given_up("/t", Ok(used()), fence, &order(true)).unwrap().unwrap();
            assert!(failure.message.contains(word), "{failure}");
            assert!(note.contains(word) && note.contains("8:16"), "{note}");
        }
    }

    /// The condition is cut at its end, where the way out is.
    #[test]
    fn many_paths_leave_room_for_the_users_and_the_way_out() {
        let imprint =
            Imprint { device: "8:16".into(), root: "/".into(), source: None, disk: None, raw: false };
        let folder = "/var/lib/kubelet/plugins/kubernetes.io/csi/moor.dev/targets";
        let path = |n: u32| format!("{folder}/0a1b2c3d-0000-4000-8000-{n:012}/target");
        let left =
            (0..40).map(|n| (format!("{n:02}"), Left { path: path(n), imprint: imprint.clone() })).collect();
        let path_of_all = some_of(&left);
        assert_eq!(path_of_all, format!("{} and 39 more", path(0)));
        for found in [Ok(used()), hangs()] {
            let failure = given_up(&path_of_all, found, Fence::Detach, &order(false)).unwrap_err();
            let mut all = Vec::new();
            set(&mut all, &Desired::new(failure.reason, failure.to_string()), None, Timestamp::UNIX_EPOCH);
            for word in ["8:16", "or spec.forceDetach is set", "when it is detached"] {
                assert!(all[0].message.contains(word), "{word}: {}", all[0].message);
            }
        }
    }
}
