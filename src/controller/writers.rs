//! The writer's lock of mode MultiNodeSingleWriter: written first, then looked behind, then used (`claim/writer.rs`).

use serde_json::json;

use super::context::Context;
use super::handles;
use super::observe::Observed;
use super::pass::Did;
use crate::api::handle::{Writer, WriterRef};
use crate::api::{VolumeClaim, VolumeHandle};
use crate::claim::ClaimSeen;
use crate::claim::writer::has_let_go;
use crate::k8s::ApiError;
use crate::k8s::read::get_live;

/// Names the claim as the writer, in place of whoever is named.
pub(crate) async fn name(
    ctx: &Context,
    seen: &Observed,
    claim: &VolumeClaim,
    attachment: &str,
    uid: &str,
) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    // Whom the named one replaced would be forgotten by this write.
    if !may_follow(ctx, seen).await? {
        return Ok(Did::Nothing);
    }
    let meta = &claim.metadata;
    let key = |m: &Option<String>| m.clone().unwrap_or_default();
    let before = handle.spec.writer.as_ref();
    let writer = Writer {
        holder: WriterRef {
            claim: format!("{}/{}", key(&meta.namespace), key(&meta.name)),
            claim_uid: key(&meta.uid),
            attachment: attachment.to_owned(),
            attachment_uid: uid.to_owned(),
        },
        grant: before.map_or(1, |w| w.grant + 1),
        released: false,
        after: before.filter(|w| !w.released).map(|w| w.holder.clone()),
    };
    write(ctx, seen, &writer).await
}

/// Writes the lock, guarded by the version that was seen.
pub(crate) async fn write(ctx: &Context, seen: &Observed, writer: &Writer) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    let mut fields = json!(writer);
    // A merge patch keeps what it does not mention.
    if writer.after.is_none() {
        fields["after"] = serde_json::Value::Null;
    }
    handles::write(ctx, handle, json!({ "spec": { "writer": fields } })).await
}

/// Whom the named writer replaced is done, by live reads: made after the name was seen in the VolumeHandle (rule R1).
pub(crate) async fn may_follow(ctx: &Context, seen: &Observed) -> Result<bool, ApiError> {
    match seen.handle.as_deref().and_then(predecessor) {
        None => Ok(true),
        Some(before) => has_let_go_live(ctx, before).await,
    }
}

fn predecessor(handle: &VolumeHandle) -> Option<&WriterRef> {
    handle.spec.writer.as_ref()?.after.as_ref()
}

async fn has_let_go_live(ctx: &Context, writer: &WriterRef) -> Result<bool, ApiError> {
    let (namespace, name) = writer.claim.split_once('/').unwrap_or_default();
    let live = get_live(&ctx.claim_api(namespace), name).await?;
    let live = live.filter(|c| c.metadata.uid.as_deref() == Some(writer.claim_uid.as_str()));
    let claim = live.as_ref().map(ClaimSeen::of);
    match live {
        Some(live) => ctx.claims.apply(live),
        None => ctx.claims.remove_confirmed(&writer.claim_uid),
    }
    if has_let_go(writer, claim.as_ref(), true) {
        return Ok(true);
    }
    let lock = get_live(&ctx.attachment_api(), &writer.attachment).await?;
    let locked = lock.is_some_and(|a| a.metadata.uid.as_deref() == Some(writer.attachment_uid.as_str()));
    Ok(has_let_go(writer, claim.as_ref(), locked))
}
