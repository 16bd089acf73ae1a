//! UIDs that say of what kind their object is: a claim's and an Attachment's stand side by side all over the protocol.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

macro_rules! uid {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// As text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The UID in an object's metadata; an object without one cannot come from an API server.
            #[must_use]
            pub fn of(meta: &ObjectMeta) -> Self {
                Self(meta.uid.clone().unwrap_or_default())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                self.0 == **text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self)
            }
        }

        // In the schema it is any text.
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                String::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                String::json_schema(generator)
            }

            fn inline_schema() -> bool {
                true
            }
        }
    )+};
}
uid!(
    /// UID of a VolumeClaim.
    ClaimUid,
    /// UID of an Attachment.
    AttachmentUid,
);
