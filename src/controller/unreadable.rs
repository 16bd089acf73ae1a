//! Tells of objects that cannot be read: an Event on each version of one, and a number in the metrics.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::PartialObjectMetaExt;

use super::context::Context;
use crate::k8s::Cache;
use crate::k8s::cache::Cached;
use crate::k8s::events::EventReason;
use crate::metrics::KindLabels;

/// UIDs and resourceVersions of the objects that were told of.
pub(crate) type Told = BTreeSet<(Option<String>, Option<String>)>;

/// Looks at every cache. Returns what has been told of by now and still cannot be read.
pub(crate) fn tell(ctx: &Context, told: &Told) -> Told {
    let mut now = Told::new();
    tell_of(ctx, &ctx.plugins, told, &mut now);
    tell_of(ctx, &ctx.instances, told, &mut now);
    tell_of(ctx, &ctx.volumes, told, &mut now);
    tell_of(ctx, &ctx.claims, told, &mut now);
    tell_of(ctx, &ctx.handles, told, &mut now);
    tell_of(ctx, &ctx.attachments, told, &mut now);
    now
}

fn tell_of<K: Cached>(ctx: &Context, cache: &Cache<K>, told: &Told, now: &mut Told) {
    let (kind, unreadable) = (K::kind(&()), cache.unreadable());
    let number = i64::try_from(unreadable.len()).unwrap_or(i64::MAX);
    ctx.metrics.unreadable_objects.get_or_create(&KindLabels { kind: kind.to_string() }).set(number);
    for object in unreadable {
        let version = (object.metadata.uid.clone(), object.metadata.resource_version.clone());
        if !told.contains(&version) {
            let note = format!(
                "{kind} {} cannot be read and is left as it is: {}; correct it with `kubectl edit`, or delete it",
                object.metadata.name.as_deref().unwrap_or_default(),
                object.why
            );
            let about = Arc::new(object.metadata.into_request_partial::<K>());
            ctx.recorder.tell(&about, EventReason::InvalidObject, "Read", note);
        }
        now.insert(version);
    }
}
