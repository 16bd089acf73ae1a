//! The command line.

pub mod crd;
pub mod pre_delete;
pub mod trace;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, builder::BoolishValueParser};

use self::trace::TraceArgs;
use crate::{
    agent::AgentArgs, controller::ControllerArgs, loop_driver::LoopDriverArgs, telemetry::LogFormat,
};

/// moor: a CSI orchestrator for Kubernetes.
#[derive(Clone, Debug, Parser)]
#[command(name = "moor", version, about)]
pub struct Cli {
    /// How log lines look. What is logged is up to the environment variable MOOR_LOG, for example
    /// info,moor::agent=debug.
    #[arg(long, env = "MOOR_LOG_FORMAT", value_enum, default_value_t, global = true)]
    pub log_format: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What one binary can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Decide, for the whole cluster. Of several, one leads and the others wait.
    Controller(ControllerArgs),
    /// Act on one node: call its CSI drivers.
    Agent(AgentArgs),
    /// Serve the loop driver: CSI volumes made of sparse files and loop devices.
    LoopDriver(LoopDriverArgs),
    /// Print the CustomResourceDefinitions.
    Crd(CrdArgs),
    /// Refuse to uninstall while volumes are mounted. The chart runs it before its objects are deleted.
    PreDelete(PreDeleteArgs),
    /// Print the last CSI calls of the agent on this node, about a volume or all. Run it where the agent runs:
    /// kubectl exec -n moor-system moor-agent-xxxxx -- moor trace VOLUME-ID. `kubectl moor trace` does that on all nodes.
    Trace(TraceArgs),
}

/// Flags of `moor crd`.
#[derive(Clone, Debug, Args)]
pub struct CrdArgs {
    /// Write one file per kind, named after its plural, into this directory instead.
    #[arg(long, env = "MOOR_CRD_DIR")]
    pub output_dir: Option<PathBuf>,
}

/// Flags of `moor pre-delete`.
#[derive(Clone, Debug, Args)]
pub struct PreDeleteArgs {
    /// Agree to uninstall although volumes are mounted: they stay mounted, and a later installation
    /// takes them over.
    #[arg(long, env = "MOOR_KEEP_MOUNTS", value_parser = BoolishValueParser::new())]
    pub keep_mounts: bool,
    /// The controller's namespace.
    #[arg(long, env = "POD_NAMESPACE", default_value = "moor-system")]
    pub namespace: String,
}

#[cfg(test)]
mod tests {
    use clap::{Command as ClapCommand, CommandFactory};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_description_and_an_environment_variable() {
        fn check(command: &ClapCommand) {
            for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
                let name = format!("{} --{}", command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{name} has no description");
                assert!(
                    argument.get_env().is_some() || argument.get_id() == "version",
                    "{name} has no variable"
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn commands_are_named_as_documented() {
        let names: Vec<_> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
        assert_eq!(names, ["controller", "agent", "loop-driver", "crd", "pre-delete", "trace"]);
    }
}
