//! Whether an installation of moor is as it should be: one line for each check, and what to do for each fault.
//!
//! What could not be looked at is said to be not checked, and never well.

mod drivers;
mod facts;
mod finding;
mod install;
mod leases;
mod leftovers;
mod nodes;
mod rights;

#[cfg(test)]
mod tests;

use super::connect::Cluster;
use super::page::Page;
use facts::Facts;
use finding::Finding;

/// Checks everything. Returns the page, and how many faults it has.
pub(super) async fn run(cluster: &Cluster) -> (Page, usize) {
    let facts = Box::pin(Facts::read(cluster)).await;
    let mut findings = judged(&facts);
    findings.extend(rights::check(cluster).await);
    (finding::page(&findings), finding::faults(&findings))
}

/// All that the facts say.
fn judged(facts: &Facts) -> Vec<Finding> {
    [install::check(facts), nodes::check(facts), drivers::check(facts), leftovers::check(facts)].concat()
}
