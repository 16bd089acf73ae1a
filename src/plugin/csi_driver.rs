//! The CSIDriver object of a Plugin, which tells kubelets and the scheduler how its volumes are served to Pods.
//!
//! kubelet calls moor for a volume only if the object says that nothing has to be attached by a VolumeAttachment: moor
//! attaches in kubelet's own call. An object that somebody else has made is another installation's of the driver, whose
//! provisioner and attacher may be at work. So moor serves a name only where the object is its own.

use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, TokenRequest};
use kube::api::ObjectMeta;

use crate::api::Plugin;
use crate::api::kubernetes::FsGroupPolicy;
use crate::api::workload::PLUGIN;

/// Volumes that live longer than a Pod. Kubernetes' own word.
const PERSISTENT: &str = "Persistent";
/// Volumes that a Pod names itself. Kubernetes' own word.
const EPHEMERAL: &str = "Ephemeral";

/// What is to be done about one CSIDriver object.
#[derive(Clone, Debug, PartialEq)]
pub enum CsiDriverStep {
    /// Nothing: it is as it should be, or not moor's.
    Nothing,
    /// Create it.
    Create(Box<CSIDriver>),
    /// Write it as this.
    Correct(Box<CSIDriver>),
    /// Delete it; the next look creates it anew.
    Delete,
    /// It is another one's and stays, in words.
    Conflict(String),
}

/// Plans for the CSIDriver object of this name. `plugin` is the Plugin that is served to Pods under it, if one is.
#[must_use]
pub fn plan(name: &str, plugin: Option<&Plugin>, found: Option<&CSIDriver>) -> CsiDriverStep {
    match (plugin, found) {
        (None, Some(found)) if is_ours(found) => CsiDriverStep::Delete,
        (None, _) => CsiDriverStep::Nothing,
        (Some(plugin), None) => CsiDriverStep::Create(Box::new(new_of(name, plugin))),
        (Some(_), Some(found)) if found.metadata.deletion_timestamp.is_some() => CsiDriverStep::Nothing,
        (Some(plugin), Some(found)) if is_ours(found) => match contradiction(found) {
            // What says otherwise can never be changed.
            Some(_) => CsiDriverStep::Delete,
            None => correct(plugin, found),
        },
        (Some(plugin), Some(_)) if plugin.spec.kubernetes.csi_driver.replace => CsiDriverStep::Delete,
        (Some(plugin), Some(found)) => CsiDriverStep::Conflict(conflict(name, plugin, found)),
    }
}

/// Whether kubelets and provisioning heed moor under the object's name.
#[must_use]
pub fn serves(found: &CSIDriver) -> bool {
    is_ours(found) && contradiction(found).is_none() && found.metadata.deletion_timestamp.is_none()
}

/// Whether kubelets let Pods name volumes of the driver themselves, and wait for no VolumeAttachment.
#[must_use]
pub fn serves_inline(found: &CSIDriver) -> bool {
    let modes = found.spec.volume_lifecycle_modes.as_deref().unwrap_or_default();
    let is_there = found.metadata.deletion_timestamp.is_none();
    is_there && found.spec.attach_required == Some(false) && modes.iter().any(|mode| mode == EPHEMERAL)
}

/// The object as it says whether the scheduler goes by the driver's CSIStorageCapacity objects, if it does not say that yet.
#[must_use]
pub fn with_capacity(found: &CSIDriver, counts: bool) -> Option<CSIDriver> {
    if counts_capacity(found) == counts || found.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut after = found.clone();
    after.spec.storage_capacity = Some(counts);
    Some(after)
}

/// Whether the scheduler goes by the driver's CSIStorageCapacity objects.
#[must_use]
pub fn counts_capacity(found: &CSIDriver) -> bool {
    found.spec.storage_capacity == Some(true)
}

/// Whether moor has made the object.
#[must_use]
pub fn is_ours(found: &CSIDriver) -> bool {
    plugin_of(found).is_some()
}

/// The Plugin that the object was made for, if moor has made it.
#[must_use]
pub fn plugin_of(found: &CSIDriver) -> Option<&str> {
    found.metadata.labels.as_ref()?.get(PLUGIN).map(String::as_str)
}

/// What an object says otherwise than moor needs it and can never be changed, and what follows from it.
fn contradiction(found: &CSIDriver) -> Option<&'static str> {
    let attaches = found.spec.attach_required != Some(false);
    // Without the field it is Persistent alone.
    let modes = found.spec.volume_lifecycle_modes.as_deref().unwrap_or_default();
    let is_persistent = modes.is_empty() || modes.iter().any(|mode| mode == PERSISTENT);
    match (attaches, is_persistent) {
        (true, _) => Some(
            "it says attachRequired true, so new Pods that use the driver wait for VolumeAttachments, which moor does not make; ",
        ),
        (false, false) => Some(
            "it says volumeLifecycleModes without Persistent, so kubelets take no PersistentVolume of the driver; ",
        ),
        (false, true) => None,
    }
}

