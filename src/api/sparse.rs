//! Parts of the API's objects that take little memory: caches keep very many of those.

use std::borrow::Cow;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a type says when it says nothing.
pub trait Empty: 'static {
    /// Equal to the type's default.
    const EMPTY: &'static Self;
}

/// A `T` as in the objects of the API, which mostly says nothing, and takes no more than a pointer then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sparse<T>(Option<Box<T>>);

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default + PartialEq> From<T> for Sparse<T> {
    fn from(value: T) -> Self {
        Self((value != T::default()).then(|| Box::new(value)))
    }
}

impl<T: Empty> Deref for Sparse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Empty + Serialize> Serialize for Sparse<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

impl<'de, T: Default + PartialEq + Deserialize<'de>> Deserialize<'de> for Sparse<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(T::deserialize(deserializer)?.into())
    }
}

impl<T: JsonSchema> JsonSchema for Sparse<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A list without room for more, which may take several times what it holds.
pub(super) fn exact<'de, D: Deserializer<'de>, T: Deserialize<'de>>(list: D) -> Result<Vec<T>, D::Error> {
    let mut list = Vec::deserialize(list)?;
    list.shrink_to_fit();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::secrets::SecretRefs;

    #[test]
    fn it_is_written_and_read_as_what_it_holds() {
        for text in ["{}", r#"{"default":"a"}"#] {
            let plain: SecretRefs = serde_json::from_str(text).unwrap();
            let sparse: Sparse<SecretRefs> = serde_json::from_str(text).unwrap();
            assert_eq!((&*sparse, &sparse), (&plain, &plain.clone().into()));
            assert_eq!(serde_json::to_string(&sparse).unwrap(), text);
        }
        assert_eq!(*SecretRefs::EMPTY, SecretRefs::default());
        assert_eq!(size_of::<Sparse<SecretRefs>>(), size_of::<usize>());
    }
}
