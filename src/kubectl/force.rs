//! The order to undo a deleted claim by force: what it means for this claim, and the write.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::connect::Cluster;
use super::error::KubectlError;
use super::page::Page;
use super::scene::{Scene, Scope, is_named};
use super::words::full_name;
use crate::api::conditions::{READY, find_as, first_few};
use crate::api::{Attachment, VolumeClaim};
use crate::attachment::loss::excludes_other_nodes;
use crate::k8s::read::{request, within};

/// Most claims that are named.
const NAMED: usize = 5;

/// An order that can be given, and what is to be known before it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The claim as namespace/name.
    full_name: String,
    namespace: String,
    name: String,
    uid: String,
    /// It was given before.
    is_given: bool,
    lines: Vec<String>,
}

/// The order for a claim, or why it cannot be given.
pub(super) fn order(scene: &Scene, name: &str, scope: &Scope) -> Result<Order, KubectlError> {
    let namespace = scope.namespace().unwrap_or_default();
    let claim = scene.claims.iter().find(|claim| is_named(&claim.metadata, Some(namespace), name));
    let claim = claim.ok_or_else(|| KubectlError::NotThere {
        kind: "VolumeClaim",
        name: name.to_owned(),
        place: scope.place(),
    })?;
    let full = full_name(&claim.metadata);
    if claim.metadata.deletion_timestamp.is_none() {
        let (claim, namespace) = (name.to_owned(), namespace.to_owned());
        return Err(KubectlError::NotDeleted { name: full, claim, namespace });
    }
    let Some(assignment) = &claim.spec.assignment else { return Err(KubectlError::NotGranted(full)) };
    Ok(Order {
        full_name: full,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        is_given: claim.spec.force_detach,
        lines: meaning(scene, claim, &assignment.node_name),
    })
}

/// What the order does to this claim as things are.
fn meaning(scene: &Scene, claim: &VolumeClaim, node: &str) -> Vec<String> {
    let mut lines =
        vec![format!("It has Volume {} on node {node}: {}.", claim.spec.volume_name, scene.heard(node))];
    let conditions = claim.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    if let Some(now) = find_as(conditions, READY, "False") {
        lines.push(format!("It now says {}: {}", now.reason, now.message));
    }
    let attachment = scene.attachment_of(claim);
    let silent = scene.is_silent(node);
    if silent != Some(true) {
        lines.push(format!(
            "While the agent on {node} is heard, spec.forceDetach is an order to it: it unmounts the volume even while \
             somebody uses it, and gives it up where the driver cannot unmount it. What is not written yet may be lost, \
             and whoever still has the volume open may write beside its next user. End what uses it first."
        ));
    }
    if silent != Some(false) {
        lines.push(without_the_agent(node, attachment));
    }
    let others = others(scene, claim);
    let named = first_few(others.iter().map(String::as_str), NAMED);
    if !others.is_empty() && silent != Some(true) {
        lines.push(format!(
            "The agent forces this claim's own mount at once. The volume stays on the node for the claims that share it: {named}."
        ));
    }
    if !others.is_empty() && silent != Some(false) {
        lines.push(format!(
            "The controller follows it when all claims that share the volume on the node are deleted and forced, and these are \
             not: {named}."
        ));
    }
    lines.push("It cannot be taken back once it is followed.".into());
    lines
}

/// What becomes of it while the agent is silent (docs/node-loss.md).
fn without_the_agent(node: &str, attachment: Option<&Attachment>) -> String {
    let when = format!(
        "While the agent on {node} is silent, spec.forceDetach hands the claim over to the controller"
    );
    let Some(attachment) = attachment else {
        return format!("{when}, which detaches the volume if the driver can cut the node off from it.");
    };
    if attachment.spec.lost.is_some() {
        return format!(
            "The volume has been taken from {node} already: the order changes nothing more there."
        );
    }
    if attachment.spec.fixed.attach {
        return format!(
            "{when}: the driver is told ControllerUnpublishVolume, and the volume is free without having been unmounted \
             there. What the node has not written yet is lost, and it writes on where the storage does not cut it off by \
             that: where you can, make sure that the machine is off, and delete or taint its Node instead."
        );
    }
    if excludes_other_nodes(attachment.spec.access_mode) {
        return format!(
            "{when}, which refuses: the driver has no ControllerPublishVolume, so nothing would keep the node from \
             writing on beside the next one. Make sure that the machine is off, and delete or taint its Node."
        );
    }
    format!("{when}: the volume is free at once, since its mode lets several nodes use it.")
}

/// Claims that have the same Attachment and are not forced.
fn others(scene: &Scene, claim: &VolumeClaim) -> Vec<String> {
    let uid = claim.spec.assignment.as_ref().map(|assignment| &assignment.attachment_uid);
    let shares = |other: &&VolumeClaim| {
        other.metadata.uid != claim.metadata.uid
            && other.spec.assignment.as_ref().map(|assignment| &assignment.attachment_uid) == uid
            && (other.metadata.deletion_timestamp.is_none() || !other.spec.force_detach)
    };
    scene.claims.iter().filter(shares).map(|other| full_name(&other.metadata)).collect()
}

impl Order {
    /// Whether it was not given before.
    pub fn is_new(&self) -> bool {
        !self.is_given
    }

    /// What is to be read; `given`: it was to be given.
    pub fn page(&self, given: bool) -> Page {
        let mut page = Page::default();
        page.heading(&format!("VolumeClaim {}, which is being deleted", self.full_name));
        self.lines.iter().for_each(|line| page.line(2, line));
        let (namespace, name) = (&self.namespace, &self.name);
        let said = match (self.is_given, given) {
            (true, _) => "spec.forceDetach was set before. Nothing was changed.".into(),
            (false, true) => format!(
                "spec.forceDetach is set. See what becomes of it: kubectl moor status claim {name} --namespace {namespace}"
            ),
            (false, false) => format!(
                "Nothing was changed. To do it: kubectl moor force-detach {name} --namespace {namespace} --yes"
            ),
        };
        page.line(2, &said);
        page
    }
}

/// Gives the order to this very claim, and to no other one that has its name by now. An API server that does not answer is not waited
/// for: whether the order is given the claim says.
pub(super) async fn give(cluster: &Cluster, order: &Order) -> Result<(), KubectlError> {
    let claims = Api::<VolumeClaim>::namespaced(cluster.client.clone(), &order.namespace);
    let patch = Patch::Merge(json!({ "metadata": { "uid": order.uid }, "spec": { "forceDetach": true } }));
    let (params, asked) = (PatchParams::default(), request(&claims, "patch", &order.name));
    let done = within(&asked, claims.patch(&order.name, &params, &patch)).await;
    done.map(drop).map_err(|error| KubectlError::NotGiven(order.full_name.clone(), Box::new(error)))
}
