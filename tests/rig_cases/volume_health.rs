//! How volumes are: what is seen on nodes and said by drivers is told once, and ends when it has ended; and looking is in
//! nobody's way.

mod kernel;
mod silence;
mod told;
mod word;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use moor::api::conditions::{HEALTHY, find};
use moor::api::health::{HealthKind, VolumeFinding};

use crate::cases;
use crate::rig::fake::backend::Answers;
use crate::rig::{Can, Case, Entry, Options, Rig};

const NODE: &str = "node-1";
const NEXT: &str = "node-2";

/// The cases of this module.
pub const CASES: &[Case] = cases![
    told::what_a_driver_says_on_a_node_is_told_once_and_ends,
    told::what_a_driver_lists_is_told_and_ends,
    told::what_a_driver_says_of_one_volume_is_told_and_ends,
    told::words_that_change_all_the_time_are_not_written_all_the_time,
    kernel::a_file_system_that_goes_read_only_is_told,
    kernel::a_file_system_that_is_full_is_told,
    kernel::a_file_system_without_its_server_is_told,
    kernel::a_mount_that_is_gone_is_told,
    kernel::a_device_is_counted,
    silence::a_driver_that_hangs_delays_nobody,
    silence::a_question_gives_way_to_a_call_for_its_volume,
    silence::a_driver_that_does_not_say_is_told,
    silence::numbers_that_cannot_be_are_not_counted,
    word::only_who_has_looked_says_how_a_volume_is,
];

/// A driver that says on nodes how full volumes are, and how they are.
fn saying() -> Options {
    Options { health_interval: 1, can: vec![Can::GetVolumeStats, Can::VolumeCondition], ..Options::default() }
}

impl Rig {
    /// Changes how the driver answers about a volume.
    fn answers_so(&self, key: &str, change: impl FnOnce(&mut Answers)) {
        change(self.fake.backend().answers.entry(key.to_owned()).or_default());
    }

    /// Waits until a Volume says that it is well again, or nothing, as one does that was never ill.
    async fn until_well(&self, name: &str) {
        let look = || {
            let status = self.cluster.volume(name)?.status.clone()?;
            let is_well = find(&status.conditions, HEALTHY).is_none_or(|said| said.status == "True");
            (is_well && status.health.is_empty()).then_some(())
        };
        self.cluster.until(&format!("{name} is well"), look, || self.story_of_health(name)).await;
    }

    /// Waits until these are wrong with a Volume and no others, and its condition says so. Returns them.
    async fn until_ill(&self, name: &str, kinds: &[HealthKind]) -> Vec<VolumeFinding> {
        let look = || {
            let status = self.cluster.volume(name)?.status.clone()?;
            let is_ill = find(&status.conditions, HEALTHY)?.status == "False";
            let found: Vec<_> = status.health.iter().map(|found| found.finding.kind).collect();
            (is_ill && found == kinds).then_some(status.health)
        };
        let what = format!("{name} has {kinds:?}");
        self.cluster.until(&what, look, || self.story_of_health(name)).await
    }

    fn story_of_health(&self, name: &str) -> String {
        let volume = self.cluster.volume(name);
        let status = volume.and_then(|volume| volume.status.clone()).unwrap_or_default();
        format!("{:?}\n{:?}\n{}", status.health, find(&status.conditions, HEALTHY), self.story(name))
    }

    /// How often an Event of this reason was told of a Volume.
    pub(crate) async fn events_told(&self, name: &str, reason: &str) -> i32 {
        self.events_about(self.volume_api().get(name).await.unwrap().uid(), reason).await
    }

    /// How often an Event of this reason was told of the object with this UID.
    pub(crate) async fn events_about(&self, uid: Option<String>, reason: &str) -> i32 {
        let events: Api<Event> = Api::all(self.cluster.admin.clone());
        let listed = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let is = |event: &Event| {
            event.regarding.as_ref().and_then(|of| of.uid.clone()) == uid
                && event.reason.as_deref() == Some(reason)
        };
        listed.filter(is).map(|event| event.series.map_or(1, |series| series.count)).sum()
    }

    /// Waits until Events of both kinds were told so often.
    async fn until_health_events(&self, name: &str, ill: i32, well: i32) {
        self.poll(&format!("{name} is told ill {ill} and well {well} times"), || async {
            self.events_told(name, "VolumeConditionAbnormal").await == ill
                && self.events_told(name, "VolumeConditionNormal").await == well
        })
        .await;
    }

    /// Asserts that nothing is written while this is done, but Leases.
    async fn unwritten_while(&self, done: impl Future<Output = ()>) {
        let since = self.journal.now();
        done.await;
        let is_write = |entry: &Entry| entry.write().is_some_and(|write| write.kind != "leases");
        let writes = self.journal.since(since, is_write);
        assert!(writes.is_empty(), "{}", crate::rig::Journal::text(&writes));
    }

    /// Waits until a driver has been asked so often more.
    async fn until_asked_again(&self, key: &str, rpc: moor::csi::Rpc, more: usize) {
        let before = self.count(key, rpc);
        let look = || (self.count(key, rpc) >= before + more).then_some(());
        self.cluster.until(&format!("{rpc} of {key}"), look, || self.story(key)).await;
    }

    async fn end_health(&self, name: &str) {
        self.delete_claim(name).await;
        self.until_claim_gone(name).await;
        self.delete_volume(name).await;
        self.until_volume_gone(name).await;
        self.assert_nothing_left().await;
        self.fake.assert_obeyed();
    }
}
