//! Whether a Pod may have the volume that an agent asks for in its name.
//!
//! An agent makes claims for the Pods of its node, and whoever has an agent's token can make any. So what such a claim says
//! is compared with the Pod, the PersistentVolume and the PersistentVolumeClaim as they are now, before it is granted.

use crate::api::claim::PodUse;

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
}

/// A PersistentVolume as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeSeen {
    /// Name of the driver in its CSI source.
    pub driver: String,
    /// The volume in its CSI source.
    pub volume_handle: String,
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
    /// Name of the PersistentVolume that it is bound to.
    pub volume: String,
    /// UID of the Pod that controls it, if one does.
    pub pod_uid: Option<String>,
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
    /// The Pod and the PersistentVolume.
    pub pod: &'a PodUse,
    /// The node of the agent.
    pub node: &'a str,
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
}

/// Compares what an agent asks for with what there is.
#[must_use]
pub fn judge(asked: Asked<'_>, found: &Found) -> Entitled {
    let Asked { pod: wanted, node } = asked;
    let Some(pod) = found.pod.as_ref().filter(|pod| pod.uid == wanted.uid && !pod.ended) else {
        return Entitled::PodGone;
    };
    let (namespace, name, volume) = (&wanted.namespace, &wanted.name, &wanted.persistent_volume);
    let no = |why: String| Entitled::No(format!("Pod {namespace}/{name} {why}"));
    if pod.node != node {
        return no(format!("is not on node {node}"));
    }
    let Some(bound_to) = found.volume.as_ref().and_then(|volume| volume.bound_to.as_ref()) else {
        return no(format!("asks for PersistentVolume {volume}, which is not there or not bound"));
    };
    if bound_to.namespace != *namespace || !pod.claims.contains(&bound_to.name) {
        return no(format!(
            "does not use PersistentVolumeClaim {}/{}, to which PersistentVolume {volume} is bound",
            bound_to.namespace, bound_to.name
        ));
    }
    let stands = |claim: &&PersistentVolumeClaimSeen| claim.uid == bound_to.uid && claim.volume == *volume;
    let Some(claim) = found.claim.as_ref().filter(stands) else {
        return no(format!(
            "uses PersistentVolumeClaim {namespace}/{}, which is not the one that PersistentVolume {volume} is bound to",
            bound_to.name
        ));
    };
    // Else whoever may make Pods could take a PersistentVolumeClaim of another one for an ephemeral volume of his.
    if pod.ephemeral.contains(&bound_to.name) && claim.pod_uid.as_ref() != Some(&wanted.uid) {
        return no(format!("does not own PersistentVolumeClaim {namespace}/{}", bound_to.name));
    }
    Entitled::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> PodUse {
        PodUse {
            namespace: "ns".into(),
            name: "pod".into(),
            uid: "pod-uid".into(),
            persistent_volume: "pv".into(),
            volume_mount_group: None,
        }
    }

    fn found() -> Found {
        let claim = ClaimRef { namespace: "ns".into(), name: "data".into(), uid: "pvc-uid".into() };
        Found {
            pod: Some(PodSeen {
                uid: "pod-uid".into(),
                node: "node-1".into(),
                claims: vec!["other".into(), "data".into()],
                ..PodSeen::default()
            }),
            volume: Some(PersistentVolumeSeen { bound_to: Some(claim), ..PersistentVolumeSeen::default() }),
            claim: Some(PersistentVolumeClaimSeen {
                uid: "pvc-uid".into(),
                volume: "pv".into(),
                pod_uid: None,
            }),
        }
    }

    fn judged(change: impl FnOnce(&mut Found)) -> Entitled {
        let mut found = found();
        change(&mut found);
        judge(Asked { pod: &wanted(), node: "node-1" }, &found)
    }

    fn refused(change: impl FnOnce(&mut Found)) -> String {
        match judged(change) {
            Entitled::No(why) => why,
            other @ (Entitled::Yes | Entitled::PodGone) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_has_the_volumes_of_its_own_claims() {
        assert_eq!(judged(|_| {}), Entitled::Yes);
    }

    #[test]
    fn nobody_waits_for_a_pod_that_is_gone() {
        assert_eq!(judged(|f| f.pod = None), Entitled::PodGone);
        assert_eq!(judged(|f| f.pod.as_mut().unwrap().ended = true), Entitled::PodGone);
        assert_eq!(judged(|f| f.pod.as_mut().unwrap().uid = "next".into()), Entitled::PodGone);
    }

    /// What whoever has an agent's token may write.
    #[test]
    fn a_claim_that_lies_is_refused_and_says_what_does_not_fit() {
        let bound = |f: &mut Found| f.volume.as_mut().unwrap().bound_to.take().unwrap();
        let rebind = |f: &mut Found, to: ClaimRef| f.volume.as_mut().unwrap().bound_to = Some(to);
        for (why, word) in [
            (refused(|f| f.pod.as_mut().unwrap().node = "node-2".into()), "is not on node node-1"),
            (refused(|f| f.pod.as_mut().unwrap().node.clear()), "is not on node node-1"),
            (refused(|f| f.volume = None), "PersistentVolume pv, which is not there"),
            (refused(|f| drop(bound(f))), "not bound"),
            (
                refused(|f| {
                    let to = ClaimRef { namespace: "theirs".into(), ..bound(f) };
                    rebind(f, to);
                }),
                "does not use PersistentVolumeClaim theirs/data",
            ),
            (
                refused(|f| {
                    let to = ClaimRef { name: "secret".into(), ..bound(f) };
                    rebind(f, to);
                }),
                "does not use PersistentVolumeClaim ns/secret",
            ),
            (refused(|f| f.claim.as_mut().unwrap().uid = "anew".into()), "which is not the one"),
            (refused(|f| f.claim.as_mut().unwrap().volume = "pv-2".into()), "which is not the one"),
            (refused(|f| f.claim = None), "which is not the one"),
            (
                refused(|f| f.pod.as_mut().unwrap().ephemeral = vec!["data".into()]),
                "does not own PersistentVolumeClaim ns/data",
            ),
        ] {
            assert!(why.contains(word) && why.contains("Pod ns/pod"), "{why}");
        }
    }

    #[test]
    fn an_ephemeral_volume_is_its_pods() {
        let judged = judged(|f| {
            f.pod.as_mut().unwrap().ephemeral = vec!["data".into()];
            f.claim.as_mut().unwrap().pod_uid = Some("pod-uid".into());
        });
        assert_eq!(judged, Entitled::Yes);
    }
}
