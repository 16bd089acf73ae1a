//! Whether a Pod may have the volume that an agent asks for in its name.
//!
//! An agent makes claims for the Pods of its node, and whoever has an agent's token can make any. So what such a claim says
//! is compared with the Pod, the PersistentVolume and the PersistentVolumeClaim as they are now, before it is granted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume as VolumeOfPod};

use crate::api::attributes::differing;
use crate::api::claim::{PodUse, PodVolume};
use crate::api::conditions::first_few;
use crate::api::names::{INLINE, INLINE_VOLUME};
use crate::api::ordinal::{NamingPod, NoVolumeMeant, POD_INDEX, volume_meant};

/// So many keys of attributes are named.
const NAMED: usize = 8;

/// A Pod as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSeen {
    /// UID of the Pod.
    pub uid: String,
    /// Node that the Pod is bound to; empty before that.
    pub node: String,
    /// It has a deletionTimestamp, or its containers have ended for good.
    pub ended: bool,
    /// Names of the PersistentVolumeClaims that it uses.
    pub claims: Vec<String>,
    /// Names of those that were made for it, because it has a generic ephemeral volume.
    pub ephemeral: Vec<String>,
    /// Names of the Volumes that it names itself, by the name of its own volume, or why it names none there.
    pub inline: BTreeMap<String, Result<String, NoVolumeMeant>>,
}

/// A PersistentVolume as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeSeen {
    /// UID of the PersistentVolume.
    pub uid: String,
    /// Name of the driver in its CSI source; empty if it has none.
    pub driver: String,
    /// Name of the VolumeHandle of its volume; None where no Plugin serves its driver to Pods.
    pub handle_name: Option<String>,
    /// What it has its driver given: its volumeAttributes.
    pub attributes: BTreeMap<String, String>,
    /// The PersistentVolumeClaim that it is bound to: namespace, name and UID.
    pub bound_to: Option<ClaimRef>,
}

/// A PersistentVolumeClaim by its names and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRef {
    /// Namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// Name of the PersistentVolumeClaim.
    pub name: String,
    /// UID of the PersistentVolumeClaim.
    pub uid: String,
}

/// A PersistentVolumeClaim as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeClaimSeen {
    /// UID of the PersistentVolumeClaim.
    pub uid: String,
    /// Name of the PersistentVolume that it is bound to; empty before that.
    pub volume: String,
    /// UID of the Pod that controls it, if one does.
    pub pod_uid: Option<String>,
}

impl PodSeen {
    /// Reduces a Pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let volumes = || spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
        // The name that kube-controller-manager gives the claim of a generic ephemeral volume.
        let of_ephemeral = |v: &VolumeOfPod| v.ephemeral.as_ref().map(|_| format!("{name}-{}", v.name));
        let ephemeral: Vec<String> = volumes().filter_map(of_ephemeral).collect();
        let index = pod.metadata.labels.as_ref().and_then(|labels| labels.get(POD_INDEX));
        let naming = NamingPod { name, index: index.map(String::as_str) };
        let inline = |v: &VolumeOfPod| {
            let csi = v.csi.as_ref().filter(|csi| csi.driver == INLINE)?;
            let said = csi.volume_attributes.as_ref()?.get(INLINE_VOLUME)?;
            Some((v.name.clone(), volume_meant(said, naming)))
        };
        let named = volumes().filter_map(|v| Some(v.persistent_volume_claim.as_ref()?.claim_name.clone()));
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            ended: pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")),
            claims: named.chain(ephemeral.iter().cloned()).collect(),
            ephemeral,
            inline: volumes().filter_map(inline).collect(),
        }
    }
}

impl PersistentVolumeSeen {
    /// Reduces a PersistentVolume. `handle_name` says the name of the VolumeHandle of a volume, by the driver's name as
    /// kubelets know it and the volume's id.
    #[must_use]
    pub fn of(volume: &PersistentVolume, handle_name: impl Fn(&str, &str) -> Option<String>) -> Self {
        let spec = volume.spec.as_ref();
        let csi = spec.and_then(|spec| spec.csi.as_ref());
        let bound = spec.and_then(|spec| spec.claim_ref.as_ref());
        Self {
            uid: volume.metadata.uid.clone().unwrap_or_default(),
            driver: csi.map(|csi| csi.driver.clone()).unwrap_or_default(),
            handle_name: csi.and_then(|csi| handle_name(&csi.driver, &csi.volume_handle)),
            attributes: csi.and_then(|csi| csi.volume_attributes.clone()).unwrap_or_default(),
            bound_to: bound.and_then(|to| {
                let (namespace, name) = (to.namespace.clone()?, to.name.clone()?);
                Some(ClaimRef { namespace, name, uid: to.uid.clone()? })
            }),
        }
    }
}

