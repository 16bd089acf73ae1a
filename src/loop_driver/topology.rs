//! Where a volume can be reached from: everywhere when the state directory is shared, else on its own node.

use std::collections::BTreeMap;

use super::driver::Driver;
use super::error::Error;
use crate::csi::proto::csi::v1::{Topology, TopologyRequirement};

impl Driver {
    /// The topology of the driver's own node; `None` when all nodes reach everything.
    pub(super) fn own_topology(&self) -> Option<Topology> {
        let key = format!("{}/node", self.args.driver_name);
        (!self.args.shared).then(|| Topology { segments: BTreeMap::from([(key, self.args.node_id.clone())]) })
    }

    /// Whether this node is within `wanted`.
    pub(super) fn is_within(&self, wanted: &Topology) -> bool {
        self.own_topology().is_none_or(|own| matches(&own, wanted))
    }

    /// Checks that a volume may be made on this node, the only place where this driver can make it. What is `preferred` is
    /// a wish and need not be met, what is `requisite` is a demand.
    pub(super) fn check_topology(&self, requirement: Option<&TopologyRequirement>) -> Result<(), Error> {
        let requisite = requirement.map(|requirement| requirement.requisite.as_slice()).unwrap_or_default();
        if requisite.is_empty() || requisite.iter().any(|wanted| self.is_within(wanted)) {
            return Ok(());
        }
        Err(Error::Exhausted(format!(
            "volumes of this instance can be reached on node {:?} only, which is not in the requisite topology",
            self.args.node_id
        )))
    }
}

/// Whether a place is within another one. Keys are compared without case and values with it, as CSI says.
fn matches(own: &Topology, wanted: &Topology) -> bool {
    wanted.segments.iter().all(|(key, value)| {
        own.segments
            .iter()
            .any(|(own_key, own_value)| own_key.eq_ignore_ascii_case(key) && own_value == value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(pairs: &[(&str, &str)]) -> Topology {
        let segments = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Topology { segments }
    }

    #[test]
    fn every_wanted_segment_must_be_ours() {
        let own = topology(&[("loop.moor.dev/node", "n1")]);
        assert!(matches(&own, &topology(&[])));
        assert!(matches(&own, &topology(&[("Loop.moor.dev/Node", "n1")])));
        assert!(!matches(&own, &topology(&[("loop.moor.dev/node", "N1")])));
        assert!(!matches(&own, &topology(&[("loop.moor.dev/node", "n1"), ("zone", "a")])));
    }
}
