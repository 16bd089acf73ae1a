//! Watches that lag, on request: what is right only while everybody sees everything at once shows itself.
//!
//! `MOOR_RIG_LAG` is a list of `WHO:KIND:MILLISECONDS`. WHO is `controller`, `agent`, or `mirror`, which is what a test
//! itself looks at; KIND is a plural name; `*` is all of either. `MOOR_RIG_LAG='mirror:attachments:300' make rig` finds
//! the cases that take it for granted that the mirror has an Attachment which a driver has been called about.

use std::sync::OnceLock;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

const LAG: &str = "MOOR_RIG_LAG";
/// The looker that is the test itself.
pub const MIRROR: &str = "mirror";

struct Rule {
    who: String,
    kind: String,
    lag: Duration,
}

/// By how much the watch of this kind lags that `who` looks at.
pub fn of(who: &str, kind: &str) -> Option<Duration> {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let list = std::env::var(LAG).unwrap_or_default();
        list.split(',').filter(|rule| !rule.is_empty()).map(parse).collect()
    });
    let meant = |pattern: &str, name: &str| pattern == "*" || pattern == name;
    rules.iter().find(|rule| meant(&rule.who, who) && meant(&rule.kind, kind)).map(|rule| rule.lag)
}

fn parse(rule: &str) -> Rule {
    let fields: Vec<&str> = rule.split(':').collect();
    let [who, kind, lag] = fields[..] else { panic!("{LAG}: {rule:?} is not WHO:KIND:MILLISECONDS") };
    let lag = Duration::from_millis(lag.parse().unwrap_or_else(|error| panic!("{LAG}: {lag:?}: {error}")));
    Rule { who: who.to_owned(), kind: kind.to_owned(), lag }
}

/// The same stream, each item `lag` later than it came, however many come at once.
pub fn behind<S>(stream: S, lag: Option<Duration>) -> impl Stream<Item = S::Item> + Send + 'static
where
    S: Stream + Send + 'static,
    S::Item: Send + 'static,
{
    let Some(lag) = lag else { return stream.boxed() };
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        loop {
            tokio::select! {
                // Who looked has gone: so does the watch.
                () = sender.closed() => return,
                item = stream.next() => {
                    let Some(item) = item else { return };
                    if sender.send((Instant::now() + lag, item)).is_err() {
                        return;
                    }
                }
            }
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async {
        let (due, item) = receiver.recv().await?;
        tokio::time::sleep_until(due).await;
        Some((item, receiver))
    })
    .boxed()
}
