//! ListVolumes: which volumes a driver has, at which nodes it says that they are published, and how it says that they are.

use super::channel::Plugin;
use super::error::CallError;
use super::pages::{Listed, Listing, OVERHEAD, Page, list};
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::list_volumes_response::Entry;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::sizes::NODE_ID_LIMIT;

const RPC: Rpc = Rpc::ListVolumes;

impl Plugin {
    /// ListVolumes (needs LIST_VOLUMES), all pages, of at most `page_size` volumes each (0: as many as the driver likes).
    /// Keeps those that `pick` wants, with what it says: a driver may have many. Of a volume that is on two pages because
    /// it moved between them the nodes of both count, and else the later word. Starts again up to three times if the driver
    /// forgets its token.
    ///
    /// The list may miss a volume that came or moved while it was made, so absence from it proves nothing.
    ///
    /// Fails with `Origin::Reply` if the listing does not end, or says more than can be kept.
    pub async fn list_volumes<M>(
        &self,
        page_size: u32,
        pick: impl Fn(&wire::Volume) -> Option<M>,
    ) -> Result<Listing<M>, CallError> {
        list(
            RPC,
            |token| self.page_of_volumes(page_size, token),
            |listing, entry| take_in(listing, entry, &pick),
        )
        .await
    }

    /// One page, from `starting_token` on (empty: from the start).
    ///
    /// Fails with ABORTED if the token is no longer good; then the listing has to start again.
    async fn page_of_volumes(
        &self,
        max_entries: u32,
        starting_token: String,
    ) -> Result<Page<Entry>, CallError> {
        let message = wire::ListVolumesRequest {
            max_entries: i32::try_from(max_entries).unwrap_or(i32::MAX),
            starting_token,
        };
        let answer = self.ask(&message).await?;
        Ok((answer.entries, answer.next_token))
    }
}

/// Keeps what is wanted of an entry. Returns how many bytes that takes.
fn take_in<M>(
    listing: &mut Listing<M>,
    entry: Entry,
    pick: impl Fn(&wire::Volume) -> Option<M>,
) -> Result<usize, &'static str> {
    let volume = entry.volume.ok_or("an entry without volume")?;
    if volume.volume_id.is_empty() {
        return Err("an entry with an empty volume_id");
    }
    let Some(mark) = pick(&volume) else { return Ok(0) };
    let mut kept = volume.volume_id.len() + OVERHEAD;
    let status = entry.status.unwrap_or_default();
    let condition = status.volume_condition.map(|mut condition| {
        condition.message = Scrub::nothing().clean(&condition.message);
        kept += condition.message.len() + OVERHEAD;
        condition
    });
    let before = listing.remove(&volume.volume_id).map(|before| (before.nodes, before.condition));
    let (mut nodes, said) = before.unwrap_or_default();
    // An empty or a longer one is no node's.
    for node in status.published_node_ids.into_iter().filter(|node| (1..=NODE_ID_LIMIT).contains(&node.len()))
    {
        let size = node.len() + OVERHEAD;
        if nodes.insert(node) {
            kept += size;
        }
    }
    let (bytes, condition) = (volume.capacity_bytes.max(0), condition.or(said));
    listing.insert(volume.volume_id, Listed { mark, bytes, nodes, condition });
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tonic::Code;

    use super::super::error::Origin;
    use super::super::pages::{MOST_ENTRIES, MOST_PAGES};
    use super::*;

    /// The volumes that these pages list, of those that are ours.
    async fn listed<F>(
        page: impl Fn(String) -> F,
        ours: impl Fn(&str) -> bool,
    ) -> Result<Listing<()>, CallError>
    where
        F: Future<Output = Result<Page<Entry>, CallError>>,
    {
        let pick = |volume: &wire::Volume| ours(&volume.volume_id).then_some(());
        list(RPC, page, |listing, entry| take_in(listing, entry, pick)).await
    }

    /// A page with these volumes, each at these nodes.
    fn page(volumes: &[&str], nodes: &[&str], next_token: &str) -> Page<Entry> {
        let entry = |id: &&str| Entry {
            volume: Some(wire::Volume { volume_id: (*id).to_owned(), ..Default::default() }),
            status: Some(wire::list_volumes_response::VolumeStatus {
                published_node_ids: nodes.iter().map(|&node| node.to_owned()).collect(),
                ..Default::default()
            }),
        };
        (volumes.iter().map(entry).collect(), next_token.to_owned())
    }

    /// The error of a listing whose pages come from their number, and how many were asked for.
    async fn endless(page: impl Fn(usize) -> Page<Entry>) -> (CallError, usize) {
        let asked = Cell::new(0);
        let next = |_| {
            asked.set(asked.get() + 1);
            assert!(asked.get() <= 2 * MOST_PAGES, "pages are asked for without end");
            std::future::ready(Ok(page(asked.get())))
        };
        let error = listed(next, |id| id != "theirs").await.unwrap_err();
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
        let many = vec!["theirs"; 1_000];
        let (error, asked) = endless(|number| page(&many, &[], &number.to_string())).await;
        assert_eq!(asked, MOST_ENTRIES / many.len() + 1);
        assert!(error.message.ends_with("it lists more than 1000000 entries"), "{error}");
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
        assert!(asked < 100 && error.message.contains("what it says of ours"), "{asked}: {error}");
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
        let error = listed(slow, |_| true).await.unwrap_err();
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
        let listing = listed(pages, |id| id != "other").await.unwrap();
        let nodes = |id: &str| listing[id].nodes.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((nodes("vol"), nodes("bare"), listing.len()), (vec!["a", "b"], vec!["b"], 2));
    }

    #[tokio::test]
    async fn what_is_said_of_ours_can_be_shown_and_the_later_word_counts() {
        let said = |id: &str, message: &str| {
            let mut page = page(&[id], &[], if id == "vol" { "next" } else { "" });
            let status = page.0[0].status.get_or_insert_default();
            let message = message.to_owned();
            status.volume_condition = Some(wire::VolumeCondition { abnormal: !message.is_empty(), message });
            page
        };
        let pages = |token: String| {
            let mut page = said("vol", "a\u{1b}[31m\nlong story");
            if !token.is_empty() {
                page = said("vol", "");
                page.1.clear();
                page.0.extend(said("other", "theirs").0);
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
        let listing = listed(first, |_| true).await.unwrap();
        assert_eq!(
            listing["vol"].condition,
            Some(wire::VolumeCondition { abnormal: true, message: "a[31m b".to_owned() })
        );
        let listing = listed(pages, |id| id == "vol").await.unwrap();
        let is_abnormal = listing["vol"].condition.as_ref().map(|condition| condition.abnormal);
        assert_eq!((listing.len(), is_abnormal), (1, Some(false)));
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
        assert_eq!(listed(stale, |_| true).await.unwrap_err().code, Code::Aborted);
        assert_eq!(asked.get(), 6);
    }
}
