//! `moor pre-delete`: what the chart asks before it is uninstalled.
//!
//! Without agents nothing is unmounted any more: Pods would keep their volumes, and nobody could delete a
//! claim. So uninstalling stops here while claims are granted. What they have just left is still attached for a while
//! (ADR 27), and without the controller would stay so: that is waited for.
//!
//! Then kubelets are made to forget the drivers: the controller removes the CSIDriver objects that it has made, and what it
//! has told the scheduler of their room, and the agents their registrations, while both are there to do it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use thiserror::Error;

use super::PreDeleteArgs;
use crate::{
    api::{
        Attachment, FINALIZER, Plugin, PluginInstance, VolumeClaim, conditions::first_few, has_finalizer,
        plugin::WITHDRAWN,
    },
    k8s::{
        ApiError,
        read::{Readable, list_live},
    },
    plugin::{csi_driver::is_ours, withdrawal},
    provision::capacity,
};

/// How many claims are named.
const NAMED: usize = 10;

/// How often it is looked again whether volumes are still attached, and the time between: with the looks at what is served to kubelets
/// much less than the 120 s that the hook may take, since one that is killed undoes nothing.
const LOOKS: usize = 35;
/// The same for what is served to kubelets.
const FAREWELL_LOOKS: usize = 35;
const PAUSE: Duration = Duration::from_secs(1);

/// Why the chart must not be uninstalled.
#[derive(Debug, Error)]
pub enum PreDeleteError {
    /// The claims could not be listed.
    #[error("cannot tell whether volumes are mounted: {0}")]
    List(#[source] ApiError),
    /// No claim is granted, and volumes are attached.
    #[error("{0}")]
    Attached(String),
    /// Some claims are granted.
    #[error("{0}")]
    Granted(String),
    /// A Plugin could not be changed.
    #[error("cannot have kubelets forget the driver of Plugin {0}: {1}")]
    Withdraw(String, #[source] kube::Error),
}

/// Returns what is to be printed if the chart may be uninstalled.
pub async fn run(client: Client, args: &PreDeleteArgs) -> Result<String, PreDeleteError> {
    let judged = match settled(&client, args).await {
        Ok(judged) => judged,
        Err(refusal) => {
            // Also what a hook has left that was killed: moor stays, and serves Pods.
            restore(&client).await;
            return Err(refusal);
        }
    };
    if args.keep_mounts {
        let kept = kept(&list::<Plugin>(&client).await?);
        return Ok([Some(judged), kept].into_iter().flatten().collect::<Vec<_>>().join("; "));
    }
    let left = match withdraw(&client).await {
        Ok(()) => farewell(&client, &args.namespace).await,
        Err(error) => Err(error),
    };
    // A Pod may have come in between.
    match (look(&client, args).await, left) {
        (Ok(judged), Ok(None)) => Ok(judged),
        (Ok(judged), Ok(Some(left))) => Ok(format!("{judged}; {left}")),
        (Err(error), _) | (Ok(_), Err(error)) => {
            restore(&client).await;
            Err(error)
        }
    }
}

/// Waits until nothing is in the way, or somebody has to do something about it.
async fn settled(client: &Client, args: &PreDeleteArgs) -> Result<String, PreDeleteError> {
    for _ in 1..LOOKS {
        match look(client, args).await {
            Err(PreDeleteError::Attached(_)) => tokio::time::sleep(PAUSE).await,
            judged => return judged,
        }
    }
    look(client, args).await
}

/// Has all Plugins serve Pods no longer.
async fn withdraw(client: &Client) -> Result<(), PreDeleteError> {
    let now = Timestamp::now();
    for plugin in list::<Plugin>(client).await? {
        if withdrawal::withdrawn(&plugin, now).is_some() {
            annotate(client, &plugin.name_any(), Some(&now.to_string())).await?;
        }
    }
    Ok(())
}

/// Has all Plugins serve Pods again, as far as that succeeds: why moor stays is what is to be told.
async fn restore(client: &Client) {
    let plugins = list::<Plugin>(client).await.unwrap_or_else(|error| {
        tracing::warn!("{error}");
        Vec::new()
    });
    for plugin in plugins.iter().filter(|plugin| plugin.annotations().contains_key(WITHDRAWN)) {
        if let Err(error) = annotate(client, &plugin.name_any(), None).await {
            tracing::warn!("{error}");
        }
    }
}

async fn annotate(client: &Client, plugin: &str, since: Option<&str>) -> Result<(), PreDeleteError> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { WITHDRAWN: since } } }));
    let done = Api::<Plugin>::all(client.clone()).patch(plugin, &PatchParams::default(), &patch).await;
    done.map(drop).map_err(|error| PreDeleteError::Withdraw(plugin.to_owned(), error))
}

