use serde_json::{Value, json};

use super::*;
use crate::attachment::NodeGrowth;
use crate::fixtures;

const MI: i64 = 1 << 20;

/// A Volume that was made with 1Mi, and of which `change` makes what it is.
fn volume(change: impl FnOnce(&mut Value)) -> Volume {
    let mut whole = json!({
        "apiVersion": "moor.dev/v1alpha1", "kind": "Volume", "metadata": { "name": "data", "uid": fixtures::VOLUME_UID },
        "spec": { "pluginName": "p", "capacity": "3Mi" },
        "status": { "state": "Ready", "capacityBytes": 3 * MI,
            "expansion": { "capacityBytes": 3 * MI, "nodeExpansionRequired": true } },
    });
    change(&mut whole);
    serde_json::from_value(whole).unwrap()
}

fn attachment(uid: &str, reached: i64) -> AttachmentSeen {
    let growth = NodeGrowth { asked: 3 * MI, reached };
    AttachmentSeen { growth, node: format!("node-{uid}"), ..fixtures::attachment(uid) }
}

fn on(attachment: &AttachmentSeen) -> OnNode<'_> {
    OnNode { attachment, failure: None, only_unused: false }
}

#[test]
fn what_is_owed_is_what_the_storage_has() {
    assert_eq!(owed(&volume(|_| {})), Some(3 * MI));
    let larger = volume(|whole| whole["status"]["capacityBytes"] = (4 * MI).into());
    assert_eq!(owed(&larger), Some(4 * MI), "the driver has made more than was asked for");
    let more = volume(|whole| whole["spec"]["capacity"] = "9Mi".into());
    assert_eq!(owed(&more), Some(3 * MI), "the storage is asked first");
    for nothing in [
        volume(|whole| whole["status"]["expansion"]["nodeExpansionRequired"] = false.into()),
        volume(|whole| whole["status"]["expansion"] = Value::Null),
        volume(|whole| whole["status"]["state"] = "Deleted".into()),
        volume(|whole| whole["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()),
    ] {
        assert_eq!(owed(&nothing), None);
    }
}

/// No call has made the storage larger, so nothing keeps a size that cannot be had from being taken back.
#[test]
fn what_is_left_to_nodes_alone_may_be_lowered() {
    let of = |capacity: &str| {
        volume(|whole| {
            whole["spec"]["capacity"] = capacity.into();
            whole["status"]["capacityBytes"] = MI.into();
        })
    };
    assert_eq!(
        [owed(&of("3Mi")), owed(&of("2Mi")), owed(&of("1Mi"))],
        [Some(3 * MI), Some(2 * MI), Some(MI)]
    );
}

#[test]
fn they_have_followed_when_one_has_and_nobody_is_behind() {
    let (done, behind) = (attachment("a", 3 * MI), attachment("b", MI));
    let (here, there) = (fixtures::granted("c", &done), fixtures::granted("d", &behind));
    let followed =
        |attachments: &[AttachmentSeen], claims: &[ClaimSeen]| have_followed(attachments, claims, 3 * MI);
    let both = [done.clone(), behind.clone()];
    assert!(!followed(&both, &[here.clone(), there.clone()]));
    assert!(followed(&both, std::slice::from_ref(&here)), "nobody has it there");
    let reads = ClaimSeen { read_only: true, ..there.clone() };
    assert!(followed(&both, &[here.clone(), reads]), "who reads finds the file system larger");
    let kubelets = ClaimSeen { of_pod: true, grown_by_kubelet: true, ..there.clone() };
    assert!(!followed(&both, &[here.clone(), kubelets]), "it goes by what the volume says");
    let leaving = AttachmentSeen { deleted: true, ..behind.clone() };
    assert!(followed(&[done.clone(), leaving], &[here, there]));
    assert!(!followed(std::slice::from_ref(&behind), &[]), "somebody has to");
    let gone = AttachmentSeen { deleted: true, ..done };
    assert!(followed(&[gone], &[]), "it was done before it closed");
}

#[test]
fn the_volume_names_the_nodes_that_have_to_follow() {
    let data = volume(|_| {});
    let (a, b) = (attachment("a", 0), attachment("b", MI));
    let claims = [fixtures::granted("c", &a), fixtures::granted("d", &b)];
    let says = |nodes: &[OnNode<'_>], claims: &[ClaimSeen]| condition(&data, claims, nodes).unwrap();
    let said = says(&[on(&b), on(&a)], &claims);
    assert_eq!(said.reason, Reason::NodesToFollow);
    assert!(said.message.contains("3Mi on node-a, node-b too"), "{}", said.message);
    let said = says(&[OnNode { only_unused: true, ..on(&a) }], &claims);
    assert!(said.message.contains("when all claims of the node have been deleted"), "{}", said.message);
    let failed = OnNode { failure: Some("NodeExpandVolume: Internal: words".into()), ..on(&b) };
    let said = says(&[on(&a), failed.clone()], &claims);
    assert_eq!(said.reason, Reason::NodeExpandFailed);
    assert!(said.message.contains("node-b") && said.message.contains("Internal: words"), "{}", said.message);
    let said = says(&[failed], &[]);
    assert_eq!(said.reason, Reason::NodesToFollow, "nobody uses it there any more");
    assert!(said.message.contains("the next claim"), "{}", said.message);
    let more = volume(|whole| whole["spec"]["capacity"] = "9Mi".into());
    assert_eq!(condition(&more, &claims, &[on(&a)]), None, "of the storage others tell");
}

#[test]
fn of_what_pods_use_kubelet_tells() {
    let exported = volume(|whole| whole["spec"]["persistentVolumeClaim"] = json!({ "name": "data" }));
    let said = condition(&exported, &[], &[]).unwrap();
    assert_eq!(said.reason, Reason::Expanded);
    assert!(said.message.contains("kubelet"), "{}", said.message);
    let a = attachment("a", 0);
    let said = condition(&exported, &[fixtures::granted("c", &a)], &[on(&a)]).unwrap();
    assert_eq!(said.reason, Reason::NodesToFollow, "a VolumeClaim beside them is moor's");
    let expansion = Expansion { capacity_bytes: 3 * MI, node_expansion_required: true };
    assert_eq!(grown(&exported, expansion).reason, Reason::Expanded);
    assert_eq!(grown(&volume(|_| {}), expansion).reason, Reason::NodesToFollow);
}
