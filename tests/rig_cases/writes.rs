//! What a Volume and a claim cost the API server in writes, each by its kind: none more than these, and no Event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cases;
use crate::rig::{Case, Cluster, Entry, Options, Rig, Write, volume, volume_claim};

/// What has a time of its own, whatever is asked for.
const BESIDE: [&str; 3] = ["leases", "plugins", "plugininstances"];
/// By then a claim that is not Ready is told what it waits for (src/api/conditions.rs), and a Volume that it is being made
/// (src/agent/volume/begin.rs), which is a write more on a slow machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes by actor and kind, which is to say what each is for.
type Writes = BTreeMap<String, usize>;

fn writes(of: &[(&str, usize)]) -> Writes {
    of.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}

/// Also an Event about such an object.
fn is_beside(write: &Write) -> bool {
    let kind = write.body.pointer("/regarding/kind").and_then(serde_json::Value::as_str);
    BESIDE.contains(&write.kind.as_str()) || kind.is_some_and(|kind| kind.starts_with("Plugin"))
}

/// When the writes were last looked at.
struct Look {
    at: usize,
    when: Instant,
}

/// The writes since the last look. One that comes later than it should is counted in the next look, where it is too much.
async fn made(rig: &Rig, last: &mut Look) -> Writes {
    let about = |entry: &Entry| entry.write().is_some_and(|write| !is_beside(write));
    let now = Look { at: rig.journal.now(), when: Instant::now() };
    let Look { at: since, when } = std::mem::replace(last, now);
    // A watch may bring what a write has done before that is answered.
    let begun = || {
        let all = rig.journal.since(since, about);
        all.into_iter().filter(|entry| entry.began <= last.at).collect::<Vec<_>>()
    };
    let have_ended = || async { begun().iter().all(|entry| entry.ended.is_some()) };
    rig.poll("the writes that are under way have ended", have_ended).await;
    let mut found = Writes::new();
    for entry in begun().iter().filter(|entry| entry.is_taken()) {
        *found.entry(format!("{} {}", entry.actor, entry.label())).or_default() += 1;
    }
    if when.elapsed() > PATIENCE {
        found.remove("controller PATCH volumeclaims/status");
        found
            .entry("node-1 PATCH volumes/status".to_owned())
            .and_modify(|count| *count -= usize::from(*count > 1));
    }
    found
}

async fn a_volume_and_a_claim_take_no_more_than_these(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true), ("node-2", false)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let mut looked = Look { at: rig.journal.now(), when: Instant::now() };
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let expected = writes(&[
        // Who is to make it; what it came to; the lock on it; that claims are granted.
        ("controller PATCH volumes", 1),
        ("node-1 PATCH volumes/status", 1),
        ("controller POST volumehandles", 1),
        ("controller PATCH volumes/status", 1),
    ]);
    assert_eq!(made(&rig, &mut looked).await, expected, "a Volume until it is Ready");

    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    let expected = writes(&[
        // The lock on the node; the grant; that it is attached; that it is mounted.
        ("controller POST attachments", 1),
        ("controller PATCH volumeclaims", 1),
        ("node-1 PATCH attachments/status", 1),
        ("node-2 PATCH volumeclaims/status", 1),
    ]);
    assert_eq!(made(&rig, &mut looked).await, expected, "a claim until it is Ready");

    rig.make_claim(&volume_claim("beside", "v", "node-2")).await;
    rig.until_ready("beside").await;
    let expected = writes(&[("controller PATCH volumeclaims", 1), ("node-2 PATCH volumeclaims/status", 1)]);
    assert_eq!(made(&rig, &mut looked).await, expected, "a claim that joins another one");

    rig.delete_claim("beside").await;
    rig.until_claim_gone("beside").await;
    let expected = writes(&[("node-2 PATCH volumeclaims/status", 1), ("controller PUT volumeclaims", 1)]);
    assert_eq!(made(&rig, &mut looked).await, expected, "a deleted claim, while another one stays");

    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    // That it is unmounted, which its node says on the claim, or on the Attachment where that is closed already; that nobody joins
    // any more; that it is detached, with which the Attachment ends; that the claim may go.
    let mut found = made(&rig, &mut looked).await;
    let said = ["volumeclaims", "attachments"].map(|on| found.remove(&format!("node-2 PATCH {on}/status")));
    assert_eq!(said.into_iter().flatten().sum::<usize>(), 1, "the last claim until it is gone");
    let expected = writes(&[
        ("controller DELETE attachments", 1),
        ("node-1 PUT attachments", 1),
        ("controller PUT volumeclaims", 1),
    ]);
    assert_eq!(found, expected, "the last claim until it is gone");

    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    let expected = writes(&[
        // That nobody is granted it any more, by which the lock may go; the order; that it is done; that both go.
        ("controller PATCH volumehandles", 1),
        ("controller PATCH volumes", 1),
        ("controller DELETE volumehandles", 1),
        ("controller PUT volumes", 1),
        ("node-1 PATCH volumes/status", 1),
    ]);
    assert_eq!(made(&rig, &mut looked).await, expected, "a Volume until it is gone");
    rig.assert_nothing_left().await;
}

/// Of a driver that has no ControllerPublishVolume nobody says that a volume is attached.
async fn a_claim_of_what_is_not_attached_takes_three(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true), ("node-2", false)];
    let rig = Rig::start(&cluster, Options { nodes, attach: false, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let mut looked = Look { at: rig.journal.now(), when: Instant::now() };
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    let expected = writes(&[
        ("controller POST attachments", 1),
        ("controller PATCH volumeclaims", 1),
        ("node-2 PATCH volumeclaims/status", 1),
    ]);
    assert_eq!(made(&rig, &mut looked).await, expected, "a claim until it is Ready");

    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    let mut found = made(&rig, &mut looked).await;
    let said = ["volumeclaims", "attachments"].map(|on| found.remove(&format!("node-2 PATCH {on}/status")));
    assert_eq!(said.into_iter().flatten().sum::<usize>(), 1, "the claim until it is gone");
    let expected = writes(&[
        ("controller DELETE attachments", 1),
        ("controller PUT attachments", 1),
        ("controller PUT volumeclaims", 1),
    ]);
    assert_eq!(found, expected, "the claim until it is gone");
    rig.remove(&[""; 0], &["v"]).await;
}

pub const CASES: &[Case] =
    cases![a_volume_and_a_claim_take_no_more_than_these, a_claim_of_what_is_not_attached_takes_three];