impl PersistentVolumeClaimSeen {
    /// Reduces a PersistentVolumeClaim.
    #[must_use]
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let owners = claim.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.kind == "Pod" && owner.controller == Some(true));
        Self {
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            volume: volume.filter(|_| bound).unwrap_or_default(),
            pod_uid: controllers.next().map(|owner| owner.uid.clone()),
        }
    }
}

/// What live reads found, each None where there is no such object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The Pod of the name that the claim gives.
    pub pod: Option<PodSeen>,
    /// The PersistentVolume that the claim names.
    pub volume: Option<PersistentVolumeSeen>,
    /// The PersistentVolumeClaim that it is bound to.
    pub claim: Option<PersistentVolumeClaimSeen>,
}

/// What an agent asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The Pod, and by what it uses the volume.
    pub pod: &'a PodUse,
    /// The node of the agent.
    pub node: &'a str,
    /// Namespace of the claim and of its Volume.
    pub namespace: &'a str,
    /// moor's own namespace, where the Volumes of PersistentVolumes are.
    pub own_namespace: &'a str,
    /// The Volume that the claim names.
    pub volume: &'a str,
    /// Name of the VolumeHandle of that Volume, or of the one that it is to be made for; None if neither is known.
    pub handle_name: Option<&'a str>,
    /// The attributes with which that Volume was made of a PersistentVolume; None of one that was made in another way, is still
    /// to be made, or is on its way out.
    pub imported_with: Option<&'a BTreeMap<String, String>>,
    /// That Volume is kept for PersistentVolumes, whoever may use those.
    pub is_for_persistent: bool,
    /// UID of the PersistentVolume by which that Volume is exported.
    pub exported_as: Option<&'a str>,
    /// The Volume, as namespace/name, that the PersistentVolume is the export of, by its name.
    pub exporter: Option<&'a str>,
}

/// The answer about one claim of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entitled {
    /// The Pod uses the volume, on this node.
    Yes,
    /// The Pod is gone or has ended: nobody waits for the claim any more.
    PodGone,
    /// The Pod has no right to the volume, in words.
    No(String),
    /// The Pod may have the volume as its PersistentVolume describes it, and the Volume was made of one that describes it
    /// otherwise. In words.
    Otherwise(String),
}

/// The Pod that a claim was made for, if it is there and has not ended.
#[must_use]
pub fn living<'a>(wanted: &PodUse, found: Option<&'a PodSeen>) -> Option<&'a PodSeen> {
    found.filter(|pod| pod.uid == wanted.uid && !pod.ended)
}

/// Whether the Volume is one that its own namespace has made into this very PersistentVolume for its Pods.
fn is_export(asked: Asked<'_>, found: &Found) -> bool {
    let uid = found.volume.as_ref().map(|volume| volume.uid.as_str());
    let is_it = asked.exported_as.is_some() && asked.exported_as == uid;
    is_it && asked.namespace == asked.pod.namespace
}

/// Compares what an agent asks for with what there is.
#[must_use]
pub fn judge(asked: Asked<'_>, found: &Found) -> Entitled {
    let Asked { pod: wanted, node, .. } = asked;
    let Some(pod) = living(wanted, found.pod.as_ref()) else { return Entitled::PodGone };
    let no = |why: String| Entitled::No(format!("Pod {}/{} {why}", wanted.namespace, wanted.name));
    if pod.node != node {
        return no(format!("is not on node {node}"));
    }
    let judged = match wanted.volume() {
        PodVolume::Persistent(volume) => judge_persistent(asked, volume, pod, found),
        PodVolume::Inline(volume) => judge_inline(asked, volume, pod),
    };
    match judged {
        Err(why) => no(why),
        Ok(()) => otherwise(asked, found).map_or(Entitled::Yes, Entitled::Otherwise),
    }
}

/// What the driver would be given is not what the PersistentVolume says: it could mount something else, and nobody would know.
fn otherwise(asked: Asked<'_>, found: &Found) -> Option<String> {
    let (imported_with, volume) = (asked.imported_with?, asked.pod.by_persistent_volume()?);
    let keys = differing(imported_with, &found.volume.as_ref()?.attributes);
    if keys.is_empty() {
        return None;
    }
    let Asked { pod, namespace, volume: has_it, .. } = asked;
    Some(format!(
        "Pod {}/{} asks for PersistentVolume {volume}, whose volumeAttributes are not those with which Volume \
         {namespace}/{has_it} was made of another PersistentVolume of the same volumeHandle, and is used or waited for; they differ in: \
         {}. Give each PersistentVolume with volumeAttributes of its own a volumeHandle of its own, or end what uses the \
         Volume: then it is made anew of the PersistentVolume that is asked for next",
        pod.namespace,
        pod.name,
        first_few(keys, NAMED)
    ))
}

