//! An agent that is told to end while a call runs: the next one makes none beside it.

use std::sync::Arc;

use moor::csi::Rpc;

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

/// Has the controller calls made.
const CALLER: &str = "node-1";
/// Has the claims.
const USER: &str = "node-2";

/// A call goes on in the driver when its caller has ended, as in a DaemonSet that is rolled. The next agent has other things done
/// meanwhile, and makes the call again when none can be running any more.
async fn a_call_that_an_agent_leaves_running_is_not_made_beside(cluster: Arc<Cluster>) {
    let options = Options { longest_call: 20, termination_grace: 3, supervised: false, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    for (actor, rpc) in [(USER, Rpc::NodeStageVolume), (CALLER, Rpc::ControllerPublishVolume)] {
        let (slow, other) = (format!("slow-{actor}"), format!("other-{actor}"));
        for key in [&slow, &other] {
            rig.make_volume(&volume(key)).await;
            rig.until_volume_ready(key).await;
        }
        rig.fake.hold(&slow, rpc);
        rig.make_claim(&volume_claim(&slow, &slow, USER)).await;
        rig.until_called(&slow, rpc).await;
        rig.stop(actor).await;
        let since = rig.journal.now();
        rig.run(actor);
        rig.make_claim(&volume_claim(&other, &other, USER)).await;
        rig.until_ready(&other).await;
        if actor == USER {
            rig.until_says(&slow, "Queued", &["none is made beside it", "20 s have passed"]).await;
        }
        let again = rig
            .journal
            .since(since, |entry| entry.call().is_some_and(|call| call.rpc == rpc && call.key == slow));
        assert!(again.is_empty(), "{}", rig.story(&slow));
        rig.fake.let_go(&slow, rpc);
        rig.until_ready(&slow).await;
        rig.remove(&[slow.clone(), other.clone()], &[slow, other]).await;
    }
    rig.fake.assert_obeyed();
}

/// The cases of this module.
pub const CASES: &[Case] = cases![a_call_that_an_agent_leaves_running_is_not_made_beside];
