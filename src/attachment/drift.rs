//! Where the storage differs from the Attachments: what an agent reports of a listing, and what the leader does about
//! it (rule R11).
//!
//! A listing is a hint. It takes minutes, its order and consistency are up to the driver (CSI ListVolumes), and what it
//! names may be another cluster's. So a difference is reported only when two listings show it and the objects, read
//! live after the second, agree; and it is undone only where moor made the volume and knows the node.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::observed::{AttachmentSeen, HandleSeen};
use crate::api::AttachmentState;
use crate::api::handle::{Drift, DriftKind, DriftedNode, Undoing};
use crate::claim::ClaimSeen;

/// More unexpected attachments than this at once are no accident of moor's: they are reported and left alone.
pub const MANY: usize = 10;
/// Entries in one VolumeHandle's status and spec: the schema's bounds.
pub const MOST_NODES: usize = 32;
/// Longest node id (CSI, size limits), in bytes. A longer one cannot be any of ours.
const NODE_ID: usize = 256;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The node as the driver knows it.
    pub node_id: String,
    /// Which way it differs.
    pub kind: DriftKind,
}

/// Compares one volume of a listing with the Attachments of its handle from before the listing began and from after.
///
/// What came or went meanwhile is no difference: the driver may have been asked on either side of it. What is only being
/// undone accounts for nothing: it is unexpected until it is listed no more.
#[must_use]
pub fn compare(
    published: &[String],
    before: &[AttachmentSeen],
    after: &[AttachmentSeen],
) -> BTreeSet<Finding> {
    let known = |id: &String| before.iter().chain(after).any(|a| &a.node_id == id && !a.is_undo_only());
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
    a.attach && !a.deleted && !a.lost && !a.is_undo_only() && a.state == AttachmentState::Attached
}

/// What is to be reported: what was found now and in the listing before, or is reported already.
#[must_use]
pub fn report(
    found: &BTreeSet<Finding>,
    earlier: &BTreeSet<Finding>,
    reported: Option<&Drift>,
    many: bool,
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
    let many = many && nodes.iter().any(|n| n.kind == DriftKind::Unexpected);
    (!nodes.is_empty()).then_some(Drift { nodes, many })
}

/// How many times the shortest interval passes until the next listing, after `quiet` listings in a row that showed
/// nothing new: from 5 min to 80 min where the shortest is 5 min.
#[must_use]
pub fn interval_factor(quiet: u32) -> u32 {
    1 << quiet.min(4)
}

/// A PluginInstance that serves a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeIdSeen {
    /// Its node.
    pub node: String,
    /// UID of that Node.
    pub node_uid: String,
    /// The node as the driver knows it.
    pub node_id: String,
    /// It is healthy, and its agent is heard from.
    pub healthy: bool,
}

/// Everything that the leader looks at, for one VolumeHandle.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// What is reported.
    pub drift: &'a Drift,
    /// moor made the volume: its Volume does not name the handle.
    pub made_here: bool,
    /// UID of the Volume, if it exists, is Ready and stays.
    pub volume_uid: Option<&'a str>,
    /// The VolumeHandle.
    pub handle: &'a HandleSeen,
    /// Its spec.undoing.
    pub undoing: &'a [Undoing],
    /// The handle's Attachments.
    pub locks: &'a [AttachmentSeen],
    /// All claims on the Volume.
    pub claims: &'a [ClaimSeen],
    /// The nodes of the driver.
    pub nodes: &'a [NodeIdSeen],
    /// Unexpected attachments that are reported for this driver, on all its handles.
    pub of_driver: usize,
}

/// What becomes of one finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Undo it: nothing is in the way.
    Undo(NodeIdSeen),
    /// It is being undone.
    UnderWay,
    /// It was undone, and the listing that would show it has not been made, or still shows it.
    Undone,
    /// Left alone.
    Left(Why),
}

/// Why a finding is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// An Attachment is missing at the storage: attaching under a running workload helps nobody.
    Missing,
    /// The volume was registered: others may have attached it.
    Registered,
    /// Too many at once.
    Many,
    /// The Volume is not Ready, or leaves, or changes its mode.
    NotNow,
    /// Not one node of the driver reports this node id.
    UnknownNode,
    /// The node's agent or plugin is not well, so nobody can say that the node does not use it.
    NodeNotHealthy(String),
    /// An Attachment or claim is on that node by now: the next listing shows whether anything is left.
    InUse(String),
}

/// Decides about every finding. At most one is new in a pass: its write changes what the next pass sees.
#[must_use]
pub fn decide<'a>(scene: &Scene<'a>) -> Vec<(&'a DriftedNode, Response)> {
    let mut begun = false;
    let answer = |node| {
        let response = match judge(scene, node) {
            Response::Undo(_) if begun => Response::UnderWay,
            other => other,
        };
        begun |= matches!(response, Response::Undo(_));
        (node, response)
    };
    scene.drift.nodes.iter().map(answer).collect()
}

