//! `moor trace`: the last CSI calls of the agent on this node.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thiserror::Error;

use crate::agent::{TraceError, read_trace};
use crate::trace::{Told, of, printed};

/// Flags of `moor trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The driver's id of a volume or of a snapshot, or the name by which one was to be made. Several: all their calls.
    /// None: every call that is kept.
    #[arg(env = "MOOR_TRACE_OF")]
    pub ids: Vec<String>,
    /// Only calls of this driver.
    #[arg(long, env = "MOOR_TRACE_DRIVER")]
    pub driver: Option<String>,
    /// How the calls are printed.
    #[arg(short, long, env = "MOOR_TRACE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
    /// The state directory of the agent.
    #[arg(long, env = "MOOR_STATE_DIR", default_value = "/var/lib/moor")]
    pub state_dir: PathBuf,
}

/// How calls are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people.
    #[default]
    Text,
    /// One object of JSON.
    Json,
}

/// Why no call was printed.
#[derive(Debug, Error)]
pub enum TraceCommandError {
    /// The agent gave nothing out.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// The calls have no JSON form, which is a bug.
    #[error("the calls cannot be printed: {0}")]
    Json(#[source] serde_json::Error),
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Print(#[source] io::Error),
}

/// Reads the agent's calls and prints those that are asked for.
pub async fn run(args: TraceArgs, out: &mut impl Write) -> Result<(), TraceCommandError> {
    let Told { node, since, calls } = read_trace(&args.state_dir).await?;
    let calls = of(calls, args.driver.as_deref(), &args.ids);
    let text = match args.output {
        Output::Json => {
            let told = Told { node, since, calls };
            serde_json::to_string(&told).map_err(TraceCommandError::Json)? + "\n"
        }
        Output::Text => {
            let none = format!("No call is kept; this agent knows of none before {}\n", since.0);
            if calls.is_empty() { none } else { printed(&calls) }
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(TraceCommandError::Print),
    }
}
