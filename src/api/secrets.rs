//! Which Secrets a driver's calls take along: those that a Volume names, and those of its Plugin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sparse::Empty;

/// Calls that take the same Secret along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretFor {
    /// CreateVolume, DeleteVolume and ValidateVolumeCapabilities.
    Controller,
    /// ControllerPublishVolume and ControllerUnpublishVolume.
    ControllerPublish,
    /// ControllerExpandVolume.
    ControllerExpand,
    /// ControllerModifyVolume.
    ControllerModify,
    /// CreateSnapshot, DeleteSnapshot and ListSnapshots.
    Snapshot,
    /// NodeStageVolume.
    NodeStage,
    /// NodePublishVolume.
    NodePublish,
    /// NodeExpandVolume.
    NodeExpand,
}

impl SecretFor {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Controller,
        Self::ControllerPublish,
        Self::ControllerExpand,
        Self::ControllerModify,
        Self::Snapshot,
        Self::NodeStage,
        Self::NodePublish,
        Self::NodeExpand,
    ];
}

/// Names of Secrets in the Volume's namespace: one for all calls, or one per kind of call. Only their names are ever stored. Those
/// of Volumes that moor keeps for PersistentVolumes, in its own namespace, may be of any namespace: namespace/name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRefs {
    /// Secret for every call that has none of its own here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub default: Option<String>,
    /// Secret for CreateVolume, DeleteVolume and ValidateVolumeCapabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub controller: Option<String>,
    /// Secret for ControllerPublishVolume and ControllerUnpublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub controller_publish: Option<String>,
    /// Secret for ControllerExpandVolume. Absent: that of `controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub controller_expand: Option<String>,
    /// Secret for ControllerModifyVolume. Absent: that of `controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub controller_modify: Option<String>,
    /// Secret for CreateSnapshot, DeleteSnapshot and ListSnapshots. Absent: that of `controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub snapshot: Option<String>,
    /// Secret for NodeStageVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub node_stage: Option<String>,
    /// Secret for NodePublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub node_publish: Option<String>,
    /// Secret for NodeExpandVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub node_expand: Option<String>,
}

impl Empty for SecretRefs {
    const EMPTY: &'static Self = &Self {
        default: None,
        controller: None,
        controller_publish: None,
        controller_expand: None,
        controller_modify: None,
        snapshot: None,
        node_stage: None,
        node_publish: None,
        node_expand: None,
    };
}

impl SecretRefs {
    /// Whether no Secret is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The Secret that these calls have of their own.
    #[must_use]
    pub fn own(&self, call: SecretFor) -> Option<&str> {
        let named = match call {
            SecretFor::Controller => &self.controller,
            SecretFor::ControllerPublish => &self.controller_publish,
            SecretFor::ControllerExpand => &self.controller_expand,
            SecretFor::ControllerModify => &self.controller_modify,
            SecretFor::Snapshot => &self.snapshot,
            SecretFor::NodeStage => &self.node_stage,
            SecretFor::NodePublish => &self.node_publish,
            SecretFor::NodeExpand => &self.node_expand,
        };
        named.as_deref()
    }

    /// The Secret that these calls take along.
    #[must_use]
    pub fn of(&self, call: SecretFor) -> Option<&str> {
        let like_creation =
            matches!(call, SecretFor::ControllerExpand | SecretFor::ControllerModify | SecretFor::Snapshot);
        let usual = self.controller.as_deref().filter(|_| like_creation);
        self.own(call).or(usual).or(self.default.as_deref())
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.default
            .as_deref()
            .into_iter()
            .chain(SecretFor::ALL.into_iter().filter_map(|call| self.own(call)))
    }
}

/// A Secret by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretName<'a> {
    /// Of whoever wrote the Volume or the Snapshot: a name in that object's namespace.
    OfUser(&'a str),
    /// Of the Plugin: namespace/name.
    OfPlugin(&'a str),
}

/// The Secret that calls for a volume take along: the one that its user names, else the one of its Plugin.
#[must_use]
pub fn chosen<'a>(
    user: Option<&'a SecretRefs>,
    plugin: Option<&'a SecretRefs>,
    call: SecretFor,
) -> Option<SecretName<'a>> {
    let of_user = user.and_then(|named| named.of(call)).map(SecretName::OfUser);
    of_user.or_else(|| plugin.and_then(|named| named.of(call)).map(SecretName::OfPlugin))
}

