//! The command line of `kubectl moor`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Shows what moor does with volumes, snapshots and claims.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-moor", bin_name = "kubectl moor", version, about)]
pub struct Cli {
    /// Which cluster, and what of it.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// What to show or to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that kubectl has too.
#[derive(Clone, Debug, Default, Args)]
pub struct ReachArgs {
    /// The kubeconfig file. Without it: those of the variable KUBECONFIG, else ~/.kube/config, else the Pod's service
    /// account.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The namespace. Without it that of the context; status of everything, of a plugin and of a node shows all
    /// namespaces.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, global = true, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// The namespace in which moor runs, where the Leases of its agents are.
    #[arg(long, global = true, default_value = "moor-system")]
    pub moor_namespace: String,
}

/// What can be shown, and done.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the installation on one page: drivers, volumes, claims, what waits and why. Or one object.
    Status {
        /// What of it.
        #[command(subcommand)]
        of: Option<StatusOf>,
    },
    /// Show the Events about moor's objects, oldest first. Or those about one object and what hangs on it.
    Events {
        /// About what.
        #[command(subcommand)]
        of: Option<EventsOf>,
    },
    /// List Snapshots with what they are of and why they are as they are.
    Snapshots,
    /// Show storage that moor has had made and that no object stands for, and objects whose storage their drivers do not list any
    /// more, with what to do.
    Orphans,
    /// Show the last CSI calls about a Volume, on all nodes, as the agents remember them. Takes the right to run programs in
    /// the agents' Pods.
    Trace(TraceArgs),
    /// Check the installation: kinds, controller, agents, clocks, mounts, drivers, sockets, CSIDrivers, policies, rights. Ends with 1
    /// if there is a fault.
    Doctor,
    /// Have a deleted VolumeClaim undone by force (spec.forceDetach).
    ForceDetach {
        /// Name of the VolumeClaim.
        claim: String,
        /// Do it. Without, it is only said what would happen.
        #[arg(long)]
        yes: bool,
    },
}

/// The object of a status page.
#[derive(Clone, Debug, Subcommand)]
pub enum StatusOf {
    /// A Volume: who uses it, where and since when.
    #[command(visible_alias = "vol")]
    Volume(Named),
    /// A Snapshot: what it is of, and how far it is.
    Snapshot(Named),
    /// A VolumeClaim: what it has, or what it waits for.
    #[command(visible_aliases = ["vc", "volumeclaim"])]
    Claim(Named),
    /// A Plugin: its driver on every node.
    #[command(visible_alias = "plug")]
    Plugin(Named),
    /// A node: its drivers, and the volumes on it.
    Node(Named),
}

/// The object that Events are about.
#[derive(Clone, Debug, Subcommand)]
pub enum EventsOf {
    /// A Volume, its claims, its Attachments and its VolumeHandle.
    #[command(visible_alias = "vol")]
    Volume(Named),
    /// A Snapshot.
    Snapshot(Named),
    /// A VolumeClaim, its Pod, its Attachment and its VolumeHandle.
    #[command(visible_aliases = ["vc", "volumeclaim"])]
    Claim(Named),
    /// A Plugin and its PluginInstances.
    #[command(visible_alias = "plug")]
    Plugin(Named),
}

/// The calls that are wanted.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// A Volume: NAME, NAMESPACE/NAME or volume NAME. A Snapshot: snapshot NAME. Or handle and a driver's id of a volume, which
    /// may be gone.
    #[arg(value_name = "VOLUME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// Ask all agents, also those of nodes on which the volume is not, or not any more.
    #[arg(long)]
    pub all: bool,
    /// Show requests and answers too. Secrets, contexts, parameters and mount flags are in none of them.
    #[arg(long)]
    pub messages: bool,
}

/// Whose calls are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceOf {
    /// Those of a Volume and its Snapshots.
    Volume(String),
    /// Those of a Snapshot.
    Snapshot(String),
    /// Those of what a driver knows by this id.
    Handle(String),
}

/// The name of an object.
#[derive(Clone, Debug, Args)]
pub struct Named {
    /// Its name.
    pub name: String,
}

impl StatusOf {
    /// Whether the object has no namespace, so that those of all namespaces may hang on it.
    #[must_use]
    pub fn is_of_the_cluster(&self) -> bool {
        matches!(self, Self::Plugin(_) | Self::Node(_))
    }
}

impl TraceArgs {
    /// Whose calls are wanted; and a namespace, where it is named with the object.
    #[must_use]
    pub fn of(&self) -> Option<(TraceOf, Option<&str>)> {
        let words: Vec<&str> = self.what.iter().map(String::as_str).collect();
        let (kind, name) = match words[..] {
            [name] => ("volume", name),
            [kind, name] => (kind, name),
            _ => return None,
        };
        // A driver's id may have slashes.
        if kind == "handle" {
            return Some((TraceOf::Handle(name.to_owned()), None));
        }
        let (namespace, name) = match name.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name.to_owned()),
            None => (None, name.to_owned()),
        };
        match kind {
            "volume" | "vol" => Some((TraceOf::Volume(name), namespace)),
            "snapshot" => Some((TraceOf::Snapshot(name), namespace)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_may_stand_behind_what_is_shown() {
        let read = |line: &str| Cli::try_parse_from(line.split(' '));
        let cli = read("kubectl-moor status volume data -n shop --context c --kubeconfig /k").unwrap();
        assert_eq!((cli.reach.namespace.as_deref(), cli.reach.context.as_deref()), (Some("shop"), Some("c")));
        assert!(
            matches!(cli.command, Command::Status { of: Some(StatusOf::Volume(Named { name })) } if name == "data")
        );
        let cli = read("kubectl-moor -A snapshots").unwrap();
        assert!(cli.reach.all_namespaces && matches!(cli.command, Command::Snapshots));
        assert!(read("kubectl-moor snapshots -A -n shop").is_err());
        assert!(matches!(read("kubectl-moor status").unwrap().command, Command::Status { of: None }));
        assert!(read("kubectl-moor status pod x").is_err());
    }

    #[test]
    fn calls_are_asked_for_by_volume_by_snapshot_or_by_id() {
        let of = |words: &str| {
            let what = words.split(' ').map(str::to_owned).collect();
            let args = TraceArgs { what, all: false, messages: false };
            args.of().map(|(of, namespace)| (of, namespace.map(str::to_owned)))
        };
        let shop = || Some("shop".to_owned());
        for (words, wanted) in [
            ("data", Some((TraceOf::Volume("data".into()), None))),
            ("shop/data", Some((TraceOf::Volume("data".into()), shop()))),
            ("volume snapshot", Some((TraceOf::Volume("snapshot".into()), None))),
            ("snapshot shop/before", Some((TraceOf::Snapshot("before".into()), shop()))),
            ("handle zone/vol-1", Some((TraceOf::Handle("zone/vol-1".into()), None))),
            ("pod web", None),
        ] {
            assert_eq!(of(words), wanted, "{words}");
        }
        let read = |line: &str| Cli::try_parse_from(line.split(' '));
        let cli = read("kubectl-moor trace snapshot before -n shop --all").unwrap();
        assert!(
            matches!(cli.command, Command::Trace(TraceArgs { all: true, messages: false, what }) if what.len() == 2)
        );
        assert!(read("kubectl-moor trace").is_err());
    }
}
