//! Where the sockets of a driver are: in the plugin directory, or in the Pods that moor runs for it. Pure.

use std::iter;
use std::path::{Path, PathBuf};

use crate::api::Plugin;
use crate::api::plugin::Roles;
use crate::api::workload::{SOCKET_FILE, SOCKET_VOLUME};
use crate::csi::Service;
use crate::plugin::workload::Directories;

/// In the place of a Pod's UID.
const ANY: &str = "*";

/// Which sockets count for a service of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// All in the plugin directory.
    Directory,
    /// The one that the Plugin names, for all that it offers; and for what it does not, all in the plugin directory.
    At(PathBuf),
    /// This one, of the Pod that moor runs for it, and no other; until it answers, and when it has ended, all in the plugin
    /// directory.
    First(PathBuf),
    /// These and no others: they are those of the Pods that moor runs for it.
    Only(Vec<PathBuf>),
}

/// The socket in a Pod with this UID: in an emptyDir.
pub(crate) fn in_pod(kubelet_dir: &Path, uid: &str) -> PathBuf {
    let volumes = kubelet_dir.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir");
    volumes.join(SOCKET_VOLUME).join(SOCKET_FILE)
}

/// A socket's path as objects tell it: the Pod that a driver's process is in is another one each time, and the driver on the node
/// stays the same.
pub(crate) fn place_of(kubelet_dir: &Path, path: &Path) -> PathBuf {
    let pods = kubelet_dir.join("pods");
    let Ok(below) = path.strip_prefix(&pods) else { return path.to_owned() };
    pods.join(ANY).join(below.iter().skip(1).collect::<PathBuf>())
}

/// Whether a socket, as objects tell it, is in Pods that moor runs.
pub(crate) fn is_in_pods(kubelet_dir: &Path, place: &Path) -> bool {
    place.starts_with(kubelet_dir.join("pods").join(ANY))
}

/// Where the sockets count for a service of a Plugin's driver, of which `in_pods` are in the Pods of `spec.controller` here.
pub(crate) fn of(
    plugin: &Plugin,
    service: Service,
    directories: &Directories,
    in_pods: Vec<PathBuf>,
) -> Where {
    let name = plugin.metadata.name.as_deref().unwrap_or_default();
    let node = || match (&plugin.spec.node, &plugin.spec.socket_path) {
        (Some(_), _) => Where::First(directories.node_socket(name)),
        (None, Some(path)) => Where::At(directories.plugins.join(path)),
        (None, None) => Where::Directory,
    };
    // They run on while they are needed, though the Plugin declares them no more.
    if plugin.spec.controller.is_none() && in_pods.is_empty() {
        return node();
    }
    match service {
        Service::Controller => Where::Only(in_pods),
        Service::Node => node(),
        // Any process of the driver.
        Service::Identity => match node() {
            Where::First(socket) => Where::Only(iter::once(socket).chain(in_pods).collect()),
            Where::Only(_) | Where::Directory | Where::At(_) if !in_pods.is_empty() => Where::Only(in_pods),
            elsewhere @ (Where::Only(_) | Where::Directory | Where::At(_)) => elsewhere,
        },
    }
}

/// What a process of a Plugin's driver is used for, by where it is: one in a Pod of `spec.controller` for the Controller service
/// alone, whatever it offers, and no other one for that.
pub(crate) fn roles(plugin: &Plugin, is_in_pod: bool) -> Roles {
    match (&plugin.spec.controller, is_in_pod) {
        // Those of a Plugin that declares them no more run on while they are needed.
        (_, true) => Roles::Controller,
        (None, false) => plugin.spec.roles,
        (Some(_), false) => Roles::Node,
    }
}

