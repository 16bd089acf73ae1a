//! What the Secrets that a Plugin names are for one volume.

use crate::api::names::{is_namespace_name, is_object_name};
use crate::api::secrets::{SecretRefs, SecretTemplate, SecretTemplates};
use crate::api::template::expand;

/// Most characters of what is no name that are shown.
const SHOWN: usize = 320;

/// For what templates are resolved: the PersistentVolumeClaim that a volume is made for, or else the Volume or Snapshot itself.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Name of the PersistentVolume that is made for it, or would be.
    pub persistent_volume: &'a str,
}

/// What a Plugin says comes to no name for this volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "spec.secrets.{field} of Plugin {plugin} comes to {value:?} here, which is not the name of a {what}: have it changed there, or \
     give this another name"
)]
pub struct NoSecretName {
    /// Name of the Plugin.
    pub plugin: String,
    /// The field below `spec.secrets`.
    pub field: String,
    /// What the template comes to, or what of it stands for nothing.
    pub value: String,
    /// Secret or namespace.
    pub what: &'static str,
}

/// The Secrets that a Plugin names, each as namespace/name.
///
/// A user must not choose among Secrets that he does not own: the schema lets a name have what he chooses freely (`${pvc.name}`)
/// only where the namespace follows from his own.
pub fn resolve(
    plugin: &str,
    templates: &SecretTemplates,
    of: Subject<'_>,
) -> Result<SecretRefs, NoSecretName> {
    let SecretTemplates {
        default,
        controller,
        controller_publish,
        controller_expand,
        controller_modify,
        snapshot,
        node_stage,
        node_publish,
        node_expand,
    } = templates;
    let named = |field: &str, template: &Option<SecretTemplate>| {
        let lack = |half: &str, value: String, what| NoSecretName {
            plugin: plugin.to_owned(),
            field: format!("{field}.{half}"),
            // A name may stand in a template many times.
            value: value.chars().take(SHOWN).collect(),
            what,
        };
        template.as_ref().map(|template| secret(template, of, lack)).transpose()
    };
    Ok(SecretRefs {
        default: named("default", default)?,
        controller: named("controller", controller)?,
        controller_publish: named("controllerPublish", controller_publish)?,
        controller_expand: named("controllerExpand", controller_expand)?,
        controller_modify: named("controllerModify", controller_modify)?,
        snapshot: named("snapshot", snapshot)?,
        node_stage: named("nodeStage", node_stage)?,
        node_publish: named("nodePublish", node_publish)?,
        node_expand: named("nodeExpand", node_expand)?,
    })
}

/// The Secret that ListSnapshots of all snapshots takes along, as namespace/name. None where the Plugin names none, or another for
/// each volume.
#[must_use]
pub fn for_listing(templates: &SecretTemplates) -> Option<String> {
    let named =
        templates.snapshot.as_ref().or(templates.controller.as_ref()).or(templates.default.as_ref())?;
    let SecretTemplate { name, namespace } = named;
    let is_one = is_namespace_name(namespace) && is_object_name(name);
    is_one.then(|| format!("{namespace}/{name}"))
}

