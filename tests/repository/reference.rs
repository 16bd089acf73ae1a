//! docs/reference.md says of every condition reason, Event reason and metric what it means. `UPDATE_REFERENCE=1` rewrites it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use moor::api::reason::Reason;
use moor::k8s::EventReason;
use moor::metrics::Metrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::{Family, MetricConstructor};

use crate::sources::collect;

const PAGE: &str = "docs/reference.md";

const HEAD: &str = "# Reference

Every condition reason, Event reason and metric of moor. Made from the source by
`UPDATE_REFERENCE=1 cargo test --test repository reference`.
";

/// A doc comment as one line of a table.
fn line(meaning: &str) -> String {
    meaning.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn conditions(page: &mut String) {
    let mut types: Vec<_> = Reason::ALL.iter().map(|reason| reason.group().condition).collect();
    types.dedup();
    for name in types {
        write!(page, "\n## Condition {name}\n\n| reason | of | status | meaning |\n|---|---|---|---|\n")
            .unwrap();
        for reason in Reason::ALL.iter().filter(|reason| reason.group().condition == name) {
            let place = reason.group();
            let status = if place.status { "True" } else { "False" };
            let meaning = line(reason.meaning());
            writeln!(page, "| {} | {} | {status} | {meaning} |", reason.as_str(), place.kinds).unwrap();
        }
    }
}

fn events(page: &mut String) {
    page.push_str("\n## Events\n\n| reason | type | meaning |\n|---|---|---|\n");
    for reason in EventReason::ALL {
        let meaning = line(reason.meaning());
        writeln!(page, "| {} | {:?} | {meaning} |", reason.as_str(), reason.group()).unwrap();
    }
}

/// A family that has counted nothing is not printed.
fn touch<L, M, C>(family: &Family<L, M, C>)
where
    L: Clone + Default + std::hash::Hash + Eq,
    C: MetricConstructor<M>,
{
    drop(family.get_or_create(&L::default()));
}

/// The metrics as they are served, with one sample of each.
fn served() -> String {
    let (metrics, registry) = Metrics::new();
    let Metrics {
        api_writes,
        csi_operations_seconds,
        csi_retries,
        csi_calls_waiting,
        queue_depth,
        watch_restarts,
        passes,
        claims,
        volumes,
        snapshots,
        attachments,
        oldest_waiting_claim_seconds: _,
        oldest_leaving_claim_seconds: _,
        silent_nodes: _,
        forgotten_mounts: _,
        drifted_volumes: _,
        orphans,
        objects_without_storage,
        unhealthy_volumes: _,
        volume_stats_capacity_bytes,
        volume_stats_used_bytes,
        volume_stats_available_bytes,
        volume_stats_inodes,
        volume_stats_inodes_used,
        volume_stats_inodes_free,
        unreadable_objects,
        plugin_instances,
        plugins_kept_from_pods: _,
        panics: _,
        leading: _,
        folders_unanswered: _,
        state_unwritable: _,
    } = metrics;
    touch(&api_writes);
    touch(&csi_operations_seconds);
    touch(&csi_retries);
    for stats in [
        &volume_stats_capacity_bytes,
        &volume_stats_used_bytes,
        &volume_stats_available_bytes,
        &volume_stats_inodes,
        &volume_stats_inodes_used,
        &volume_stats_inodes_free,
    ] {
        touch(stats);
    }
    touch(&plugin_instances);
    touch(&orphans);
    touch(&objects_without_storage);
    touch(&csi_calls_waiting);
    touch(&watch_restarts);
    touch(&volumes);
    touch(&snapshots);
    touch(&attachments);
    touch(&queue_depth);
    touch(&passes);
    touch(&claims);
    touch(&unreadable_objects);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

fn metrics(page: &mut String) {
    page.push_str("\n## Metrics\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
    let text = served();
    for described in text.split("# HELP ").skip(1) {
        let (help, rest) = described.split_once('\n').unwrap();
        let (name, help) = help.split_once(' ').unwrap();
        let (kind, samples) = rest.strip_prefix("# TYPE ").unwrap().split_once('\n').unwrap();
        let kind = kind.rsplit(' ').next().unwrap();
        let sample = samples.lines().next().unwrap();
        let labels = sample.split_once('{').map_or("", |(_, rest)| rest.split('}').next().unwrap());
        let labels: Vec<_> = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).collect();
        let labels: Vec<_> = labels.into_iter().filter(|label| *label != "le").collect();
        let total = if kind == "counter" { "_total" } else { "" };
        writeln!(page, "| {name}{total} | {kind} | {} | {help} |", labels.join(", ")).unwrap();
    }
}

#[test]
fn the_page_is_current() {
    let mut page = HEAD.to_owned();
    conditions(&mut page);
    events(&mut page);
    metrics(&mut page);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&file, page).unwrap();
    } else {
        let found = fs::read_to_string(&file).unwrap_or_default();
        assert!(found == page, "{PAGE} differs; rewrite with UPDATE_REFERENCE=1");
    }
}

/// The compiler does not tell: they are public.
#[test]
fn every_word_is_used() {
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let declares = ["api/reason.rs", "k8s/events.rs", "metrics.rs"];
    files.retain(|file| {
        let in_tests = file.file_stem().unwrap().to_string_lossy().ends_with("tests");
        !in_tests && !declares.iter().any(|name| file.ends_with(name))
    });
    let read = |file| fs::read_to_string(file).unwrap();
    let texts = files.iter().map(|file| read(file).split("#[cfg(test)]").next().unwrap().to_owned());
    let text: String = texts.collect();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && !"_:.".contains(c)).collect();
    let reasons = Reason::ALL.iter().map(|reason| format!("Reason::{reason:?}"));
    let events = EventReason::ALL.iter().map(|reason| format!("EventReason::{reason:?}"));
    let unused: Vec<_> = reasons.chain(events).filter(|word| !words.contains(&word.as_str())).collect();
    assert!(unused.is_empty(), "{unused:?}");
    let names = served();
    // In the field of its name, or where it is made by its whole name.
    let counted = |name: &str| {
        let (field, whole) = (format!("metrics.{name}"), format!("moor_{name}"));
        words.iter().any(|word| word.contains(&field) || *word == whole)
    };
    let names = names.lines().filter_map(|l| l.strip_prefix("# TYPE moor_")?.split(' ').next());
    let uncounted: Vec<_> = names.filter(|name| !counted(name)).collect();
    assert!(uncounted.is_empty(), "{uncounted:?}");
}