/// Secrets of a driver: one for all calls, or one per kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretTemplates {
    /// Secret for every call that has none of its own here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<SecretTemplate>,
    /// Secret for CreateVolume, DeleteVolume and ValidateVolumeCapabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<SecretTemplate>,
    /// Secret for ControllerPublishVolume and ControllerUnpublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_publish: Option<SecretTemplate>,
    /// Secret for ControllerExpandVolume. Absent: that of `controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_expand: Option<SecretTemplate>,
    /// Secret for ControllerModifyVolume. Absent: that of `controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_modify: Option<SecretTemplate>,
    /// Secret for CreateSnapshot, DeleteSnapshot and ListSnapshots. Absent: that of `controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SecretTemplate>,
    /// Secret for NodeStageVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_stage: Option<SecretTemplate>,
    /// Secret for NodePublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_publish: Option<SecretTemplate>,
    /// Secret for NodeExpandVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_expand: Option<SecretTemplate>,
}

/// A Secret of any namespace. Words in its name and namespace stand for those of the PersistentVolumeClaim that a volume is made
/// for, or else of the Volume or the Snapshot itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// `namespace` is a reserved word of CEL, which has another name for the field.
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!self.name.matches('[$][{]pvc[.]name[}]') || self.__namespace__.matches('[$][{]pvc[.]namespace[}]')",
    "message": "${pvc.name} in the name needs ${pvc.namespace} in the namespace: whoever names a Volume would choose among all \
                Secrets of one namespace",
    "fieldPath": ".name",
}]))]
pub struct SecretTemplate {
    /// Its name. ${pvc.namespace} and ${pv.name} stand for those of the PersistentVolumeClaim that a volume is made for, or else of
    /// the Volume itself, and so does ${pvc.name}, which needs ${pvc.namespace} in the namespace.
    #[schemars(schema_with = "super::schema::secret_template")]
    pub name: String,
    /// Its namespace. ${pvc.namespace} and ${pv.name} may stand in it.
    #[schemars(schema_with = "super::schema::namespace_template")]
    pub namespace: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refs(named: &serde_json::Value) -> SecretRefs {
        serde_json::from_value(named.clone()).unwrap()
    }

    #[test]
    fn every_kind_of_call_has_its_own_and_no_other() {
        let all = refs(&json!({
            "default": "default", "controller": "Controller", "controllerPublish": "ControllerPublish",
            "controllerExpand": "ControllerExpand", "controllerModify": "ControllerModify", "snapshot": "Snapshot",
            "nodeStage": "NodeStage", "nodePublish": "NodePublish", "nodeExpand": "NodeExpand",
        }));
        for call in SecretFor::ALL {
            assert_eq!(all.of(call), Some(&*format!("{call:?}")));
        }
        assert_eq!(all.names().count(), 9);
    }

    #[test]
    fn one_counts_for_all_that_have_none_of_their_own() {
        let named = refs(&json!({ "default": "all", "nodeStage": "stage" }));
        for call in SecretFor::ALL {
            let wanted = if call == SecretFor::NodeStage { "stage" } else { "all" };
            assert_eq!(named.of(call), Some(wanted), "{call:?}");
        }
        assert!(SecretFor::ALL.iter().all(|call| SecretRefs::default().of(*call).is_none()));
    }

    #[test]
    fn what_changes_a_volume_goes_by_what_made_it_before_what_is_for_all() {
        use SecretFor::{ControllerExpand, ControllerModify, ControllerPublish, Snapshot};
        let named = refs(&json!({ "default": "all", "controller": "made" }));
        for call in [ControllerExpand, ControllerModify, Snapshot] {
            assert_eq!(named.of(call), Some("made"), "{call:?}");
        }
        assert_eq!(named.of(ControllerPublish), Some("all"));
    }

    #[test]
    fn a_user_comes_before_the_plugin_for_each_kind_of_call() {
        use SecretFor::{Controller, ControllerExpand, NodeStage};
        use SecretName::{OfPlugin, OfUser};
        let user = refs(&json!({ "controller": "mine" }));
        let plugin = refs(&json!({ "default": "admin/all", "controllerExpand": "admin/expand" }));
        let chosen = |call| chosen(Some(&user), Some(&plugin), call);
        assert_eq!(chosen(Controller), Some(OfUser("mine")));
        assert_eq!(chosen(ControllerExpand), Some(OfUser("mine")), "it goes by what made it");
        assert_eq!(chosen(NodeStage), Some(OfPlugin("admin/all")));
        assert_eq!(super::chosen(Some(&user), None, NodeStage), None);
    }
}
