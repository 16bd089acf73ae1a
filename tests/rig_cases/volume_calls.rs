//! Who may still make a Volume's own calls, and what their answers prove.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::FINALIZER;
use moor::api::volume::DeletionPolicy;
use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use crate::cases;
use crate::rig::{
    Case, Cluster, Entry, Fault, Journal, LOOK, Options, PATIENCE, Point, Rig, Side, registered, volume,
};

const NODES: [&str; 2] = ["node-1", "node-2"];

/// Both agents may make controller calls.
async fn start(cluster: &Arc<Cluster>, longest_call: u64) -> Arc<Rig> {
    let nodes = NODES.map(|node| (node, true)).to_vec();
    Rig::start(cluster, Options { nodes, longest_call, ..Options::default() }).await
}

impl Rig {
    /// The agent to which a Volume's calls are assigned now.
    async fn caller_of(&self, volume: &str) -> Option<String> {
        let found = self.volume_api().get_opt(volume).await.unwrap()?;
        Some(found.spec.assignment?.controller?.agent.clone())
    }

    /// Waits until a Volume's calls are assigned to an agent, `not` excepted.
    async fn until_assigned(&self, volume: &str, not: &str) -> String {
        let look = async {
            loop {
                if let Some(agent) = self.caller_of(volume).await.filter(|agent| agent != not) {
                    return agent;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{}", self.story(volume)))
    }

    /// An agent stops, its Lease expires, and when it goes on it has seen no Volume change meanwhile.
    ///
    /// It stops between two attempts at the Volume, of which it makes some that fail: it has written the failure and has
    /// not heard of that. The Lease of a rig ends much sooner than the agent knows, so one that was stopped in the middle
    /// of an attempt would go on rightly with what it had just read.
    async fn cut_off(&self, agent: &str, volume: &str) {
        self.stall(agent, "volumes");
        let point = Point { actor: agent.to_owned(), label: "PATCH volumes/status".to_owned(), ordinal: 0 };
        let hit = self.gate.arm(point, Side::After);
        let hit = tokio::time::timeout(PATIENCE, hit).await;
        hit.unwrap_or_else(|_| panic!("{agent} has failed again: {}", self.story(volume))).unwrap();
        self.freeze(agent);
        self.expire_lease(agent).await;
    }

    /// The end of [`Self::cut_off`]: the agent goes on with what it knows. Returns when it has done about the Volume what
    /// it had to do, a call or a look.
    async fn bring_back(&self, agent: &str, volume: &str) -> usize {
        let since = self.journal.now();
        self.thaw(agent);
        self.gate.release();
        let tried = || {
            let called = !self.calls_by(agent, since, volume).is_empty();
            (called || self.journal.has_read(since, agent, "volumes", volume)).then_some(())
        };
        self.cluster.until(&format!("{agent} turns to {volume}"), tried, || self.story(volume)).await;
        // What it sees from here on explains everything to it.
        self.unstall(agent, "volumes");
        since
    }

    /// The calls about a volume that this agent's driver got.
    fn calls_by(&self, agent: &str, since: usize, key: &str) -> Vec<Entry> {
        self.journal.since(since, |e| e.actor == agent && e.call().is_some_and(|call| call.key == key))
    }

    async fn set_deletion_policy(&self, volume: &str, policy: &str) {
        let patch = Patch::Merge(json!({"spec": {"deletionPolicy": policy}}));
        self.volume_api().patch(volume, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The status of a Volume as the API server has it; nothing of one that is gone.
    async fn read_status(&self, volume: &str) -> Option<Value> {
        let found = self.volume_api().get_opt(volume).await.unwrap()?;
        Some(serde_json::to_value(found.status).unwrap())
    }

    /// Waits until the status of a Volume is as `wanted`; also until the Volume is gone, which is not what was wanted.
    async fn until_status(&self, volume: &str, wanted: impl Fn(&Value) -> bool) {
        let look = async {
            while !wanted(&self.read_status(volume).await.expect("the Volume is there")) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{}", self.story(volume)));
    }
}

/// The code of the last failure.
fn failed_with(status: &Value, code: &str) -> bool {
    status.pointer("/lastError/code").and_then(Value::as_str) == Some(code)
}

/// An agent comes back whose DeleteVolume was given to another one meanwhile. Since then the owner has kept the storage
/// and registered it again.
async fn an_order_to_delete_is_not_carried_out_from_memory(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.fail("v", Rpc::DeleteVolume, Fault::CodeBefore(Code::Unavailable));
    let old = rig.until_assigned("v", "").await;
    rig.delete_volume("v").await;
    rig.until_volume_says("v", "DeleteVolumeFailed", &["strike"]).await;
    rig.cut_off(&old, "v").await;
    rig.until_assigned("v", &old).await;
    rig.set_deletion_policy("v", "Retain").await;
    rig.until_volume_gone("v").await;
    rig.fake.heal("v", Rpc::DeleteVolume);
    rig.make_volume(&registered("again", "vol-v")).await;
    rig.until_volume_ready("again").await;

    let since = rig.bring_back(&old, "v").await;
    rig.remove(&[""; 0], &["again"]).await;
    let calls = rig.calls_by(&old, since, "v");
    assert!(calls.iter().all(|e| e.label() != "DeleteVolume"), "{}", Journal::text(&calls));
    assert!(rig.has_storage("v"), "the storage of a Ready Volume was deleted");
    rig.leaves(&["vol-v"], "Retain, and what was registered since is left");
}

/// While DeleteVolume fails, someone takes the lock away, which nothing holds any more: it is made again, and closed, before the
/// driver is called.
async fn a_lock_that_is_taken_away_while_the_storage_goes_is_made_again(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let held = rig.handle_of("v").await.unwrap();
    assert_eq!(held.metadata.finalizers, Some(vec![FINALIZER.to_owned()]), "while it is open");
    rig.fake.fail("v", Rpc::DeleteVolume, Fault::CodeBefore(Code::Unavailable));
    rig.delete_volume("v").await;
    rig.until_volume_says("v", "DeleteVolumeFailed", &["strike"]).await;
    let closed = rig.handle_of("v").await.unwrap();
    assert!(closed.spec.closing && closed.metadata.finalizers.is_none(), "{closed:?}");
    assert_eq!(closed.spec.closed_for, Some(DeletionPolicy::Delete));

    // Break-glass.
    let since = rig.journal.now();
    rig.handle_api().delete(&closed.name_any(), &DeleteParams::default()).await.unwrap();
    let is_made =
        |entry: &Entry| entry.write().is_some_and(|w| w.verb == "POST" && w.kind == "volumehandles");
    let again = || (!rig.journal.since(since, is_made).is_empty()).then_some(());
    rig.cluster.until("the lock is made again", again, || rig.story("v")).await;
    rig.fake.heal("v", Rpc::DeleteVolume);
    rig.until_volume_gone("v").await;
    assert!(!rig.has_storage("v"));
    rig.assert_nothing_left().await;
}

/// The same of CreateVolume: the Volume was made by the other agent and has come to its end.
async fn what_came_to_its_end_is_not_made_again_from_memory(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeBefore(Code::Unavailable));
    rig.make_volume(&volume("v")).await;
    rig.until_volume_says("v", "CreateVolumeFailed", &["strike"]).await;
    let old = rig.until_assigned("v", "").await;
    rig.cut_off(&old, "v").await;
    rig.until_assigned("v", &old).await;
    rig.fake.heal("v", Rpc::CreateVolume);
    rig.until_volume_ready("v").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    assert!(!rig.has_storage("v"));

    let since = rig.bring_back(&old, "v").await;
    // It works again, and not on that.
    rig.make_volume(&volume("later")).await;
    rig.until_volume_ready("later").await;
    rig.remove(&[""; 0], &["later"]).await;
    let calls = rig.calls_by(&old, since, "v");
    assert!(calls.is_empty(), "{}", Journal::text(&calls));
    assert!(!rig.has_storage("v"), "a volume was made that nobody knows of");
}

/// The storage says that it is full to a call that may have been made before.
async fn a_full_storage_does_not_say_that_nothing_was_made_earlier(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeAfter(Code::Unavailable));
    rig.make_volume(&volume("v")).await;
    rig.until_volume_says("v", "CreateVolumeFailed", &["strike"]).await;
    assert!(rig.has_storage("v"));
    rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeBefore(Code::ResourceExhausted));
    rig.delete_volume("v").await;
    rig.until_status("v", |status| failed_with(status, "ResourceExhausted")).await;
    rig.fake.heal("v", Rpc::CreateVolume);
    rig.until_volume_gone("v").await;
    assert!(!rig.has_storage("v"), "a volume was made and forgotten");
    rig.assert_nothing_left().await;
}

impl Rig {
    /// Has a volume made by a call of which nobody hears, for its agent is killed. Returns whose it was.
    async fn crash_in_creation(&self, volume: &str) -> String {
        self.fake.fail(volume, Rpc::CreateVolume, Fault::HangAfter);
        self.make_volume(&crate::rig::volume(volume)).await;
        let made = || self.has_storage(volume).then_some(());
        self.cluster.until("the volume is made", made, || self.story(volume)).await;
        let agent = self.until_assigned(volume, "").await;
        self.kill(&agent);
        agent
    }
}

/// The same across a crash of the agent: nothing was written since the call began. A driver may as well say that there is
/// a volume of that name, or look at who asks before it looks for one.
async fn a_crashed_call_is_not_forgotten(cluster: Arc<Cluster>) {
    for code in [Code::ResourceExhausted, Code::AlreadyExists, Code::Unauthenticated] {
        let rig = start(&cluster, 5).await;
        let agent = rig.crash_in_creation("v").await;
        rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeBefore(code));
        rig.delete_volume("v").await;
        rig.run(&agent);
        rig.until_status("v", |status| failed_with(status, &format!("{code:?}"))).await;
        rig.fake.heal("v", Rpc::CreateVolume);
        // The next attempt may be minutes away; another process makes it at once.
        rig.restart(&agent);
        rig.until_volume_gone("v").await;
        assert!(!rig.has_storage("v"), "a volume was made and forgotten");
        rig.assert_nothing_left().await;
        rig.end().await;
        cluster.wipe().await;
    }
}

/// The same where another agent makes the call next: that the first one has made it only the driver knows.
async fn a_crashed_call_is_not_forgotten_by_who_makes_it_next(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    let first = rig.crash_in_creation("v").await;
    rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeBefore(Code::ResourceExhausted));
    rig.expire_lease(&first).await;
    rig.until_assigned("v", &first).await;
    rig.delete_volume("v").await;
    rig.until_status("v", |status| failed_with(status, "ResourceExhausted")).await;
    rig.fake.heal("v", Rpc::CreateVolume);
    rig.until_volume_gone("v").await;
    assert!(!rig.has_storage("v"), "a volume was made and forgotten");
    rig.assert_nothing_left().await;
}

/// A driver that takes its time is heard of before it answers.
async fn a_volume_says_that_it_is_being_made(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 60).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    rig.until_volume_says("v", "Creating", &["CreateVolume is called on node node-"]).await;
    assert_eq!(rig.read_status("v").await.unwrap()["mayExist"], true);
    rig.fake.let_go("v", Rpc::CreateVolume);
    rig.until_volume_ready("v").await;
    assert_eq!(rig.count("v", Rpc::CreateVolume), 1);
    assert_eq!(rig.read_status("v").await.unwrap().get("mayExist"), None);
}

