//! Who makes the controller calls of a volume.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The controller instance that makes an Attachment's or a Volume's calls. It is a lock.
///
/// Three objects of each claim name one, and all of them the same few, so those that are read or made share what they say.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub struct ControllerRef(Arc<Said>);

/// What a [`ControllerRef`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ControllerRef", rename_all = "camelCase")]
#[schemars(rename = "Said")]
pub struct Said {
    /// Name of the PluginInstance.
    #[schemars(length(max = 253))]
    pub instance: String,
    /// The agent that makes the calls, by the name of its node.
    #[schemars(length(max = 253))]
    pub agent: String,
    /// The tenure of the instance in which it was given the calls. It makes none that it was given in an earlier one than it
    /// is in.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub tenure: i64,
}

/// Whether an instance was never relieved, which is the rule, and is not written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_first(tenure: &i64) -> bool {
    *tenure == 0
}

impl ControllerRef {
    /// An instance by its name, its agent, and the tenure in which it is given the calls.
    #[must_use]
    pub fn new(instance: impl Into<String>, agent: impl Into<String>, tenure: i64) -> Self {
        Self::shared(Said { instance: instance.into(), agent: agent.into(), tenure })
    }

    /// The same instance in another tenure.
    #[cfg(test)]
    pub(crate) fn in_tenure(&self, tenure: i64) -> Self {
        Self::shared(Said { tenure, ..Said::clone(self) })
    }

    fn shared(said: Said) -> Self {
        static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
        Self(KNOWN.lock().share(said))
    }
}

/// What is shared. Where the admission policies are installed only the leader names instances; without them others can, and a name
/// that no object has any more is kept until the table is next full.
#[derive(Default)]
struct Known(HashSet<Arc<Said>>);

impl Known {
    fn share(&mut self, said: Said) -> Arc<Said> {
        if let Some(one) = self.0.get(&said) {
            return one.clone();
        }
        if self.0.len() == self.0.capacity() {
            // What no object names any more goes each time that there is no room left. Afterwards at least as many new names fit
            // as were left, so that looking at all of them costs each of those no more than a look at one or two.
            self.0.retain(|one| Arc::strong_count(one) > 1);
            let left = self.0.len();
            self.0.shrink_to(2 * left + 1);
            self.0.reserve(left + 1);
        }
        let one = Arc::new(said);
        self.0.insert(one.clone());
        one
    }
}

impl Deref for ControllerRef {
    type Target = Said;

    fn deref(&self) -> &Said {
        &self.0
    }
}

impl fmt::Debug for ControllerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ControllerRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ControllerRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Said::deserialize(deserializer).map(Self::shared)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_that_name_the_same_instance_share_its_name() {
        let said = json!({"instance": "i", "agent": "shared-by-two", "tenure": 3});
        let [one, two] = [&said, &said].map(|said| ControllerRef::deserialize(said).unwrap());
        assert!(Arc::ptr_eq(&one.0, &two.0));
        assert_eq!(serde_json::to_value(&one).unwrap(), said);
        let other = ControllerRef::new("i", "shared-by-two", 4);
        assert!(one == two && one != other && one < other);
    }

    #[test]
    fn what_nobody_names_goes() {
        let mut known = Known::default();
        let said = |tenure| Said { tenure, ..Said::default() };
        let kept = known.share(said(-1));
        let many: Vec<_> = (0..1000).map(|tenure| known.share(said(tenure))).collect();
        assert_eq!(known.0.len(), 1001);
        drop(many);
        for tenure in 1000..4000 {
            drop(known.share(said(tenure)));
        }
        assert!(Arc::ptr_eq(&kept, &known.share(said(-1))));
        assert!(known.0.capacity() < 10, "{} of {}", known.0.len(), known.0.capacity());
    }
}
