//! String maps that must not be printed: what goes to a driver as secret, and what came from one as opaque context.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

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

    /// The entries in the clear. Only for the request itself and for taking them out of messages.
    pub(super) fn exposed(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// As the request's field.
    pub(super) fn into_field(self) -> BTreeMap<String, String> {
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

impl fmt::Display for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An opaque map: `volume_context`, `publish_context` or parameters. It is stored, so its content can be read, but
/// printing shows only its size, because some drivers put credentials into it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Context(BTreeMap<String, String>);

impl Context {
    /// The map, to be stored.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl Deref for Context {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<BTreeMap<String, String>> for Context {
    fn from(entries: BTreeMap<String, String>) -> Self {
        Self(entries)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hidden(self.0.len()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_secrets_nor_contexts_can_be_printed() {
        let map = BTreeMap::from([("password".to_owned(), "hunter2".to_owned())]);
        let (secrets, context) = (Secrets::from(map.clone()), Context::from(map));
        for printed in
            [format!("{secrets:?}"), format!("{secrets:#?}"), format!("{secrets}"), format!("{context:?}")]
        {
            assert!(!printed.contains("hunter2") && !printed.contains("password"), "{printed}");
        }
    }
}
