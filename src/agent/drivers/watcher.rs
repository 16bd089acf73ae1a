//! Watches one plugin process: connects, reads its fingerprint, probes it, connects again. For ever; nothing that a
//! driver does ends the agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::endpoint::{Health, Seen, Serving};
use super::fingerprint::Fingerprint;
use crate::csi::{CallError, Deadlines, Dial, Ended};
use crate::k8s::backoff::Backoff;
use crate::trace::Trace;

/// Time between probes of a process that is not healthy yet.
const STARTING: Duration = Duration::from_secs(5);
/// Time between probes of a healthy one.
const HEALTHY: Duration = Duration::from_secs(30);
/// Time between attempts to connect.
const CONNECT: Backoff = Backoff { first: Duration::from_millis(250), max: Duration::from_secs(10) };

/// Shortest life of a connection after which the next one is made at once.
const SHORT: Duration = Duration::from_secs(1);

/// Watches the process behind one socket file.
pub(crate) struct Watcher {
    pub path: PathBuf,
    pub deadlines: Deadlines,
    /// Where the process's calls are kept for people.
    pub trace: Arc<Trace>,
    /// Told when a call found the connection broken.
    pub poke: Arc<Notify>,
    /// How long a process of a driver may take to become healthy.
    pub health_timeout: Box<dyn Fn(&str) -> Duration + Send + Sync>,
    /// Where everything that is seen is reported.
    pub report: Box<dyn Fn(Seen, Health) + Send + Sync>,
}

impl Watcher {
    /// Watches until the registry aborts it.
    pub async fn watch(self) {
        let socket = self.path.display();
        let (mut failures, mut short) = (0, 0);
        let mut dial = Dial::of(&self.path).traced(self.trace.clone());
        let mut run: Option<(String, Instant)> = None;
        loop {
            match self.connect(&mut dial).await {
                Ok((serving, ended, answer)) => {
                    failures = 0;
                    let driver = serving.fingerprint.driver.clone();
                    // Its time runs from the first connection to a process on. Of one that is not known each is the first.
                    let name = serving.plugin.process().and_then(|process| process.name());
                    let before = run.take().filter(|(before, _)| Some(before) == name.as_ref());
                    let started = before.map_or_else(Instant::now, |(_, started)| started);
                    run = name.map(|name| (name, started));
                    let health = self.judge(answer, &driver, &Health::default(), started);
                    tracing::info!(%socket, driver, healthy = health.healthy, "plugin connected");
                    (self.report)(Seen::Serving(serving.clone()), health.clone());
                    let began = Instant::now();
                    self.attend(serving, ended, health, started).await;
                    tracing::info!(%socket, driver, "plugin connection lost");
                    // A server that keeps no connection open is asked like one that cannot be.
                    short = if began.elapsed() < SHORT { short + 1 } else { 0 };
                    if short > 1 {
                        sleep(CONNECT.delay(short)).await;
                    }
                }
                Err((seen, health)) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(%socket, error = health.error, "plugin cannot be asked");
                    }
                    (self.report)(seen, health);
                    sleep(CONNECT.delay(failures)).await;
                }
            }
        }
    }

    /// Connects, and asks who that is and how it does.
    async fn connect(
        &self,
        dial: &mut Dial,
    ) -> Result<(Serving, Ended, Result<bool, CallError>), (Seen, Health)> {
        let (plugin, ended) = dial.connect(self.deadlines.clone()).await.map_err(|error| {
            (Seen::Nothing, Health { healthy: false, gone: error.gone, error: Some(error.to_string()) })
        })?;
        let failed = |error: &CallError| Health { error: Some(error.to_string()), ..Health::default() };
        let info = plugin.get_plugin_info().await.map_err(|error| (Seen::Nothing, failed(&error)))?;
        let driver = info.name.clone();
        let fingerprint = Fingerprint::read(&plugin, info).await;
        let fingerprint = fingerprint.map_err(|error| (Seen::Name(driver), failed(&error)))?;
        let answer = plugin.probe().await;
        Ok((Serving { plugin, fingerprint: Arc::new(fingerprint) }, ended, answer))
    }

    /// How a process does that was `health` before, and has answered Probe so. Since it has `started` it has its time.
    fn judge(
        &self,
        answer: Result<bool, CallError>,
        driver: &str,
        health: &Health,
        started: Instant,
    ) -> Health {
        if matches!(answer, Ok(true)) {
            return Health { healthy: true, ..Health::default() };
        }
        let timeout = (self.health_timeout)(driver);
        let patient = !health.healthy && health.error.is_none() && started.elapsed() < timeout;
        // Without a time that passes: a text that changed with each probe would be a write with each probe.
        let error = match answer {
            _ if patient => None,
            Err(error) => Some(error.to_string()),
            Ok(_) => Some(format!("Probe: not ready, for longer than {} s", timeout.as_secs())),
        };
        Health { healthy: false, gone: false, error }
    }

    /// Probes a connected process until its connection is lost.
    async fn attend(&self, serving: Serving, mut ended: Ended, mut health: Health, started: Instant) {
        let driver = &serving.fingerprint.driver;
        loop {
            tokio::select! {
                () = sleep(if health.healthy { HEALTHY } else { STARTING }) => {}
                () = self.poke.notified() => {}
                () = &mut ended => return,
            }
            let next = match serving.plugin.probe().await {
                // Another process, or none: what this one said about itself no longer counts.
                Err(error) if error.is_transport() => return,
                answer => self.judge(answer, driver, &health, started),
            };
            if next.healthy != health.healthy {
                tracing::info!(driver, healthy = next.healthy, error = next.error, "plugin health changed");
            }
            health = next;
            (self.report)(Seen::Serving(serving.clone()), health.clone());
        }
    }
}
