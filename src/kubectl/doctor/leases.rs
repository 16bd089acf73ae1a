//! When a Lease was renewed.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::facts::Facts;

/// When a Lease was last renewed, by the clock of the API server that wrote it down, to the second.
pub fn written(lease: &Lease) -> Option<Timestamp> {
    let entries = lease.metadata.managed_fields.iter().flatten();
    let renews = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| serde_json::to_value(fields).ok());
        fields.is_some_and(|fields| fields.pointer("/f:spec/f:renewTime").is_some())
    });
    renews.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max()
}

/// When a Lease was last renewed, by the clock of who renewed it.
pub fn renewed(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0)
}

/// How long ago a Lease was renewed, in seconds.
pub fn age(facts: &Facts, lease: &Lease) -> Option<i64> {
    let at = written(lease).or_else(|| renewed(lease))?;
    Some(facts.now().duration_since(at).as_secs().max(0))
}
