//! What runs of a Plugin's own workloads, in words for its Deployed condition. Pure.

use std::collections::BTreeSet;

use crate::api::Plugin;
use crate::api::conditions::{Desired, Reason};
use crate::api::workload::{CONTROLLER, NODE, PLUGIN};

/// What there is of a Plugin's workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Of `spec.controller`.
    pub controller: RunsOf,
    /// Of `spec.node`.
    pub node: RunsOf,
    /// Nodes on which Pods of either are and no agent is heard.
    pub unheard: BTreeSet<String>,
}

/// What there is of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunsOf {
    /// It is not there.
    #[default]
    Nothing,
    /// It is there.
    Pods {
        /// How many Pods there are to be.
        wanted: i32,
        /// How many are available.
        available: i32,
        /// Whether all are made of the present template.
        is_rolled_out: bool,
    },
    /// It is not written, in words.
    Refused(String),
    /// It is not made yet, in words.
    Waits(String),
}

impl RunsOf {
    /// How many Pods there are to be, if that is known.
    #[must_use]
    pub fn wanted(&self) -> Option<i64> {
        match self {
            Self::Pods { wanted, .. } => Some(i64::from(*wanted)),
            Self::Nothing | Self::Refused(_) | Self::Waits(_) => None,
        }
    }
}

impl Runs {
    /// Whether nothing of a Plugin's workloads is there.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        [&self.controller, &self.node].iter().all(|runs| **runs == RunsOf::Nothing)
    }

    /// Whether one of them is not written as it should be.
    #[must_use]
    pub fn are_unwritten(&self) -> bool {
        let is_unwritten = |runs: &&RunsOf| matches!(runs, RunsOf::Refused(_) | RunsOf::Waits(_));
        [&self.controller, &self.node].iter().any(is_unwritten)
    }

    /// What the Deployed condition should say; None for a Plugin that declares no Pods.
    #[must_use]
    pub fn deployed(&self, plugin: &Plugin, namespace: &str) -> Option<Desired> {
        let declared = [(CONTROLLER, plugin.spec.controller.is_some()), (NODE, plugin.spec.node.is_some())];
        let all = [&self.controller, &self.node];
        let all: Vec<_> =
            declared.into_iter().zip(all).filter(|((_, is_declared), _)| *is_declared).collect();
        if all.is_empty() {
            return None;
        }
        let refused = all.iter().filter_map(|(_, runs)| match runs {
            RunsOf::Refused(words) => Some(words.as_str()),
            RunsOf::Nothing | RunsOf::Pods { .. } | RunsOf::Waits(_) => None,
        });
        let refused: Vec<&str> = refused.collect();
        if !refused.is_empty() {
            return Some(Desired::new(Reason::TemplateRefused, refused.join(". ")));
        }
        let counts: Vec<String> = all
            .iter()
            .map(|((service, _), runs)| match runs {
                RunsOf::Pods { wanted, available, is_rolled_out } => {
                    let rolls = if *is_rolled_out { "" } else { ", not all of the present template" };
                    format!("{service} {available}/{wanted} available{rolls}")
                }
                RunsOf::Waits(why) => format!("{service} not made yet: {why}"),
                RunsOf::Nothing | RunsOf::Refused(_) => format!("{service} not made yet"),
            })
            .collect();
        let is_done = |runs: &RunsOf| match runs {
            RunsOf::Pods { wanted, available, is_rolled_out } => *is_rolled_out && available >= wanted,
            RunsOf::Nothing | RunsOf::Refused(_) | RunsOf::Waits(_) => false,
        };
        let counts = counts.join("; ");
        if all.iter().all(|(_, runs)| is_done(runs)) {
            return Some(Desired::new(Reason::Deployed, counts));
        }
        let name = plugin.metadata.name.as_deref().unwrap_or_default();
        let look = format!("{counts}; see `kubectl get pods -n {namespace} -l {PLUGIN}={name}`");
        Some(Desired::new(Reason::RollingOut, look))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PluginSpec;
    use crate::api::workload::{ControllerWorkload, NodeWorkload};

    fn plugin(controller: bool, node: bool) -> Plugin {
        let mut plugin = Plugin::new("p", PluginSpec::default());
        plugin.spec.controller = controller.then(ControllerWorkload::default);
        plugin.spec.node = node.then(NodeWorkload::default);
        plugin
    }

    fn pods(wanted: i32, available: i32, is_rolled_out: bool) -> RunsOf {
        RunsOf::Pods { wanted, available, is_rolled_out }
    }

    fn said(runs: &Runs, controller: bool, node: bool) -> Option<(Reason, String)> {
        runs.deployed(&plugin(controller, node), "moor-system").map(|said| (said.reason, said.message))
    }

    #[test]
    fn a_plugin_that_declares_nothing_says_nothing() {
        assert_eq!(said(&Runs::default(), false, false), None);
    }

    #[test]
    fn all_that_is_declared_has_to_be_there() {
        let runs = |controller, node| Runs { controller, node, ..Runs::default() };
        let done = runs(pods(2, 2, true), pods(3, 3, true));
        let words = "controller 2/2 available; node 3/3 available";
        assert_eq!(said(&done, true, true), Some((Reason::Deployed, words.into())));
        for (controller, node) in [
            (pods(2, 1, true), pods(3, 3, true)),
            (pods(2, 2, false), pods(3, 3, true)),
            (pods(2, 2, true), RunsOf::Nothing),
        ] {
            let (reason, words) = said(&runs(controller, node), true, true).unwrap();
            assert_eq!(reason, Reason::RollingOut);
            assert!(words.ends_with("see `kubectl get pods -n moor-system -l moor.dev/plugin=p`"), "{words}");
        }
        let alone = runs(RunsOf::Nothing, pods(0, 0, true));
        assert_eq!(said(&alone, false, true).unwrap().0, Reason::Deployed, "no node is selected");
    }

    #[test]
    fn what_is_refused_comes_first() {
        let runs =
            Runs { controller: RunsOf::Refused("no".into()), node: pods(1, 1, true), ..Runs::default() };
        assert_eq!(said(&runs, true, true), Some((Reason::TemplateRefused, "no".into())));
    }
}
