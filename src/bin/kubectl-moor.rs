//! The kubectl plugin: `kubectl moor`. Parses, dispatches, and turns an error into one line and an exit code.

use std::{io, process::ExitCode};

use clap::Parser;
use moor::kubectl::{self, args::Cli, page::safe};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            runtime.block_on(kubectl::run(cli, &mut io::stdout().lock())).map_err(|e| e.to_string())
        }
        Err(error) => Err(format!("cannot start the runtime: {error}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The words of the API server may be those of others.
            eprintln!("kubectl moor: {}", safe(&error));
            ExitCode::FAILURE
        }
    }
}
