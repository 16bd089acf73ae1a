//! Whether a namespace may have what its Volume or claim asks for.

use std::collections::BTreeMap;

use crate::api::allow::{Allow, Namespaces};
use crate::api::volume::DeletionPolicy;
use crate::api::{Plugin, Snapshot, Volume, VolumeClaim, VolumeState};

/// A namespace as this decision sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSeen {
    /// Its name.
    pub name: String,
    /// Its labels; none where the Namespace has not been seen.
    pub labels: BTreeMap<String, String>,
}

/// What a namespace asks for and its Plugin does not allow it. Becomes a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NotAllowed {
    /// Name of the Plugin.
    pub plugin: String,
    /// Whether there is a Plugin of that name.
    pub exists: bool,
    /// Name of the namespace.
    pub namespace: String,
    /// The right that is missing.
    pub right: Right,
    /// The field that asks for it.
    pub field: &'static str,
}

/// An entry of `spec.allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// To have volumes made, and snapshots of them.
    Create,
    /// To name volumes and snapshots that exist.
    Register,
    /// To speak to the driver in its own words.
    Parameterise,
    /// To have storage deleted that was registered.
    DeleteRegistered,
}

impl Right {
    fn entry(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Register => "register",
            Self::Parameterise => "parameterise",
            Self::DeleteRegistered => "deleteRegistered",
        }
    }

    fn holders(self, allow: &Allow) -> &Namespaces {
        match self {
            Self::Create => &allow.create,
            Self::Register => &allow.register,
            Self::Parameterise => &allow.parameterise,
            Self::DeleteRegistered => &allow.delete_registered,
        }
    }

    fn instead(self) -> &'static str {
        match self {
            Self::Create => "use another Plugin",
            Self::Register => "make a volume with spec.capacity instead",
            Self::Parameterise => "delete this object and create it without that field",
            Self::DeleteRegistered => "set spec.deletionPolicy to Retain, which leaves the storage as it is",
        }
    }
}

impl NotAllowed {
    /// The condition's message.
    #[must_use]
    pub fn message(&self) -> String {
        self.message_or(self.right.instead())
    }

    /// The condition's message, where something else can be done instead.
    #[must_use]
    pub fn message_or(&self, instead: &str) -> String {
        let Self { plugin, exists, namespace, right, field } = self;
        let entry = right.entry();
        if *exists {
            return format!(
                "{field}: Plugin {plugin} does not allow this in namespace {namespace}; {instead}, or have an \
                 administrator add the namespace to spec.allow.{entry} of the Plugin"
            );
        }
        format!(
            "{field}: Plugin {plugin} does not exist, and nobody else can allow this in namespace {namespace} \
             (spec.allow.{entry}); {instead}, or have the Plugin created again"
        )
    }
}

/// What a Volume asks for and its namespace may not: one that is deleted asks for the end of its storage, one that is Ready
/// for the parameters and flags that can be changed by now, any other for all that its spec says. Counts only for what has not been
/// granted yet.
#[must_use]
pub fn volume(plugin: Option<&Plugin>, namespace: &NamespaceSeen, volume: &Volume) -> Option<NotAllowed> {
    let spec = &volume.spec;
    let registers = spec.volume_handle.is_some();
    let deletes_registered = registers && spec.deletion_policy == Some(DeletionPolicy::Delete);
    let delete = (deletes_registered, Right::DeleteRegistered, "spec.deletionPolicy");
    let options = spec.mount_options.as_ref();
    let has_flags = options.is_some_and(|o| !o.mount_flags.is_empty());
    let flags = (has_flags, Right::Parameterise, MOUNT_FLAGS);
    let modifies = (!spec.mutable_parameters.is_empty(), Right::Parameterise, "spec.mutableParameters");
    let asked = if volume.metadata.deletion_timestamp.is_some() {
        vec![delete]
    } else if spec.assignment.is_some() && volume.state() == VolumeState::Ready {
        vec![modifies, flags]
    } else {
        vec![
            (!registers, Right::Create, "spec.capacity"),
            (registers, Right::Register, "spec.volumeHandle"),
            (!spec.parameters.is_empty(), Right::Parameterise, "spec.parameters"),
            modifies,
            (!spec.volume_context.is_empty(), Right::Parameterise, "spec.volumeContext"),
            (spec.secrets.as_ref().is_some_and(|s| !s.is_empty()), Right::Parameterise, "spec.secrets"),
            (options.is_some_and(|o| o.fs_type.is_some()), Right::Parameterise, "spec.mountOptions.fsType"),
            flags,
            delete,
        ]
    };
    let name = &spec.plugin_name;
    first_lack(asked, |right, field| lacks(plugin, name, namespace, right, field))
}

