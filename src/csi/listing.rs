//! ListVolumes: at which nodes a driver says that volumes are published, and how it says that they are.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use super::channel::Plugin;
use super::error::{CallError, Origin};
use super::proto::csi::v1 as wire;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::sizes::NODE_ID_LIMIT;

const RPC: Rpc = Rpc::ListVolumes;
/// How often a listing starts again because its token went stale.
const ATTEMPTS: u32 = 3;
/// Most pages of a listing. A driver that always has one more would hold whoever lists for ever.
const MOST_PAGES: usize = 10_000;
/// Most volumes of a listing.
const MOST_VOLUMES: usize = 1_000_000;
/// Most bytes of what is kept of a listing.
const MOST_KEPT: usize = 16 * 1024 * 1024;
/// What keeping a text takes beside the text, in bytes, roughly.
const OVERHEAD: usize = 64;
/// The longest that a listing may take, its new starts included. Each page has its deadline, and many pages have many.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The ids of the nodes at which volumes are published, by volume id; they may be of nodes that are unknown here. Without
/// LIST_VOLUMES_PUBLISHED_NODES there are none.
pub type Published = HashMap<String, BTreeSet<String>>;

/// How volumes are, by volume id, with messages that can be shown. Without VOLUME_CONDITION there is nothing.
pub type Conditions = HashMap<String, wire::VolumeCondition>;

impl Plugin {
    /// ListVolumes (needs LIST_VOLUMES), all pages, of at most `page_size` volumes each (0: as many as the driver likes).
    /// Keeps what is said of the volumes that are `ours`: a driver may have many. Of a volume that is on two pages because
    /// it moved between them both count. Starts again up to three times if the driver forgets its token.
    ///
    /// The list may miss a volume that came or moved while it was made, so absence from it proves nothing.
    ///
    /// Fails with `Origin::Reply` if the listing does not end, or says more than can be kept.
    pub async fn list_published(
        &self,
        page_size: u32,
        ours: impl Fn(&str) -> bool,
    ) -> Result<Published, CallError> {
        Ok(list(|token| self.list_volumes(page_size, token), ours).await?.published)
    }

    /// As [`Self::list_published`], for how the volumes are. Of a volume that is on two pages the later word counts.
    pub async fn list_conditions(
        &self,
        page_size: u32,
        ours: impl Fn(&str) -> bool,
    ) -> Result<Conditions, CallError> {
        Ok(list(|token| self.list_volumes(page_size, token), ours).await?.conditions)
    }

    /// One page, from `starting_token` on (empty: from the start).
    ///
    /// Fails with ABORTED if the token is no longer good; then the listing has to start again.
    async fn list_volumes(
        &self,
        max_entries: u32,
        starting_token: String,
    ) -> Result<wire::ListVolumesResponse, CallError> {
        let message = wire::ListVolumesRequest {
            max_entries: i32::try_from(max_entries).unwrap_or(i32::MAX),
            starting_token,
        };
        self.ask(&message).await
    }
}

