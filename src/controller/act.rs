//! Acts on the leader's plan: one write for each step.

use super::context::Context;
use super::observe::Observed;
use super::room::Locked;
use super::{attachments, claims, handles, losses, pods, volumes};
use crate::k8s::ApiError;
use crate::leader::LeaderStep;

/// Makes the write that a step asks for. Returns whether anything has changed: then it is observed again.
pub(crate) async fn act(
    ctx: &Context,
    seen: &Observed,
    step: &LeaderStep,
    locked: &mut Option<Locked>,
) -> Result<bool, ApiError> {
    write(ctx, seen, step, locked).await.unwrap_or_else(|| {
        tracing::error!(volume = %seen.key, ?step, "the plan names what was not observed");
        Ok(false)
    })
}

async fn write(
    ctx: &Context,
    seen: &Observed,
    step: &LeaderStep,
    locked: &mut Option<Locked>,
) -> Option<Result<bool, ApiError>> {
    let (volume, handle) = (seen.volume.as_ref(), seen.handle.as_ref());
    Some(match step {
        LeaderStep::Rest | LeaderStep::Look(_) => Ok(false),
        LeaderStep::DeclareLost { attachment, cause } => {
            losses::declare(ctx, seen, seen.attachment(attachment)?, *cause).await
        }
        LeaderStep::EndClaim { claim, attachment } => {
            losses::end_claim(ctx, seen.claim(claim)?, seen.attachment(attachment)?).await
        }
        LeaderStep::Abandon { attachment } => losses::abandon(ctx, seen.attachment(attachment)?).await,
        LeaderStep::Close { attachment } => attachments::close(ctx, seen.attachment(attachment)?).await,
        LeaderStep::FreeAttachment { attachment } => {
            attachments::free(ctx, seen.attachment(attachment)?).await
        }
        LeaderStep::MoveAttachment { attachment } => {
            attachments::move_to(ctx, seen.attachment(attachment)?, handle?.spec.controller.as_ref()?).await
        }
        LeaderStep::AskNode { attachment, bytes } => {
            attachments::ask_node(ctx, seen.attachment(attachment)?, *bytes).await
        }
        LeaderStep::DeleteClaim { claim } => pods::delete(ctx, seen.claim(claim)?).await,
        LeaderStep::RefuseClaim { claim, why } => pods::refuse(ctx, seen.claim(claim)?, why.clone()).await,
        LeaderStep::RenewVolume { claim } => pods::renew(ctx, volume?, seen.claim(claim)?).await,
        LeaderStep::ImportVolume { claim } => pods::import(ctx, seen, seen.claim(claim)?).await,
        LeaderStep::CreateAttachment { claim, name, node } => {
            attachments::create(ctx, seen, seen.claim(claim)?, (name, node), locked).await
        }
        LeaderStep::AssignClaim { claim, attachment } => {
            claims::assign(ctx, seen.claim(claim)?, attachment).await
        }
        LeaderStep::FreeClaim { claim } => claims::free(ctx, seen.claim(claim)?).await,
        LeaderStep::NameWriter { claim, attachment, attachment_uid } => {
            handles::name_writer(ctx, handle?, seen.claim(claim)?, (attachment, attachment_uid)).await
        }
        LeaderStep::RetireWriter(writer) => handles::write_writer(ctx, handle?, writer).await,
        LeaderStep::CreateHandle { epoch, closing, closed_for, controller } => {
            let by = controller.clone();
            let new = handles::new_of(volume?, &seen.driver, *epoch, *closing, *closed_for, by)?;
            handles::create(ctx, &new).await
        }
        LeaderStep::BeginClosing { last } => handles::begin_closing(ctx, handle?, *last).await,
        LeaderStep::FinishClosing { mode, first_controller } => {
            handles::finish_closing(ctx, handle?, *mode, first_controller.as_ref()).await
        }
        LeaderStep::TakeOver => handles::take_over(ctx, handle?, volume?).await,
        LeaderStep::MoveHandle(to) => handles::move_to(ctx, handle?, to).await,
        LeaderStep::RemoveHandle => handles::remove(ctx, handle?).await,
        LeaderStep::AssignVolume(to) => volumes::assign(ctx, volume?, to).await,
        LeaderStep::AllowDeletion(may_delete) => volumes::allow_deletion(ctx, volume?, *may_delete).await,
        LeaderStep::ReportReady => volumes::report_ready(ctx, volume?, handle).await,
        LeaderStep::ReportExpanded(by_nodes) => volumes::report_expanded(ctx, volume?, *by_nodes).await,
        LeaderStep::ReportFollowed(bytes) => volumes::report_followed(ctx, volume?, *bytes).await,
        LeaderStep::ReportModified => volumes::report_modified(ctx, volume?).await,
        LeaderStep::RestoreStatus { state_too } => {
            volumes::restore_status(ctx, volume?, handle?, *state_too).await
        }
        LeaderStep::TellStorageLeft(why) => volumes::tell_storage_left(ctx, volume?, why).await,
        LeaderStep::FreeVolume => volumes::free(ctx, volume?).await,
    })
}
