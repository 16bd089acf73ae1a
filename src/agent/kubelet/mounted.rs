//! Calls to the driver about what a Pod has mounted already, made because kubelet asks at this moment. No record speaks of
//! them: they leave nothing that NodeUnpublishVolume and NodeUnstageVolume, which are due anyway, do not undo.

use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use super::driver::Driver;
use crate::agent::calls::attempt::{Due, NotDone, Word};
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::agent::queues::Parked;
use crate::api::{Attachment, AttachmentUid, ClaimUid};
use crate::attachment::AttachmentSeen;
use crate::attachment::record::{Done, Record, TargetRecord};
use crate::csi::{CallError, Origin, Plugin, Rpc, sizes};

/// A volume that is published for a claim, and was seen to be.
pub(super) struct Mounted {
    /// Read live, in the term of the Lease in which the call is made.
    pub attachment: Attachment,
    pub record: Record,
    pub claim: ClaimUid,
    pub target: TargetRecord,
}

impl Mounted {
    pub fn staging(&self) -> HostPath {
        HostPath::recorded(&self.record.staging_path)
    }

    pub fn target(&self) -> HostPath {
        HostPath::recorded(&self.target.path)
    }
}

/// Which of a volume's targets a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The one at the path that kubelet names, and no other: what comes along is for its Pod.
    Target,
    /// The volume, at whichever of its paths. kubelet keeps one path for a raw device, also when the Pod that had it there is
    /// gone and another one stays.
    Volume,
}

/// Why such a call has come to nothing. Neither is kubelet's last word on the mount: that is there.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMade {
    /// It cannot be made now, or has not ended.
    #[error("{0}")]
    Again(String),
    /// It has failed.
    #[error(transparent)]
    Failed(#[from] CallError),
}

impl NotMade {
    /// The driver's own code goes through, since kubelet and whoever watches the PersistentVolumeClaim go by it; where the
    /// driver has not spoken kubelet is to call again.
    pub fn with_code(self) -> Status {
        match self {
            Self::Again(why) => Status::unavailable(why),
            Self::Failed(error) => {
                let code = match error.origin {
                    Origin::Driver | Origin::Argument => error.code,
                    Origin::Deadline => Code::DeadlineExceeded,
                    Origin::Dial | Origin::Connection | Origin::Reply => Code::Unavailable,
                };
                Status::new(code, error.message)
            }
        }
    }
}

/// The path at which a call says that a volume is. At one that is none of kubelet's nothing is, which CSI has a code for.
pub(super) fn volume_path(path: &str) -> Result<HostPath, Status> {
    if path.is_empty() {
        return Err(Status::invalid_argument("volume_path is empty"));
    }
    sizes::path("volume_path", path).map_err(|error| Status::not_found(error.to_string()))?;
    Ok(HostPath::recorded(path))
}

