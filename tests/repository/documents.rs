//! The documents: every file that one names or links to is in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::proofs::{between, root};

/// Folders that paths in documents are relative to, beside the repository itself.
const BASES: [&str; 3] = ["src", "src/agent", "charts/moor"];
/// How the name of a file or a folder ends, where it stands between backticks.
const ENDINGS: [&str; 6] = [".rs", ".py", ".md", ".yaml", ".json", "/"];

fn documents() -> impl Iterator<Item = PathBuf> {
    let folders = ["", "docs", "docs/adr"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "md"))
}

fn is_there(path: &str) -> bool {
    root().join(path).exists() || BASES.iter().any(|base| root().join(base).join(path).exists())
}

/// The files and folders that a text names between backticks, without the test behind `::`.
fn named_in(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split("```").step_by(2).flat_map(|prose| between(prose, '`'));
    let paths = spans.filter_map(|span| span.split("::").next());
    let plain = |path: &&str| path.contains('/') && !path.contains(['*', ' ', '\n', '<', '…']);
    // `/var` is on a node, and `moor.dev/` begins a name of Kubernetes.
    let ours =
        |path: &&str| path.split('/').next().is_some_and(|first| !first.is_empty() && !first.contains('.'));
    paths.filter(plain).filter(ours).filter(|path| ENDINGS.iter().any(|ending| path.ends_with(ending)))
}

/// The files that a document links to. What stands between backticks is no link, though its label may.
fn linked_in(text: &str) -> Vec<String> {
    let lines = text.split("```").step_by(2).flat_map(str::lines);
    let prose: Vec<String> = lines.map(|line| line.split('`').step_by(2).collect()).collect();
    let ends =
        prose.iter().flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    ends.filter(|link| !link.contains("://"))
        .filter_map(|link| link.split('#').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_file_that_a_document_names_exists() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().map(Path::to_owned).unwrap_or_default();
        let named = named_in(&text).filter(|path| !is_there(path));
        let linked = linked_in(&text).into_iter().filter(|link| !folder.join(link).exists());
        let missing = named.map(str::to_owned).chain(linked);
        wrong.extend(missing.map(|path| format!("{} names {path}", document.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_files_are_found() {
    let text = "`src/a.rs::works`, `b/`, [c](d.md#e), `moor.dev/x`, `/etc/f.yaml`, [`j`](k.md), `[a-z](b)`\n```\n`g/h.rs`\n```\n`i/*.rs`";
    assert_eq!(named_in(text).collect::<Vec<_>>(), ["src/a.rs", "b/"]);
    assert_eq!(linked_in(text), ["d.md", "k.md"]);
}
