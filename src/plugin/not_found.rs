//! What agents have found in the place of a driver that none of them has found, in words for its Plugin's Ready condition.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use super::pod_template::below;
use crate::api::Plugin;
use crate::api::conditions::first_few;
use crate::heartbeat::{Answer, Socket, Sockets};

/// Most nodes of a finding, and most findings, that are told.
const MOST: usize = 3;

/// Says why there is no instance of a Plugin's driver. `nodes` are those whose agents are heard, with what each has found.
#[must_use]
pub fn not_found(plugin: &Plugin, nodes: &[(String, Sockets)]) -> String {
    let driver = plugin.driver_name();
    let Some((_, first)) = nodes.first() else {
        return format!(
            "no agent has found a driver that calls itself {driver}, and of none is it known what else it has found"
        );
    };
    let named = plugin.spec.socket_path.as_deref();
    let mut by_finding: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, sockets) in nodes {
        let finding = named.map_or_else(|| everywhere(sockets), |path| at(sockets, path));
        by_finding.entry(finding).or_default().push(node);
    }
    let mut findings: Vec<_> = by_finding.into_iter().collect();
    findings.sort_by_key(|(_, nodes)| Reverse(nodes.len()));
    let told = findings.iter().take(MOST).map(|(finding, nodes)| {
        let nodes = first_few(nodes.iter().copied(), MOST);
        format!(". On {nodes}: {finding}")
    });
    let told: String = told.collect();
    let untold: usize = findings.iter().skip(MOST).map(|(_, nodes)| nodes.len()).sum();
    let untold = if untold > 0 { format!(". Something else on {untold} more") } else { String::new() };
    let place = match named {
        Some(path) => format!("was the socket {path}, which spec.socketPath names"),
        None => format!("were the sockets *.sock in the folders of {}", first.directory),
    };
    format!("no agent has found a driver that calls itself {driver}. Looked at {place}{told}{untold}")
}

/// What is at the socket that a Plugin names.
fn at(sockets: &Sockets, path: &str) -> String {
    let Some(below) = below(Path::new(&sockets.directory), Path::new(path)) else {
        return format!("that is not below {}, where agents look", sockets.directory);
    };
    let is_there = |socket: &&Socket| {
        let found = Path::new(&socket.path);
        found == below || socket.answer == Answer::Hangs && Some(found) == below.parent()
    };
    match sockets.found.iter().find(is_there) {
        Some(socket) => in_words(socket),
        None if sockets.more > 0 => "more sockets than are told of".to_owned(),
        None => "no socket".to_owned(),
    }
}

/// What is in the whole directory.
fn everywhere(sockets: &Sockets) -> String {
    if sockets.found.is_empty() {
        return "no socket".to_owned();
    }
    let more = (sockets.more > 0).then(|| format!("{} more", sockets.more));
    sockets.found.iter().map(in_words).chain(more).collect::<Vec<_>>().join("; ")
}

fn in_words(Socket { answer, path }: &Socket) -> String {
    match answer {
        Answer::Driver(name) => format!("{path} of the driver {name}"),
        Answer::NoSocket(what) => format!("{path}, which is {what} and no socket"),
        Answer::Hangs => format!("{path}, which does not answer whoever looks into it"),
        Answer::NobodyListens => format!("{path}, on which nobody listens"),
        Answer::Nameless(why) if why.is_empty() => format!("{path}, which does not say its driver's name"),
        Answer::Nameless(why) => format!("{path}, which does not say its driver's name: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::plugin::PluginSpec;

    fn sockets(found: &[(&str, Answer)]) -> Sockets {
        let found =
            found.iter().map(|(path, answer)| Socket { path: (*path).into(), answer: answer.clone() });
        Sockets::of("/plugins", found.collect())
    }

    fn said(socket_path: Option<&str>, nodes: &[(&str, Sockets)]) -> String {
        let spec = PluginSpec { socket_path: socket_path.map(str::to_owned), ..PluginSpec::default() };
        let nodes: Vec<_> = nodes.iter().map(|(node, found)| ((*node).to_owned(), found.clone())).collect();
        not_found(&Plugin::new("mine", spec), &nodes)
    }

    fn driver(name: &str) -> Answer {
        Answer::Driver(name.to_owned())
    }

    #[test]
    fn what_is_there_instead_is_told_with_where_was_looked() {
        let of_two = sockets(&[("a/csi.sock", driver("a")), ("b/csi.sock", Answer::NobodyListens)]);
        let of_one = sockets(&[("c/csi.sock", Answer::Nameless("GetPluginInfo: Unimplemented: no".into()))]);
        let none =
            sockets(&[("dead", Answer::Hangs), ("d/csi.sock", Answer::NoSocket("a directory".into()))]);
        let all = [("1", of_one), ("2", of_two.clone()), ("3", of_two), ("4", none), ("5", sockets(&[]))];
        assert_eq!(
            said(None, &all),
            "no agent has found a driver that calls itself mine. Looked at were the sockets *.sock in the folders of /plugins. \
             On 2, 3: b/csi.sock, on which nobody listens; a/csi.sock of the driver a. On 1: c/csi.sock, which does not say its \
             driver's name: GetPluginInfo: Unimplemented: no. On 4: d/csi.sock, which is a directory and no socket; dead, which \
             does not answer whoever looks into it. Something else on 1 more"
        );
    }

    #[test]
    fn of_a_plugin_that_names_its_socket_that_one_is_told() {
        let all = [
            ("1", sockets(&[("a/csi.sock", driver("a")), ("b/csi.sock", driver("b"))])),
            ("2", sockets(&[("b/csi.sock", driver("mine"))])),
        ];
        for path in ["a/csi.sock", "/plugins/a/csi.sock"] {
            let said = said(Some(path), &all);
            let words =
                format!("the socket {path}, which spec.socketPath names. On 1: a/csi.sock of the driver a");
            assert!(said.contains(&words) && said.ends_with("On 2: no socket"), "{said}");
        }
        let dead = [("1", sockets(&[("a", Answer::Hangs)]))];
        let said = said(Some("a/csi.sock"), &dead);
        assert!(said.ends_with("On 1: a, which does not answer whoever looks into it"), "{said}");
        for path in ["/run/a/csi.sock", "../a/csi.sock"] {
            let said = super::not_found(
                &Plugin::new("mine", PluginSpec { socket_path: Some(path.into()), ..PluginSpec::default() }),
                &[("1".into(), sockets(&[]))],
            );
            assert!(said.ends_with("On 1: that is not below /plugins, where agents look"), "{said}");
        }
    }

    #[test]
    fn of_many_nodes_a_few_are_named() {
        let all: Vec<_> =
            ["1", "2", "3", "4", "5", "6"].map(|node| (node, sockets(&[(node, driver(node))]))).into();
        let apart = said(None, &all);
        assert!(apart.ends_with("On 3: 3 of the driver 3. Something else on 3 more"), "{apart}");
        let same: Vec<_> = all.iter().map(|(node, _)| (*node, sockets(&[]))).collect();
        assert!(said(None, &same).ends_with("On 1, 2, 3 and 3 more: no socket"));
        assert!(said(None, &[]).ends_with("of none is it known what else it has found"));
    }
}