/// Waits until kubelets know of no driver of moor's any more. Returns what is left after a while, as on a node that is off.
async fn farewell(client: &Client, namespace: &str) -> Result<Option<String>, PreDeleteError> {
    let mut left = still_known(client, namespace).await?;
    for _ in 1..FAREWELL_LOOKS {
        if left.is_none() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        left = still_known(client, namespace).await?;
    }
    Ok(left)
}

async fn still_known(client: &Client, namespace: &str) -> Result<Option<String>, PreDeleteError> {
    let drivers: Vec<CSIDriver> = list(client).await?;
    let instances: Vec<PluginInstance> = list(client).await?;
    let plugins: Vec<Plugin> = list(client).await?;
    let capacities = list_of(&Api::<CSIStorageCapacity>::namespaced(client.clone(), namespace)).await?;
    let left = [left_behind(&drivers, &instances, &capacities), kept(&plugins)];
    let left: Vec<String> = left.into_iter().flatten().collect();
    Ok((!left.is_empty()).then(|| left.join("; ")))
}

/// What could not be deleted any more when moor is gone, and what allows it.
fn kept(plugins: &[Plugin]) -> Option<String> {
    let kept = plugins.iter().filter(|plugin| has_finalizer(&plugin.metadata, FINALIZER));
    let kept: Vec<_> = kept.map(ResourceExt::name_any).collect();
    let patch = r#"'{"metadata":{"finalizers":null}}'"#;
    (!kept.is_empty()).then(|| {
        format!(
            "before these can be deleted: `kubectl patch plugins {} --type=merge -p {patch}`",
            kept.join(" ")
        )
    })
}

/// What stays when moor goes now, and how it is removed.
fn left_behind(
    drivers: &[CSIDriver],
    instances: &[PluginInstance],
    capacities: &[CSIStorageCapacity],
) -> Option<String> {
    let drivers: Vec<_> =
        drivers.iter().filter(|driver| is_ours(driver)).map(ResourceExt::name_any).collect();
    let links: Vec<_> = instances.iter().filter_map(link).collect();
    let mut parts = Vec::new();
    if !drivers.is_empty() {
        parts.push(format!("`kubectl delete csidriver {}`", drivers.join(" ")));
    }
    if !links.is_empty() {
        parts.push(format!("remove from kubelet's folder {}", first_few(links, NAMED)));
    }
    if let Some(object) = capacities.iter().find(|object| capacity::is_ours(object)) {
        // The next installation of a driver may have classes of the same names.
        let namespace = object.namespace().unwrap_or_default();
        parts.push(format!("`kubectl delete csistoragecapacities -n {namespace} -l {}`", capacity::OURS));
    }
    (!parts.is_empty())
        .then(|| format!("this is left, and kubelets and the scheduler go by it: {}", parts.join("; ")))
}

/// Where a node's kubelet finds the driver.
fn link(instance: &PluginInstance) -> Option<String> {
    let kubelet = instance.status.as_ref()?.kubelet.as_ref()?;
    let (name, node) = (&kubelet.driver_name, &instance.spec.node_name);
    Some(format!("plugins_registry/moor@{name}.sock on node {node}"))
}

async fn look(client: &Client, args: &PreDeleteArgs) -> Result<String, PreDeleteError> {
    // The claims last: one that was granted meanwhile has an Attachment that the first list may not have.
    let attachments: Vec<Attachment> = list(client).await?;
    judge(&list(client).await?, &attachments, args.keep_mounts)
}

