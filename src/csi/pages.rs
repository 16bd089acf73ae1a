//! Listings, page by page: how they go on, and where they end whatever a driver does.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use super::error::{CallError, Origin};
use super::proto::csi::v1 as wire;
use super::rpc::Rpc;

/// How often a listing starts again because its token went stale.
const ATTEMPTS: u32 = 3;
/// Most pages of a listing. A driver that always has one more would hold whoever lists for ever.
pub(super) const MOST_PAGES: usize = 10_000;
/// Most entries of a listing.
pub(super) const MOST_ENTRIES: usize = 1_000_000;
/// Most bytes of what is kept of a listing.
const MOST_KEPT: usize = 16 * 1024 * 1024;
/// What keeping a text takes beside the text, in bytes, roughly.
pub(super) const OVERHEAD: usize = 64;
/// The longest that a listing may take, its new starts included. Each page has its deadline, and many pages have many.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// What is kept of one volume or one snapshot of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed<M> {
    /// What it was kept for.
    pub mark: M,
    /// Its size in bytes; 0 if the driver does not say.
    pub bytes: i64,
    /// The ids of the nodes at which a volume is published; they may be of nodes that are unknown here. Without
    /// LIST_VOLUMES_PUBLISHED_NODES there are none.
    pub nodes: BTreeSet<String>,
    /// How a volume is, with a message that can be shown. Without VOLUME_CONDITION there is nothing.
    pub condition: Option<wire::VolumeCondition>,
}

/// What is kept of a listing, by the ids of the volumes or snapshots.
pub type Listing<M> = HashMap<String, Listed<M>>;

/// One page, and the token of the next.
pub(super) type Page<E> = (Vec<E>, String);

/// Reads all pages. `take_in` keeps what it wants of an entry and says how many bytes that takes, or what is wrong with it. Starts
/// again up to three times if the driver forgets its token.
///
/// Fails with `Origin::Reply` if the listing does not end, or says more than can be kept.
pub(super) async fn list<E, M, F>(
    rpc: Rpc,
    page: impl Fn(String) -> F,
    take_in: impl Fn(&mut Listing<M>, E) -> Result<usize, &'static str>,
) -> Result<Listing<M>, CallError>
where
    F: Future<Output = Result<Page<E>, CallError>>,
{
    let (started, mut attempt) = (Instant::now(), 1);
    loop {
        let mut reading = Reading { rpc, started, tokens: HashSet::new(), hashes: RandomState::new() };
        match reading.all(&page, &take_in).await {
            Err(error)
                if error.code == Code::Aborted && error.origin == Origin::Driver && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            read => return read,
        }
    }
}

/// A listing that is being read.
struct Reading {
    rpc: Rpc,
    started: Instant,
    /// Hashes of the tokens that were given, which may be long themselves.
    tokens: HashSet<u64>,
    hashes: RandomState,
}

impl Reading {
    async fn all<E, M, F>(
        &mut self,
        page: impl Fn(String) -> F,
        take_in: impl Fn(&mut Listing<M>, E) -> Result<usize, &'static str>,
    ) -> Result<Listing<M>, CallError>
    where
        F: Future<Output = Result<Page<E>, CallError>>,
    {
        let mut listing = Listing::new();
        let (mut token, mut listed, mut kept) = (String::new(), 0, 0);
        for _ in 0..MOST_PAGES {
            let (entries, next_token) = page(token).await?;
            listed += entries.len();
            if listed > MOST_ENTRIES {
                return Err(self.endless(format!("it lists more than {MOST_ENTRIES} entries")));
            }
            for entry in entries {
                kept += take_in(&mut listing, entry).map_err(|what| CallError::reply(self.rpc, what))?;
                if kept > MOST_KEPT {
                    let what = format!("what it says of ours takes more than {MOST_KEPT} bytes");
                    return Err(self.endless(what));
                }
            }
            if next_token.is_empty() {
                return Ok(listing);
            }
            if !self.tokens.insert(self.hashes.hash_one(&next_token)) {
                let what = "next_token is one that it gave before, so that the listing would never end";
                return Err(CallError::reply(self.rpc, what));
            }
            if self.started.elapsed() > LONGEST {
                let what = format!("the listing has not ended after {} minutes", LONGEST.as_secs() / 60);
                return Err(self.endless(what));
            }
            token = next_token;
        }
        Err(self.endless(format!("the listing has not ended after {MOST_PAGES} pages")))
    }

    fn endless(&self, what: String) -> CallError {
        CallError::not_taken(self.rpc, what)
    }
}
