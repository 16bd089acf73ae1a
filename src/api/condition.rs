//! A condition as moor's objects have it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, Serialize};

use super::reason::Reason;

/// metav1's Condition. Caches keep very many, and nearly all say the same few words: those are kept once for the whole program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type", deserialize_with = "word")]
    pub type_: Cow<'static, str>,
    /// True, False or Unknown.
    #[serde(deserialize_with = "word")]
    pub status: Cow<'static, str>,
    /// Why, in a word that alerts can be written against.
    #[serde(deserialize_with = "word")]
    pub reason: Cow<'static, str>,
    /// A sentence for the person who reads `kubectl describe`.
    pub message: String,
    /// When the status was another one last.
    pub last_transition_time: Time,
    /// The generation of spec that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Default for Condition {
    fn default() -> Self {
        Self {
            type_: Cow::default(),
            status: Cow::default(),
            reason: Cow::default(),
            message: String::new(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            observed_generation: None,
        }
    }
}

/// A word of a condition, without memory of its own if moor knows it.
fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'static, str>, D::Error> {
    static KNOWN: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let of_reasons = Reason::ALL.iter().flat_map(|reason| [reason.as_str(), reason.group().condition]);
        of_reasons.chain(["True", "False", "Unknown"]).collect()
    });
    let word = String::deserialize(from)?;
    Ok(KNOWN.get(word.as_str()).map_or_else(|| Cow::Owned(word), |known| Cow::Borrowed(*known)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_keeps_its_text_and_known_words_take_no_memory() {
        let said = json!({
            "type": "Ready", "status": "False", "reason": "NodeStageFailed", "message": "no",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3,
        });
        let read: Condition = serde_json::from_value(said.clone()).unwrap();
        assert!(
            [&read.type_, &read.status, &read.reason].iter().all(|word| matches!(word, Cow::Borrowed(_)))
        );
        assert_eq!(serde_json::to_value(&read).unwrap(), said);
    }

    /// Another version of moor, or a person, may have written it.
    #[test]
    fn a_word_that_moor_does_not_know_stays() {
        let said = json!({
            "type": "Theirs", "status": "Unknown", "reason": "Other", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        let read: Condition = serde_json::from_value(said.clone()).unwrap();
        assert_eq!((&*read.type_, &*read.reason), ("Theirs", "Other"));
        assert_eq!(serde_json::to_value(&read).unwrap(), said);
    }
}