fn judge(scene: &Scene<'_>, finding: &DriftedNode) -> Response {
    if finding.kind == DriftKind::Missing {
        return Response::Left(Why::Missing);
    }
    let entry = scene.undoing.iter().find(|u| u.node_id == finding.node_id);
    match entry {
        Some(entry) if !entry.done => return Response::UnderWay,
        // Once for each finding: what comes back at once is not undone by doing it again.
        Some(entry) if entry.found == finding.since => return Response::Undone,
        _ => {}
    }
    match allowed(scene, finding) {
        Ok(node) => Response::Undo(node.clone()),
        Err(why) => Response::Left(why),
    }
}

fn allowed<'a>(scene: &Scene<'a>, finding: &DriftedNode) -> Result<&'a NodeIdSeen, Why> {
    if !scene.made_here {
        return Err(Why::Registered);
    }
    if scene.drift.many || scene.of_driver > MANY {
        return Err(Why::Many);
    }
    let open = !scene.handle.closing
        && scene.handle.controller.is_some()
        && scene.volume_uid == Some(scene.handle.volume_uid.as_str());
    if !open {
        return Err(Why::NotNow);
    }
    let mut known = scene.nodes.iter().filter(|n| n.node_id == finding.node_id);
    let (Some(node), None) = (known.next(), known.next()) else { return Err(Why::UnknownNode) };
    if !node.healthy {
        return Err(Why::NodeNotHealthy(node.node.clone()));
    }
    if holds(scene.locks, node) || scene.claims.iter().any(|c| uses_on(c, &node.node)) {
        return Err(Why::InUse(node.node.clone()));
    }
    Ok(node)
}

/// Some Attachment of the handle is about this node.
#[must_use]
pub fn holds(locks: &[AttachmentSeen], node: &NodeIdSeen) -> bool {
    locks.iter().any(|a| a.is_on(&node.node, &node.node_id))
}

fn uses_on(claim: &ClaimSeen, node: &str) -> bool {
    claim.uses().is_some() && claim.assignment.as_ref().is_some_and(|a| a.node_name == node)
}

/// Something is left alone because of what is reported of other volumes: no event of this one tells when that ends.
#[must_use]
pub fn goes_by_others(answers: &[(&DriftedNode, Response)]) -> bool {
    answers.iter().any(|(_, response)| *response == Response::Left(Why::Many))
}

/// The condition's reason.
#[must_use]
pub fn reason(answers: &[(&DriftedNode, Response)]) -> &'static str {
    let missing = answers.iter().any(|(n, _)| n.kind == DriftKind::Missing);
    if missing { "AttachmentMissing" } else { "AttachmentUnexpected" }
}

/// The condition's message: which nodes, what moor does or why it does not, and what to do.
#[must_use]
pub fn message(
    answers: &[(&DriftedNode, Response)],
    locks: &[AttachmentSeen],
    claims: &[ClaimSeen],
) -> String {
    let all = answers.iter().map(|(node, response)| match node.kind {
        DriftKind::Missing => missing(node, locks, claims),
        DriftKind::Unexpected => format!(
            "the driver lists the volume as attached to {}, where moor has not attached it: {}",
            node.node_id,
            words(response)
        ),
    });
    all.collect::<Vec<_>>().join("; ")
}

fn missing(node: &DriftedNode, locks: &[AttachmentSeen], claims: &[ClaimSeen]) -> String {
    let lock = locks.iter().find(|a| a.node_id == node.node_id && !a.is_undo_only());
    let users = claims.iter().filter(|c| lock.is_some_and(|a| c.uses() == Some(&a.uid)));
    let users: Vec<_> = users.map(ClaimSeen::key).collect();
    let used = if users.is_empty() { String::new() } else { format!(", for {}", users.join(", ")) };
    format!(
        "moor has attached the volume to {}{used}, and the driver does not list it there: its data may be out of \
         reach; moor changes nothing, delete the claims there and create them anew to have it attached again",
        node.node_id
    )
}

fn words(response: &Response) -> String {
    let by_hand = "detach it with the storage's own tools if nobody uses it there";
    match response {
        Response::Undo(_) | Response::UnderWay => "it is being detached there".into(),
        Response::Undone => format!(
            "it was detached there, and the next listing shows whether that helped; if it stays, {by_hand}"
        ),
        Response::Left(Why::Missing) => "moor changes nothing".into(),
        Response::Left(Why::Registered) => format!(
            "the volume was registered, so others may have attached it and moor leaves it alone; {by_hand}"
        ),
        Response::Left(Why::Many) => format!(
            "there are more than {MANY} such attachments of this driver, so moor leaves them all alone; look at the \
             driver's listing first, then {by_hand}"
        ),
        Response::Left(Why::NotNow) => {
            "it is detached there when the Volume is Ready and keeps its mode".into()
        }
        Response::Left(Why::UnknownNode) => format!(
            "no instance of the plugin, or more than one, has this node id, so moor leaves it alone; {by_hand}"
        ),
        Response::Left(Why::NodeNotHealthy(node)) => format!(
            "it is detached there when the plugin on node {node} is healthy and can say that nothing uses it"
        ),
        Response::Left(Why::InUse(node)) => {
            format!("node {node} uses the volume by now; the next listing shows whether anything is left")
        }
    }
}
