//! Whether a Plugin's volumes are served to Pods, in words for its PodsServed condition.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::belief::{counts, older};
use crate::api::conditions::{Desired, PODS, Reason, first_few};
use crate::api::instance::{Capabilities, Service};
use crate::api::plugin::WITHDRAWN;
use crate::api::{Plugin, PluginInstance};

/// By these words of kubelet's a refusal means that another socket has the name (`validateVersions` of its CSI plugin).
const ANOTHER: &str = "already registered";
/// Most nodes that are named; there may be any number.
const MOST: usize = 4;

/// Whether a driver says that its volumes take a second writing target on a node (CSI NodePublishVolume): its Node service
/// does, and where it attaches its Controller service too, which is told of the mode as well.
#[must_use]
pub fn takes_second_writer(node: &Capabilities, controller: Option<&Capabilities>) -> bool {
    const SINGLE_NODE_MULTI_WRITER: &str = "SINGLE_NODE_MULTI_WRITER";
    let attaches = controller.filter(|controller| controller.attaches());
    node.node_has(SINGLE_NODE_MULTI_WRITER)
        && attaches.is_none_or(|controller| controller.controller_has(SINGLE_NODE_MULTI_WRITER))
}

/// The Plugin that is served to Pods under this name: of several the oldest, if it has its driver at all.
#[must_use]
pub fn served_as<'a>(name: &str, all: &'a [Arc<Plugin>]) -> Option<&'a Arc<Plugin>> {
    let named = all.iter().filter(|plugin| plugin.kubelet_name() == Some(name));
    named.min_by_key(|plugin| plugin.age()).filter(|plugin| older(plugin, all).is_none())
}

/// What is known beside the Plugins and their instances.
#[derive(Clone, Debug, Default)]
pub struct Around<'a> {
    /// What keeps its CSIDriver object from being as it should.
    pub conflict: Option<String>,
    /// A PersistentVolume that another provisioner of the driver has made in moor's place.
    pub by_another: Option<&'a str>,
    /// Why the scheduler does not go by the room that the driver says there is.
    pub room_untold: Option<String>,
    /// The Pods that have its volumes.
    pub users: BTreeSet<String>,
}

/// What the Plugin says of its volumes and Pods.
#[must_use]
pub fn pods_served(
    plugin: &Plugin,
    all: &[Arc<Plugin>],
    instances: &[Arc<PluginInstance>],
    around: Around<'_>,
) -> Desired {
    let Around { conflict, by_another, room_untold, users } = around;
    let Some(name) = plugin.kubelet_name() else { return not_served(plugin, &users) };
    let own = plugin.metadata.name.as_deref();
    let serves = served_as(name, all).and_then(|plugin| plugin.metadata.name.as_deref());
    if serves != own {
        let named = all.iter().filter(|plugin| plugin.kubelet_name() == Some(name));
        let oldest =
            named.min_by_key(|plugin| plugin.age()).filter(|plugin| plugin.metadata.name.as_deref() != own);
        let other = oldest.and_then(|plugin| plugin.metadata.name.clone()).or_else(|| older(plugin, all));
        let message = format!(
            "Plugin {} is older and has the driver, or its name at kubelets, {name}; delete one of the two, or change \
             spec.kubernetes.driverName of one",
            other.unwrap_or_default()
        );
        return Desired::new(Reason::PodsServedByOther, message);
    }
    if let Some(conflict) = conflict {
        return Desired::new(Reason::CSIDriverConflict, conflict);
    }
    match refused(plugin, name, instances) {
        Some((nodes, why)) if why.contains(ANOTHER) => Desired::new(
            Reason::KubeletNameTaken,
            format!(
                "on node {nodes} kubelet does not take moor's socket for driver {name}: {why}; end the driver's \
                 node-driver-registrar there, or set spec.kubernetes.driverName to a name of its own"
            ),
        ),
        Some((nodes, why)) => Desired::new(
            Reason::KubeletRefused,
            format!(
                "on node {nodes} kubelet has not registered driver {name}: {why}; it is made to look again"
            ),
        ),
        None => served(name, by_another, room_untold, shares_unsaid(plugin, instances)),
    }
}

