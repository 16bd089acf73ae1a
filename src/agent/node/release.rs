//! After a mount is gone: the volume is given on only when nobody uses it on this node any more
//! ([ADR 10](../../../docs/adr/0010-the-kernel-says-when-a-volume-is-free.md)).

use tokio::net::UnixStream;

use super::observe::View;
use super::{Pass, Trouble};
use crate::agent::failure::Failure;
use crate::agent::paths::HostPath;
use crate::agent::records::Stored;
use crate::agent::users::{self, Question, Users};
use crate::attachment::record::{Done, Imprint, Left};
use crate::csi::Service;
use crate::k8s::events::Reason;

impl Pass {
    /// Looks who uses what was unmounted of one claim, while others stay, or of the whole Attachment. Done when nobody
    /// does, or when who does is not to be waited for.
    pub(super) async fn find_users(
        &self,
        uid: &str,
        claim: Option<&str>,
        view: &View,
    ) -> Result<(), Trouble> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        let mut left = stored.record.left.clone();
        if let Some(claim) = claim {
            left.retain(|of, _| of == claim);
        }
        let paths = left.values().map(|left| left.path.as_str());
        let path = paths.collect::<Vec<_>>().join(", ");
        let targets = stored.record.targets.keys().cloned();
        let staged = (stored.record.staged != Done::No).then(|| uid.to_owned());
        let question = Question {
            left,
            by_right: targets.chain(staged).collect(),
            staged: stored.record.staged != Done::No && stored.staging_imprint.is_some(),
            writers: claim.is_some(),
            driver: self.driver_process(&stored.record.driver_name).await,
        };
        // A container of one writer looks like that of another.
        let told_apart = claim.is_none_or(|claim| view.writes_alone(claim, &stored));
        let users = if told_apart { users::find(question).await? } else { Users::default() };
        if !users.is_empty() {
            let failure = Failure::in_use(&path, &users);
            let concerned = view.leaving(uid, claim);
            if concerned.is_empty() || !concerned.iter().all(|claim| claim.spec.force_detach) {
                return Err(failure.into());
            }
            let note = format!(
                "spec.forceDetach: what was mounted at {path} is given up while it is in use by {users}"
            );
            tracing::warn!("{note}");
            for claim in concerned {
                self.agent.tell(&claim, Reason::Forced, "Unpublish", note.clone());
            }
        }
        match claim {
            Some(claim) => drop(stored.record.left.remove(claim)),
            None => stored.record.left.clear(),
        }
        // Not on disk: after a restart it is looked at again.
        self.agent.records.note(stored);
        self.agent.retries.clear(claim.unwrap_or(uid));
        Ok(())
    }

    /// The process of the driver that mounts on this node, if it runs and can be seen.
    async fn driver_process(&self, driver: &str) -> Option<i32> {
        let endpoint = self.agent.registry.best(driver, Service::Node, None)?;
        let connection = UnixStream::connect(&endpoint.path).await.ok()?;
        connection.peer_cred().ok()?.pid().filter(|pid| *pid > 0)
    }
}

impl View {
    /// A claim may have written, and those that stay on its Attachment only read.
    fn writes_alone(&self, claim: &str, stored: &Stored) -> bool {
        let reads = |uid: &str| self.claims.get(uid).is_some_and(|claim| claim.spec.read_only);
        !reads(claim) && stored.record.targets.keys().all(|other| reads(other))
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
