//! Reads from the text of each source file which paths it names and what it exports.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of `src`, and what it names of others.
pub struct Source {
    /// Name of the module at the top of the crate: agent.
    pub module: String,
    pub file: PathBuf,
    /// Path of the file as a module: crate::agent::role.
    pub at: String,
    /// What the file exports of others, by name.
    pub exports: HashMap<String, String>,
    /// Paths that are named, with their lines: `use` groups spelled out, `super` resolved.
    pub paths: Vec<(usize, String)>,
}

/// Every source file but unit tests, which may do what they like.
pub fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    let in_tests = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().ends_with("tests");
    let sources = files.into_iter().filter(|file| !in_tests(file)).map(|file| {
        let inside = file.strip_prefix(&src).unwrap().with_extension("");
        let mut module: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        let name = module[0].to_owned();
        if module.last() == Some(&"mod") {
            module.pop();
        }
        let text = fs::read_to_string(&file).unwrap();
        let (paths, exports) = (paths(&text, &module), exports(&text, &module));
        let at = ["crate"].iter().chain(&module).copied().collect::<Vec<_>>().join("::");
        Source { module: name, file, at, exports, paths }
    });
    sources.collect()
}

/// Adds every source file in a directory and below it.
pub fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The file in which what `path` names is defined, through what files on the way export.
pub fn home<'a>(files: &HashMap<&'a str, &'a Source>, path: &str) -> Option<&'a str> {
    let mut ends = path.match_indices("::").map(|(at, _)| at).chain([path.len()]).collect::<Vec<_>>();
    ends.reverse();
    let (file, rest) = ends.into_iter().find_map(|end| Some((*files.get(&path[..end])?, &path[end..])))?;
    let (name, below) = match rest.trim_start_matches("::").split_once("::") {
        Some((name, below)) => (name, format!("::{below}")),
        None => (rest.trim_start_matches("::"), String::new()),
    };
    match file.exports.get(name) {
        // A macro is exported under its own name.
        Some(exported) if *exported != format!("{}::{name}", file.at) => {
            home(files, &format!("{exported}{below}"))
        }
        _ => Some(&file.at),
    }
}

/// Whether a path is this one or below it.
pub fn starts_with(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Paths of at least two segments in `text`, whose module is `module`, with imported names spelled out.
/// Inline test modules, comments and string literals are left out.
fn paths(text: &str, module: &[&str]) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut found, mut in_code, mut imported) = (Vec::new(), Vec::new(), HashMap::new());
    let mut statement: Option<(usize, String)> = None;
    for (number, line) in code.lines().enumerate() {
        let line = without_strings(line);
        let line = line.split("//").next().unwrap_or_default().trim();
        let import =
            line.find("use ").filter(|at| *at == 0 || line.starts_with("pub")).map(|at| &line[at + 4..]);
        let (start, mut so_far) = match (statement.take(), import) {
            (Some(statement), _) => statement,
            (None, Some(_)) => (number + 1, String::new()),
            (None, None) => {
                in_code.extend(inline(line).into_iter().map(|path| (number + 1, path)));
                continue;
            }
        };
        so_far.push_str(import.unwrap_or(line));
        let Some((tree, _)) = so_far.split_once(';') else {
            statement = Some((start, so_far));
            continue;
        };
        let mut leaves = Vec::new();
        spell_out("", tree, &mut leaves);
        for (path, name) in leaves {
            let path = resolved(&path, module);
            imported.insert(name, path.clone());
            found.push((start, path));
        }
    }
    for (line, path) in in_code {
        let (first, rest) = path.split_once("::").unwrap_or((&path, ""));
        let full = imported.get(first).map(|known| format!("{known}::{rest}"));
        found.push((line, full.unwrap_or_else(|| resolved(&path, module))));
    }
    found
}

/// How what is exported may begin.
const PUBLIC: [&str; 3] = ["pub", "pub(crate)", "pub(super)"];

/// What `pub use` exports, by name, with the paths spelled out.
fn exports(text: &str, module: &[&str]) -> HashMap<String, String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut leaves = Vec::new();
    for statement in code.split(';') {
        let from = statement.rfind("\npub").map_or(statement, |at| &statement[at + 1..]);
        if let Some((_, tree)) =
            from.split_once("use ").filter(|(public, _)| PUBLIC.contains(&public.trim_end()))
        {
            spell_out("", tree, &mut leaves);
        }
    }
    let spelled = |path: String| {
        let full = resolved(&path, module);
        if full == path && !path.starts_with("crate::") {
            return ["crate"]
                .iter()
                .chain(module)
                .copied()
                .chain([path.as_str()])
                .collect::<Vec<_>>()
                .join("::");
        }
        full
    };
    leaves.into_iter().map(|(path, name)| (name, spelled(path))).collect()
}

fn without_strings(line: &str) -> String {
    line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// `a::{self, b, c::{d as e}}` as `a` known as a, `a::b` as b and `a::c::d` as e.
fn spell_out(prefix: &str, tree: &str, leaves: &mut Vec<(String, String)>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let (leaf, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = format!("{prefix}{}", leaf.trim());
        let path = path.strip_suffix("::self").unwrap_or(&path);
        let last = path.rsplit("::").next().unwrap_or_default();
        let name = if alias.is_empty() { last } else { alias.trim() };
        leaves.push((path.to_owned(), name.to_owned()));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    spell_out(&prefix, &inner[start..at], leaves);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths in an expression or signature.
fn inline(line: &str) -> Vec<String> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = line.split(|c| !part(c)).map(|word| word.trim_matches(':'));
    words.filter(|word| word.contains("::")).map(str::to_owned).collect()
}

/// With `self` and `super` spelled out from the crate's root.
fn resolved(path: &str, module: &[&str]) -> String {
    let mut at = module.to_vec();
    let mut segments = path.split("::").peekable();
    if !matches!(segments.peek(), Some(&("super" | "self"))) {
        return path.to_owned();
    }
    while let Some(&segment) = segments.peek() {
        match segment {
            "super" => drop(at.pop()),
            "self" => {}
            _ => break,
        }
        segments.next();
    }
    let mut full = vec!["crate"];
    full.extend(at);
    full.extend(segments);
    full.join("::")
}

#[test]
fn paths_are_read_as_the_compiler_would() {
    let text = "
        use std::{fmt, time::{Duration, Instant as Clock}};
        use super::{super::store, Cache};
        // use tokio::sync;
        pub(crate) use jiff::{self, Timestamp};
        fn f() -> crate::api::Volume { tokio::spawn(\"axum::serve\", Timestamp::now(), Clock::now()) }
        #[cfg(test)]
        mod tests { use rand::Rng; }
    ";
    let found: Vec<String> = paths(text, &["k8s", "lease"]).into_iter().map(|(_, path)| path).collect();
    for path in ["std::fmt", "std::time::Instant", "crate::store", "crate::k8s::Cache", "crate::api::Volume"]
    {
        assert!(found.iter().any(|found| found == path), "{path} in {found:?}");
    }
    for path in ["tokio::spawn", "jiff::Timestamp::now", "std::time::Instant::now"] {
        assert!(found.iter().any(|found| found == path), "{path} in {found:?}");
    }
    let absent = |name: &str| found.iter().all(|path| !starts_with(path, name));
    assert!(absent("tokio::sync") && absent("axum") && absent("rand"), "{found:?}");
}
