//! What drivers have answered about their room. It is written into the PluginInstance with all that is said there, so this
//! keeps what is not written yet; after a restart the object is what is known.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use crate::api::instance::{Capacity, CapacityRequest, PluginInstance};

/// A driver's answers, by the names of the questions.
type Answers = BTreeMap<String, Capacity>;

/// The answers of all drivers on this node.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<HashMap<String, Answers>>);

impl Said {
    /// What is known of the questions that a driver's PluginInstance has: what the driver said last, or what the object says.
    pub fn of(&self, driver: &str, observed: &PluginInstance) -> Answers {
        let all = self.0.lock();
        let written = observed.status.as_ref().map(|status| &status.capacities);
        let answer = |name: &String| {
            let heard = all.get(driver).and_then(|answers| answers.get(name));
            Some((name.clone(), heard.or_else(|| written?.get(name))?.clone()))
        };
        observed.spec.capacity_requests.keys().filter_map(answer).collect()
    }

    /// Takes in a driver's answers. Returns whether that is news.
    pub fn heard(&self, driver: &str, answers: Answers) -> bool {
        let mut all = self.0.lock();
        let is_news = all.get(driver).map_or(!answers.is_empty(), |before| *before != answers);
        if answers.is_empty() {
            all.remove(driver);
        } else {
            all.insert(driver.to_owned(), answers);
        }
        is_news
    }
}

/// Puts an answer in the place of an earlier one. What is no size leaves the size that is known.
pub(super) fn take_in(answers: &mut Answers, name: &str, answer: Result<Capacity, String>) {
    let known = answers.entry(name.to_owned()).or_default();
    match answer {
        Ok(size) => *known = size,
        Err(error) => known.last_error = Some(error),
    }
}

/// The questions of a PluginInstance.
pub(crate) fn asks(instance: &PluginInstance) -> BTreeMap<String, CapacityRequest> {
    instance.spec.capacity_requests.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::PluginInstanceSpec;

    fn size(bytes: i64) -> Capacity {
        Capacity { available_capacity: Some(bytes), ..Capacity::default() }
    }

    fn instance(asked: &[&str], written: &[(&str, i64)]) -> PluginInstance {
        let requests = asked.iter().map(|name| ((*name).to_owned(), CapacityRequest::default())).collect();
        let spec = PluginInstanceSpec { capacity_requests: requests, ..PluginInstanceSpec::default() };
        let mut instance = PluginInstance::new("i", spec);
        let capacities = written.iter().map(|(name, bytes)| ((*name).to_owned(), size(*bytes))).collect();
        instance.status.get_or_insert_default().capacities = capacities;
        instance
    }

    #[test]
    fn what_was_heard_last_counts_and_after_a_restart_what_was_written() {
        let said = Said::default();
        let asked = instance(&["a", "b", "c"], &[("a", 1), ("b", 2), ("gone", 3)]);
        let known = Answers::from([("a".into(), size(1)), ("b".into(), size(2))]);
        assert_eq!(said.of("d", &asked), known);
        let heard = Answers::from([("b".into(), size(4))]);
        assert!(said.heard("d", heard.clone()) && !said.heard("d", heard));
        let known = Answers::from([("a".into(), size(1)), ("b".into(), size(4))]);
        assert_eq!(said.of("d", &asked), known);
        assert_eq!(said.of("other", &asked)["b"], size(2), "of another driver");
        assert!(said.of("d", &instance(&[], &[("a", 1)])).is_empty(), "nobody asks any more");
        assert!(said.heard("d", Answers::new()) && !said.heard("d", Answers::new()));
    }

    #[test]
    fn what_is_no_size_leaves_the_size_that_is_known() {
        let mut answers = Answers::new();
        take_in(&mut answers, "a", Err("Internal: words".into()));
        assert_eq!(answers["a"].available_capacity, None);
        take_in(&mut answers, "a", Ok(size(7)));
        assert_eq!(answers["a"], size(7));
        take_in(&mut answers, "a", Err("Internal: words".into()));
        let failed = Capacity { last_error: Some("Internal: words".into()), ..size(7) };
        assert_eq!(answers["a"], failed);
    }
}
