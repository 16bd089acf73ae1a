//! Who is looked at when: one round per driver at a time, so that a driver that is slow holds up nobody else.
//!
//! Rounds run beside the workers and end with the process, whatever a driver does: nothing depends on them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::sleep;

use super::{controller, node};
use crate::agent::context::Agent;

/// Rounds on this node for each of the driver's Controller service, which has to ask its storage.
const CONTROLLER_EVERY: u32 = 5;

/// What a round is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum About {
    /// What a driver has mounted on this node.
    Node(String),
    /// The volumes whose controller calls are made here.
    Controller(String),
}

/// Begins rounds for as long as the agent runs.
pub(crate) async fn run(agent: Arc<Agent>) {
    if agent.health_interval.is_zero() {
        return std::future::pending().await;
    }
    let mut rounds = Rounds::default();
    let mut count: u32 = 0;
    loop {
        sleep(spread(agent.health_interval)).await;
        rounds.settle(&agent);
        agent.volumes_known.forget(|uid| node::is_looked_at(&agent, uid), &agent.metrics);
        for driver in agent.records.drivers() {
            rounds.begin(About::Node(driver.clone()), node::round(agent.clone(), driver));
        }
        count = count.wrapping_add(1);
        if count.is_multiple_of(CONTROLLER_EVERY) {
            let drivers: BTreeSet<String> = agent
                .caches
                .instances
                .all()
                .iter()
                .map(|instance| instance.spec.driver_name.clone())
                .collect();
            for driver in drivers {
                let round = controller::round(agent.clone(), driver.clone());
                rounds.begin(About::Controller(driver), round);
            }
        }
    }
}

/// Agents begin together.
fn spread(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * rand::random::<f64>())
}

/// The rounds that run.
#[derive(Default)]
struct Rounds {
    set: JoinSet<()>,
    running: HashMap<About, Id>,
}

impl Rounds {
    /// Takes in which have ended.
    fn settle(&mut self, agent: &Agent) {
        while let Some(ended) = self.set.try_join_next_with_id() {
            let id = match ended {
                Ok((id, ())) => id,
                Err(error) => {
                    if error.is_panic() {
                        agent.metrics.panics.inc();
                    }
                    error.id()
                }
            };
            self.running.retain(|_, running| *running != id);
        }
    }

    /// Begins a round, unless the one before has not ended.
    fn begin(&mut self, about: About, round: impl Future<Output = ()> + Send + 'static) {
        if !self.running.contains_key(&about) {
            let id = self.set.spawn(round).id();
            self.running.insert(about, id);
        }
    }
}
