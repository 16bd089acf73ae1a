//! Looks at what a driver has mounted here for claims, one volume after the other.
//!
//! A look has the volume's lane only while nobody wants that: whoever stages, publishes or undoes comes at once, the question to
//! the driver is dropped, and what was seen of a volume that is being undone is not reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use crate::agent::context::Agent;
use crate::agent::host::condition::{self, Condition};
use crate::agent::host::paths::HostPath;
use crate::agent::host::usage;
use crate::agent::kubelet::asked::Spare;
use crate::api::conditions::whole_second;
use crate::api::{AccessMode, Attachment, AttachmentMode, AttachmentUid};
use crate::attachment::AttachmentSeen;
use crate::attachment::health::{self, Amount, DriverSeen, Look, MountSeen};
use crate::attachment::record::{Done, Record};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_usage::Unit;
use crate::csi::{FollowUp, Rpc, Service};

/// Longest pause between two volumes of a driver.
const PAUSE: Duration = Duration::from_secs(1);
/// For how long the kernel may still answer when somebody wants the lane: while it has not, nobody could unmount.
const GRACE: Duration = Duration::from_secs(1);
/// Targets of one volume that are looked at.
const TARGETS: usize = 64;

/// How full a volume is, in bytes and inodes, as far as that is known.
type Amounts = (Option<Amount>, Option<Amount>);

/// Looks once at each volume of a driver that is in use.
pub(super) async fn round(agent: Arc<Agent>, driver: String) {
    let mut handles = BTreeSet::new();
    agent.records.visit(&driver, |stored| {
        if is_in_use(&agent, &stored.record) {
            handles.insert(stored.record.handle_name.clone());
        }
    });
    let count = u32::try_from(handles.len()).unwrap_or(u32::MAX).max(1);
    let pause = (agent.health_interval / 2 / count).min(PAUSE);
    for handle in handles {
        if agent.is_stopping() {
            return;
        }
        // Of one that is being worked on more is known by whoever does.
        if let Some(spare) = agent.asked.spare_lane(&handle) {
            for stored in agent.records.of_handle(&handle) {
                look(&agent, &stored.record, &spare).await;
            }
        }
        sleep(pause).await;
    }
}

/// Whether looks at an Attachment go on.
pub(super) fn is_looked_at(agent: &Agent, uid: &AttachmentUid) -> bool {
    agent.records.get(uid).is_some_and(|stored| is_in_use(agent, &stored.record))
}

fn is_in_use(agent: &Agent, record: &Record) -> bool {
    let is_ours = record.boot_id == agent.boot_id && record.forgotten.is_none();
    is_ours && record.targets.values().any(|target| target.published == Done::Yes)
}

async fn look(agent: &Agent, record: &Record, spare: &Spare) {
    if !is_in_use(agent, record) {
        return;
    }
    let stands = |attachment: &Arc<Attachment>| AttachmentSeen::of(attachment).is_usable();
    let Some(attachment) = agent.caches.attachments.by_uid(&record.attachment_uid).filter(stands) else {
        return;
    };
    let (paths, may_write) = targets(agent, record);
    let Some(first) = paths.first().cloned() else { return };
    let is_device = attachment.spec.fixed.attachment_mode == AttachmentMode::BlockDevice;
    let mut seen = tokio::spawn(sight(paths, is_device));
    let (mount, by_kernel) = tokio::select! {
        seen = &mut seen => seen.unwrap_or((MountSeen::Unseen, (None, None))),
        () = spare.wanted() => {
            let _ = timeout(GRACE, &mut seen).await;
            return;
        }
    };
    let told = async {
        // Where the file system hangs the driver would hang too, and be on the mount.
        let (driver, by_driver) = if matches!(mount, MountSeen::Hangs(_)) {
            (DriverSeen::Away, (None, None))
        } else {
            ask(agent, record, &attachment, &first).await
        };
        let (bytes, inodes) = (by_driver.0.or(by_kernel.0), by_driver.1.or(by_kernel.1));
        agent.volumes_known.count(
            &record.attachment_uid,
            &attachment.spec.volume,
            (bytes, inodes),
            &agent.metrics,
        );
        let is_written = may_write && is_written(&attachment);
        report(agent, &attachment, &Look { mount: mount.clone(), driver, bytes, inodes, is_written }).await;
    };
    tokio::select! {
        () = told => {}
        () = spare.wanted() => {}
    }
}

