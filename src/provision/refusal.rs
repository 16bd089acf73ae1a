//! Why a PersistentVolumeClaim has no volume: what it waits for, and what cannot be followed. The words are the Event on it.

use super::parameters::ParameterError;
use super::restore::{NoRestore, RestoreWaits};
use super::source::{CopyWaits, NoCopy};
use super::topology::NoPlace;
use crate::api::quantity::QuantityError;
use crate::plugin::secrets::NoSecretName;

/// What a claim waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// Its StorageClass is not there.
    #[error("StorageClass {0:?} does not exist; the volume is made when it is created again")]
    NoClass(String),
    /// Its VolumeAttributesClass is not there.
    #[error("VolumeAttributesClass {0:?} does not exist; the volume is made when it is created")]
    NoAttributes(String),
    /// There is no place for it.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// What it is to be a copy of is not there.
    #[error(transparent)]
    Copy(#[from] CopyWaits),
    /// The VolumeSnapshot of which it is to be made is not there, or not ready.
    #[error(transparent)]
    Restore(#[from] RestoreWaits),
}

/// Why a claim cannot be provisioned as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It selects PersistentVolumes.
    #[error(
        "spec.selector: a volume that is made for a claim has no labels to select it by; create the claim without, or a \
         PersistentVolume that has them"
    )]
    Selector,
    /// It is to be made of a VolumeSnapshot of which it cannot be made.
    #[error(transparent)]
    Restore(#[from] NoRestore),
    /// It is to be a copy that cannot be made.
    #[error(transparent)]
    Copy(#[from] NoCopy),
    /// It has no access mode, or one that is not known.
    #[error(
        "spec.accessModes: {0:?} is none of ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany and ReadWriteMany"
    )]
    AccessMode(String),
    /// It names no size.
    #[error("spec.resources.requests.storage: {0}")]
    Size(SizeError),
    /// The class says something that cannot be followed.
    #[error("StorageClass {class}: {error}")]
    Parameters {
        /// Name of the class.
        class: String,
        /// What.
        error: ParameterError,
    },
    /// What its Plugin says of its Secrets is no name.
    #[error(transparent)]
    Secret(#[from] NoSecretName),
    /// The class is for the code that Kubernetes once had for this driver in its own tree.
    #[error(
        "StorageClass {class}: its provisioner is {provisioner}, and moor does not translate what such a class says for driver \
         {driver}; create the claim with a class whose provisioner is {driver}"
    )]
    InTree {
        /// Name of the class.
        class: String,
        /// What it says.
        provisioner: String,
        /// The driver that has taken its place.
        driver: String,
    },
    /// The class has a reclaim policy that no CSI driver can follow.
    #[error("StorageClass {class}: reclaimPolicy {policy} is neither Delete nor Retain")]
    ReclaimPolicy {
        /// Name of the class.
        class: String,
        /// What it says.
        policy: String,
    },
    /// The VolumeAttributesClass is of another driver.
    #[error(
        "VolumeAttributesClass {class} is for the driver {of}, and the claim's StorageClass for {driver}"
    )]
    AttributesOfAnother {
        /// Name of the class.
        class: String,
        /// Its driver.
        of: String,
        /// The claim's.
        driver: String,
    },
    /// The driver takes no parameters of a VolumeAttributesClass.
    #[error("spec.volumeAttributesClassName: the driver has no MODIFY_VOLUME; create the claim without")]
    NoModify,
}

/// What is wrong with a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// There is none.
    #[error("it is not given")]
    Missing,
    /// It is nothing.
    #[error("it must be at least one byte")]
    Zero,
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl From<QuantityError> for SizeError {
    fn from(error: QuantityError) -> Self {
        Self::Unreadable(error.to_string())
    }
}