/// What a driver is used for on a node on which these Pods of `spec.controller` are. Where there is none, its controller is
/// elsewhere, and one that was here before is not waited for.
pub(crate) fn roles_here(plugin: &Plugin, in_pods: &[String]) -> Roles {
    let has_left = plugin.spec.controller.is_some() && in_pods.is_empty();
    if has_left { Roles::Node } else { plugin.spec.roles }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PluginSpec;
    use crate::api::workload::{ControllerWorkload, NodeWorkload};

    const KUBELET: &str = "/var/lib/kubelet";

    fn directories() -> Directories {
        Directories { kubelet: KUBELET.into(), plugins: "/var/lib/kubelet/plugins".into() }
    }

    fn plugin(controller: bool, node: bool, socket_path: Option<&str>) -> Plugin {
        let spec = PluginSpec {
            controller: controller.then(ControllerWorkload::default),
            node: node.then(NodeWorkload::default),
            socket_path: socket_path.map(str::to_owned),
            ..PluginSpec::default()
        };
        Plugin::new("p", spec)
    }

    #[test]
    fn a_socket_in_a_pod_is_told_without_the_pod() {
        let path = in_pod(Path::new(KUBELET), "0d1c0f7e-5f0a-4f6e-9d0e-2f6a1c1d9a11");
        // What an address of a socket may have.
        assert!(path.as_os_str().len() <= 107, "{}", path.as_os_str().len());
        let place = "/var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/csi/csi.sock";
        assert_eq!(place_of(Path::new(KUBELET), &path), Path::new(place));
        let other = Path::new("/var/lib/kubelet/plugins/a/csi.sock");
        assert_eq!(place_of(Path::new(KUBELET), other), other);
        let is_in_pods = |place: &str| super::is_in_pods(Path::new(KUBELET), Path::new(place));
        assert!(is_in_pods(place) && !is_in_pods("/var/lib/kubelet/plugins/a/csi.sock"));
    }

    #[test]
    fn what_moor_runs_comes_first_and_its_controllers_alone() {
        let pods = || vec![PathBuf::from("/pod")];
        let at = |plugin: &Plugin, service| of(plugin, service, &directories(), pods());
        let own = PathBuf::from("/var/lib/kubelet/plugins/moor.p/csi.sock");
        let all = [Service::Controller, Service::Node, Service::Identity];
        let none = |plugin: &Plugin, service| of(plugin, service, &directories(), vec![]);
        for service in all {
            assert_eq!(none(&plugin(false, false, None), service), Where::Directory);
            let named = Where::At("/var/lib/kubelet/plugins/a/csi.sock".into());
            assert_eq!(none(&plugin(false, false, Some("a/csi.sock")), service), named);
            assert_eq!(none(&plugin(false, true, None), service), Where::First(own.clone()));
        }
        let left = plugin(false, true, None);
        assert_eq!(at(&left, Service::Controller), Where::Only(pods()), "they run on while they are needed");
        let both = plugin(true, true, None);
        assert_eq!(at(&both, Service::Controller), Where::Only(pods()));
        assert_eq!(at(&both, Service::Node), Where::First(own.clone()));
        assert_eq!(at(&both, Service::Identity), Where::Only(vec![own, "/pod".into()]));
        let controller = plugin(true, false, None);
        assert_eq!(at(&controller, Service::Node), Where::Directory);
        assert_eq!(at(&controller, Service::Identity), Where::Only(pods()));
        assert_eq!(of(&controller, Service::Identity, &directories(), vec![]), Where::Directory);
    }

    #[test]
    fn a_process_serves_what_its_pods_are_there_for() {
        let said = |plugin: Plugin| [true, false].map(|in_pod| roles(&plugin, in_pod));
        assert_eq!(said(plugin(false, true, None)), [Roles::Controller, Roles::All], "they run on");
        assert_eq!(said(plugin(true, true, None)), [Roles::Controller, Roles::Node]);
        let here = |plugin: Plugin, pods: &[String]| roles_here(&plugin, pods);
        assert_eq!(here(plugin(true, true, None), &[]), Roles::Node);
        assert_eq!(here(plugin(true, true, None), &["uid".into()]), Roles::All);
        assert_eq!(here(plugin(false, true, None), &[]), Roles::All);
    }
}