/// Where the volume is published for claims that nobody wants undone, and whether one of them may write.
fn targets(agent: &Agent, record: &Record) -> (Vec<HostPath>, bool) {
    let claim_of = |uid: &str| {
        agent.caches.claims.by_uid(uid).filter(|claim| {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            claim.metadata.deletion_timestamp.is_none() && !agent.asked.is_released(name)
        })
    };
    let published = record.targets.iter().filter(|(_, target)| target.published == Done::Yes);
    let all = published.filter_map(|(uid, target)| Some((claim_of(uid)?, HostPath::recorded(&target.path))));
    let (claims, paths): (Vec<_>, Vec<_>) = all.take(TARGETS).unzip();
    (paths, claims.iter().any(|claim| !claim.spec.read_only))
}

/// Whether claims may be able to write, by how the volume is attached and was mounted.
fn is_written(attachment: &Attachment) -> bool {
    let spec = &attachment.spec;
    let flags = &spec.fixed.mount_options.mount_flags;
    let is_read_only = flags.iter().flat_map(|flag| flag.split(',')).any(|flag| flag == "ro");
    let reads = matches!(spec.access_mode, AccessMode::SingleNodeReader | AccessMode::MultiNodeReader);
    !(is_read_only || reads || spec.fixed.read_only)
}

/// What this machine sees: the first target that is not as it should be, else how full the volume is.
async fn sight(paths: Vec<HostPath>, is_device: bool) -> (MountSeen, Amounts) {
    let (mut mount, mut amounts) = (MountSeen::Unseen, (None, None));
    for path in paths {
        let (found, size) = if is_device {
            condition::of_device(&path).await
        } else {
            (condition::of_file_system(&path).await, None)
        };
        mount = match found {
            Condition::NotMounted => {
                return (MountSeen::NotMounted(format!("nothing is mounted at {path}")), amounts);
            }
            Condition::Stale(words) => return (MountSeen::Stale(format!("{path}: {words}")), amounts),
            Condition::Hangs => {
                let words = format!("the file system at {path} does not answer");
                return (MountSeen::Hangs(words), amounts);
            }
            Condition::Unseen(error) => {
                tracing::debug!("{error}");
                return (MountSeen::Unseen, amounts);
            }
            Condition::There { read_only, usage } => {
                // What of a device is in use nobody can tell.
                let device = size.map(|total| Amount { total, used: 0, available: 0 });
                amounts = (usage.map(|u| amount(u.bytes)).or(device), usage.map(|u| amount(u.inodes)));
                MountSeen::There { read_only }
            }
        };
    }
    (mount, amounts)
}

fn amount(usage::Amount { total, used, available }: usage::Amount) -> Amount {
    Amount { total, used, available }
}

/// What the driver says, if it says anything of volumes.
async fn ask(
    agent: &Agent,
    record: &Record,
    attachment: &Attachment,
    path: &HostPath,
) -> (DriverSeen, Amounts) {
    const RPC: Rpc = Rpc::NodeGetVolumeStats;
    let (driver, uid) = (&record.driver_name, &record.attachment_uid);
    let Ok(serving) = agent.serving(RPC, driver) else { return (DriverSeen::Away, (None, None)) };
    let capabilities = &serving.fingerprint.capabilities;
    if !capabilities.node_has("GET_VOLUME_STATS") {
        return (DriverSeen::Mute, (None, None));
    }
    if !agent.may_call_driver(driver, Service::Node) {
        return (DriverSeen::Away, (None, None));
    }
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: record.volume_handle.clone(),
        volume_path: path.text().clone(),
        staging_target_path: if record.stage { record.staging_path.clone() } else { String::new() },
    };
    let earlier_flags = attachment.spec.fixed.mount_options.mount_flags.clone();
    let call = serving.plugin.node_get_volume_stats(FollowUp { request, earlier_flags });
    let answer = match agent.call(driver, RPC, call).await {
        Ok(answer) => answer,
        Err(error) => {
            let in_a_row = agent.volumes_known.failed(uid);
            return (DriverSeen::Failed { words: error.to_string(), in_a_row }, (None, None));
        }
    };
    agent.volumes_known.answered(uid);
    let amounts = amounts(&answer.usage);
    let condition = answer.volume_condition.filter(|_| capabilities.node_has("VOLUME_CONDITION"));
    (said(condition), amounts)
}

