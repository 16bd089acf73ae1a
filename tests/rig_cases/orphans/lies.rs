//! Listings of many pages, and listings that go wrong.

use std::sync::Arc;

use moor::csi::Rpc;

use super::start;
use crate::rig::fake::listing::Lie;
use crate::rig::{Cluster, Entry, Rig, volume};

pub(super) async fn a_listing_of_many_pages_is_compared_as_a_whole(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.fake.backend().listing.page = 1;
    for key in ["a", "b", "c"] {
        rig.make_volume(&volume(key)).await;
        rig.until_volume_ready(key).await;
    }
    // Of three pages each.
    rig.until_compared(Rpc::ListVolumes, 9).await;
    rig.leave_storage("a").await;
    rig.leave_storage("c").await;
    rig.until_orphans(&["vol-a", "vol-c"]).await;
    rig.fake.backend().listing.hides.insert("b".to_owned());
    rig.until_volume_found("b", false).await;
    rig.fake.backend().listing.hides.clear();
    rig.until_volume_found("b", true).await;
    rig.delete_volume("b").await;
    rig.until_volume_gone("b").await;
    rig.end_orphans().await;
}

/// What was told stays, and what would be told after a whole one is not.
pub(super) async fn a_listing_that_is_not_whole_says_nothing(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    for key in ["told", "hidden", "later"] {
        rig.make_volume(&volume(key)).await;
        rig.until_volume_ready(key).await;
    }
    rig.until_compared(Rpc::ListVolumes, 3).await;
    rig.leave_storage("told").await;
    let told = rig.until_orphans(&["vol-told"]).await;
    // More than one in any case, also while something is hidden.
    rig.fake.backend().listing.page = 1;
    for lie in [Lie::SameToken, Lie::ForgetsTokens, Lie::EmptyEntry] {
        rig.fake.backend().listing.lie = Some(lie);
        until_ended(&rig, 1).await;
        rig.fake.backend().listing.hides.insert("hidden".to_owned());
        until_ended(&rig, 3).await;
        assert_eq!(rig.orphans().await, told, "{lie:?}");
        let status = rig.cluster.volume("hidden").unwrap().status.clone().unwrap();
        assert!(
            status.conditions.iter().all(|condition| condition.type_ != "StorageFound"),
            "{lie:?}: {status:?}"
        );
        rig.fake.backend().listing.hides.clear();
    }
    rig.leave_storage("later").await;
    until_ended(&rig, 2).await;
    assert_eq!(rig.orphans().await, told);
    rig.fake.backend().listing.lie = None;
    rig.until_orphans(&["vol-told", "vol-later"]).await;
    rig.delete_volume("hidden").await;
    rig.until_volume_gone("hidden").await;
    rig.end_orphans().await;
}

/// Waits until so many listings have begun after now: the one before each has ended by then, however it went on.
async fn until_ended(rig: &Rig, times: usize) {
    let since = rig.journal.now();
    let begins = |entry: &Entry| {
        entry.call().is_some_and(|call| call.rpc == Rpc::ListVolumes && call.arguments.len() <= FIRST_PAGE)
    };
    let begun = || rig.journal.since(since, begins).len();
    let look = || (begun() > times).then_some(());
    rig.cluster.until("listings begin", look, || format!("{} have", begun())).await;
}

/// Bytes of the request for a first page: it has no token.
const FIRST_PAGE: usize = 3;
