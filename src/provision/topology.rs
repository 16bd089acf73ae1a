//! Where a volume that is to be made must and should be.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PersistentVolume, TopologySelectorTerm};

use crate::api::volume::{MAX_PLACES, Segments, TopologyRequest};

/// A node that runs the driver, and where the driver says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: String,
    /// New work may be given to the driver there.
    pub healthy: bool,
    /// Where it is, in the driver's own terms.
    pub segments: BTreeMap<String, String>,
}

/// Whether what a volume is to be a copy of is in the place of these segments.
pub type IsSource<'a> = &'a dyn Fn(&BTreeMap<String, String>) -> bool;

/// Why there is no place for a volume now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// The driver does not say where the node is.
    #[error(
        "the driver does not say yet where node {node} is, which the scheduler has chosen: see status.topology of the \
         PluginInstances"
    )]
    Unknown {
        /// The node.
        node: String,
    },
    /// It is to be a copy of what is elsewhere, and cannot be made there.
    #[error(
        "what the volume is to be a copy of is not where node {node} is, which the scheduler has chosen, and is found nowhere else: \
         for a copy there the driver has to be healthy there, allowedTopologies of the StorageClass has to allow it, and \
         spec.kubernetes.strictTopology of the Plugin must not be set"
    )]
    SourceElsewhere {
        /// The node.
        node: String,
    },
    /// No node runs the driver.
    #[error("no healthy driver says where its node is: see status.topology of the PluginInstances")]
    NoDriver,
    /// Nothing has been heard of the driver.
    #[error("the driver has not said yet what it can: see `kubectl get plugininstances`")]
    Unheard,
    /// No node that runs the driver is where the class wants volumes.
    #[error("allowedTopologies of the StorageClass: no node that runs the driver is in any of these places")]
    NotAllowed,
}

/// Whether the driver tells no places apart, although it lists VOLUME_ACCESSIBILITY_CONSTRAINTS: one of its processes is
/// healthy and has said of no place where its node is, and neither has any other. Some drivers list the capability always,
/// and name places only where they are configured to.
pub fn names_no_place(places: &[Place]) -> bool {
    places.iter().any(|place| place.healthy) && places.iter().all(|place| place.segments.is_empty())
}

/// The places for a volume whose first consumer runs on `node`: that node's own first, then others of the same kind. `source` is
/// given of a copy that can be made only where its source is: it begins there, and the scheduler, which knows of no source, moves
/// the consumer to where the volume was made.
pub fn late(
    places: &[Place],
    node: &str,
    allowed: &[TopologySelectorTerm],
    strict: bool,
    source: Option<IsSource<'_>>,
) -> Result<TopologyRequest, NoPlace> {
    let own = places.iter().find(|place| place.node == node && !place.segments.is_empty());
    let own = own.ok_or_else(|| NoPlace::Unknown { node: node.to_owned() })?;
    let alike = |place: &&Place| place.healthy && place.segments.keys().eq(own.segments.keys());
    let others = if strict { &[] } else { places };
    let others = others.iter().filter(alike).map(|place| &place.segments);
    let mut all: BTreeSet<_> = others.filter(|segments| is_allowed(segments, allowed)).collect();
    all.insert(&own.segments);
    let (before, after): (Vec<_>, Vec<_>) = all.into_iter().partition(|segments| *segments < &own.segments);
    let mut all: Vec<_> = after.into_iter().chain(before).cloned().collect();
    if let Some(is_source) = source {
        // Stable: the others stay in their order.
        all.sort_by_key(|segments| !is_source(segments));
        let begins_there = all.first().is_some_and(is_source);
        if !begins_there {
            return Err(NoPlace::SourceElsewhere { node: node.to_owned() });
        }
    }
    Ok(request(all))
}

/// The places for a volume whose consumers nobody knows yet: all, each claim beginning at another one. A copy begins where its
/// source is, which a driver whose nodes have storage of their own finds nowhere else.
pub fn immediate(
    places: &[Place],
    allowed: &[TopologySelectorTerm],
    claim_uid: &str,
    is_source: impl Fn(&BTreeMap<String, String>) -> bool,
) -> Result<TopologyRequest, NoPlace> {
    let healthy = places.iter().filter(|place| place.healthy && !place.segments.is_empty());
    let all: BTreeSet<_> = healthy.map(|place| &place.segments).collect();
    if all.is_empty() {
        return Err(NoPlace::NoDriver);
    }
    let mut all: Vec<_> = all.into_iter().filter(|segments| is_allowed(segments, allowed)).cloned().collect();
    let count = u64::try_from(all.len()).unwrap_or(1);
    let start = hash(claim_uid).checked_rem(count).ok_or(NoPlace::NotAllowed)?;
    all.rotate_left(usize::try_from(start).unwrap_or_default());
    // Stable: the others stay in their order.
    all.sort_by_key(|segments| !is_source(segments));
    Ok(request(all))
}

/// Whether a PersistentVolume is to be reached from this place, and not from everywhere.
pub(super) fn has(volume: &PersistentVolume, segments: &BTreeMap<String, String>) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let terms = affinity
        .and_then(|affinity| affinity.required.as_ref())
        .map(|required| &required.node_selector_terms);
    let fits = |wanted: &NodeSelectorRequirement| {
        let value = segments.get(&wanted.key);
        wanted.operator == "In"
            && value.is_some_and(|value| wanted.values.iter().flatten().any(|v| v == value))
    };
    terms.into_iter().flatten().any(|term| {
        term.match_expressions.as_ref().is_some_and(|all| !all.is_empty() && all.iter().all(fits))
    })
}

/// Whether one of the terms has a value of the place for each of its keys. No terms allow every place.
fn is_allowed(segments: &BTreeMap<String, String>, allowed: &[TopologySelectorTerm]) -> bool {
    let fits = |term: &TopologySelectorTerm| {
        let mut wanted = term.match_label_expressions.iter().flatten();
        wanted.all(|wanted| segments.get(&wanted.key).is_some_and(|value| wanted.values.contains(value)))
    };
    allowed.is_empty() || allowed.iter().any(fits)
}

/// The same places are all that may be, and the order in which they should. Of very many the first.
fn request(places: impl IntoIterator<Item = BTreeMap<String, String>>) -> TopologyRequest {
    let places: Vec<_> = places.into_iter().take(MAX_PLACES).map(|segments| Segments { segments }).collect();
    TopologyRequest { required: places.clone(), preferred: places }
}

/// FNV-1a: the same for every leader, and spread evenly.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
