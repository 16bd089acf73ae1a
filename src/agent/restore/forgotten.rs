//! Mounts that the API server does not account for (rule R7): found out, reported, and undone on order.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::agent::calls::retry::Retries;
use crate::agent::context::Agent;
use crate::agent::records::store::{Records, Stored, Unreadable};
use crate::api::PluginInstance;
use crate::api::conditions::{Desired, Reason};
use crate::api::instance::{
    FORCE_UNDO, ForgottenMount, MAX_CLAIMS, MAX_FORGOTTEN, MAX_FORGOTTEN_HANDLES, PluginInstanceStatus,
    UNDO_FORGOTTEN,
};
use crate::api::names::{agent_lease_name, instance_name};
use crate::attachment::record::Lapse;
use crate::heartbeat::Forgotten as Handles;
use crate::k8s::{ApiError, read};

/// Why a mount is reported, as it is printed.
fn reason(why: Lapse) -> &'static str {
    match why {
        Lapse::WentBack => "WentBack",
        Lapse::LockRemoved => "LockRemoved",
    }
}

/// What a driver's PluginInstance has to tell because no other object can: what is, or may be, mounted on this node
/// without an Attachment or a claim.
#[derive(Debug, Default)]
pub(crate) struct OfDriver {
    /// The mounts that the API server does not account for. A file that cannot be read may be of any driver.
    pub reported: Vec<ForgottenMount>,
    /// What waits to be undone and has no claim that could say so.
    pub untold: Vec<String>,
    /// The Plugin by which it was mounted, if anything may be that a record speaks of.
    pub plugin_name: Option<String>,
}

impl OfDriver {
    pub fn seen(records: &Records, retries: &Retries, driver: &str) -> Self {
        let mut found = Self::default();
        let mut waiting = Vec::new();
        records.visit(driver, |stored| {
            let record = &stored.record;
            if record.forgotten.is_some() {
                found.reported.push(of_record(stored));
            }
            if record.has_traces() {
                found.plugin_name = Some(record.plugin_name.clone());
                waiting.push((record.volume_handle.clone(), stored.waiting()));
            }
        });
        found.reported.sort_by(|one, other| one.attachment_uid.cmp(&other.attachment_uid));
        let unreadable = records.unreadable();
        let unreadable = unreadable.iter().filter(|u| u.driver_name == driver || u.driver_name.is_empty());
        found.reported.extend(unreadable.map(of_file));
        let words = waiting.iter().flat_map(|(handle, uids)| {
            let words = uids.iter().filter_map(|uid| retries.word(uid));
            words.map(move |word| format!("volume {handle}: {word}"))
        });
        found.untold = words.collect::<BTreeSet<String>>().into_iter().collect();
        found
    }

    /// Whether the driver's PluginInstance is needed, because only it can tell of something and take the order to
    /// undo it.
    pub fn needs_instance(&self) -> bool {
        !self.reported.is_empty() || self.plugin_name.is_some()
    }
}

/// Puts a report into a status: those for which there is no room are only named.
pub(crate) fn say(mut all: Vec<ForgottenMount>, status: &mut PluginInstanceStatus) {
    // Of what cannot be named nothing would be said.
    all.sort_by_key(|mount| !mount.handle_name.is_empty());
    let more = all.split_off(all.len().min(MAX_FORGOTTEN));
    let names = more.into_iter().map(|mount| mount.handle_name).filter(|name| !name.is_empty());
    status.forgotten_handles = names.take(MAX_FORGOTTEN_HANDLES).collect();
    status.forgotten = all;
}

fn of_record(stored: &Stored) -> ForgottenMount {
    let record = &stored.record;
    let claims = record.targets.values().map(|t| format!("{}/{}", t.namespace, t.name));
    let since = record.forgotten.and_then(|f| Timestamp::from_second(f.since).ok());
    ForgottenMount {
        handle_name: record.handle_name.clone(),
        volume_handle: record.volume_handle.clone(),
        attachment_uid: record.attachment_uid.clone(),
        claims: claims.take(MAX_CLAIMS).collect(),
        reason: record.forgotten.map(|f| reason(f.why)).unwrap_or_default().to_owned(),
        since: since.map(Time),
    }
}

fn of_file(unreadable: &Unreadable) -> ForgottenMount {
    // What does not fit is no name of ours, and must not make the whole status be refused.
    let fitting = |text: &str, most: usize| if text.len() <= most { text.to_owned() } else { String::new() };
    ForgottenMount {
        handle_name: fitting(&unreadable.handle_name, 63),
        volume_handle: fitting(&unreadable.volume_handle, 1024),
        attachment_uid: unreadable.attachment_uid.chars().take(63).collect(),
        reason: crate::api::instance::UNREADABLE.into(),
        ..ForgottenMount::default()
    }
}

