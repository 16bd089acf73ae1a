//! What must not be printed: secrets, from where they come in to the end of the request that takes them along, and mount
//! flags of an earlier call.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::redact::Hidden;

/// The `secrets` of a call, also as the field of its request (`build.rs`). Printing shows how many there are, and it has no
/// `Serialize` on purpose: a secret is never written anywhere but into the request.
///
/// Keys and values are overwritten when they are dropped, and so are the copies that are looked for in a driver's words
/// (`redact`) and what was read of a Secret (`k8s::secrets`). What is not: the buffers into which tonic writes the request and
/// from which it reads one of kubelet's, those of the connection to the API server, and tokens of Pods, which are part of a
/// volume's context. So a dump of the agent's memory can hold a secret for as long as nothing else has used these buffers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// No secrets: the field stays unset.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        for (mut key, mut value) in std::mem::take(&mut self.0) {
            key.zeroize();
            value.zeroize();
        }
    }
}

impl ZeroizeOnDrop for Secrets {}

impl Deref for Secrets {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Secrets {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<BTreeMap<String, String>> for Secrets {
    fn from(entries: BTreeMap<String, String>) -> Self {
        Self(entries)
    }
}

impl FromIterator<(String, String)> for Secrets {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(entries: T) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl PartialEq<BTreeMap<String, String>> for Secrets {
    fn eq(&self, other: &BTreeMap<String, String>) -> bool {
        self.0 == *other
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
