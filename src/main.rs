//! Parses, dispatches, and turns an error into one line and an exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
};

use clap::Parser;
use moor::{
    agent,
    cli::{Cli, Command, crd, pre_delete, trace},
    controller,
    k8s::client,
    loop_driver,
    shutdown::{Shutdown, SignalError},
    telemetry,
};
use thiserror::Error;
use tokio::runtime::Builder;

/// Calls to drivers and to the API server wait more than they compute; more threads only cost memory.
const MOST_THREADS: usize = 4;

#[derive(Debug, Error)]
enum RunError {
    #[error(transparent)]
    Telemetry(telemetry::TelemetryError),
    #[error("cannot start threads: {0}")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Signal(SignalError),
    #[error(transparent)]
    Connect(client::ConnectError),
    #[error("controller: {0}")]
    Controller(#[source] controller::Error),
    #[error("agent: {0}")]
    Agent(#[source] agent::Error),
    #[error("loop driver: {0}")]
    LoopDriver(#[source] loop_driver::Error),
    #[error("crd: {0}")]
    Crd(#[source] crd::CrdError),
    #[error(transparent)]
    PreDelete(pre_delete::PreDeleteError),
    #[error("trace: {0}")]
    Trace(#[source] trace::TraceCommandError),
    #[error("standard output: {0}")]
    Print(#[source] io::Error),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<(), RunError> {
    if let Command::Crd(args) = &cli.command {
        return crd::run(args, &mut io::stdout().lock()).map_err(RunError::Crd);
    }
    telemetry::init(cli.log_format).map_err(RunError::Telemetry)?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?;
    runtime.block_on(dispatch(cli.command))
}

async fn dispatch(command: Command) -> Result<(), RunError> {
    let shutdown = Shutdown::on_signals().map_err(RunError::Signal)?;
    match command {
        Command::Controller(args) => {
            let client = client::connect().await.map_err(RunError::Connect)?;
            Box::pin(controller::run(client, args, shutdown)).await.map_err(RunError::Controller)
        }
        Command::Agent(args) => {
            let client = client::connect().await.map_err(RunError::Connect)?;
            agent::run(client, args, shutdown).await.map_err(RunError::Agent)
        }
        Command::LoopDriver(args) => {
            loop_driver::run(args, shutdown.begun()).await.map_err(RunError::LoopDriver)
        }
        Command::Crd(args) => crd::run(&args, &mut io::stdout().lock()).map_err(RunError::Crd),
        Command::Trace(args) => trace::run(args, &mut io::stdout().lock()).await.map_err(RunError::Trace),
        Command::PreDelete(args) => {
            let client = client::connect().await.map_err(RunError::Connect)?;
            let answer = pre_delete::run(client, &args).await.map_err(RunError::PreDelete)?;
            writeln!(io::stdout(), "{answer}").map_err(RunError::Print)
        }
    }
}