/// Whether Pods of one node share a volume of one writer although neither the driver nor the Plugin says that it takes that.
fn shares_unsaid(plugin: &Plugin, instances: &[Arc<PluginInstance>]) -> bool {
    let counted = instances.iter().filter(|instance| counts(instance, plugin.driver_name()));
    let statuses: Vec<_> = counted.filter_map(|instance| instance.status.as_ref()).collect();
    // Any of them may make the controller calls of a volume.
    let of_controllers =
        statuses.iter().filter(|status| status.controller).map(|status| &status.capabilities);
    let lacks = |node: &Capabilities| {
        let nobody_attaches = std::iter::once(None);
        !of_controllers.clone().map(Some).chain(nobody_attaches).all(|by| takes_second_writer(node, by))
    };
    plugin.spec.tolerates_second_target.is_none()
        && statuses
            .iter()
            .any(|status| status.node && status.is_healthy_for(Service::Node) && lacks(&status.capabilities))
}

fn served(name: &str, by_another: Option<&str>, room_untold: Option<String>, shares_unsaid: bool) -> Desired {
    let mut said = vec![format!("Pods use its volumes by CSIDriver {name}")];
    if let Some(volume) = by_another {
        said.push(format!(
            "another provisioner of that name has made PersistentVolume {volume} in moor's place: end the driver's \
             external-provisioner, which heeds none of moor's Attachments when it deletes storage"
        ));
    }
    if shares_unsaid {
        said.push(
            "Pods of one node share a ReadWriteOnce volume, though the driver does not say that it takes that \
             (SINGLE_NODE_MULTI_WRITER): set spec.toleratesSecondTarget to true if it does, or to false, so that a second Pod \
             waits"
                .to_owned(),
        );
    }
    said.extend(room_untold.map(|why| format!("the scheduler does not go by its room: {why}")));
    let reason = if by_another.is_some() { Reason::OtherProvisioner } else { Reason::PodsServed };
    Desired::new(reason, said.join("; "))
}

fn not_served(plugin: &Plugin, users: &BTreeSet<String>) -> Desired {
    let why = if plugin.withdrawn().is_some() {
        let plugin = plugin.metadata.name.as_deref().unwrap_or_default();
        format!(
            "moor is being uninstalled; if it stays all the same, `kubectl annotate plugin {plugin} {WITHDRAWN}-` has Pods \
             served again"
        )
    } else {
        "spec.kubernetes.enabled is false, or spec.roles leaves the Node service out".to_owned()
    };
    if users.is_empty() {
        return Desired::new(Reason::PodsNotServed, why);
    }
    let named = first_few(users.iter().map(String::as_str), MOST);
    let message = format!(
        "{why}; the CSIDriver object, and the driver's registration at kubelets, end with the Pods that have its volumes: \
         {named}. No other Pod gets one"
    );
    Desired::new(Reason::PodsStillServed, message)
}

/// Whether the Plugin says that the CSIDriver object of its name is somebody else's.
#[must_use]
pub fn has_conflict(plugin: &Plugin) -> bool {
    says(plugin, &[Reason::CSIDriverConflict])
}

/// Whether the Plugin says that Pods do not get its volumes, though it is to serve them.
#[must_use]
pub fn is_kept_from_pods(plugin: &Plugin) -> bool {
    says(plugin, &[Reason::CSIDriverConflict, Reason::KubeletNameTaken, Reason::KubeletRefused])
}

fn says(plugin: &Plugin, reasons: &[Reason]) -> bool {
    let mut said = plugin.status.iter().flat_map(|status| &status.conditions);
    said.any(|said| said.type_ == PODS && reasons.iter().any(|reason| said.reason == reason.as_str()))
}

