//! The end of the process: SIGTERM or SIGINT, once, for everybody.

use std::io;

use thiserror::Error;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// Why signals cannot be waited for.
#[derive(Debug, Error)]
#[error("cannot install a handler for {signal}: {source}")]
pub struct SignalError {
    signal: &'static str,
    source: io::Error,
}

/// Resolves when the process is to end. Cheap to clone; every clone resolves.
#[derive(Clone, Debug)]
pub struct Shutdown {
    begun: watch::Receiver<bool>,
}

/// Begins the end of the process.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Shutdown {
    /// A shutdown that its trigger begins. Dropping the trigger begins it too: a process without
    /// anybody who could end it in order should end now.
    #[must_use]
    pub fn manual() -> (Trigger, Self) {
        let (sender, begun) = watch::channel(false);
        (Trigger(sender), Self { begun })
    }

    /// A shutdown that the first SIGTERM or SIGINT begins. A second one ends the process at once, as it
    /// would without us.
    pub fn on_signals() -> Result<Self, SignalError> {
        let mut terminate =
            signal(SignalKind::terminate()).map_err(|source| SignalError { signal: "SIGTERM", source })?;
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(|source| SignalError { signal: "SIGINT", source })?;
        let (trigger, shutdown) = Self::manual();
        tokio::spawn(async move {
            let mut first = true;
            loop {
                let (name, number) = tokio::select! {
                    _ = terminate.recv() => ("SIGTERM", 15),
                    _ = interrupt.recv() => ("SIGINT", 2),
                };
                if !first {
                    std::process::exit(128 + number);
                }
                info!(signal = name, "shutting down");
                trigger.begin();
                first = false;
            }
        });
        Ok(shutdown)
    }

    /// Waits for the end to begin.
    pub async fn begun(mut self) {
        // An error means that the trigger is gone, which counts.
        let _ = self.begun.wait_for(|begun| *begun).await;
    }
}

impl Trigger {
    /// Begins the end.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_resolves_also_afterwards() {
        let (trigger, shutdown) = Shutdown::manual();
        let early = tokio::spawn(shutdown.clone().begun());
        trigger.begin();
        early.await.unwrap();
        shutdown.begun().await;
    }

    #[tokio::test]
    async fn losing_the_trigger_is_a_shutdown() {
        let (trigger, shutdown) = Shutdown::manual();
        drop(trigger);
        shutdown.begun().await;
    }
}
