//! What the API server refuses, by moor's schemas, rules and policies, in the words of docs/bad-input.md.

use std::sync::Arc;

use super::manifest::{Manifest, Who, said};
use super::table::{Fate, Page, Row, Unrefused, shown};
use crate::rig::Cluster;

const OF: [Fate; 2] = [Fate::RefusedWhenMade, Fate::RefusedWhenChanged];

/// No process of moor runs: nobody else writes the objects meanwhile.
pub async fn the_api_server_answers_every_row_as_it_is_written(cluster: Arc<Cluster>) {
    let page = Page::read();
    let mut all = Vec::new();
    for row in page.rows(&OF) {
        let message = refusal(&cluster, &row).await;
        all.push((row, message));
    }
    page.settle(&OF, &all);
}

async fn refusal(cluster: &Cluster, row: &Row) -> Result<String, Unrefused> {
    let admin = &cluster.admin;
    let manifest = Manifest::new(&row.kind, &row.given[0], &row.name());
    let answer = match row.given.get(1) {
        None => manifest.make(admin, Who::User).await,
        Some(change) => {
            manifest.make_as_moor(admin).await;
            manifest.change(admin, change).await
        }
    };
    match answer {
        Ok(taken) => Err(Unrefused(format!("is not refused: {taken}"))),
        Err(status) => Ok(shown(&said(&status), &row.name())),
    }
}
