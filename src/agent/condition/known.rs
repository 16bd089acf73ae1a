//! What is remembered between two looks at a volume: how often its driver has failed, when words were written, and which
//! numbers of it are counted.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::AttachmentUid;
use crate::api::attachment::VolumeRef;
use crate::attachment::health::Amount;
use crate::metrics::{Metrics, VolumeLabels};

/// For how long words that are written stay, while nothing else changes.
const WORDS_LAST: Duration = Duration::from_secs(600);

/// What is remembered, by UID of the Attachment.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<AttachmentUid, One>>);

#[derive(Debug, Default)]
struct One {
    failures: u32,
    worded: Option<Instant>,
    counted: Option<VolumeLabels>,
}

impl Known {
    /// The driver has failed once more. Returns how many times in a row.
    pub fn failed(&self, uid: &AttachmentUid) -> u32 {
        let mut known = self.0.lock();
        let one = known.entry(uid.clone()).or_default();
        one.failures = one.failures.saturating_add(1);
        one.failures
    }

    /// The driver has answered.
    pub fn answered(&self, uid: &AttachmentUid) {
        if let Some(one) = self.0.lock().get_mut(uid) {
            one.failures = 0;
        }
    }

    /// Whether the words of what is reported may be others now.
    pub fn may_reword(&self, uid: &AttachmentUid) -> bool {
        self.0.lock().get(uid).and_then(|one| one.worded).is_none_or(|at| at.elapsed() >= WORDS_LAST)
    }

    /// A report was written.
    pub fn worded(&self, uid: &AttachmentUid) {
        self.0.lock().entry(uid.clone()).or_default().worded = Some(Instant::now());
    }

    /// Counts how full a volume is, as far as that is known.
    pub fn count(
        &self,
        uid: &AttachmentUid,
        volume: &VolumeRef,
        (bytes, inodes): (Option<Amount>, Option<Amount>),
        metrics: &Metrics,
    ) {
        let labels = VolumeLabels { namespace: volume.namespace.clone(), volume: volume.name.clone() };
        let gauges = [
            (&metrics.volume_stats_capacity_bytes, bytes.map(|amount| amount.total)),
            (&metrics.volume_stats_used_bytes, bytes.map(|amount| amount.used)),
            (&metrics.volume_stats_available_bytes, bytes.map(|amount| amount.available)),
            (&metrics.volume_stats_inodes, inodes.map(|amount| amount.total)),
            (&metrics.volume_stats_inodes_used, inodes.map(|amount| amount.used)),
            (&metrics.volume_stats_inodes_free, inodes.map(|amount| amount.available)),
        ];
        for (family, number) in gauges {
            if let Some(number) = number {
                family.get_or_create(&labels).set(i64::try_from(number).unwrap_or(i64::MAX));
            }
        }
        self.0.lock().entry(uid.clone()).or_default().counted = Some(labels);
    }

    /// Forgets the volumes that are not in use here any more.
    pub fn forget(&self, is_in_use: impl Fn(&AttachmentUid) -> bool, metrics: &Metrics) {
        let mut known = self.0.lock();
        let mut gone = Vec::new();
        known.retain(|uid, one| {
            let stays = is_in_use(uid);
            if !stays {
                gone.extend(one.counted.take());
            }
            stays
        });
        // Another Attachment of the same volume counts under the same name.
        gone.retain(|labels| known.values().all(|one| one.counted.as_ref() != Some(labels)));
        for labels in &gone {
            for family in [
                &metrics.volume_stats_capacity_bytes,
                &metrics.volume_stats_used_bytes,
                &metrics.volume_stats_available_bytes,
                &metrics.volume_stats_inodes,
                &metrics.volume_stats_inodes_used,
                &metrics.volume_stats_inodes_free,
            ] {
                family.remove(labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn volume() -> VolumeRef {
        VolumeRef { namespace: "ns".into(), name: "data".into(), uid: "uid".into() }
    }

    #[test]
    fn what_is_counted_goes_with_the_volume() {
        let (metrics, registry) = Metrics::new();
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let (known, bytes) = (Known::default(), Some(Amount { total: 8, used: 3, available: 5 }));
        let [first, second] = ["first", "second"].map(AttachmentUid::from);
        known.count(&first, &volume(), (bytes, None), &metrics);
        assert!(
            text().contains(r#"moor_volume_stats_used_bytes{namespace="ns",volume="data"} 3"#),
            "{}",
            text()
        );
        assert!(!text().contains("moor_volume_stats_inodes_used{"), "nobody has said how many");
        known.count(&second, &volume(), (bytes, bytes), &metrics);
        known.forget(|uid| *uid == second, &metrics);
        assert!(
            text().contains(r#"moor_volume_stats_inodes_free{namespace="ns",volume="data"} 5"#),
            "{}",
            text()
        );
        known.forget(|_| false, &metrics);
        assert!(!text().contains("moor_volume_stats_used_bytes{"), "{}", text());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_count_in_a_row_and_words_last_for_a_while() {
        let (known, uid) = (Known::default(), AttachmentUid::from("a"));
        assert_eq!([known.failed(&uid), known.failed(&uid)], [1, 2]);
        known.answered(&uid);
        assert_eq!(known.failed(&uid), 1);
        assert!(known.may_reword(&uid));
        known.worded(&uid);
        assert!(!known.may_reword(&uid));
        tokio::time::advance(WORDS_LAST).await;
        assert!(known.may_reword(&uid));
    }
}
