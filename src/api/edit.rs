//! What of a Volume's use may be edited once it is Ready, and how far an edit is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Volume;
use super::capability::VolumeUse;
use super::conditions::CallFailure;
use super::volume::VolumeSpec;

/// How claims get a volume: in which modes, and mounted with which flags. Flags can carry credentials, so Debug never shows
/// them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedUse {
    /// The uses that claims may ask for, of which spec.capabilities may list some no more.
    #[schemars(length(max = 14))]
    pub capabilities: Vec<VolumeUse>,
    /// Flags for the mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::mount_flags")]
    pub mount_flags: Vec<String>,
}

impl std::fmt::Debug for GrantedUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrantedUse")
            .field("capabilities", &self.capabilities)
            .field("mount_flags", &format_args!("[{} redacted]", self.mount_flags.len()))
            .finish()
    }
}

impl GrantedUse {
    /// What the spec asks for now.
    #[must_use]
    pub fn asked(spec: &VolumeSpec) -> Self {
        let options = spec.mount_options.as_ref();
        let mount_flags = options.map(|options| options.mount_flags.clone()).unwrap_or_default();
        Self { capabilities: spec.capabilities.clone(), mount_flags }
    }

    /// How claims get a Volume: as it is granted, or before that as its spec says.
    #[must_use]
    pub fn of(volume: &Volume) -> Self {
        volume.granted().cloned().unwrap_or_else(|| Self::asked(&volume.spec))
    }

    /// Whether both are the same to claims and drivers: in which order capabilities are listed says nothing, and flags may
    /// undo each other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.lists_all_of(other) && other.lists_all_of(self) && self.mount_flags == other.mount_flags
    }

    /// Whether it lists every use that the other one does.
    #[must_use]
    pub fn lists_all_of(&self, other: &Self) -> bool {
        other.capabilities.iter().all(|one| self.capabilities.contains(one))
    }
}

/// The last edit of how claims get a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Edit {
    /// Rises by one with every edit.
    #[schemars(range(min = 1))]
    pub number: i64,
    /// As spec asked for it then.
    #[serde(flatten)]
    pub asked: GrantedUse,
}

/// What the driver has said of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EditAnswer {
    /// The number of the edit, as spec.assignment has it.
    pub number: i64,
    /// What went wrong. Absent: the driver confirms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallFailure>,
}

impl Volume {
    /// How claims get the volume now; None before it is granted to anybody, and where it cannot be edited.
    #[must_use]
    pub fn granted(&self) -> Option<&GrantedUse> {
        self.spec.assignment.as_ref()?.granted.as_ref()
    }

    /// The last edit of how claims get it.
    #[must_use]
    pub fn edit(&self) -> Option<&Edit> {
        self.spec.assignment.as_ref()?.edit.as_deref()
    }

    /// The uses in which claims are granted: what was taken out of spec.capabilities counts no more from the same moment, and
    /// what was added counts when it is granted.
    #[must_use]
    pub fn uses(&self) -> Vec<VolumeUse> {
        let asked = &self.spec.capabilities;
        match self.granted() {
            Some(granted) => asked.iter().filter(|one| granted.capabilities.contains(one)).copied().collect(),
            None => asked.clone(),
        }
    }

    /// The mount flags with which it is staged and shown to claims that say none themselves.
    #[must_use]
    pub fn mount_flags(&self) -> &[String] {
        match (self.granted(), &self.spec.mount_options) {
            (Some(granted), _) => &granted.mount_flags,
            (None, Some(options)) => &options.mount_flags,
            (None, None) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::capability::MountOptions;
    use crate::api::volume::VolumeAssignment;
    use crate::api::{AccessMode, AttachmentMode};

    fn one(access_mode: AccessMode) -> VolumeUse {
        VolumeUse { access_mode, attachment_mode: AttachmentMode::FileSystem }
    }

    #[test]
    fn claims_get_what_is_asked_for_and_granted() {
        let mut volume = Volume::new("data", VolumeSpec::default());
        volume.spec.capabilities = vec![one(AccessMode::SingleNodeWriter), one(AccessMode::MultiNodeReader)];
        volume.spec.mount_options =
            Some(Box::new(MountOptions { mount_flags: vec!["new".into()], ..MountOptions::default() }));
        assert_eq!((volume.uses().len(), volume.mount_flags()), (2, &["new".to_owned()][..]));
        let granted = GrantedUse {
            capabilities: vec![one(AccessMode::SingleNodeReader), one(AccessMode::SingleNodeWriter)],
            mount_flags: vec!["old".into()],
        };
        assert!(!format!("{granted:?}").contains("old"), "flags can carry credentials");
        volume.spec.assignment =
            Some(VolumeAssignment { granted: Some(granted), ..VolumeAssignment::default() });
        assert_eq!(volume.uses(), [one(AccessMode::SingleNodeWriter)]);
        assert_eq!(volume.mount_flags(), ["old"]);
    }

    #[test]
    fn the_order_of_capabilities_says_nothing() {
        let of = |modes: &[AccessMode], flags: &[&str]| GrantedUse {
            capabilities: modes.iter().map(|mode| one(*mode)).collect(),
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        let both = of(&[AccessMode::SingleNodeWriter, AccessMode::MultiNodeReader], &["a", "b"]);
        assert!(both.is_same(&of(&[AccessMode::MultiNodeReader, AccessMode::SingleNodeWriter], &["a", "b"])));
        assert!(
            !both.is_same(&of(&[AccessMode::MultiNodeReader, AccessMode::SingleNodeWriter], &["b", "a"]))
        );
        let fewer = of(&[AccessMode::MultiNodeReader], &["a", "b"]);
        assert!(!both.is_same(&fewer) && both.lists_all_of(&fewer) && !fewer.lists_all_of(&both));
    }
}
