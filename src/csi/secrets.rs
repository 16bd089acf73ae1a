//! What must not be printed and is no part of a request: secrets on their way into one, and mount flags of an earlier
//! call.

use std::collections::BTreeMap;
use std::fmt;

use super::redact::Hidden;

/// The `secrets` of a call. Printing shows how many there are, and it has no `Serialize` on purpose: a secret is never
/// written anywhere but into the request.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// No secrets: the field stays unset.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// As the field of a request, whose `Debug` too shows only how many there are.
    #[must_use]
    pub fn into_field(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl From<BTreeMap<String, String>> for Secrets {
    fn from(entries: BTreeMap<String, String>) -> Self {
        Self(entries)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hidden(self.0.len()).fmt(f)
    }
}

/// A call that goes on from an earlier one, with what it must not bring to light: the inverse of a call, or
/// NodePublishVolume after NodeStageVolume.
#[derive(Clone, PartialEq)]
pub struct FollowUp<R> {
    /// What is sent.
    pub request: R,
    /// The mount flags of the earlier call. They are not sent, and taken out of the driver's words.
    pub earlier_flags: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_cannot_be_printed() {
        let map = BTreeMap::from([("password".to_owned(), "hunter2".to_owned())]);
        let secrets = Secrets::from(map);
        for printed in [format!("{secrets:?}"), format!("{secrets:#?}")] {
            assert!(!printed.contains("hunter2") && !printed.contains("password"), "{printed}");
        }
    }
}