/// A clear answer to the first call says that there is nothing to delete.
async fn a_volume_for_which_there_was_no_room_goes_at_once(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeBefore(Code::ResourceExhausted));
    rig.make_volume(&volume("v")).await;
    rig.until_volume_says("v", "CreateVolumeFailed", &["strike"]).await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

/// A Volume is deleted while its first CreateVolume is on its way, and the driver's answer is that nothing was made. That
/// is as true as it would be of a Volume that is wanted, and without it the call would be repeated for ever.
async fn that_nothing_was_made_counts_also_when_the_volume_was_deleted_meanwhile(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.fake.fail("v", Rpc::CreateVolume, Fault::CodeBefore(Code::ResourceExhausted));
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    let called = || rig.journal.trace_of("v").contains(&"CreateVolume").then_some(());
    rig.cluster.until("CreateVolume is called", called, || rig.story("v")).await;
    rig.delete_volume("v").await;
    rig.fake.let_go("v", Rpc::CreateVolume);
    rig.until_volume_gone("v").await;
    rig.fake.heal("v", Rpc::CreateVolume);
    assert!(!rig.has_storage("v"));
}

/// Somebody writes a word on a Volume while the driver makes it. That has nothing to do with the answer, which counts.
async fn an_answer_counts_though_the_volume_was_written_meanwhile(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 5).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    let called = || rig.journal.trace_of("v").contains(&"CreateVolume").then_some(());
    rig.cluster.until("CreateVolume is called", called, || rig.story("v")).await;
    let word = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/word": "here" } } }));
    rig.volume_api().patch("v", &PatchParams::default(), &word).await.unwrap();
    rig.fake.let_go("v", Rpc::CreateVolume);
    rig.until_volume_ready("v").await;
    assert_eq!(rig.count("v", Rpc::CreateVolume), 1);
}

