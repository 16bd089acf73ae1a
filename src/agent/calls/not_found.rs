//! What NOT_FOUND from a driver proves (rule R9, trap B21).

use super::failure::Failure;
use crate::agent::context::Agent;
use crate::api::Plugin;
use crate::csi::{CallError, Meaning};

/// A call that was made earlier, and is to be undone: with which Plugin it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Earlier<'a> {
    /// Name of the Plugin.
    pub plugin: &'a str,
    /// Its UID at that time, where it is known.
    pub uid: Option<&'a str>,
    /// For people: `attached`, `made`.
    pub done: &'static str,
    /// For people: `detached`, `deleted`.
    pub undone: &'static str,
}

/// Whether the failure of an undo call says that nothing is left to undo. NOT_FOUND says so only from the driver that did
/// it: under the name of a Plugin that was made anew another backend may answer. Where no Plugin has the name, the
/// recorded driver's word counts. The Plugin is read live: a cache may not know yet that it is another one (rule R1).
pub(crate) async fn is_gone(agent: &Agent, error: &CallError, earlier: Earlier<'_>) -> Result<(), Failure> {
    if error.meaning() != Meaning::AlreadyGone {
        return Err(Failure::of_call(error));
    }
    match agent.get_live::<Plugin>(earlier.plugin).await {
        Ok(found) => judge(error, found.and_then(|p| p.metadata.uid).as_deref(), earlier),
        Err(unread) => Err(no_proof(error, earlier, &format!("cannot be read ({unread})"))),
    }
}

/// Judges the failed deletion of what a driver keeps, which a policy may give up. `note` is what the call went without.
///
/// # Errors
/// Something may be left. The failure says so for people, and the driver's own answer is beside it.
pub(crate) async fn unless_gone(
    agent: &Agent,
    error: CallError,
    earlier: Earlier<'_>,
    note: Option<&str>,
) -> Result<(), (Failure, Option<CallError>)> {
    let Err(mut failure) = is_gone(agent, &error, earlier).await else { return Ok(()) };
    if error.meaning() == Meaning::AlreadyGone {
        failure.message.push_str("; spec.deletionPolicy Retain gives it up");
    }
    if let Some(note) = note {
        failure.message = format!("{} ({note})", failure.message);
    }
    Err((failure, Some(error)))
}

/// `now` is the UID of the Plugin that has the name now.
fn judge(error: &CallError, now: Option<&str>, earlier: Earlier<'_>) -> Result<(), Failure> {
    let done = earlier.done;
    match (now, earlier.uid) {
        (None, _) => Ok(()),
        (Some(now), Some(then)) if now == then => Ok(()),
        (Some(_), Some(_)) => {
            Err(no_proof(error, earlier, &format!("was made anew since the volume was {done}")))
        }
        (Some(_), None) => Err(no_proof(
            error,
            earlier,
            &format!("is not known to be the one with which the volume was {done}"),
        )),
    }
}

fn no_proof(error: &CallError, earlier: Earlier<'_>, why: &str) -> Failure {
    let failure = Failure::of_call(error);
    let Earlier { plugin, undone, .. } = earlier;
    let message = format!("{}; Plugin {plugin} {why}: that is no proof that it is {undone}", failure.message);
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::{Origin, Rpc};

    /// B21.
    #[test]
    fn not_found_proves_nothing_once_the_plugin_was_made_anew() {
        let gone = CallError {
            rpc: Rpc::DeleteVolume,
            code: tonic::Code::NotFound,
            message: "no such volume".into(),
            origin: Origin::Driver,
        };
        let of = |uid| Earlier { plugin: "p", uid, done: "made", undone: "deleted" };
        assert_eq!(judge(&gone, Some("first"), of(Some("first"))), Ok(()));
        assert_eq!(judge(&gone, None, of(Some("first"))), Ok(()), "the recorded driver still answers");
        assert_eq!(judge(&gone, None, of(None)), Ok(()));
        for (then, why) in [(Some("first"), "made anew since the volume was made"), (None, "not known")] {
            let failure = judge(&gone, Some("second"), of(then)).unwrap_err();
            for words in ["no such volume", "Plugin p", why, "deleted"] {
                assert!(failure.message.contains(words), "{failure}");
            }
        }
    }
}
