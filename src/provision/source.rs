//! What a PersistentVolumeClaim wants its volume to be made from: another claim's volume, which the driver copies.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};

use super::restore::RestoreNow;
use super::volume_snapshots::GROUP;
use crate::api::provision::{CopyOf, ProvisionedFor};
use crate::api::{has_finalizer, quantity};

/// Finalizer by which a claim stays while its volume is copied. It has the stock one's name.
pub const CLONING_PROTECTION: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// What a claim names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// Nothing.
    None,
    /// A claim of its own namespace, by name.
    Claim(&'a str),
    /// A claim of another namespace.
    Elsewhere(&'a str),
    /// A VolumeSnapshot of its own namespace, by name.
    Snapshot(&'a str),
    /// A VolumeSnapshot of another namespace.
    SnapshotElsewhere(&'a str),
    /// Something from which another controller fills the volume.
    Others,
}

/// What a claim wants its volume to be made from.
#[must_use]
pub fn source<'a>(claim: &'a PersistentVolumeClaim) -> Source<'a> {
    let nothing = |spec: &'a PersistentVolumeClaimSpec| {
        let newer = spec.data_source_ref.as_ref();
        let newer =
            newer.map(|s| (s.api_group.as_deref(), s.kind.as_str(), s.name.as_str(), s.namespace.as_deref()));
        let older = || spec.data_source.as_ref();
        newer.or_else(|| older().map(|s| (s.api_group.as_deref(), s.kind.as_str(), s.name.as_str(), None)))
    };
    let own = claim.metadata.namespace.as_deref();
    match claim.spec.as_ref().and_then(nothing) {
        None => Source::None,
        Some((None | Some(""), "PersistentVolumeClaim", _, Some(other))) if Some(other) != own => {
            Source::Elsewhere(other)
        }
        Some((None | Some(""), "PersistentVolumeClaim", name, _)) => Source::Claim(name),
        Some((Some(GROUP), "VolumeSnapshot", _, Some(other))) if Some(other) != own => {
            Source::SnapshotElsewhere(other)
        }
        Some((Some(GROUP), "VolumeSnapshot", name, _)) => Source::Snapshot(name),
        Some(_) => Source::Others,
    }
}

/// The claim that is named, and its PersistentVolume, by live reads; or the VolumeSnapshot with what it stands for.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceNow<'a> {
    /// The VolumeSnapshot.
    pub restore: RestoreNow<'a>,
    /// The claim.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// What it is bound to.
    pub volume: Option<&'a PersistentVolume>,
}

/// Why a volume is not copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCopy {
    /// The driver copies none.
    #[error("spec.dataSource: the driver has no CLONE_VOLUME; create the claim without and copy the data")]
    Unsupported,
    /// The claim is another namespace's.
    #[error(
        "spec.dataSourceRef.namespace: a volume is copied within its namespace; name a claim of it, not of {0}"
    )]
    Elsewhere(String),
    /// It is another driver's.
    #[error("spec.dataSource: claim {claim} has a volume of {of}, and only {driver} could copy it here")]
    OfAnother {
        /// The claim that is named.
        claim: String,
        /// Its driver.
        of: String,
        /// The driver that is to make the copy.
        driver: String,
    },
    /// One is a file system and the other one a device.
    #[error("spec.volumeMode: {0} is of the other mode, and a copy has that of its source")]
    OtherMode(String),
    /// It is to be smaller.
    #[error(
        "spec.resources.requests.storage: a copy is not smaller than its source; {claim} asks for {size}"
    )]
    Smaller {
        /// The claim that is named.
        claim: String,
        /// What it asks for.
        size: String,
    },
}

/// What a copy waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyWaits {
    /// The claim is not there.
    #[error(
        "PersistentVolumeClaim {0}, of which the volume is to be a copy, does not exist, or is being deleted"
    )]
    NoClaim(String),
    /// It has no volume.
    #[error("PersistentVolumeClaim {0}, of which the volume is to be a copy, is not bound yet")]
    NotBound(String),
}

/// What comes of a claim that names another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The volume is to be made so.
    Of(CopyOf),
    /// The claim that is named has to be kept from going first.
    Protect,
    /// It is not there yet.
    Waits(CopyWaits),
    /// It cannot be.
    Refused(NoCopy),
}

/// Judges the claim that `wanted` names. `driver` is who makes the volume, of so many `bytes`.
#[must_use]
pub fn copied(
    wanted: &PersistentVolumeClaim,
    name: &str,
    now: SourceNow<'_>,
    driver: &str,
    bytes: i64,
) -> Copied {
    let found = now.claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
    let Some((claim, spec)) = found.and_then(|claim| Some((claim, claim.spec.as_ref()?))) else {
        return Copied::Waits(CopyWaits::NoClaim(name.to_owned()));
    };
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let source = now.volume.filter(|_| is_bound).and_then(|volume| volume.spec.as_ref());
    let Some(source) = source.filter(|source| {
        source.claim_ref.as_ref().is_some_and(|of| of.uid.is_some() && of.uid == claim.metadata.uid)
    }) else {
        return Copied::Waits(CopyWaits::NotBound(name.to_owned()));
    };
    let Some(csi) = source.csi.as_ref().filter(|csi| csi.driver == driver) else {
        let of = source.csi.as_ref().map_or("no CSI driver", |csi| csi.driver.as_str()).to_owned();
        let (claim, driver) = (name.to_owned(), driver.to_owned());
        return Copied::Refused(NoCopy::OfAnother { claim, of, driver });
    };
    let is_block = |mode: Option<&str>| mode == Some("Block");
    let wanted_mode = wanted.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    if is_block(wanted_mode) != is_block(spec.volume_mode.as_deref()) {
        return Copied::Refused(NoCopy::OtherMode(name.to_owned()));
    }
    let asks = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage"));
    if let Some(size) = asks.filter(|size| quantity::bytes(size).is_ok_and(|source| source > bytes)) {
        return Copied::Refused(NoCopy::Smaller { claim: name.to_owned(), size: size.0.clone() });
    }
    if !is_protected(claim) {
        return Copied::Protect;
    }
    let meta = &claim.metadata;
    let claim = ProvisionedFor {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    };
    Copied::Of(CopyOf { claim, volume_handle: csi.volume_handle.clone() })
}

/// Whether the claim stays while it is copied.
#[must_use]
pub fn is_protected(claim: &PersistentVolumeClaim) -> bool {
    has_finalizer(&claim.metadata, CLONING_PROTECTION)
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
