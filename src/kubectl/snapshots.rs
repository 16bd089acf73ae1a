//! The list of Snapshots.

use jiff::Timestamp;

use super::page::Page;
use super::words::{age, reason_and_message, why};
use crate::api::Snapshot;
use crate::api::conditions::{READY, find};

/// The table, the oldest first. `everywhere`: of all namespaces.
pub(super) fn page((all, unseen): &(Vec<Snapshot>, Vec<String>), everywhere: bool, now: Timestamp) -> Page {
    let mut all: Vec<&Snapshot> = all.iter().collect();
    all.sort_by_key(|snapshot| {
        let meta = &snapshot.metadata;
        (meta.namespace.clone(), meta.creation_timestamp.as_ref().map(|at| at.0), meta.name.clone())
    });
    let mut page = Page::default();
    if all.is_empty() {
        page.line(0, "There is no Snapshot");
    } else if everywhere {
        let row = |snapshot: &&Snapshot| {
            let [name, volume, state, size, handle, taken, why] = row(snapshot, now);
            [
                snapshot.metadata.namespace.clone().unwrap_or_default(),
                name,
                volume,
                state,
                size,
                handle,
                taken,
                why,
            ]
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        page.table(0, ["NAMESPACE", "SNAPSHOT", "VOLUME", "STATE", "SIZE", "HANDLE", "TAKEN", "WHY"], &rows);
    } else {
        let rows: Vec<_> = all.iter().map(|snapshot| row(snapshot, now)).collect();
        page.table(0, ["SNAPSHOT", "VOLUME", "STATE", "SIZE", "HANDLE", "TAKEN", "WHY"], &rows);
    }
    page.not_seen(unseen);
    page
}

fn row(snapshot: &Snapshot, now: Timestamp) -> [String; 7] {
    let status = snapshot.status.clone().unwrap_or_default();
    let deleted = if snapshot.metadata.deletion_timestamp.is_some() { ", leaving" } else { "" };
    let ready = find(&status.conditions, READY);
    // What is well needs no sentence.
    let why = match ready.filter(|ready| ready.status != "True") {
        Some(ready) => reason_and_message(ready),
        None => why(&status.conditions),
    };
    [
        snapshot.metadata.name.clone().unwrap_or_default(),
        of(snapshot),
        format!("{:?}{deleted}", status.state),
        status.restore_size.unwrap_or_default(),
        status.snapshot_handle.or_else(|| snapshot.spec.snapshot_handle.clone()).unwrap_or_default(),
        status.creation_time.map_or_else(String::new, |at| format!("{} ago", age(now, at.0))),
        why,
    ]
}

/// What it is of: one Volume, or several.
fn of(snapshot: &Snapshot) -> String {
    let names: Vec<&str> = snapshot.spec.volumes().map(String::as_str).collect();
    match snapshot.spec.member_handles.len() {
        _ if !names.is_empty() => names.join(","),
        0 => "(registered)".into(),
        members => format!("({members}, registered)"),
    }
}
