//! The condition of a claim that has ended although nobody deleted it and no node was lost.
//!
//! moor writes NodeDetached on deleted claims alone. On another one it was written by hand, or by the agent of a node that
//! was taken over, and the schema keeps it: the claim can never be used again (rule R13).

use super::observed::ClaimSeen;
use crate::api::ClaimState;
use crate::api::conditions::{Desired, Reason};

/// What a claim is told that was ended from outside; None of every other one.
#[must_use]
pub fn of(claim: &ClaimSeen) -> Option<Desired> {
    let ended = claim.state == ClaimState::NodeDetached && !claim.deleted;
    ended.then(|| {
        let by = match &claim.assignment {
            Some(assigned) => format!("the agent of node {}, to which it was assigned, or by hand", assigned.node_name),
            None => "hand".to_owned(),
        };
        Desired {
            reason: Reason::NodeDetached,
            message: format!(
                "status.state says that the claim is unmounted for good, and nobody has deleted it: that was written by \
                 {by}. It is final, and nothing is granted to this claim any more: delete it and create another one"
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn only_who_was_ended_from_outside_is_told() {
        let on = fixtures::attachment("att");
        let claim = |state, deleted| ClaimSeen { deleted, state, ..fixtures::granted("a", &on) };
        let told = of(&claim(ClaimState::NodeDetached, false)).unwrap();
        assert!(told.reason == Reason::NodeDetached && told.message.contains(&on.node), "{}", told.message);
        assert_eq!(of(&claim(ClaimState::NodeDetached, true)), None, "its node has undone it");
        for state in [ClaimState::Pending, ClaimState::Taken, ClaimState::Ready, ClaimState::Lost] {
            assert_eq!(of(&claim(state, false)), None, "{state:?}");
        }
        let bare = ClaimSeen { state: ClaimState::NodeDetached, ..fixtures::claim("a") };
        assert!(of(&bare).is_some_and(|told| told.message.contains("by hand")));
    }
}