/// Whose the object is, in words, with what ends it.
fn conflict(name: &str, plugin: &Plugin, found: &CSIDriver) -> String {
    let plugin = plugin.metadata.name.as_deref().unwrap_or_default();
    let what = contradiction(found).unwrap_or_default();
    let patch = r#"{"spec":{"kubernetes":{"csiDriver":{"replace":true}}}}"#;
    format!(
        "moor has not made CSIDriver {name} and leaves it alone, so no Pod gets volumes of the driver from moor; {what}end the \
         other installation (external-attacher, external-provisioner, node-driver-registrar), then either `kubectl delete \
         csidriver {name}`, and moor makes its own, or, to have it replaced whenever it comes back, `kubectl patch plugin \
         {plugin} --type merge -p '{patch}'`; to run beside the other one set spec.kubernetes.driverName to another name"
    )
}

/// Puts right what can be changed in an object of moor's.
fn correct(plugin: &Plugin, found: &CSIDriver) -> CsiDriverStep {
    let wanted = spec_of(plugin);
    let mut corrected = found.clone();
    let spec = &mut corrected.spec;
    spec.pod_info_on_mount = wanted.pod_info_on_mount;
    spec.fs_group_policy.clone_from(&wanted.fs_group_policy);
    spec.se_linux_mount = wanted.se_linux_mount;
    spec.requires_republish = wanted.requires_republish;
    // What was said for another Plugin went by objects of that one.
    if found.metadata.labels.as_ref().and_then(|labels| labels.get(PLUGIN)) != plugin.metadata.name.as_ref() {
        spec.storage_capacity = wanted.storage_capacity;
    }
    // The API server keeps no empty list.
    let tokens = |spec: &CSIDriverSpec| spec.token_requests.clone().unwrap_or_default();
    if tokens(&wanted) != tokens(spec) {
        spec.token_requests = wanted.token_requests;
    }
    corrected.metadata.labels.get_or_insert_default().extend(labels_of(plugin));
    if corrected == *found { CsiDriverStep::Nothing } else { CsiDriverStep::Correct(Box::new(corrected)) }
}

fn labels_of(plugin: &Plugin) -> [(String, String); 2] {
    let name = plugin.metadata.name.clone().unwrap_or_default();
    [(PLUGIN.to_owned(), name), ("app.kubernetes.io/managed-by".to_owned(), "moor".to_owned())]
}

fn new_of(name: &str, plugin: &Plugin) -> CSIDriver {
    CSIDriver {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels_of(plugin).into()),
            ..ObjectMeta::default()
        },
        spec: spec_of(plugin),
    }
}

