//! A LIST that is read object by object while it arrives: no more of it than one object is ever in memory as text.
//!
//! It has no pages, since what comes after the first one may cost the API server eight times as much
//! (docs/adr/0065-a-list-has-no-pages.md).

use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::stream::try_unfold;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::compat::FuturesAsyncReadCompatExt as _;
use tokio_util::io::{ReaderStream, StreamReader, SyncIoBridge};

/// Objects that are read ahead of whoever takes them.
const AHEAD: usize = 64;
/// Longest wait for all of a LIST. An API server ends a request after a minute, unless it is told otherwise.
const WHOLE: Duration = Duration::from_secs(300);

/// Why a LIST was not read to its end.
#[derive(Debug, Error)]
pub(super) enum ListError {
    /// For so long nothing came, or not all.
    #[error("no answer in {0:?}")]
    TimedOut(Duration),
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// Sends a LIST and shows `take` each object until it breaks off. Fails if nothing comes for as long as `silence`, or if all of it
/// takes longer than [`WHOLE`]. Returns what the list says of itself; nothing if `take` has broken off.
pub(super) async fn list<K: DeserializeOwned>(
    client: &Client,
    request: Request<Vec<u8>>,
    silence: Duration,
    take: impl FnMut(K) -> ControlFlow<()>,
) -> Result<Option<ListMeta>, ListError> {
    let all = until_its_end(client, request, silence, take);
    timeout(WHOLE, all).await.unwrap_or(Err(ListError::TimedOut(WHOLE)))
}

async fn until_its_end<K: DeserializeOwned>(
    client: &Client,
    request: Request<Vec<u8>>,
    silence: Duration,
    mut take: impl FnMut(K) -> ControlFlow<()>,
) -> Result<Option<ListMeta>, ListError> {
    let answer = timeout(silence, client.request_stream(request))
        .await
        .map_err(|_| ListError::TimedOut(silence))??;
    // This ends with its first error: serde_json asks for more after one.
    let pieces = try_unfold(ReaderStream::new(answer.compat()), move |mut pieces| async move {
        let piece = timeout(silence, pieces.try_next()).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok::<_, io::Error>(piece.map(|piece| (piece, pieces)))
    });
    let text = SyncIoBridge::new(StreamReader::new(Box::pin(pieces)));
    let (sender, mut objects) = mpsc::channel(AHEAD);
    // serde_json reads what blocks. The thread ends with the answer, or when nobody takes objects any more.
    let reading =
        spawn_blocking(move || read(BufReader::new(text), |object| sender.blocking_send(object).is_ok()));
    while let Some(object) = objects.recv().await {
        let object = serde_json::from_str(object.get()).map_err(kube::Error::SerdeError)?;
        if take(object).is_break() {
            return Ok(None);
        }
    }
    match reading.await {
        Ok(Ok(metadata)) => Ok(Some(metadata)),
        Ok(Err(error)) => Err(match error.io_error_kind() {
            Some(io::ErrorKind::TimedOut) => ListError::TimedOut(silence),
            Some(_) => kube::Error::ReadEvents(error.into()).into(),
            None => kube::Error::SerdeError(error).into(),
        }),
        Err(ended) => Err(kube::Error::ReadEvents(io::Error::other(ended)).into()),
    }
}

/// Reads a list, and shows `take` the text of each object until it wants no more. Were the objects made here, all of their types
/// would be compiled once more, for text that comes from a stream.
fn read(text: impl Read, take: impl FnMut(Box<RawValue>) -> bool) -> Result<ListMeta, serde_json::Error> {
    let mut text = serde_json::Deserializer::from_reader(text);
    let metadata = text.deserialize_map(Objects { take })?;
    text.end()?;
    Ok(metadata)
}

/// What shows the texts of objects to `take`.
struct Objects<F> {
    take: F,
}

impl<'de, F: FnMut(Box<RawValue>) -> bool> Visitor<'de> for Objects<F> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<ListMeta, A::Error> {
        let mut metadata: Option<ListMeta> = None;
        let mut has_items = false;
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "metadata" => metadata = Some(fields.next_value()?),
                "items" => {
                    fields.next_value_seed(Items(&mut self))?;
                    has_items = true;
                }
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        // Whoever lists may conclude that there is nothing else.
        let metadata = metadata.filter(|_| has_items).ok_or_else(|| A::Error::custom("not a list"))?;
        if metadata.continue_.as_ref().is_some_and(|token| !token.is_empty()) {
            return Err(A::Error::custom("the list goes on elsewhere"));
        }
        Ok(metadata)
    }
}

/// The objects of a list.
struct Items<'a, F>(&'a mut Objects<F>);

impl<'de, F: FnMut(Box<RawValue>) -> bool> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Box<RawValue>) -> bool> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    /// A list without objects may have null in their place.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(object) = items.next_element()? {
            if !(self.0.take)(object) {
                return Err(A::Error::custom("nobody wants to know more"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
