//! Schema fragments with the bounds that CSI and the API server's CEL cost budget ask for.
//!
//! Every string, list and map that a CEL rule touches needs a bound, else the CRD is refused. The bounds
//! are CSI's own: 128 bytes for a string, 4 KiB for a map or the mount flags (CSI "Size Limits").

use schemars::{Schema, SchemaGenerator, json_schema};

/// Up to 64 mount flags of 256 bytes.
#[must_use]
pub fn mount_flags(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 64, "items": { "type": "string", "minLength": 1, "maxLength": 256 },
        "x-kubernetes-list-type": "atomic" })
}

/// Up to 8 claims as namespace/name.
#[must_use]
pub fn claim_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 8, "items": { "type": "string", "maxLength": 317 } })
}

/// A string map as CSI passes it: parameters and contexts.
#[must_use]
pub fn string_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 4096 } })
}

/// Topology segments: the keys a driver reports for a node, with their values.
#[must_use]
pub fn segments(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 16, "minProperties": 1,
        "additionalProperties": { "type": "string", "maxLength": 128 } })
}

/// A size in bytes as a Kubernetes quantity.
#[must_use]
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))",
            "message": "must be a positive size, for example 1Gi" }] })
}

/// metav1 conditions, one per type.
pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let condition = generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>();
    json_schema!({ "type": "array", "maxItems": 16, "items": condition,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] })
}
