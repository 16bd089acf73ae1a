//! What the claims in line for a volume are told, so that a change of hands costs few writes however long the line is.

use super::admission::Verdict;
use super::reason::Waiting;
use crate::api::ClaimUid;

/// What every waiting claim is told, by its UID. Only the first in line is told how far the holder is, which changes
/// several times at each hand-over.
pub fn told(verdicts: &[(ClaimUid, Verdict)]) -> impl Iterator<Item = (&str, Waiting)> {
    let mut is_first = true;
    verdicts.iter().filter_map(move |(uid, verdict)| {
        let Verdict::Wait(why) = verdict else { return None };
        let whole = is_first;
        is_first &= !why.is_for_the_volume();
        Some((uid.as_str(), if whole { why.clone() } else { why.clone().without_state() }))
    })
}