/// The nodes whose kubelets have refused moor's socket, a few by name, and the words of the first.
fn refused(plugin: &Plugin, name: &str, instances: &[Arc<PluginInstance>]) -> Option<(String, String)> {
    let counted = instances.iter().filter(|instance| counts(instance, plugin.driver_name()));
    let refused: BTreeSet<(&str, &str)> = counted
        .filter_map(|instance| {
            let kubelet = instance.status.as_ref()?.kubelet.as_ref()?;
            let message = kubelet.message.as_deref().filter(|_| !kubelet.registered)?;
            (kubelet.driver_name == name).then_some((instance.spec.node_name.as_str(), message))
        })
        .collect();
    let (_, why) = refused.first()?;
    Some((first_few(refused.iter().map(|(node, _)| *node), MOST), (*why).to_owned()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::instance::{KubeletStatus, PluginInstanceSpec, PluginInstanceStatus};
    use crate::api::names::{DriverOn, instance_name};
    use crate::api::plugin::PluginSpec;

    fn plugin(name: &str, second: i64, change: impl FnOnce(&mut PluginSpec)) -> Arc<Plugin> {
        let mut plugin = Plugin::new(name, PluginSpec::default());
        plugin.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        change(&mut plugin.spec);
        Arc::new(plugin)
    }

    fn instance(node: &str, kubelet: Option<(bool, Option<&str>)>) -> Arc<PluginInstance> {
        let spec = PluginInstanceSpec {
            driver_name: "p".into(),
            node_name: node.into(),
            agent: node.into(),
            ..PluginInstanceSpec::default()
        };
        let mut instance = PluginInstance::new(&instance_name(DriverOn { driver: "p", node }), spec);
        let kubelet = kubelet.map(|(registered, message)| KubeletStatus {
            driver_name: "p".into(),
            registered,
            message: message.map(Into::into),
        });
        instance.status = Some(PluginInstanceStatus { kubelet, ..PluginInstanceStatus::default() });
        Arc::new(instance)
    }

    #[test]
    fn of_plugins_with_one_name_at_kubelets_the_oldest_has_it() {
        let alias = |spec: &mut PluginSpec| spec.kubernetes.driver_name = Some("first".into());
        let all = [plugin("first", 1, |_| {}), plugin("second", 2, alias), plugin("third", 3, |_| {})];
        let name = |of: &str| served_as(of, &all).and_then(|p| p.metadata.name.clone());
        assert_eq!(
            (name("first"), name("third"), name("second")),
            (Some("first".into()), Some("third".into()), None)
        );
        let said = pods_served(&all[1], &all, &[], Around::default());
        assert!(
            said.reason == Reason::PodsServedByOther && said.message.contains("Plugin first"),
            "{said:?}"
        );
        // The younger one has the driver of an older one that does not serve Pods: it has it under no name.
        let off = |spec: &mut PluginSpec| spec.kubernetes.enabled = false;
        let same = |spec: &mut PluginSpec| spec.driver_name = Some("first".into());
        let all = [plugin("first", 1, off), plugin("second", 2, same)];
        assert_eq!(served_as("first", &all), None);
        assert_eq!(pods_served(&all[0], &all, &[], Around::default()).reason, Reason::PodsNotServed);
        let said = pods_served(&all[1], &all, &[], Around::default());
        assert!(
            said.reason == Reason::PodsServedByOther && said.message.contains("Plugin first"),
            "{said:?}"
        );
    }

    #[test]
    fn kubelets_that_refuse_are_named_and_not_all_of_them() {
        let all = [plugin("p", 1, |_| {})];
        let said = |instances: &[_], conflict: Option<&str>| {
            pods_served(
                &all[0],
                &all,
                instances,
                Around { conflict: conflict.map(Into::into), ..Around::default() },
            )
        };
        let well =
            [instance("a", None), instance("b", Some((true, None))), instance("c", Some((false, None)))];
        assert_eq!(said(&well, None).reason, Reason::PodsServed, "nobody has refused yet");
        let beside =
            pods_served(&all[0], &all, &well, Around { by_another: Some("pvc-1"), ..Around::default() });
        assert_eq!(beside.reason, Reason::OtherProvisioner);
        assert!(beside.message.contains("pvc-1") && !is_kept_from_pods(&all[0]), "{beside:?}");
        let unsaid = Around { room_untold: Some("no class".into()), ..Around::default() };
        let untold = pods_served(&all[0], &all, &well, unsaid);
        assert!(
            untold.reason == Reason::PodsServed && untold.message.ends_with("its room: no class"),
            "{untold:?}"
        );
        let all_say = |why: &'static str| -> Vec<_> {
            (0..9).map(|n| instance(&format!("n{n}"), Some((false, Some(why))))).collect()
        };
        let late = said(&all_say("no process of the driver answers"), None);
        assert_eq!(late.reason, Reason::KubeletRefused);
        assert!(late.message.contains("answers; it is made to look again"), "{late:?}");
        let refused = all_say("another driver is already registered, the name is taken");
        let taken = said(&refused, None);
        assert_eq!(taken.reason, Reason::KubeletNameTaken);
        assert!(
            taken.message.contains("n0, n1, n2, n3 and 5 more") && taken.message.contains("taken"),
            "{taken:?}"
        );
        assert_eq!(said(&refused, Some("other")), Desired::new(Reason::CSIDriverConflict, "other"));
        let says = |said: &Desired| {
            let mut plugin = Plugin::clone(&all[0]);
            let conditions = &mut plugin.status.get_or_insert_default().conditions;
            crate::api::conditions::set(conditions, said, None, Timestamp::UNIX_EPOCH);
            is_kept_from_pods(&plugin)
        };
        assert!(
            says(&taken) && says(&late) && says(&said(&well, Some("other"))) && !says(&said(&well, None))
        );
    }

    /// kubelet publishes it twice whatever the driver says, and one that does not say it is taken to bear it.
    #[test]
    fn that_pods_share_a_volume_unsaid_is_told() {
        const LISTED: &str = "SINGLE_NODE_MULTI_WRITER";
        const ATTACHES: &str = "PUBLISH_UNPUBLISH_VOLUME";
        let of = |node: &[&str], controller: Option<&[&str]>, healthy: bool| {
            let mut instance = PluginInstance::clone(&instance("a", None));
            let status = instance.status.get_or_insert_default();
            (status.node, status.controller, status.healthy) = (true, controller.is_some(), healthy);
            status.capabilities.node.extend(node.iter().map(|&name| name.to_owned()));
            status
                .capabilities
                .controller
                .extend(controller.into_iter().flatten().map(|&name| name.to_owned()));
            Arc::new(instance)
        };
        let said = |tolerates: Option<bool>, instance: &Arc<PluginInstance>| {
            let all = [plugin("p", 1, |spec| spec.tolerates_second_target = tolerates)];
            let by = |by_another| {
                let around = Around { by_another, ..Around::default() };
                pods_served(&all[0], &all, std::slice::from_ref(instance), around)
                    .message
                    .contains("spec.toleratesSecondTarget")
            };
            assert_eq!(by(None), by(Some("pvc-1")), "another provisioner has nothing to do with it");
            by(None)
        };
        let rows = [
            (&[][..], None, true),
            (&[LISTED], None, false),
            (&[LISTED], Some(&[][..]), false),
            (&[LISTED], Some(&[ATTACHES]), true),
            (&[LISTED], Some(&[ATTACHES, LISTED]), false),
            (&[], Some(&[ATTACHES, LISTED]), true),
        ];
        for (node, controller, told) in rows {
            assert_eq!(said(None, &of(node, controller, true)), told, "{node:?} {controller:?}");
            assert!(!said(None, &of(node, controller, false)), "what it can is not known");
            for tolerates in [true, false] {
                assert!(!said(Some(tolerates), &of(node, controller, true)), "the Plugin says it");
            }
        }
    }

    #[test]
    fn what_is_to_end_says_which_pods_keep_it() {
        let off = plugin("p", 1, |spec| spec.kubernetes.enabled = false);
        let all = [off];
        let said = |users: &[&str]| {
            let users = users.iter().map(|&user| user.to_owned()).collect();
            pods_served(&all[0], &all, &[], Around { users, ..Around::default() })
        };
        assert_eq!(said(&[]).reason, Reason::PodsNotServed);
        let kept = said(&["Pod shop/web on node a"]);
        assert_eq!(kept.reason, Reason::PodsStillServed);
        assert!(kept.message.contains("enabled is false") && kept.message.contains("Pod shop/web on node a"));
        let on = plugin("p", 1, |_| {});
        let gone = crate::plugin::withdrawal::withdrawn(&on, Timestamp::UNIX_EPOCH).unwrap();
        let told = pods_served(&gone, &[], &[], Around::default());
        assert!(told.message.contains("kubectl annotate plugin p moor.dev/withdrawn-"), "{told:?}");
    }
}
