//! Whether anybody wants what some watches bring.

use tokio::sync::watch;

/// Whether it is wanted that certain watches run. Once it is, it stays so.
#[derive(Clone, Debug)]
pub struct Demand(watch::Sender<bool>);

impl Default for Demand {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Demand {
    /// From here on it is wanted.
    pub fn rise(&self) {
        self.0.send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }

    /// Whether it is wanted.
    #[must_use]
    pub fn is_there(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is wanted.
    pub async fn risen(&self) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|wanted| *wanted).await;
    }
}