/// The agent is rolled or killed while the driver is at DeleteVolume, and then the owner wants the storage to stay. Whoever registered
/// it now would have it deleted.
async fn a_volume_is_not_given_up_while_a_call_of_the_agent_before_may_run(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true)];
    // It does not wait for a call for as long as that may take.
    let options =
        Options { nodes, longest_call: 15, termination_grace: 3, supervised: false, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    for (name, killed) in [("rolled", false), ("killed", true)] {
        rig.make_volume(&volume(name)).await;
        rig.until_volume_ready(name).await;
        rig.fake.hold(name, Rpc::DeleteVolume);
        rig.delete_volume(name).await;
        let called = || rig.journal.trace_of(name).contains(&"DeleteVolume").then_some(());
        rig.cluster.until("DeleteVolume is called", called, || rig.story(name)).await;
        if killed {
            rig.kill("node-1");
        } else {
            rig.stop("node-1").await;
        }
        rig.set_deletion_policy(name, "Retain").await;
        rig.run("node-1");
        rig.until_volume_says(name, "Retained", &["the driver may be at it yet"]).await;
        let status = rig.read_status(name).await.expect("the Volume is there");
        assert_ne!(status["state"], "Deleted", "{}", rig.story(name));
        rig.until_volume_gone(name).await;
    }
    rig.leaves(&["vol-rolled", "vol-killed"], "Retain, and the calls were broken off");
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    an_order_to_delete_is_not_carried_out_from_memory,
    a_lock_that_is_taken_away_while_the_storage_goes_is_made_again,
    what_came_to_its_end_is_not_made_again_from_memory,
    a_full_storage_does_not_say_that_nothing_was_made_earlier,
    a_crashed_call_is_not_forgotten,
    a_crashed_call_is_not_forgotten_by_who_makes_it_next,
    a_volume_says_that_it_is_being_made,
    a_volume_for_which_there_was_no_room_goes_at_once,
    that_nothing_was_made_counts_also_when_the_volume_was_deleted_meanwhile,
    an_answer_counts_though_the_volume_was_written_meanwhile,
    a_volume_is_not_given_up_while_a_call_of_the_agent_before_may_run,
];