/// As moor needs it, and as the Plugin says.
fn spec_of(plugin: &Plugin) -> CSIDriverSpec {
    let said = &plugin.spec.kubernetes.csi_driver;
    let policy = match said.fs_group_policy {
        FsGroupPolicy::ReadWriteOnceWithFSType => "ReadWriteOnceWithFSType",
        FsGroupPolicy::File => "File",
        FsGroupPolicy::None => "None",
    };
    let tokens: Vec<TokenRequest> = said
        .token_requests
        .iter()
        .map(|t| TokenRequest { audience: t.audience.clone(), expiration_seconds: t.expiration_seconds })
        .collect();
    CSIDriverSpec {
        attach_required: Some(false),
        pod_info_on_mount: Some(true),
        volume_lifecycle_modes: Some(vec![PERSISTENT.to_owned()]),
        fs_group_policy: Some(policy.to_owned()),
        se_linux_mount: Some(said.se_linux_mount),
        requires_republish: Some(said.requires_republish),
        token_requests: (!tokens.is_empty()).then_some(tokens),
        // With true the scheduler places no Pod before it finds CSIStorageCapacity objects, and at first there are none. Who
        // writes these says when they count (`with_capacity`).
        storage_capacity: Some(false),
        ..CSIDriverSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kubernetes;
    use crate::api::plugin::PluginSpec;

    const NAME: &str = "driver.example.com";

    fn plugin(change: impl FnOnce(&mut kubernetes::CsiDriver)) -> Plugin {
        let mut plugin = Plugin::new("p", PluginSpec::default());
        change(&mut plugin.spec.kubernetes.csi_driver);
        plugin
    }

    fn made(plugin: &Plugin) -> CSIDriver {
        match plan(NAME, Some(plugin), None) {
            CsiDriverStep::Create(made) => *made,
            other => panic!("{other:?}"),
        }
    }

    /// As somebody else makes one, with what the API server adds.
    fn foreign(attach_required: bool) -> CSIDriver {
        let mut found = made(&plugin(|_| {}));
        found.metadata.labels = None;
        found.spec.attach_required = Some(attach_required);
        found
    }

    #[test]
    fn it_says_what_moor_needs_and_what_the_plugin_says() {
        let token = kubernetes::TokenRequest { audience: "vault".into(), expiration_seconds: Some(600) };
        let plugin = plugin(|said| {
            (said.fs_group_policy, said.requires_republish) = (FsGroupPolicy::File, true);
            said.token_requests = vec![token];
        });
        let made = made(&plugin);
        assert_eq!((made.spec.attach_required, made.spec.pod_info_on_mount), (Some(false), Some(true)));
        assert_eq!(made.spec.fs_group_policy.as_deref(), Some("File"));
        assert_eq!((made.spec.requires_republish, made.spec.storage_capacity), (Some(true), Some(false)));
        assert_eq!(made.spec.token_requests.as_ref().unwrap()[0].audience, "vault");
        assert!(is_ours(&made) && plugin_of(&made) == Some("p"));
        assert_eq!(plan(NAME, Some(&plugin), Some(&made)), CsiDriverStep::Nothing);
    }

    #[test]
    fn what_can_be_changed_in_its_own_is_put_right() {
        let plugin = plugin(|_| {});
        let mut found = made(&plugin);
        found.spec.pod_info_on_mount = Some(false);
        found.spec.token_requests = Some(vec![TokenRequest::default()]);
        let CsiDriverStep::Correct(corrected) = plan(NAME, Some(&plugin), Some(&found)) else {
            panic!("nothing is put right");
        };
        assert_eq!(corrected.spec.pod_info_on_mount, Some(true));
        assert_eq!((corrected.spec.storage_capacity, &corrected.spec.token_requests), (Some(false), &None));
        assert_eq!(plan(NAME, Some(&plugin), Some(&corrected)), CsiDriverStep::Nothing);
        assert!(serves(&corrected));
        let counts = with_capacity(&corrected, true).unwrap();
        assert!(counts_capacity(&counts) && with_capacity(&counts, true).is_none());
        assert_eq!(with_capacity(&counts, false).as_ref(), Some(&*corrected));
        assert_eq!(
            plan(NAME, Some(&plugin), Some(&counts)),
            CsiDriverStep::Nothing,
            "whoever writes the objects says it"
        );
        let mut of_another = counts;
        of_another.metadata.labels.as_mut().unwrap().insert(PLUGIN.into(), "before".into());
        let CsiDriverStep::Correct(taken) = plan(NAME, Some(&plugin), Some(&of_another)) else {
            panic!("that of an earlier Plugin is not taken over");
        };
        assert_eq!(plugin_of(&taken), Some("p"));
        assert!(!counts_capacity(&taken), "the earlier Plugin's objects go with it");
        found.spec.attach_required = None;
        assert_eq!(plan(NAME, Some(&plugin), Some(&found)), CsiDriverStep::Delete);
        assert!(!serves(&found));
    }

    #[test]
    fn that_of_somebody_else_is_told_or_replaced() {
        let mut ephemeral = foreign(false);
        ephemeral.spec.volume_lifecycle_modes = Some(vec!["Ephemeral".into()]);
        let unset = CSIDriver { spec: CSIDriverSpec::default(), ..foreign(true) };
        for (found, part) in [
            (foreign(true), "attachRequired true"),
            (unset, "attachRequired true"),
            (ephemeral, "volumeLifecycleModes"),
            // As moor wants it, and still not moor's to change or to serve by.
            (foreign(false), "leaves it alone"),
        ] {
            let CsiDriverStep::Conflict(words) = plan(NAME, Some(&plugin(|_| {})), Some(&found)) else {
                panic!("it is not told");
            };
            for part in [part, "`kubectl delete csidriver driver.example.com`", "`kubectl patch plugin p "] {
                assert!(words.contains(part), "{words}");
            }
            let replaces = plugin(|said| said.replace = true);
            assert_eq!(plan(NAME, Some(&replaces), Some(&found)), CsiDriverStep::Delete);
            assert!(!serves(&found));
        }
    }

    #[test]
    fn only_its_own_goes_with_the_plugin() {
        assert_eq!(plan(NAME, None, Some(&made(&plugin(|_| {})))), CsiDriverStep::Delete);
        assert_eq!(plan(NAME, None, Some(&foreign(false))), CsiDriverStep::Nothing);
        assert_eq!(plan(NAME, None, None), CsiDriverStep::Nothing);
    }
}