async fn list<K>(client: &Client) -> Result<Vec<K>, PreDeleteError>
where
    K: Readable + Resource<DynamicType = ()>,
{
    list_of(&Api::<K>::all(client.clone())).await
}

async fn list_of<K: Readable>(api: &Api<K>) -> Result<Vec<K>, PreDeleteError> {
    match list_live(api, None).await {
        Ok(all) => Ok(all),
        // Without the definition there are none.
        Err(ApiError::Other { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 404) => {
            Ok(Vec::new())
        }
        Err(error) => Err(PreDeleteError::List(error)),
    }
}

fn judge(
    claims: &[VolumeClaim],
    attachments: &[Attachment],
    keep_mounts: bool,
) -> Result<String, PreDeleteError> {
    let mut granted: Vec<String> = claims.iter().filter_map(place).collect();
    granted.sort_unstable();
    let count = granted.len();
    if count == 0 && attachments.is_empty() {
        return Ok("no claims are granted".into());
    }
    if count == 0 {
        return attached(attachments, keep_mounts);
    }
    let verb = if count == 1 { "claim is" } else { "claims are" };
    let mut message = format!("{count} {verb} still granted: {}", first_few(granted, NAMED));
    if keep_mounts {
        return Ok(format!("{message}; their volumes stay mounted"));
    }
    message.push_str(
        "; delete them, or the Pods, and uninstall again, or leave them mounted for a reinstall with \
         `helm uninstall --no-hooks` (Helm now believes that it is uninstalling: to go on using the release, \
         `helm rollback` it to its last revision)",
    );
    Err(PreDeleteError::Granted(message))
}

fn attached(attachments: &[Attachment], keep_mounts: bool) -> Result<String, PreDeleteError> {
    let place = |a: &Attachment| {
        let of = &a.spec.volume;
        format!("{}/{} on node {}", of.namespace, of.name, a.spec.node_name)
    };
    let count = attachments.len();
    let are = if count == 1 { "volume is" } else { "volumes are" };
    let named = first_few(attachments.iter().map(place), NAMED);
    let message = format!("no claims are granted, and {count} {are} still attached: {named}");
    if keep_mounts {
        return Ok(message);
    }
    Err(PreDeleteError::Attached(format!(
        "{message}; uninstall again when `kubectl get attachments` shows none, or leave them attached with \
         `helm uninstall --no-hooks` (after `helm rollback` to the last revision the release goes on)"
    )))
}

/// Where a claim is, if it is in the way.
fn place(claim: &VolumeClaim) -> Option<String> {
    if claim.is_let_go() {
        return None;
    }
    let namespace = claim.namespace().unwrap_or_default();
    if let Some(pod) = &claim.spec.pod {
        // Also one that waits: kubelet waits with it, and would for ever.
        let node = claim.spec.node_name.as_deref().unwrap_or_default();
        let (space, name, volume) = (&pod.namespace, &pod.name, pod.volume());
        return Some(format!("that of Pod {space}/{name} for {volume} on node {node}"));
    }
    let assignment = claim.spec.assignment.as_ref()?;
    Some(format!("{namespace}/{} on node {}", claim.name_any(), assignment.node_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::{KubeletStatus, PluginInstanceSpec};
    use crate::api::{VolumeClaimSpec, claim::Assignment};

    fn claim(name: &str, node: Option<&str>) -> VolumeClaim {
        let assignment = node.map(|node| Assignment { node_name: node.into(), ..Assignment::default() });
        let mut claim = VolumeClaim::new(name, VolumeClaimSpec { assignment, ..VolumeClaimSpec::default() });
        claim.metadata.namespace = Some("shop".into());
        claim
    }

    #[test]
    fn claims_that_only_wait_do_not_matter() {
        assert!(judge(&[claim("a", None)], &[], false).is_ok());
        assert!(judge(&[], &[], false).is_ok());
    }

    #[test]
    fn claims_that_only_others_hold_do_not_matter() {
        let mut held = claim("a", Some("n1"));
        held.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        assert!(judge(&[held], &[], false).is_ok());
    }

    #[test]
    fn the_first_ten_are_named_and_the_rest_counted() {
        let claims: Vec<_> = (0..12).rev().map(|n| claim(&format!("c{n:02}"), Some("n1"))).collect();
        let text = judge(&claims, &[], false).unwrap_err().to_string();
        assert!(
            text.starts_with("12 claims are still granted: shop/c00 on node n1, shop/c01 on node n1"),
            "{text}"
        );
        assert!(
            text.contains(
                "shop/c09 on node n1 and 2 more; delete them, or the Pods, and uninstall again, or leave"
            ),
            "{text}"
        );
    }

    /// The last claim has left it a moment ago.
    #[test]
    fn what_lingers_is_waited_for() {
        let mut lingers = Attachment::new("a", crate::api::attachment::AttachmentSpec::default());
        lingers.spec.node_name = "n1".into();
        (lingers.spec.volume.namespace, lingers.spec.volume.name) = ("shop".into(), "data".into());
        let text = judge(&[], std::slice::from_ref(&lingers), false).unwrap_err().to_string();
        assert!(text.contains("1 volume is still attached: shop/data on node n1; uninstall again"), "{text}");
        assert!(judge(&[], &[lingers], true).is_ok());
    }

    #[test]
    fn mounts_may_be_kept_on_purpose() {
        let text = judge(&[claim("a", Some("n1")), claim("b", None)], &[], true).unwrap();
        assert_eq!(text, "1 claim is still granted: shop/a on node n1; their volumes stay mounted");
    }

    #[test]
    fn pods_are_named_also_those_that_wait() {
        let mut waits = claim("pod-1", None);
        waits.spec.node_name = Some("n1".into());
        waits.spec.pod = Some(
            crate::api::claim::PodUse {
                namespace: "team".into(),
                name: "web-0".into(),
                persistent_volume: Some("pvc-1".into()),
                ..crate::api::claim::PodUse::default()
            }
            .into(),
        );
        let text = judge(&[waits], &[], false).unwrap_err().to_string();
        assert!(text.contains("Pod team/web-0 for PersistentVolume pvc-1 on node n1"), "{text}");
    }

    #[test]
    fn what_is_left_at_kubelets_is_said_with_its_end() {
        let of = |label: &str| -> CSIDriver {
            serde_json::from_value(
                json!({ "metadata": { "name": "d.example.com", "labels": { label: "p" } }, "spec": {} }),
            )
            .unwrap()
        };
        let mut plugin = Plugin::new("p", crate::api::PluginSpec::default());
        assert_eq!(kept(std::slice::from_ref(&plugin)), None);
        plugin.metadata.finalizers = Some(vec![FINALIZER.into()]);
        assert!(kept(&[plugin]).unwrap().contains("kubectl patch plugins p --type=merge"));
        assert_eq!(left_behind(&[of("other")], &[], &[]), None);
        let text = left_behind(&[of("moor.dev/plugin")], &[], &[]).unwrap();
        assert!(text.contains("kubectl delete csidriver d.example.com"), "{text}");
        let spec = PluginInstanceSpec { node_name: "n1".into(), ..PluginInstanceSpec::default() };
        let mut instance = PluginInstance::new("i", spec);
        let kubelet = KubeletStatus { driver_name: "alias".into(), ..KubeletStatus::default() };
        instance.status.get_or_insert_default().kubelet = Some(kubelet);
        let text = left_behind(&[], &[instance], &[]).unwrap();
        assert!(text.contains("plugins_registry/moor@alias.sock on node n1"), "{text}");
        let room = |labels: serde_json::Value| -> CSIStorageCapacity {
            let metadata = json!({ "name": "csisc-1", "namespace": "moor-system", "labels": labels });
            serde_json::from_value(json!({ "metadata": metadata, "storageClassName": "c" })).unwrap()
        };
        assert_eq!(left_behind(&[], &[], &[room(json!({}))]), None);
        let own = json!({ "csi.storage.k8s.io/managed-by": "moor", "moor.dev/plugin": "p" });
        let text = left_behind(&[], &[], &[room(own)]).unwrap();
        assert!(
            text.contains("csistoragecapacities -n moor-system -l csi.storage.k8s.io/managed-by=moor"),
            "{text}"
        );
    }
}