/// What a PersistentVolumeClaim asks for and its namespace may not: that a volume is made. Whatever else is asked for in its
/// name its StorageClass says, which is an administrator's word.
#[must_use]
pub fn provision(plugin: &Plugin, namespace: &NamespaceSeen) -> Option<NotAllowed> {
    let name = plugin.metadata.name.as_deref().unwrap_or_default();
    lacks(Some(plugin), name, namespace, Right::Create, "spec.storageClassName")
}

/// What a VolumeSnapshot, or a VolumeGroupSnapshot, asks for and its namespace may not: that a snapshot is taken. Whatever else is
/// asked for in its name its class says. `reference` is the field of its content that names it.
#[must_use]
pub fn take(plugin: &Plugin, namespace: &NamespaceSeen, reference: &'static str) -> Option<NotAllowed> {
    let name = plugin.metadata.name.as_deref().unwrap_or_default();
    lacks(Some(plugin), name, namespace, Right::Create, reference)
}

/// What a claim of a Volume of the Plugin `name` asks for and its namespace may not. Counts only while nothing is granted.
#[must_use]
pub fn claim(
    plugin: Option<&Plugin>,
    name: &str,
    namespace: &NamespaceSeen,
    claim: &VolumeClaim,
) -> Option<NotAllowed> {
    let has_flags = claim.spec.mount_options.as_ref().is_some_and(|o| !o.mount_flags.is_empty());
    has_flags.then(|| lacks(plugin, name, namespace, Right::Parameterise, MOUNT_FLAGS))?
}

/// What a Snapshot asks for and its namespace may not: one that is deleted asks for the end of what it has only registered.
/// Counts only for what has not been granted yet.
#[must_use]
pub fn snapshot(
    plugin: Option<&Plugin>,
    name: &str,
    namespace: &NamespaceSeen,
    snapshot: &Snapshot,
) -> Option<NotAllowed> {
    let spec = &snapshot.spec;
    let registers = spec.snapshot_handle.is_some();
    let deletes_registered = registers && spec.deletion_policy == Some(DeletionPolicy::Delete);
    let delete = (deletes_registered, Right::DeleteRegistered, "spec.deletionPolicy");
    let asked = if snapshot.metadata.deletion_timestamp.is_some() {
        vec![delete]
    } else {
        vec![
            (
                !registers,
                Right::Create,
                if snapshot.is_group() { "spec.volumeNames" } else { "spec.volumeName" },
            ),
            (registers, Right::Register, "spec.snapshotHandle"),
            (!spec.parameters.is_empty(), Right::Parameterise, "spec.parameters"),
            (spec.secret_name.is_some(), Right::Parameterise, "spec.secretName"),
            delete,
        ]
    };
    first_lack(asked, |right, field| lacks(plugin, name, namespace, right, field))
}

fn first_lack(
    asked: Vec<(bool, Right, &'static str)>,
    lacks: impl Fn(Right, &'static str) -> Option<NotAllowed>,
) -> Option<NotAllowed> {
    asked.into_iter().filter(|(is, ..)| *is).find_map(|(_, right, field)| lacks(right, field))
}

/// The field that says how a volume is mounted.
pub const MOUNT_FLAGS: &str = "spec.mountOptions.mountFlags";

fn lacks(
    plugin: Option<&Plugin>,
    name: &str,
    namespace: &NamespaceSeen,
    right: Right,
    field: &'static str,
) -> Option<NotAllowed> {
    let may = |plugin: &Plugin| right.holders(&plugin.spec.allow).has(&namespace.name, &namespace.labels);
    (!plugin.is_some_and(may)).then(|| NotAllowed {
        plugin: name.to_owned(),
        exists: plugin.is_some(),
        namespace: namespace.name.clone(),
        right,
        field,
    })
}

#[cfg(test)]
#[path = "allow_tests.rs"]
mod tests;
