use super::error::KubectlError;
use super::force::order;
use super::objects_tests::{deleted, holder, scene, waiter};
use super::scene::{Scene, Scope};
use crate::k8s::ApiError;
use crate::k8s::scripted_tests::Scripted;

fn shop() -> Scope {
    Scope::In("shop".into())
}

/// A claim that is deleted, with the last word of its node's agent so many minutes past midnight.
fn leaving(minute: u32) -> Scene {
    let mut scene = scene();
    scene.claims = vec![deleted(holder())];
    for agent in scene.agents.iter_mut().flatten() {
        agent.renewed = Some(format!("2026-01-01T00:{minute:02}:59Z").parse().unwrap());
    }
    scene
}

#[test]
fn what_is_not_being_deleted_or_has_nothing_is_refused() {
    let mut scene = scene();
    let refused = order(&scene, "a", &shop()).unwrap_err();
    assert!(matches!(refused, KubectlError::NotDeleted { .. }));
    let words = refused.to_string();
    assert!(
        words.contains("VolumeClaim shop/a is not being deleted") && words.contains("Nothing was changed"),
        "{words}"
    );
    assert!(words.contains("kubectl delete volumeclaim a --namespace shop"), "{words}");
    scene.claims = vec![deleted(waiter())];
    assert!(matches!(order(&scene, "b", &shop()), Err(KubectlError::NotGranted(_))));
    assert!(matches!(order(&scene, "c", &shop()), Err(KubectlError::NotThere { .. })));
    assert!(matches!(order(&scene, "b", &Scope::In("other".into())), Err(KubectlError::NotThere { .. })));
}

#[test]
fn an_order_is_explained_before_it_is_given() {
    let order = order(&leaving(9), "a", &shop()).unwrap();
    assert!(order.is_new());
    let wanted = "\
VolumeClaim shop/a, which is being deleted
  It has Volume data on node node-1: its agent was heard 1s ago.
  While the agent on node-1 is heard, spec.forceDetach is an order to it: it unmounts the volume even while somebody uses it, \
and gives it up where the driver cannot unmount it. What is not written yet may be lost, and whoever still has the volume open \
may write beside its next user. End what uses it first.
  It cannot be taken back once it is followed.
  Nothing was changed. To do it: kubectl moor force-detach a --namespace shop --yes
";
    assert_eq!(order.page(false).to_string(), wanted);
    assert!(order.page(true).to_string().contains("\n  spec.forceDetach is set. See what becomes of it"));
}

#[test]
fn of_a_silent_node_it_says_what_becomes_of_the_volume() {
    let said = |scene: &Scene| order(scene, "a", &shop()).unwrap().page(false).to_string();
    let mut scene = leaving(2);
    let text = said(&scene);
    assert!(
        text.contains("the driver is told ControllerUnpublishVolume") && !text.contains("is heard, spec"),
        "{text}"
    );
    scene.attachments[0].spec.fixed.attach = false;
    assert!(said(&scene).contains("which refuses: the driver has no ControllerPublishVolume"));
    scene.attachments[0].spec.access_mode = crate::api::AccessMode::MultiNodeMultiWriter;
    assert!(said(&scene).contains("the volume is free at once"));
    // Where nobody may read Leases both are told.
    scene.agents = None;
    let text = said(&scene);
    assert!(
        text.contains("is heard, spec.forceDetach is an order")
            && text.contains("is silent, spec.forceDetach"),
        "{text}"
    );
}

#[test]
fn claims_that_share_the_volume_are_named() {
    let mut other = holder();
    (other.metadata.name, other.metadata.uid) = (Some("c".into()), Some("uid-c".into()));
    // An agent that is heard waits for nobody.
    for (minute, is, is_not) in [
        (
            9,
            "forces this claim's own mount at once. The volume stays on the node for the claims that share it: shop/c.",
            "are not",
        ),
        (2, "are deleted and forced, and these are not: shop/c.", "at once"),
    ] {
        let mut scene = leaving(minute);
        scene.claims.push(other.clone());
        let text = order(&scene, "a", &shop()).unwrap().page(false).to_string();
        assert!(text.contains(is) && !text.contains(is_not), "{text}");
    }
    let mut scene = leaving(9);
    scene.claims[0].spec.force_detach = true;
    let given = order(&scene, "a", &shop()).unwrap();
    assert!(!given.is_new() && given.page(true).to_string().contains("was set before. Nothing was changed."));
}

/// An API server that takes the order and does not answer.
#[tokio::test(start_paused = true)]
async fn who_gives_an_order_does_not_wait_for_ever() {
    let (_, client) = Scripted::start(Vec::new()).await;
    let order = order(&leaving(9), "a", &shop()).unwrap();
    let error = super::force::give(&super::connect::Cluster::of(client, "moor-system", "shop"), &order).await;
    assert!(
        matches!(&error, Err(KubectlError::NotGiven(_, why)) if matches!(**why, ApiError::TimedOut { .. })),
        "{error:?}"
    );
}
