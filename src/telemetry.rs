//! Logs.

use clap::ValueEnum;
use thiserror::Error;
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt,
    layer::SubscriberExt,
    util::{SubscriberInitExt, TryInitError},
};

/// Environment variable with the log filter, for example `info,moor::agent=debug`.
pub const FILTER: &str = "MOOR_LOG";
/// The filter without it. The client's own lines repeat each failure that we log with its object.
const DEFAULT_FILTER: &str = "info,kube_client=off,tower=warn,hyper=warn,h2=warn";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Why there are no logs.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The filter cannot be read.
    #[error("{FILTER} is not a log filter (for example info,moor::agent=debug): {0}")]
    Filter(#[source] ParseError),
    /// Something else in the process has set up logging.
    #[error("logging is set up already: {0}")]
    Twice(#[source] TryInitError),
}

/// Sends logs to standard error, so that the output of commands stays clean.
pub fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let asked = std::env::var(FILTER).ok().filter(|filter| !filter.trim().is_empty());
    let filter = asked.as_deref().unwrap_or(DEFAULT_FILTER);
    let filter = EnvFilter::try_new(filter).map_err(TelemetryError::Filter)?;
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => {
            registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(false)).try_init()
        }
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
        }
    }
    .map_err(TelemetryError::Twice)
}