/// What a driver says in its volume_condition.
pub(super) fn said(condition: Option<wire::VolumeCondition>) -> DriverSeen {
    match condition {
        Some(condition) if condition.abnormal => DriverSeen::Abnormal(condition.message),
        Some(_) | None => DriverSeen::Normal,
    }
}

/// The first amount of each unit. One that cannot be is not taken, and the kernel's word counts where there is one.
fn amounts(usage: &[wire::VolumeUsage]) -> Amounts {
    let of = |unit: Unit| {
        let told = usage.iter().find(|told| told.unit() == unit && told.total != 0)?;
        Amount::told(told.total, told.used, told.available)
    };
    (of(Unit::Bytes), of(Unit::Inodes))
}

/// Writes what is wrong on the Attachment, if that has changed.
async fn report(agent: &Agent, attachment: &Arc<Attachment>, look: &Look) {
    let uid = AttachmentUid::of(&attachment.metadata);
    let mut after = attachment.status.clone().unwrap_or_default();
    let reported = after.health.clone().unwrap_or_default();
    let found = health::found(look, &reported);
    let anew = agent.volumes_known.may_reword(&uid);
    let now = health::report(&found, &reported, &whole_second(Timestamp::now()), anew);
    // Of one that was never ill nothing is written: most are well, and each write costs.
    if after.health.as_deref().unwrap_or_default() == now {
        return;
    }
    tracing::info!(attachment = attachment.metadata.name, findings = ?found, "how the volume is has changed");
    after.health = Some(now);
    // As it was when the look began: who has changed it since is looked at again next time.
    match agent.writer.update_status(&agent.caches.attachments, &**attachment, &after).await {
        Ok(_) => agent.volumes_known.worded(&uid),
        Err(error) => tracing::debug!("how a volume is was not written, and is looked at again: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::capability::MountOptions;

    fn told(unit: Unit, total: i64, used: i64, available: i64) -> wire::VolumeUsage {
        wire::VolumeUsage { unit: unit.into(), total, used, available }
    }

    #[test]
    fn what_a_driver_says_counts_where_it_can_be() {
        let bytes = Some(Amount { total: 8, used: 3, available: 5 });
        let inodes = Some(Amount { total: 4, used: 4, available: 0 });
        let all = [told(Unit::Inodes, 4, 4, 0), told(Unit::Bytes, 8, 3, 5), told(Unit::Bytes, 9, 9, 9)];
        assert_eq!(amounts(&all), (bytes, inodes));
        assert_eq!(amounts(&[told(Unit::Bytes, 8, -3, 5), told(Unit::Unknown, 1, 1, 1)]), (None, None));
        assert_eq!(amounts(&[told(Unit::Bytes, 0, 3, 5)]), (None, None), "not told");
        assert_eq!(amounts(&[]), (None, None));
    }

    #[test]
    fn who_only_reads_misses_no_writes() {
        let mut attachment = Attachment::default();
        attachment.spec.access_mode = AccessMode::MultiNodeReader;
        assert!(!is_written(&attachment));
        attachment.spec.access_mode = AccessMode::SingleNodeWriter;
        assert!(is_written(&attachment));
        attachment.spec.fixed.mount_options =
            MountOptions { mount_flags: vec!["noatime,ro".into(), "rota".into()], ..MountOptions::default() }
                .into();
        assert!(!is_written(&attachment));
        attachment.spec.fixed.mount_options =
            MountOptions { mount_flags: vec!["errors=remount-ro".into()], ..MountOptions::default() }.into();
        assert!(is_written(&attachment));
        attachment.spec.fixed.read_only = true;
        assert!(!is_written(&attachment));
    }
}
