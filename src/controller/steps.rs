//! A pass that is made of steps, each of which looks anew at what there is.

use std::fmt::Display;

use super::context::Context;
use crate::k8s::{ApiError, Next};

/// More steps than one object can need at a time.
const STEPS: usize = 16;

/// Makes steps, as long as this process leads, until one says when the `object` is looked at again. A step that has changed
/// something says nothing of that, and the next one looks at what came of it. `doing` is what the pass does, for the log.
pub(super) async fn run<F: Future<Output = Result<Option<Next>, ApiError>>>(
    ctx: &Context,
    doing: &'static str,
    object: impl Display,
    step: impl Fn() -> F,
) -> Next {
    for _ in 0..STEPS {
        if !ctx.leadership.is_leading() {
            return Next::Done;
        }
        // Boxed: a queue has very many passes, and most are about something else.
        match Box::pin(step()).await {
            Ok(None) => {}
            Ok(Some(next)) => return next,
            Err(ApiError::Conflict(request)) => {
                tracing::info!(%request, "changed meanwhile; looking again");
            }
            Err(error) => {
                tracing::warn!(%object, %error, "{doing} failed");
                return error.next();
            }
        }
    }
    Next::Again
}
