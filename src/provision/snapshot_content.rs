//! What moor heeds of two kinds that are alike: a VolumeSnapshotContent, and a VolumeGroupSnapshotContent, which is of several volumes.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::core::ClusterResourceScope;
use kube::core::object::HasStatus;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::annotations::annotation;
use crate::api::volume::DeletionPolicy;
use crate::api::{Snapshot, has_finalizer};

/// A content: what a driver keeps, and for which object of a user.
pub trait SnapshotContent:
    Resource<DynamicType = (), Scope = ClusterResourceScope>
    + HasStatus<Status: Clone + Default + PartialEq + Debug + Serialize>
    + Clone
{
    /// How what it is for is taken.
    type Class: SnapshotClass + Send;

    /// It is of several volumes.
    const IS_GROUP: bool;
    /// The words in which the snapshot-controller and csi-snapshotter speak of this kind.
    const WORDS: Words;

    /// The driver, by its name in PersistentVolumes.
    fn driver(&self) -> &str;
    /// What becomes of what the driver keeps.
    fn deletion_policy(&self) -> Option<DeletionPolicy>;
    /// Name of its class.
    fn class_name(&self) -> Option<&str>;
    /// What it is for.
    fn reference(&self) -> &SnapshotRef;
    /// The volumes of which snapshots are to be taken, as their driver knows them.
    fn volume_handles(&self) -> Vec<&str>;
    /// What exists, as whoever has written the content says.
    fn given(&self) -> Option<Given>;
    /// What exists, as its status says; None also where that does not say all of it.
    fn said_there(&self) -> Option<Given>;
    /// What goes wrong, by this status.
    fn error(status: &Self::Status) -> Option<&str>;
    /// What its status says that the driver has.
    fn said_handle(&self) -> Option<&str>;
    /// Whether volumes can be made of it, as its status says.
    fn is_ready(&self) -> bool;
    /// Whether its storage is a group's, with which it goes.
    fn is_of_group(&self) -> bool;
    /// What it says by now of its Snapshot. Handle, moment and size stay as they were first said.
    fn says(&self, snapshot: &Snapshot, now: &Time) -> Self::Status;
    /// What it says while something goes wrong before there is a Snapshot of it, or at its end.
    fn fails(&self, words: &str, now: &Time) -> Self::Status;
    /// What it says when its storage is gone.
    fn without_storage(&self) -> Self::Status;

    /// Whether it is deleted, and what it is for with it, or that has never been bound to it. One that is for something that is
    /// there stays as it is.
    fn ends(&self) -> bool {
        let unbound = self.given().is_some() && self.reference().uid.is_empty();
        self.meta().deletion_timestamp.is_some() && (unbound || has(self, Self::WORDS.being_deleted))
    }

    /// Whether it stays until somebody has seen to what the driver keeps.
    fn is_held(&self) -> bool {
        has_finalizer(self.meta(), Self::WORDS.finalizer)
    }

    /// Whether csi-snapshotter has left word that it may be taking the snapshot. It reads that itself, and nobody else does.
    fn is_being_created(&self) -> bool {
        has(self, Self::WORDS.being_created)
    }

    /// The same without that word.
    #[must_use]
    fn created(&self) -> Self {
        let mut created = self.clone();
        created.meta_mut().annotations.get_or_insert_default().remove(Self::WORDS.being_created);
        created
    }

    /// The Secret of its calls, as namespace/name. An error where only one half is given.
    fn secret(&self) -> Result<Option<String>, HalfSecret> {
        let keys = Self::WORDS.secret;
        match keys.map(|key| annotation(self.meta().annotations.as_ref(), key)) {
            [Some(name), Some(namespace)] => Ok(Some(format!("{namespace}/{name}"))),
            [None, None] => Ok(None),
            [Some(_), None] => Err(HalfSecret { given: keys[0], missing: keys[1] }),
            [None, Some(_)] => Err(HalfSecret { given: keys[1], missing: keys[0] }),
        }
    }
}

/// A class, of either kind. It has no spec.
pub trait SnapshotClass:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned
{
    /// The driver.
    fn driver(&self) -> &str;
    /// What the driver is told, and Secrets.
    fn parameters(&self) -> &BTreeMap<String, String>;
}

/// What a content is for: a VolumeSnapshot, or a VolumeGroupSnapshot. Without a UID the two are not bound yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRef {
    /// Its group and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its version when the two were bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

fn has(content: &impl SnapshotContent, key: &str) -> bool {
    content.meta().annotations.as_ref().is_some_and(|all| all.contains_key(key))
}

/// The words in which the snapshot-controller and csi-snapshotter speak of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The kind that a content is for.
    pub of: &'static str,
    /// The field that names it.
    pub reference: &'static str,
    /// The field that names the class.
    pub class_field: &'static str,
    /// Finalizer by which a bound content stays. The snapshot-controller puts it on, and who heeds the driver takes it off.
    pub finalizer: &'static str,
    /// Annotation: what it is for is being deleted. The snapshot-controller writes it.
    pub being_deleted: &'static str,
    /// Annotation: csi-snapshotter may be taking the snapshot.
    pub being_created: &'static str,
    /// Annotations: name and namespace of the Secret of its calls, which the snapshot-controller has found by the class.
    pub secret: [&'static str; 2],
    /// What csi-snapshotter puts before the UID of what the content is for, to name it to the driver.
    pub create_name: &'static str,
    /// By what a driver is told what its snapshot is for, if it wants that.
    pub told: &'static str,
    /// What a class calls the Secret by which what exists is looked at.
    pub look_secret: &'static str,
    /// The one word that may stand in its name: it stands for the content's.
    pub look_word: &'static str,
}

/// What exists at the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The snapshot, or the group.
    pub handle: String,
    /// The members of a group; there is one at least.
    pub members: Vec<String>,
}

impl Given {
    /// One snapshot.
    #[must_use]
    pub fn one(handle: String) -> Self {
        Self { handle, members: Vec::new() }
    }
}

/// One half of a Secret's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {given} is given without {missing}; a Secret needs both, or neither")]
pub struct HalfSecret {
    given: &'static str,
    missing: &'static str,
}
