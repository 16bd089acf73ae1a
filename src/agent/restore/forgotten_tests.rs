//! What is reported of forgotten mounts, and what annotations order.

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
    let annotations = [(UNDO_FORGOTTEN, "a"), (FORCE_UNDO, "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
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
    let imprint = Imprint { device: "7:1".into(), root: "/".into(), source: None, disk: None, raw: false };
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
        let failure = Failure::plugin_not_running(
            Rpc::NodeUnpublishVolume,
            DriverOn { driver: "driver", node: "node" },
        );
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
        status.forgotten.len() == MAX_FORGOTTEN && status.forgotten_handles.len() <= MAX_FORGOTTEN_HANDLES
    );

    say(vec![mount("one".into())], &mut status);
    assert!(status.forgotten.len() == 1 && status.forgotten_handles.is_empty());
}

/// Else the Lease is never renewed again, and nothing on the node is made or undone.
#[test]
fn what_a_status_has_room_for_counts_as_said() {
    let mount = |name: usize| ForgottenMount { handle_name: format!("h{name}"), ..ForgottenMount::default() };
    let nameless = ForgottenMount { reason: "Unreadable".into(), ..ForgottenMount::default() };
    for report in [vec![mount(1), nameless], (0..=MAX_FORGOTTEN).map(mount).collect()] {
        let mut status = PluginInstanceStatus::default();
        assert!(!says(&status, report.clone()));
        say(report.clone(), &mut status);
        assert!(says(&status, report));
    }
}
