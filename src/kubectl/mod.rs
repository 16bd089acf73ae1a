//! `kubectl moor`: what an installation of moor is doing, in words, and the one order that is given to a claim by hand.
//!
//! Everything comes from the API objects, but for the calls that [`trace`] has agents tell. What is listed is kept in [`scene`]; pages
//! are made of that alone, and [`page`] lets nothing into a terminal that it would take as an order. [`doctor`] looks at what else an
//! installation is made of.

pub mod args;
mod connect;
mod doctor;
pub mod error;
mod events;
mod force;
mod listing;
mod orphans;
pub mod page;
mod scene;
mod snapshots;
mod status;
mod trace;
mod words;

#[cfg(test)]
mod events_tests;
#[cfg(test)]
mod force_tests;
#[cfg(test)]
mod objects_tests;
#[cfg(test)]
mod orphans_tests;
#[cfg(test)]
mod snapshots_tests;

use std::collections::BTreeSet;
use std::io::{self, Write};

use jiff::Timestamp;

use args::{Cli, Command};
pub use error::KubectlError;
use page::Page;

/// Does what the command line says, and prints the page that it asks for.
pub async fn run(cli: Cli, out: &mut impl Write) -> Result<(), KubectlError> {
    let cluster = connect::connect(&cli.reach).await?;
    let now = Timestamp::now();
    let page = match cli.command {
        Command::Status { of } => {
            let scope = if of.as_ref().is_none_or(args::StatusOf::is_of_the_cluster) {
                cluster.everything()
            } else {
                cluster.here()
            };
            let scene = Box::pin(listing::scene(&cluster, &scope, now)).await?;
            status::page(&scene, of.as_ref(), &scope)?
        }
        Command::Events { of } => {
            let scope = cluster.here();
            match &of {
                None => events::page(&listing::events(&cluster, &scope, &BTreeSet::new()).await?, None, now),
                Some(of) => {
                    let scene = Box::pin(listing::scene(&cluster, &scope, now)).await?;
                    let subjects = events::subjects(&scene, of, &scope);
                    let elsewhere = events::namespaces(&subjects);
                    let mut told = listing::events(&cluster, &scope, &elsewhere).await?;
                    told.1.extend(scene.unseen.iter().cloned());
                    events::page(&told, Some(&subjects), now)
                }
            }
        }
        Command::Snapshots => {
            let scope = cluster.here();
            let listed = listing::snapshots(&cluster, &scope).await?;
            snapshots::page(&listed, scope.namespace().is_none(), now)
        }
        Command::Orphans => {
            // Drivers are of the cluster.
            let scene = Box::pin(listing::scene(&cluster, &cluster.everything(), now)).await?;
            orphans::page(&scene)
        }
        Command::Doctor => {
            let (page, faults) = Box::pin(doctor::run(&cluster)).await;
            print(&page, out)?;
            return if faults == 0 { Ok(()) } else { Err(KubectlError::Faults(faults)) };
        }
        Command::Trace(args) => Box::pin(trace::run(&cluster, &args, now)).await?,
        Command::ForceDetach { claim, yes } => {
            if cli.reach.all_namespaces {
                return Err(KubectlError::OneNamespace);
            }
            let scope = cluster.home();
            let scene = Box::pin(listing::scene(&cluster, &scope, now)).await?;
            let order = force::order(&scene, &claim, &scope)?;
            if yes && order.is_new() {
                force::give(&cluster, &order).await?;
            }
            let mut page = order.page(yes);
            page.not_seen(&scene.unseen);
            page
        }
    };
    print(&page, out)
}

fn print(page: &Page, out: &mut impl Write) -> Result<(), KubectlError> {
    match write!(out, "{page}").and_then(|()| out.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(KubectlError::Print),
    }
}
