use super::*;
use crate::api::secrets::{SecretName, SecretRefs};

/// The class of a VolumeSnapshotContent says with which Secret its calls are made, or with none.
#[test]
fn what_is_taken_for_a_content_inherits_no_secret() {
    let mut case = Case::new();
    let secrets = case.volume.as_mut().unwrap().spec.secrets.get_or_insert_default();
    secrets.controller = Some("of-the-volume".into());
    let secret = |case: &Case| match case.plan() {
        SnapshotStep::Assign(assignment) => assignment.secret_name,
        other => panic!("{other:?}"),
    };
    assert_eq!(secret(&case).as_deref(), Some("of-the-volume"));
    case.snapshot.spec.volume_snapshot_content = Some(crate::api::snapshot::SnapshotOf::default());
    assert_eq!(secret(&case), None);
}

/// Of one that is taken that is what its Volume has, and of one that is registered what the Plugin names by now.
#[test]
fn the_secret_is_fixed_when_it_is_taken_up() {
    let secret_of = |case: &Case| {
        let SnapshotStep::Assign(assignment) = case.plan() else { panic!("{:?}", case.plan()) };
        let mut taken_up = case.snapshot.clone();
        taken_up.spec.assignment = Some(*assignment);
        match taken_up.secret() {
            Some(SecretName::OfUser(name)) => format!("the user's {name}"),
            Some(SecretName::OfPlugin(name)) => format!("the Plugin's {name}"),
            None => String::new(),
        }
    };
    let templates = serde_json::json!({ "default": { "namespace": "keys", "name": "${pvc.namespace}" } });
    let mut case = Case::new();
    case.secrets = serde_json::from_value(templates).unwrap();
    assert_eq!(secret_of(&case), "", "its Volume was made with none");
    let volume = case.volume.as_mut().unwrap();
    let then = SecretRefs { controller: Some("keys/then".into()), ..SecretRefs::default() };
    volume.spec.assignment.as_mut().unwrap().secrets = then.into();
    assert_eq!(secret_of(&case), "the Plugin's keys/then");
    case.volume.as_mut().unwrap().spec.secrets.get_or_insert_default().default = Some("own".into());
    assert_eq!(secret_of(&case), "the user's own");
    let spec = &mut case.snapshot.spec;
    (spec.volume_name, spec.snapshot_handle) = (None, Some("snap-1".into()));
    (case.volume, case.snapshot.metadata.namespace) = (None, Some("shop".into()));
    case.looked.holders = Some(Vec::new());
    assert_eq!(secret_of(&case), "the Plugin's keys/shop");
    case.snapshot.spec.secret_name = Some("own".into());
    assert_eq!(secret_of(&case), "the user's own");
}
