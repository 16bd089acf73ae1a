//! The CSI calls about a volume, as the agents that made them have kept them (ADR 43).
//!
//! They are asked by `moor trace` in their own Pods, so that nothing listens for it: who may run a program there is root on the
//! nodes anyway, and nobody else sees a call.

mod agents;
mod page;
mod wanted;

#[cfg(test)]
mod tests;

use jiff::Timestamp;

use super::args::TraceArgs;
use super::connect::Cluster;
use super::error::KubectlError;
use super::listing;
use super::page::Page;
use super::scene::Scope;
use wanted::Wanted;

/// Everything about one command: what is wanted, from whom, and what they say.
pub(super) async fn run(cluster: &Cluster, args: &TraceArgs, now: Timestamp) -> Result<Page, KubectlError> {
    let (of, namespace) = args.of().ok_or_else(|| KubectlError::NoSuchTrace(args.what.join(" ")))?;
    let scope = namespace.map_or_else(|| cluster.here(), |namespace| Scope::In(namespace.to_owned()));
    let scene = Box::pin(listing::scene(cluster, &scope, now)).await?;
    let wanted = Wanted::of(&scene, &of, &scope)?;
    let pods = agents::find(cluster).await?;
    let answers = agents::ask(cluster, &wanted, &pods, args.all).await;
    let mut page = page::of(&wanted, answers, args.messages);
    page.not_seen(&scene.unseen);
    Ok(page)
}
