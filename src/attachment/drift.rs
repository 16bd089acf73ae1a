//! Where the storage differs from the Attachments: what an agent reports of a listing, and what the leader says about
//! it (rule R11).
//!
//! A listing is a hint. It takes minutes, its order and consistency are up to the driver (CSI ListVolumes), and what it
//! names may be another cluster's. So a difference is reported only when two listings show it and the objects, read
//! live after the second, agree; and nothing is attached or detached because of it (docs/adr/0016).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::observed::AttachmentSeen;
use crate::api::AttachmentState;
use crate::api::conditions::Reason;
use crate::api::handle::{Drift, DriftKind, DriftedNode};
use crate::claim::ClaimSeen;

/// Entries in one VolumeHandle's status: the schema's bound.
pub const MOST_NODES: usize = 32;
/// Longest node id (CSI, size limits), in bytes. A longer one cannot be any of ours.
const NODE_ID: usize = 256;

/// One difference between a driver's listing and the Attachments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The node as the driver knows it.
    pub node_id: String,
    /// Which way it differs.
    pub kind: DriftKind,
}

/// Compares one volume of a listing with the Attachments of its handle from before the listing began and from after.
///
/// What came or went meanwhile is no difference: the driver may have been asked on either side of it.
#[must_use]
pub fn compare(
    published: &[String],
    before: &[AttachmentSeen],
    after: &[AttachmentSeen],
) -> BTreeSet<Finding> {
    let known = |id: &String| before.iter().chain(after).any(|a| &a.node_id == id);
    let unexpected = published
        .iter()
        .filter(|id| !id.is_empty() && id.len() <= NODE_ID && !known(id))
        .map(|id| Finding { node_id: id.clone(), kind: DriftKind::Unexpected });
    let stays =
        |a: &&AttachmentSeen| is_attached(a) && before.iter().any(|b| b.uid == a.uid && is_attached(b));
    let missing = after
        .iter()
        .filter(stays)
        .filter(|a| !published.contains(&a.node_id))
        .map(|a| Finding { node_id: a.node_id.clone(), kind: DriftKind::Missing });
    unexpected.chain(missing).collect()
}

fn is_attached(a: &AttachmentSeen) -> bool {
    a.attach && !a.deleted && !a.lost && a.state == AttachmentState::Attached
}

/// What is to be reported: what was found now and in the listing before, or is reported already.
#[must_use]
pub fn report(
    found: &BTreeSet<Finding>,
    earlier: &BTreeSet<Finding>,
    reported: Option<&Drift>,
    now: &Time,
) -> Option<Drift> {
    let since = |f: &Finding| {
        let known = reported.into_iter().flat_map(|d| &d.nodes);
        known.into_iter().find(|n| n.node_id == f.node_id && n.kind == f.kind).map(|n| n.since.clone())
    };
    let nodes: Vec<_> = found
        .iter()
        .filter_map(|f| {
            let since = since(f).or_else(|| earlier.contains(f).then(|| now.clone()))?;
            Some(DriftedNode { node_id: f.node_id.clone(), kind: f.kind, since })
        })
        .take(MOST_NODES)
        .collect();
    (!nodes.is_empty()).then_some(Drift { nodes })
}

/// How many times the shortest interval passes until the next listing, after `quiet` listings in a row that showed
/// nothing new: from 5 min to 80 min where the shortest is 5 min.
#[must_use]
pub fn interval_factor(quiet: u32) -> u32 {
    1 << quiet.min(4)
}

/// A node by the id that its PluginInstance has for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeIdSeen {
    /// Name of the Node.
    pub node: String,
    /// The node as the driver knows it.
    pub node_id: String,
}

/// What is known of a volume about which a difference is reported.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// Whether moor made the volume: its Volume does not name the handle.
    pub made_here: bool,
    /// The handle's Attachments.
    pub locks: &'a [AttachmentSeen],
    /// All claims on the Volume.
    pub claims: &'a [ClaimSeen],
    /// The nodes of the driver.
    pub nodes: &'a [NodeIdSeen],
}

/// The condition's reason.
#[must_use]
pub fn reason(drift: &Drift) -> Reason {
    let missing = drift.nodes.iter().any(|n| n.kind == DriftKind::Missing);
    if missing { Reason::AttachmentMissing } else { Reason::AttachmentUnexpected }
}

/// The condition's message: which nodes, and what to do.
#[must_use]
pub fn message(drift: &Drift, scene: &Scene<'_>) -> String {
    let all = drift.nodes.iter().map(|found| match found.kind {
        DriftKind::Missing => missing(found, scene),
        DriftKind::Unexpected => unexpected(found, scene),
    });
    all.collect::<Vec<_>>().join("; ")
}

fn missing(found: &DriftedNode, scene: &Scene<'_>) -> String {
    let lock = scene.locks.iter().find(|a| a.node_id == found.node_id);
    let users = scene.claims.iter().filter(|c| lock.is_some_and(|a| c.uses() == Some(&a.uid)));
    let users: Vec<_> = users.map(ClaimSeen::key).collect();
    let used = if users.is_empty() { String::new() } else { format!(", for {}", users.join(", ")) };
    format!(
        "moor has attached the volume to {}{used}, and the driver does not list it there: its data may be out of \
         reach; moor changes nothing, delete the claims there and create them anew to have it attached again",
        found.node_id
    )
}

fn unexpected(found: &DriftedNode, scene: &Scene<'_>) -> String {
    let id = &found.node_id;
    if let Some(lock) = scene.locks.iter().find(|a| &a.node_id == id) {
        let node = &lock.node;
        return format!(
            "the driver listed the volume as attached to {id}, and moor has made an Attachment for node {node} since; the \
             next listing shows whether anything is left"
        );
    }
    let others =
        if scene.made_here { "" } else { ", which others may have done, because the volume was registered" };
    let mut known = scene.nodes.iter().filter(|n| &n.node_id == id);
    let by_claim = match (known.next(), known.next()) {
        (Some(NodeIdSeen { node, .. }), None) => format!(
            ", or create a VolumeClaim of the Volume with spec.nodeName {node} and delete it when it is Ready: what moor \
             attaches there it detaches"
        ),
        _ => String::new(),
    };
    format!(
        "the driver lists the volume as attached to {id}, where moor has not attached it{others}; moor detaches nothing \
         there by itself. If nobody uses it there, detach it with the storage's own tools{by_claim}"
    )
}