async fn list<F>(page: impl Fn(String) -> F, ours: impl Fn(&str) -> bool) -> Result<Listing, CallError>
where
    F: Future<Output = Result<wire::ListVolumesResponse, CallError>>,
{
    let (started, mut attempt) = (Instant::now(), 1);
    loop {
        let mut listing = Listing::default();
        match listing.read(&page, &ours, started).await {
            Ok(()) => return Ok(listing),
            Err(error)
                if error.code == Code::Aborted && error.origin == Origin::Driver && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What has been read of a listing.
#[derive(Debug, Default)]
struct Listing {
    published: Published,
    conditions: Conditions,
    /// Hashes of the tokens that were given, which may be long themselves.
    tokens: HashSet<u64>,
    hashes: RandomState,
    volumes: usize,
    kept: usize,
}

impl Listing {
    async fn read<F>(
        &mut self,
        page: impl Fn(String) -> F,
        ours: impl Fn(&str) -> bool,
        started: Instant,
    ) -> Result<(), CallError>
    where
        F: Future<Output = Result<wire::ListVolumesResponse, CallError>>,
    {
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let wire::ListVolumesResponse { entries, next_token } = page(token).await?;
            self.volumes += entries.len();
            if self.volumes > MOST_VOLUMES {
                return Err(CallError::not_taken(RPC, format!("it lists more than {MOST_VOLUMES} volumes")));
            }
            for entry in entries {
                self.take_in(entry, &ours)?;
            }
            if next_token.is_empty() {
                return Ok(());
            }
            if !self.tokens.insert(self.hashes.hash_one(&next_token)) {
                let what = "next_token is one that it gave before, so that the listing would never end";
                return Err(CallError::reply(RPC, what));
            }
            if started.elapsed() > LONGEST {
                let what = format!("the listing has not ended after {} minutes", LONGEST.as_secs() / 60);
                return Err(CallError::not_taken(RPC, what));
            }
            token = next_token;
        }
        Err(CallError::not_taken(RPC, format!("the listing has not ended after {MOST_PAGES} pages")))
    }

    fn take_in(
        &mut self,
        entry: wire::list_volumes_response::Entry,
        ours: impl Fn(&str) -> bool,
    ) -> Result<(), CallError> {
        let volume = entry.volume.ok_or_else(|| CallError::reply(RPC, "an entry without volume"))?;
        if volume.volume_id.is_empty() {
            return Err(CallError::reply(RPC, "an entry with an empty volume_id"));
        }
        if !ours(&volume.volume_id) {
            return Ok(());
        }
        let id = volume.volume_id.len();
        let status = entry.status.unwrap_or_default();
        if let Some(mut condition) = status.volume_condition {
            condition.message = Scrub::nothing().clean(&condition.message);
            self.kept += id + condition.message.len() + OVERHEAD;
            self.conditions.insert(volume.volume_id.clone(), condition);
        }
        let nodes = self.published.entry(volume.volume_id).or_insert_with(|| {
            self.kept += id + OVERHEAD;
            BTreeSet::new()
        });
        // An empty or a longer one is no node's.
        for node in
            status.published_node_ids.into_iter().filter(|node| (1..=NODE_ID_LIMIT).contains(&node.len()))
        {
            let size = node.len() + OVERHEAD;
            if nodes.insert(node) {
                self.kept += size;
            }
        }
        if self.kept > MOST_KEPT {
            let what = format!(
                "it says so much of our volumes and their nodes that it takes more than {MOST_KEPT} bytes"
            );
            return Err(CallError::not_taken(RPC, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A page with these volumes, each at these nodes.
    fn page(volumes: &[&str], nodes: &[&str], next_token: &str) -> wire::ListVolumesResponse {
        let entry = |id: &&str| wire::list_volumes_response::Entry {
            volume: Some(wire::Volume { volume_id: (*id).to_owned(), ..Default::default() }),
            status: Some(wire::list_volumes_response::VolumeStatus {
                published_node_ids: nodes.iter().map(|&node| node.to_owned()).collect(),
                ..Default::default()
            }),
        };
        wire::ListVolumesResponse {
            entries: volumes.iter().map(entry).collect(),
            next_token: next_token.to_owned(),
        }
    }

    /// The error of a listing whose pages come from their number, and how many were asked for.
    async fn endless(page: impl Fn(usize) -> wire::ListVolumesResponse) -> (CallError, usize) {
        let asked = Cell::new(0);
        let next = |_| {
            asked.set(asked.get() + 1);
            assert!(asked.get() <= 2 * MOST_PAGES, "pages are asked for without end");
            std::future::ready(Ok(page(asked.get())))
        };
        let error = list(next, |_| true).await.unwrap_err();
        assert_eq!(error.origin, Origin::Reply, "{error}");
        (error, asked.get())
    }

    #[tokio::test]
    async fn a_token_that_comes_again_ends_the_listing() {
        let (error, asked) =
            endless(|number| page(&["vol"], &["n"], if number % 2 == 0 { "A" } else { "B" })).await;
        assert_eq!(asked, 3, "{error}");
        assert!(error.message.contains("next_token is one that it gave before"), "{error}");
        let (_, asked) = endless(|_| page(&[], &[], "same")).await;
        assert_eq!(asked, 2);
    }

    #[tokio::test]
    async fn a_listing_that_always_has_one_more_page_is_ended() {
        let (error, asked) = endless(|number| page(&["vol"], &["n"], &number.to_string())).await;
        assert_eq!(asked, MOST_PAGES);
        assert!(error.message.ends_with("has not ended after 10000 pages"), "{error}");
        let many = vec!["vol"; 1_000];
        let (error, asked) = endless(|number| page(&many, &[], &number.to_string())).await;
        assert_eq!(asked, MOST_VOLUMES / many.len() + 1);
        assert!(error.message.ends_with("it lists more than 1000000 volumes"), "{error}");
    }

    #[tokio::test]
    async fn what_is_kept_of_a_listing_is_bounded() {
        let nodes: Vec<String> = (0..1_000).map(|n| format!("{n:0>250}")).collect();
        let (error, asked) = endless(|number| {
            let nodes: Vec<String> = nodes.iter().map(|node| format!("{number:0>5}{node}")).collect();
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            page(&["vol"], &nodes, &number.to_string())
        })
        .await;
        assert!(asked < 100 && error.message.contains("so much of our volumes"), "{asked}: {error}");
    }

    #[tokio::test(start_paused = true)]
    async fn pages_that_take_their_time_are_not_waited_for_without_end() {
        let asked = Cell::new(0);
        let slow = |_| {
            asked.set(asked.get() + 1);
            assert!(asked.get() < 1_000, "pages are asked for without end");
            let page = page(&[], &[], &asked.get().to_string());
            async move {
                tokio::time::sleep(Duration::from_secs(59)).await;
                Ok(page)
            }
        };
        let error = list(slow, |_| true).await.unwrap_err();
        assert!(error.message.ends_with("has not ended after 30 minutes"), "{error}");
        assert_eq!((error.origin, asked.get()), (Origin::Reply, 31));
    }

    #[tokio::test]
    async fn a_volume_on_two_pages_counts_twice_and_others_volumes_are_not_kept() {
        let long = "n".repeat(NODE_ID_LIMIT + 1);
        let pages = |token: String| {
            let of = match token.as_str() {
                "" => page(&["vol", "other"], &["a", "", &long], "next"),
                _ => page(&["vol", "bare"], &["b"], ""),
            };
            std::future::ready(Ok(of))
        };
        let published = list(pages, |id| id != "other").await.unwrap().published;
        let nodes = |id: &str| published[id].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((nodes("vol"), nodes("bare"), published.len()), (vec!["a", "b"], vec!["b"], 2));
    }

    #[tokio::test]
    async fn what_is_said_of_ours_can_be_shown_and_the_later_word_counts() {
        let said = |id: &str, message: &str| {
            let mut page = page(&[id], &[], if id == "vol" { "next" } else { "" });
            let status = page.entries[0].status.get_or_insert_default();
            let message = message.to_owned();
            status.volume_condition = Some(wire::VolumeCondition { abnormal: !message.is_empty(), message });
            page
        };
        let pages = |token: String| {
            let mut page = said("vol", "a\u{1b}[31m\nlong story");
            if !token.is_empty() {
                page = said("vol", "");
                page.next_token.clear();
                page.entries.extend(said("other", "theirs").entries);
            }
            std::future::ready(Ok(page))
        };
        let first = |token: String| {
            std::future::ready(Ok(if token.is_empty() {
                said("vol", "a\u{1b}[31m\nb")
            } else {
                page(&[], &[], "")
            }))
        };
        let conditions = list(first, |_| true).await.unwrap().conditions;
        assert_eq!(
            conditions["vol"],
            wire::VolumeCondition { abnormal: true, message: "a[31m b".to_owned() }
        );
        let conditions = list(pages, |id| id == "vol").await.unwrap().conditions;
        assert_eq!((conditions.len(), conditions["vol"].abnormal), (1, false));
    }

    #[tokio::test]
    async fn a_listing_starts_again_when_its_token_went_stale_and_not_for_ever() {
        let asked = Cell::new(0);
        let stale = |token: String| {
            asked.set(asked.get() + 1);
            let (code, message) = (Code::Aborted, String::new());
            let aborted = CallError { rpc: RPC, code, message, origin: Origin::Driver };
            std::future::ready(if token.is_empty() { Ok(page(&[], &[], "next")) } else { Err(aborted) })
        };
        assert_eq!(list(stale, |_| true).await.unwrap_err().code, Code::Aborted);
        assert_eq!(asked.get(), 6);
    }
}