fn secret(
    template: &SecretTemplate,
    of: Subject<'_>,
    lack: impl Fn(&str, String, &'static str) -> NoSecretName,
) -> Result<String, NoSecretName> {
    let of_namespace = |word: &str| match word {
        "pvc.namespace" => Some(of.namespace),
        "pv.name" => Some(of.persistent_volume),
        _ => None,
    };
    let in_namespace = template.namespace.contains("${pvc.namespace}");
    let of_name = |word: &str| match word {
        // The schema says so too; this is what stops it if somebody has put it there past that.
        "pvc.name" => in_namespace.then_some(of.name),
        word => of_namespace(word),
    };
    let namespace = expand(&template.namespace, of_namespace)
        .and_then(|namespace| if is_namespace_name(&namespace) { Ok(namespace) } else { Err(namespace) })
        .map_err(|value| lack("namespace", value, "namespace"))?;
    let name = expand(&template.name, of_name)
        .and_then(|name| if is_object_name(&name) { Ok(name) } else { Err(name) })
        .map_err(|value| lack("name", value, "Secret"))?;
    Ok(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OF: Subject<'static> = Subject { namespace: "shop", name: "data", persistent_volume: "moor-uid" };

    fn resolved(templates: &Value, of: Subject<'_>) -> Result<SecretRefs, String> {
        let templates = serde_json::from_value(templates.clone()).unwrap();
        resolve("d", &templates, of).map_err(|error| error.to_string())
    }

    fn one(namespace: &str, name: &str) -> Result<String, String> {
        let refs = resolved(&json!({ "default": { "namespace": namespace, "name": name } }), OF)?;
        Ok(refs.default.unwrap())
    }

    #[test]
    fn words_stand_for_whom_the_volume_is() {
        assert_eq!(one("storage", "key").unwrap(), "storage/key");
        assert_eq!(one("storage", "key-${pvc.namespace}").unwrap(), "storage/key-shop");
        assert_eq!(one("${pvc.namespace}", "${pvc.name}.key").unwrap(), "shop/data.key");
        assert_eq!(one("storage", "${pv.name}").unwrap(), "storage/moor-uid");
    }

    #[test]
    fn a_listing_takes_along_what_is_the_same_for_all() {
        let of = |templates: &Value| for_listing(&serde_json::from_value(templates.clone()).unwrap());
        let (one, each) =
            (json!({ "namespace": "n", "name": "s" }), json!({ "namespace": "n", "name": "${pv.name}" }));
        assert_eq!(of(&json!({ "default": &each, "snapshot": &one })), Some("n/s".into()));
        assert_eq!(of(&json!({ "default": &each, "controller": &one })), Some("n/s".into()));
        assert_eq!(of(&json!({ "default": &one, "snapshot": &each })), None);
        assert_eq!(of(&json!({ "nodeStage": &one })), None);
    }

    #[test]
    fn every_kind_of_call_keeps_its_own() {
        let mut templates = json!({});
        let kinds = [
            "default",
            "controller",
            "controllerPublish",
            "controllerExpand",
            "controllerModify",
            "snapshot",
            "nodeStage",
            "nodePublish",
            "nodeExpand",
        ];
        for kind in kinds {
            templates[kind] = json!({ "namespace": "n", "name": format!("of-{}", kind.to_lowercase()) });
        }
        let said = serde_json::to_value(resolved(&templates, OF).unwrap()).unwrap();
        for kind in kinds {
            assert_eq!(said[kind], format!("n/of-{}", kind.to_lowercase()));
        }
    }

    #[test]
    fn a_user_does_not_choose_among_the_secrets_of_one_namespace() {
        let chosen = Subject { name: "root-password", ..OF };
        for name in ["${pvc.name}", "${pvc.namespace}-${pvc.name}", "x-${pvc.name}"] {
            let refused = resolved(&json!({ "nodeStage": { "namespace": "storage", "name": name } }), chosen)
                .unwrap_err();
            assert!(
                refused.contains("spec.secrets.nodeStage.name of Plugin d")
                    && refused.contains("${pvc.name}"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_field() {
        let refused = one("storage", "${pvc.annotations['key']}").unwrap_err();
        assert!(
            refused.contains("spec.secrets.default.name") && refused.contains("annotations"),
            "{refused}"
        );
        let refused = one("${pvc.name}", "key").unwrap_err();
        assert!(refused.contains("spec.secrets.default.namespace"), "{refused}");
        for (namespace, name) in
            [("a.b", "key"), ("n", "a/b"), ("n", "../x"), ("n", "$"), ("n", "${"), ("", "k"), ("n", "")]
        {
            assert!(one(namespace, name).is_err(), "{namespace} {name}");
        }
        let long = Subject { name: &"a".repeat(253), ..OF };
        let template = json!({ "default": { "namespace": "${pvc.namespace}", "name": "key-${pvc.name}" } });
        assert!(resolved(&template, long).unwrap_err().contains("the name of a Secret"));
    }
}