/// Forgets why steps of an object failed. Returns the drivers whose PluginInstance shows it.
pub(crate) fn clear(retries: &Retries, records: &Records, uid: &str) -> BTreeSet<String> {
    if !retries.clear(uid) {
        return BTreeSet::new();
    }
    let shown = records.with_traces().into_iter().filter(|stored| stored.waiting().contains(uid));
    shown.map(|stored| stored.record.driver_name).collect()
}

/// The condition Undone, which says what waits to be undone.
pub(crate) fn undone(untold: &[String]) -> Desired {
    match untold {
        [] => Desired::new(Reason::NothingWaits, "nothing waits to be undone of which no claim tells"),
        [one] => Desired::new(Reason::UndoWaits, one),
        [first, more @ ..] => {
            Desired::new(Reason::UndoWaits, format!("{first}; and {} more wait", more.len()))
        }
    }
}

/// UIDs of the Attachments whose forgotten mounts somebody ordered to be undone.
pub(crate) fn orders(instance: &PluginInstance) -> Vec<String> {
    let mut all = dismissals(instance);
    all.extend(forced(instance));
    all
}

/// UIDs of the Attachments whose files somebody ordered to be put away. The order that does not wait is about mounts: it
/// says nothing of a file that may speak of some.
pub(crate) fn dismissals(instance: &PluginInstance) -> Vec<String> {
    named_in(instance, UNDO_FORGOTTEN)
}

/// UIDs of the Attachments whose mounts somebody ordered to be undone by force.
pub(crate) fn forced(instance: &PluginInstance) -> Vec<String> {
    named_in(instance, FORCE_UNDO)
}

fn named_in(instance: &PluginInstance, annotation: &str) -> Vec<String> {
    let text = instance.metadata.annotations.as_ref().and_then(|a| a.get(annotation));
    let uids = text.map(String::as_str).unwrap_or_default().split([',', ' ']);
    uids.filter(|uid| !uid.is_empty()).map(str::to_owned).collect()
}

impl Agent {
    /// The VolumeHandles of all that is reported, of whichever driver.
    pub fn forgotten_handles(&self) -> Handles {
        let recorded = self.records.forgotten().into_iter().map(|stored| stored.record.handle_name);
        let unreadable = self.records.unreadable().into_iter().map(|file| of_file(&file).handle_name);
        Handles::of(recorded.chain(unreadable))
    }

    /// A revision that the API server had reached for moor's kinds, as far as this node knows. Leases may have an etcd of
    /// their own, which counts for itself: a Lease is compared with a Lease only.
    pub fn known_revision(&self) -> u64 {
        self.caches.highest_revision()
    }

    /// The API server's revision now. If its history is not the one that this node knows, everything is doubted from
    /// here on and the agent ends.
    pub async fn revision(&self) -> Result<u64, ApiError> {
        let known = self.known_revision();
        let went_back = self.history.went_back(&self.leases, &agent_lease_name(&self.node_name)).await?;
        let now = read::revision(&self.api::<PluginInstance>()).await?;
        if now < known || went_back {
            tracing::error!(known, now, "the API server's history went back: etcd was restored");
            self.doubt();
            self.went_back.notify_one();
        }
        Ok(now)
    }

    /// Fails with what is missing, until everything that is mounted here was said.
    pub fn settled(&self) -> Result<(), String> {
        match self.settling.left() {
            None => return Ok(()),
            Some(0) => {}
            Some(left) => return Err(format!("{left} volumes are yet to be compared with a restored etcd")),
        }
        let drivers: BTreeSet<_> =
            self.records.forgotten().into_iter().map(|stored| stored.record.driver_name).collect();
        for driver in drivers {
            let instance = self.caches.instances.get("", &instance_name(&self.node_name, &driver));
            // Without Plugin or instance only the Lease says it, and that is what waits here.
            let (Some(_), Some(instance)) = (self.caches.plugin_of(&driver), instance) else { continue };
            let report = || OfDriver::seen(&self.records, &self.retries, &driver).reported;
            if !instance.status.as_ref().is_some_and(|status| says(status, report())) {
                return Err(format!("what a restored etcd has forgotten of {driver} is yet to be reported"));
            }
        }
        self.settling.end();
        Ok(())
    }

