//! How the fake driver lists, page by page, and how it lies about that.

use std::collections::{BTreeMap, BTreeSet};

use tonic::Status;

/// How the driver lists.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Entries of a page; 0 is all of them, or as many as are asked for.
    pub page: usize,
    pub lie: Option<Lie>,
    /// Keys of what is there and not listed.
    pub hides: BTreeSet<String>,
    /// By the key of a snapshot, the only node whose instance knows of it, where storage is local to nodes.
    pub only_on: BTreeMap<String, String>,
}

/// What is wrong with a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Every page has the token of the first one.
    SameToken,
    /// It forgets each token at once.
    ForgetsTokens,
    /// An entry is empty.
    EmptyEntry,
}

impl Listing {
    /// Whether the instance of this node knows of a snapshot.
    pub(super) fn is_here(&self, key: &str, node: &str) -> bool {
        self.only_on.get(key).is_none_or(|only| only == node)
    }

    /// One page of these entries, and the token of the next one.
    pub(super) fn page<E: Default>(
        &self,
        mut entries: Vec<E>,
        token: &str,
        asked: i32,
    ) -> Result<(Vec<E>, String), Status> {
        if self.lie == Some(Lie::EmptyEntry) {
            entries.insert(0, E::default());
        }
        let from = if token.is_empty() { Ok(0) } else { token.parse::<usize>() };
        let from = from.ok().filter(|from| *from <= entries.len());
        let Some(from) = from.filter(|from| *from == 0 || self.lie != Some(Lie::ForgetsTokens)) else {
            return Err(Status::aborted("there is no such token any more"));
        };
        let most = usize::try_from(asked).unwrap_or(0);
        let most = [self.page, most].into_iter().filter(|most| *most > 0).min().unwrap_or(usize::MAX);
        let rest = entries.split_off(from);
        let is_last = rest.len() <= most;
        let next = match self.lie {
            Some(Lie::SameToken) => "0".to_owned(),
            _ if is_last => String::new(),
            _ => (from + most).to_string(),
        };
        Ok((rest.into_iter().take(most).collect(), next))
    }
}
