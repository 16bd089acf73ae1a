//! Schema fragments with the bounds that CSI and the API server's CEL cost budget ask for.
//!
//! Every string, list and map that a CEL rule touches needs a bound, else the CRD is refused. The bounds
//! are CSI's own: 128 bytes for a string, 4 KiB for a map or the mount flags (CSI "Size Limits").

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

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

/// A template of Pods. What is in it is looked at where it is used: with the types it would be larger than all of moor's own.
#[must_use]
pub fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let any = || json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json_schema!({ "type": "object", "required": ["spec"], "properties": { "metadata": any(), "spec": any() } })
}

/// Topology segments: the keys a driver reports for a node, with their values.
#[must_use]
pub fn segments(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 16, "minProperties": 1,
        "additionalProperties": { "type": "string", "maxLength": 128 } })
}

/// The name of another object. It becomes a part of the path of requests, so the API server lets through only what can be
/// one.
#[must_use]
pub fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
            "message": "must be the name of an object: lower case letters, digits, '-' and '.', with a letter or a \
                        digit at both ends" }] })
}

/// The name of a Secret, or namespace/name.
#[must_use]
pub fn secret_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 317,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
            "message": "must be the name of a Secret: lower case letters, digits, '-' and '.', with a letter or a digit at \
                        both ends" }] })
}

/// The name of a Secret with words that stand for parts of it.
#[must_use]
pub fn secret_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^([a-z0-9]|[$][{](pvc[.]namespace|pvc[.]name|pv[.]name)[}])(([-.a-z0-9]|[$][{](pvc[.]namespace|pvc[.]name|pv[.]name)[}])*([a-z0-9]|[$][{](pvc[.]namespace|pvc[.]name|pv[.]name)[}]))?$')",
            "message": "must be the name of a Secret, in which ${pvc.namespace}, ${pvc.name} and ${pv.name} may stand" }] })
}

/// The name of a namespace with words that stand for parts of it.
#[must_use]
pub fn namespace_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^([a-z0-9]|[$][{](pvc[.]namespace|pv[.]name)[}])(([-a-z0-9]|[$][{](pvc[.]namespace|pv[.]name)[}])*([a-z0-9]|[$][{](pvc[.]namespace|pv[.]name)[}]))?$')",
            "message": "must be the name of a namespace, in which ${pvc.namespace} and ${pv.name} may stand" }] })
}

/// Names of namespaces, or `*`.
#[must_use]
pub fn namespace_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 256, "x-kubernetes-list-type": "set",
        "items": { "type": "string", "maxLength": 63, "pattern": "^([*]|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$" } })
}

/// Names of up to 64 nodes.
#[must_use]
pub fn node_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "minItems": 1, "maxItems": 64,
        "items": { "type": "string", "minLength": 1, "maxLength": 253 }, "x-kubernetes-list-type": "set" })
}

/// Names of up to 2048 VolumeHandles.
#[must_use]
pub fn handle_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 2048, "items": { "type": "string", "maxLength": 63 },
        "x-kubernetes-list-type": "atomic" })
}

/// Labels that an object has to have.
#[must_use]
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "minProperties": 1, "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 63 } })
}

/// A volume id that somebody gives: CSI takes any text, but none is no id.
#[must_use]
pub fn volume_handle(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 1024,
        "x-kubernetes-validations": [{
            "rule": "self.trim() != ''",
            "message": "must not be blank: give the id by which the driver knows the volume" }] })
}

/// A snapshot id that somebody gives.
#[must_use]
pub fn snapshot_handle(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 1024,
        "x-kubernetes-validations": [{
            "rule": "self.trim() != ''",
            "message": "must not be blank: give the id by which the driver knows the snapshot" }] })
}

/// Names of Volumes of which one snapshot is taken at one moment, each once.
#[must_use]
pub fn group_of_volumes(generator: &mut SchemaGenerator) -> Schema {
    each_once(&object_name(generator))
}

/// Ids of the members of a group of snapshots, each once.
#[must_use]
pub fn group_members(generator: &mut SchemaGenerator) -> Schema {
    each_once(&snapshot_handle(generator))
}

fn each_once(items: &Schema) -> Schema {
    json_schema!({ "type": "array", "x-kubernetes-list-type": "set", "minItems": 1, "maxItems": 100, "items": items })
}

/// A size in bytes as a Kubernetes quantity.
#[must_use]
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self > 0 : (isQuantity(self) && !quantity(self).isLessThan(quantity('1')))",
            "message": "must be a positive size of at least one byte, for example 1Gi" }] })
}

/// Has `kubectl explain` show what is said of the field. Where one may be absent whose type is an enum, what is said of the type would
/// take its place.
pub(super) fn own_description(schema: &mut Schema) {
    let types = schema.get_mut("anyOf").and_then(Value::as_array_mut);
    for one in types.into_iter().flatten().filter_map(Value::as_object_mut) {
        one.remove("description");
    }
}

/// Has the API server refuse with `message` a write that changes the value; of an object, one that changes any field of it.
///
/// It compares values of single fields far faster than a whole object with other objects in it, and does not ask this of a field
/// that is absent before or after the write: each has to be required, or to have a default (ADR 55).
pub(super) fn stays(schema: &mut Schema, message: &str) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    let Some(fields) = fields else { return add_rule(schema.ensure_object(), message) };
    for field in fields.values_mut().filter_map(Value::as_object_mut) {
        add_rule(field, message);
    }
}

fn add_rule(schema: &mut Map<String, Value>, message: &str) {
    let rules = schema.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Some(rules) = rules.as_array_mut() {
        rules.push(json!({ "rule": "self == oldSelf", "message": message }));
    }
}

/// metav1 conditions, one per type.
pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let condition = generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>();
    json_schema!({ "type": "array", "maxItems": 16, "items": condition,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] })
}