    /// The API server's history went back. What it does not have may be in use here. No call is started and no Lease renewed
    /// any more while that is written down, which may take as long as the disk takes.
    pub fn doubt(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.history.end();
        if let Err(error) = self.records.doubt_all() {
            // The Lease's version is kept then, so that the next process finds it out again.
            tracing::error!("{error}");
            return;
        }
        self.history.restart().unwrap_or_else(|error| tracing::error!("forget the Lease's version: {error}"));
    }
}

/// Whether a status already says this report, as it is cut and sorted for a status.
fn says(status: &PluginInstanceStatus, report: Vec<ForgottenMount>) -> bool {
    let mut said = PluginInstanceStatus::default();
    say(report, &mut said);
    (&status.forgotten, &status.forgotten_handles) == (&said.forgotten, &said.forgotten_handles)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::calls::failure::Failure;
    use crate::agent::calls::retry::Step;
    use crate::agent::records::store::tests::stored;
    use crate::api::instance::{MAX_FORGOTTEN, MAX_STAGED};
    use crate::attachment::record::{Forgotten, Imprint, Left};
    use crate::csi::Rpc;

    #[tokio::test]
    async fn records_of_the_driver_and_files_of_unknown_drivers_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("torn.json"), "{\"half\":").unwrap();
        let other = serde_json::json!({ "driverName": "other", "handleName": "h".repeat(64) });
        std::fs::write(dir.path().join("newer.json"), other.to_string()).unwrap();
        let records = Records::open(dir.path()).unwrap();
        let mut lapsed = stored("a");
        lapsed.record.forgotten = Some(Forgotten { why: Lapse::WentBack, since: 1_700_000_000 });
        records.put(lapsed).await.unwrap();
        records.put(stored("b")).await.unwrap();

        let of = |driver: &str| OfDriver::seen(&records, &Retries::default(), driver).reported;
        let reported = of("driver");
        let said: Vec<_> = reported.iter().map(|m| (m.attachment_uid.as_str(), m.reason.as_str())).collect();
        assert_eq!(said, [("a", "WentBack"), ("torn", "Unreadable")]);
        assert_eq!(reported[0].claims, ["ns/claim"]);
        assert_eq!(reported[0].handle_name, "handle");
        let reported = of("other");
        let said: Vec<_> = reported.iter().map(|m| m.attachment_uid.as_str()).collect();
        assert_eq!(said, ["newer", "torn"]);
        assert_eq!(reported[0].handle_name, "");
    }

    #[test]
    fn an_order_names_one_or_more_attachments() {
        let with = |annotation: &str, text: &str| {
            let mut instance = PluginInstance::default();
            let annotations = BTreeMap::from([(annotation.to_owned(), text.to_owned())]);
            instance.metadata.annotations = Some(annotations);
            (orders(&instance), forced(&instance))
        };
        let some = |uids: &[&str]| uids.iter().map(|&uid| uid.to_owned()).collect::<Vec<_>>();
        assert_eq!(with(UNDO_FORGOTTEN, "a"), (some(&["a"]), some(&[])));
        assert_eq!(with(UNDO_FORGOTTEN, "a, b"), (some(&["a", "b"]), some(&[])));
        assert_eq!(with(FORCE_UNDO, "a"), (some(&["a"]), some(&["a"])), "it is an order too");
        assert_eq!(with(UNDO_FORGOTTEN, ""), (some(&[]), some(&[])));
        assert!(orders(&PluginInstance::default()).is_empty());
        let annotations =
            [(UNDO_FORGOTTEN, "a"), (FORCE_UNDO, "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let mut instance = PluginInstance::default();
        instance.metadata.annotations = Some(annotations.into());
        assert_eq!(dismissals(&instance), ["a"], "nobody has looked after what is to be undone by force");
    }

    #[tokio::test]
    async fn what_no_claim_tells_of_is_told_until_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let (records, retries) = (Records::open(dir.path()).unwrap(), Retries::default());
        for uid in ["a", "b", "c"] {
            records.put(stored(uid)).await.unwrap();
        }
        let fails = |uid: &str| {
            let step = Step { uid, rpc: Rpc::NodeUnpublishVolume, generation: 0 };
            let failure =
                Failure::local(Reason::StillInUse, Rpc::NodeUnpublishVolume, format!("{uid} is in use"));
            retries.failed(&step, &failure, None, "driver");
            retries.keep_word(uid, failure.message)
        };
        let said = || undone(&OfDriver::seen(&records, &retries, "driver").untold);
        assert!(said().reason.group().status);
        assert!(fails("a") && fails("b") && !fails("a"), "what is said again is no news");
        let now = said();
        assert!(
            !now.reason.group().status && now.message.ends_with("a is in use; and 1 more wait"),
            "{}",
            now.message
        );
        assert!(undone(&OfDriver::seen(&records, &retries, "other").untold).reason.group().status);
        assert!(retries.clear("a") && !retries.clear("c"));
        assert!(said().message.ends_with("b is in use"), "{}", said().message);
        retries.clear("b");
        assert!(said().reason.group().status);
    }

    /// Also before anything has failed: the failure could not be told without it.
    #[tokio::test]
    async fn an_instance_is_needed_until_all_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let needs = |driver| OfDriver::seen(&records, &Retries::default(), driver).needs_instance();
        assert!(!needs("driver"));
        records.put(stored("a")).await.unwrap();
        assert!(needs("driver") && !needs("other"));
        let mut clean = stored("a");
        clean.record.staged = crate::attachment::record::Done::No;
        clean.record.targets.clear();
        records.put(clean).await.unwrap();
        assert!(!needs("driver"));
    }

    /// Its claim was removed by hand, and a process still has what it had.
    #[tokio::test]
    async fn what_was_unmounted_and_is_in_use_is_told_too() {
        let dir = tempfile::tempdir().unwrap();
        let (records, retries) = (Records::open(dir.path()).unwrap(), Retries::default());
        let imprint =
            Imprint { device: "7:1".into(), root: "/".into(), source: None, disk: None, raw: false };
        let mut one = stored("a");
        one.record.targets.clear();
        one.record.left.insert("removed".into(), Left { path: "/target".into(), imprint });
        records.put(one).await.unwrap();
        let step = Step { uid: "removed", rpc: Rpc::NodeUnpublishVolume, generation: 0 };
        let failure = Failure::local(Reason::StillInUse, Rpc::NodeUnpublishVolume, "is in use".into());
        retries.failed(&step, &failure, None, "driver");
        retries.keep_word("removed", failure.message);
        assert_eq!(OfDriver::seen(&records, &retries, "driver").untold, ["volume vol: is in use"]);
    }

    #[tokio::test]
    async fn a_word_that_nobody_means_any_more_is_taken_from_where_it_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let (records, retries) = (Records::open(dir.path()).unwrap(), Retries::default());
        records.put(stored("a")).await.unwrap();
        let fails = |uid: &str| {
            let failure = Failure::plugin_not_running(Rpc::NodeUnpublishVolume, "driver", "node");
            let step = Step { uid, rpc: Rpc::NodeUnpublishVolume, generation: 0 };
            retries.failed(&step, &failure, None, "driver");
        };
        fails("a");
        assert!(clear(&retries, &records, "a").is_empty(), "nothing was shown");
        for uid in ["a", "claim-uid"] {
            fails(uid);
            retries.keep_word(uid, "is in use".into());
            assert_eq!(clear(&retries, &records, uid), ["driver".to_owned()].into());
            assert_eq!(retries.word(uid), None);
        }
    }

    fn mount(handle_name: String) -> ForgottenMount {
        ForgottenMount { handle_name, ..ForgottenMount::default() }
    }

    /// A report that left one out would have to speak for every volume of the driver.
    #[test]
    fn whatever_an_agent_may_have_staged_is_named() {
        let mut status = PluginInstanceStatus::default();
        let staged = (0..MAX_STAGED).map(|n| mount(format!("volume-{n}")));
        let unknown = (0..MAX_FORGOTTEN / 2).map(|_| mount(String::new()));
        say(staged.chain(unknown).collect(), &mut status);
        let described = status.forgotten.iter().map(|m| &m.handle_name);
        let all: BTreeSet<_> = described.chain(&status.forgotten_handles).collect();
        assert!((0..MAX_STAGED).all(|n| all.contains(&format!("volume-{n}"))));
        assert!(
            status.forgotten.len() == MAX_FORGOTTEN
                && status.forgotten_handles.len() <= MAX_FORGOTTEN_HANDLES
        );

        say(vec![mount("one".into())], &mut status);
        assert!(status.forgotten.len() == 1 && status.forgotten_handles.is_empty());
    }

    /// Else the Lease is never renewed again, and nothing on the node is made or undone.
    #[test]
    fn what_a_status_has_room_for_counts_as_said() {
        let mount =
            |name: usize| ForgottenMount { handle_name: format!("h{name}"), ..ForgottenMount::default() };
        let nameless = ForgottenMount { reason: "Unreadable".into(), ..ForgottenMount::default() };
        for report in [vec![mount(1), nameless], (0..=MAX_FORGOTTEN).map(mount).collect()] {
            let mut status = PluginInstanceStatus::default();
            assert!(!says(&status, report.clone()));
            say(report.clone(), &mut status);
            assert!(says(&status, report));
        }
    }
}