impl Driver {
    /// Makes a call about a volume that is published, beside no other call for the volume on this node. It goes on when
    /// `by` comes: the driver does, too, and nobody is to stage or unstage meanwhile.
    pub(super) async fn about_mounted<T, F>(
        &self,
        rpc: Rpc,
        volume_id: &str,
        (about, path): (About, HostPath),
        by: Instant,
        call: impl FnOnce(Plugin, Mounted) -> Result<F, NotMade> + Send + 'static,
    ) -> Result<T, NotMade>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let (me, handle) = (self.clone(), self.handle_name(volume_id));
        let running =
            tokio::spawn(async move { me.call_in_turn(rpc, handle, (about, path), by, call).await });
        match timeout_at(by, running).await {
            Ok(done) => done.unwrap_or_else(|ended| Err(NotMade::Again(format!("{rpc} has ended: {ended}")))),
            Err(_) => {
                Err(NotMade::Again(format!("{rpc} is running, or waits for another call for the volume")))
            }
        }
    }

    async fn call_in_turn<T, F>(
        &self,
        rpc: Rpc,
        handle: String,
        at: (About, HostPath),
        by: Instant,
        call: impl FnOnce(Plugin, Mounted) -> Result<F, NotMade>,
    ) -> Result<T, NotMade>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let agent = &*self.agent;
        let _beside = agent.asked.beside().await;
        // Nobody waits here for whom no answer is of use any more: kubelet's next call would stand behind.
        let late = |_| NotMade::Again("another call for the volume is running".into());
        let _lane = timeout_at(by, agent.asked.lane(&handle)).await.map_err(late)?;
        let word = Word::Term(agent.renewal.term());
        let mounted = self.mounted(&handle, &at).await?;
        let due = Due { agent, rpc, driver: &self.name, key: Parked::Node(handle), word, given: None };
        let again = |error: NotDone| NotMade::Again(error.to_string());
        let _turn = timeout_at(by, due.turn()).await.map_err(late)?.map_err(again)?;
        let serving =
            agent.serving(rpc, &self.name).map_err(|failure| NotMade::Again(failure.to_string()))?;
        due.may_call().map_err(again)?;
        let process = serving.plugin.process().cloned();
        Ok(due.call(process.as_ref(), call(serving.plugin, mounted)?).await?)
    }

    /// The volume as it is published. Its Attachment is read live: a node that was lost in between has the volume mounted
    /// still, and may not touch it.
    async fn mounted(&self, handle: &str, at: &(About, HostPath)) -> Result<Mounted, NotMade> {
        let agent = &*self.agent;
        let again = |why: String| NotMade::Again(why);
        let found = agent.records.of_handle(handle).into_iter().find_map(|stored| {
            let (claim, target) = published(&stored.record, &agent.boot_id, at)?;
            Some((stored.record.clone(), claim.clone(), target.clone()))
        });
        let Some((record, claim, target)) = found else {
            return Err(again(format!("the volume is not mounted for a Pod on node {}", agent.node_name)));
        };
        let at = HostPath::recorded(&target.path);
        let seen = mounts::look(&at).await.map_err(|error| again(error.to_string()))?;
        if seen.is_none_or(|device| Some(device.text()) != target.device.as_deref()) {
            return Err(again(format!("what was published at {at} is not mounted there")));
        }
        let name = &record.attachment_name;
        let live = agent.get_live::<Attachment>(name).await.map_err(|error| again(error.to_string()))?;
        let live = live.filter(|live| AttachmentUid::of(&live.metadata) == record.attachment_uid);
        let Some(attachment) = live.filter(|live| AttachmentSeen::of(live).is_usable()) else {
            return Err(again(format!("Attachment {name} is being undone, or gone")));
        };
        Ok(Mounted { attachment, record, claim, target })
    }
}

/// What a record has published in this boot that a call is about.
fn published<'a>(
    record: &'a Record,
    boot_id: &str,
    (about, path): &(About, HostPath),
) -> Option<(&'a ClaimUid, &'a TargetRecord)> {
    if record.boot_id != boot_id {
        return None;
    }
    let is_published = |(_, target): &(&ClaimUid, &TargetRecord)| target.published == Done::Yes;
    let mut all = record.targets.iter().filter(is_published);
    let at = all.clone().find(|(_, target)| target.path == path.text());
    match about {
        About::Target => at,
        About::Volume => at.or_else(|| all.next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let target = |path: &str, published| TargetRecord {
            path: path.to_owned(),
            published,
            ..TargetRecord::default()
        };
        let all = [
            ("a", target("/a", Done::Yes)),
            ("b", target("/b", Done::Yes)),
            ("c", target("/c", Done::Maybe)),
        ];
        Record {
            boot_id: "now".to_owned(),
            targets: all.into_iter().map(|(uid, target)| (ClaimUid::from(uid), target)).collect(),
            ..Record::default()
        }
    }

    #[test]
    fn only_what_is_about_the_volume_takes_another_path() {
        let at = |about, path: &str, boot: &str| {
            published(&record(), boot, &(about, HostPath::recorded(path)))
                .map(|(_, target)| target.path.clone())
        };
        for about in [About::Target, About::Volume] {
            assert_eq!(at(about, "/b", "now").as_deref(), Some("/b"));
            assert_eq!(at(about, "/b", "before"), None);
        }
        for path in ["/c", "/gone"] {
            assert_eq!(at(About::Volume, path, "now").as_deref(), Some("/a"), "{path}");
            assert_eq!(at(About::Target, path, "now"), None, "{path}");
        }
    }

    #[test]
    fn only_the_driver_says_that_it_cannot_be() {
        let of = |code, origin| {
            let rpc = Rpc::NodeExpandVolume;
            NotMade::from(CallError { rpc, code, message: "words".to_owned(), origin }).with_code().code()
        };
        for code in [Code::FailedPrecondition, Code::OutOfRange, Code::NotFound, Code::Internal] {
            assert_eq!(of(code, Origin::Driver), code);
        }
        for origin in [Origin::Dial, Origin::Connection, Origin::Reply] {
            assert_eq!(of(Code::Internal, origin), Code::Unavailable);
        }
        assert_eq!(NotMade::Again("later".to_owned()).with_code().code(), Code::Unavailable);
    }
}