/// A Pod names a Volume itself: one of its own namespace, as everything is that a Pod can name.
fn judge_inline(asked: Asked<'_>, volume: &str, pod: &PodSeen) -> Result<(), String> {
    let Asked { namespace, volume: named, .. } = asked;
    match pod.inline.get(volume).filter(|_| namespace == asked.pod.namespace) {
        Some(Ok(meant)) if meant == named => {}
        Some(Err(why)) => {
            return Err(format!(
                "names no Volume: spec.volumes[{volume}].csi.volumeAttributes.{INLINE_VOLUME} {why}"
            ));
        }
        Some(Ok(_)) | None => {
            return Err(format!(
                "does not name Volume {namespace}/{named} in its volume {volume} (spec.volumes[].csi, driver {INLINE}), or is in \
                 another namespace"
            ));
        }
    }
    if asked.is_for_persistent {
        return Err(format!(
            "names Volume {named}, which moor keeps for a PersistentVolume: Pods use it by a PersistentVolumeClaim"
        ));
    }
    Ok(())
}

/// A Pod uses a PersistentVolumeClaim that is bound to a PersistentVolume.
fn judge_persistent(asked: Asked<'_>, volume: &str, pod: &PodSeen, found: &Found) -> Result<(), String> {
    let wanted = asked.pod;
    let namespace = &wanted.namespace;
    let is_export = is_export(asked, found);
    if asked.namespace != asked.own_namespace && !is_export {
        return Err(format!(
            "asks for Volume {}/{}, which somebody has made for the volume of PersistentVolume {volume}: Pods use only \
             Volumes that moor keeps for PersistentVolumes, in namespace {}, and those of their own namespace that were \
             made into that very PersistentVolume (spec.persistentVolumeClaim of the Volume)",
            asked.namespace, asked.volume, asked.own_namespace
        ));
    }
    // Its VolumeHandle was not there when kubelet asked. Another Volume would take the storage from it.
    if let Some(exporter) = asked.exporter.filter(|_| !is_export) {
        return Err(format!(
            "asks for PersistentVolume {volume}, which is that of Volume {exporter}, and not by that Volume: kubelet asks \
             again"
        ));
    }
    let Some(bound_to) = found.volume.as_ref().and_then(|volume| volume.bound_to.as_ref()) else {
        return Err(format!("asks for PersistentVolume {volume}, which is not there or not bound"));
    };
    if bound_to.namespace != *namespace || !pod.claims.contains(&bound_to.name) {
        return Err(format!(
            "does not use PersistentVolumeClaim {}/{}, to which PersistentVolume {volume} is bound",
            bound_to.namespace, bound_to.name
        ));
    }
    let stands = |claim: &&PersistentVolumeClaimSeen| claim.uid == bound_to.uid && claim.volume == volume;
    let Some(claim) = found.claim.as_ref().filter(stands) else {
        return Err(format!(
            "uses PersistentVolumeClaim {namespace}/{}, which is not the one that PersistentVolume {volume} is bound to",
            bound_to.name
        ));
    };
    // Else whoever may make Pods could take a PersistentVolumeClaim of another one for an ephemeral volume of his.
    if pod.ephemeral.contains(&bound_to.name) && claim.pod_uid.as_ref() != Some(&wanted.uid) {
        return Err(format!("does not own PersistentVolumeClaim {namespace}/{}", bound_to.name));
    }
    let (driver, handle_name) =
        found.volume.as_ref().map(|v| (v.driver.as_str(), v.handle_name.as_deref())).unwrap_or_default();
    match handle_name {
        None => Err(format!(
            "asks for PersistentVolume {volume}, which is not of a driver that a Plugin serves to Pods ({})",
            if driver.is_empty() { "it has no CSI source" } else { driver }
        )),
        // Else a Pod that has one volume would open every other one.
        Some(name) if asked.handle_name != Some(name) => Err(format!(
            "asks for PersistentVolume {volume}, which stands for another volume of driver {driver} than Volume {} does",
            asked.volume
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
#[path = "entitled_tests.rs"]
mod tests;
