//! What the leader says of how a Volume is: everything that agents report, and what of it is news.

use crate::api::conditions::{Desired, Reason, first_few};
use crate::api::health::{HealthFinding, HealthKind, VolumeFinding};

/// Findings in one Volume's status: the schema's bound.
pub const MOST: usize = 32;
/// Findings that a message names.
const NAMED: usize = 3;

/// What one place reports of a Volume.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// The node; nothing for the driver's Controller service.
    pub node: Option<&'a str>,
    /// What is wrong there.
    pub findings: &'a [HealthFinding],
}

/// All that is wrong, what the Controller service says first; nothing if nobody has looked.
#[must_use]
pub fn merged<'a>(reported: impl IntoIterator<Item = Reported<'a>>) -> Option<Vec<VolumeFinding>> {
    let mut all = None;
    for Reported { node, findings } in reported {
        let here = findings
            .iter()
            .map(|finding| VolumeFinding { node_name: node.map(str::to_owned), finding: finding.clone() });
        all.get_or_insert_with(Vec::new).extend(here);
    }
    all.map(|mut all| {
        all.sort_by(|a, b| place(a).cmp(&place(b)));
        all.truncate(MOST);
        all
    })
}

fn place(finding: &VolumeFinding) -> (Option<&str>, HealthKind) {
    (finding.node_name.as_deref(), finding.finding.kind)
}

/// What is wrong now and was not before.
#[must_use]
pub fn news(before: &[VolumeFinding], now: &[VolumeFinding]) -> Vec<VolumeFinding> {
    now.iter().filter(|new| before.iter().all(|old| place(old) != place(new))).cloned().collect()
}

/// The condition that says so.
#[must_use]
pub fn condition(findings: &[VolumeFinding]) -> Desired {
    if findings.is_empty() {
        let message = "nothing is wrong with the volume, as far as its nodes see and its driver says";
        return Desired::new(Reason::VolumeConditionNormal, message);
    }
    Desired::new(Reason::VolumeConditionAbnormal, told(findings))
}

/// The first few findings in words.
#[must_use]
pub fn told(findings: &[VolumeFinding]) -> String {
    first_few(findings.iter().map(words), NAMED)
}

/// One finding in words.
#[must_use]
pub fn words(VolumeFinding { node_name, finding }: &VolumeFinding) -> String {
    let HealthFinding { kind, message, .. } = finding;
    match node_name {
        Some(node) => format!("{kind:?} on node {node} ({message})"),
        None => format!("{kind:?} by the driver's Controller service ({message})"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn finding(kind: HealthKind) -> HealthFinding {
        HealthFinding { kind, message: "words".to_owned(), since: Time(Timestamp::UNIX_EPOCH) }
    }

    fn places(all: &[VolumeFinding]) -> Vec<(Option<&str>, HealthKind)> {
        all.iter().map(place).collect()
    }

    #[test]
    fn everything_is_said_in_one_order_and_nothing_where_nobody_has_looked() {
        assert_eq!(merged([]), None);
        assert_eq!(merged([Reported { node: Some("a"), findings: &[] }]), Some(Vec::new()));
        let (full, stale) = ([finding(HealthKind::Full)], [finding(HealthKind::Stale)]);
        let abnormal = [finding(HealthKind::Abnormal)];
        let of = |node, findings| Reported { node, findings };
        let all = [of(Some("b"), &full[..]), of(None, &abnormal[..]), of(Some("a"), &stale[..])];
        let now = merged(all).unwrap();
        let expected =
            [(None, HealthKind::Abnormal), (Some("a"), HealthKind::Stale), (Some("b"), HealthKind::Full)];
        assert_eq!(places(&now), expected);
        assert_eq!(merged(all.into_iter().rev()).unwrap(), now);
        let message = condition(&now).message;
        assert!(
            message.contains("Stale on node a (words)") && message.contains("Controller service"),
            "{message}"
        );
    }

    #[test]
    fn there_is_an_end_to_what_a_status_says() {
        let nodes: Vec<String> = (0..100).map(|n| format!("node-{n:03}")).collect();
        let full = [finding(HealthKind::Full)];
        let all = nodes.iter().map(|node| Reported { node: Some(node), findings: &full });
        let all = merged(all).unwrap();
        assert_eq!((all.len(), all[31].node_name.as_deref()), (MOST, Some("node-031")));
        assert!(condition(&all).message.ends_with("and 29 more"));
    }

    #[test]
    fn only_what_was_not_wrong_before_is_news() {
        let full = [finding(HealthKind::Full)];
        let on = |node| merged([Reported { node: Some(node), findings: &full }]).unwrap();
        assert!(news(&on("a"), &on("a")).is_empty());
        assert_eq!(places(&news(&on("a"), &on("b"))), [(Some("b"), HealthKind::Full)]);
        assert!(news(&on("a"), &[]).is_empty());
        let mut later = on("a");
        later[0].finding.message = "other words".to_owned();
        assert!(news(&on("a"), &later).is_empty());
    }
}
