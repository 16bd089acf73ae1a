//! ValidateVolumeCapabilities, of a volume that is registered or whose use was edited, and whether what a driver does not confirm
//! is used.

use crate::agent::calls::arguments;
use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::{Failure, Pace};
use crate::api::Volume;
use crate::api::conditions::{Desired, Reason};
use crate::api::edit::GrantedUse;
use crate::api::plugin::Validation;
use crate::csi::{CallError, Meaning, Validation as Validated};

/// Makes the call, for what is `asked` of the volume. What comes of it is what the condition Confirmed says.
pub(super) async fn call(
    due: &Due<'_>,
    volume: &Volume,
    asked: &GrantedUse,
    with: Means,
) -> Result<Desired, (Failure, Option<CallError>)> {
    let Means { serving, secrets, note: _ } = with;
    let args = arguments::validate(volume, asked, secrets, serving.fingerprint.controller_modes)
        .map_err(|error| (Failure::arguments(due.rpc, &error), None))?;
    let called =
        due.call_controller(&serving.plugin, serving.plugin.validate_volume_capabilities(args)).await;
    let plugin = due.agent.caches.plugins.get(&volume.spec.plugin_name);
    let is_lenient = plugin.is_some_and(|plugin| plugin.spec.validation == Validation::Lenient);
    let strictly = |message: &str| format!("{message}; spec.validation of the Plugin is Strict");
    let unconfirmed = |message: &str| {
        let message = format!("{message}; with spec.validation Strict of the Plugin it would not be used");
        Ok(Desired::new(Reason::Unconfirmed, message))
    };
    let refused = |message: String| {
        let failure = Failure::local(Reason::NotConfirmed, due.rpc, message);
        Err((Failure { pace: Pace::Slow, ..failure }, None))
    };
    match called {
        Ok(Validated::Confirmed { unchecked }) => {
            let but = if unchecked.is_empty() {
                String::new()
            } else {
                format!(", but for {}", unchecked.join(", "))
            };
            Ok(Desired::new(Reason::Confirmed, format!("the driver confirms what is asked of it{but}")))
        }
        Ok(Validated::Unconfirmed { message }) if is_lenient => unconfirmed(&message),
        Ok(Validated::Unconfirmed { message }) => refused(strictly(&message)),
        Ok(Validated::Refused { message }) => refused(message),
        Err(error) if is_lenient && error.meaning() == Meaning::Unsupported => {
            unconfirmed(&error.to_string())
        }
        Err(error) if error.meaning() == Meaning::Unsupported => {
            let failure = Failure::of_call(&error);
            Err((Failure { message: strictly(&failure.message), ..failure }, Some(error)))
        }
        Err(error) => Err((Failure::of_call(&error), Some(error))),
    }
}
