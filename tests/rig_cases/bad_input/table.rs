//! docs/bad-input.md: its tables are what the cases apply. `UPDATE_BAD_INPUT=1` fills in what is answered.

use std::fs;
use std::path::PathBuf;

/// Lets the cases write the messages instead of comparing them.
const UPDATE: &str = "UPDATE_BAD_INPUT";
/// How many rows there are at least.
const LEAST: usize = 320;

/// What becomes of a row's manifest, as the headings of the page name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The API server refuses to make the object.
    RefusedWhenMade,
    /// The API server refuses to change the object.
    RefusedWhenChanged,
    /// A condition of the object says what is wrong.
    Taken,
}

/// What happened to a row's manifest instead of a refusal.
#[derive(Debug)]
pub struct Unrefused(pub String);

/// A line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    pub fate: Fate,
    pub kind: String,
    /// The cells before the last one, without their backticks.
    pub given: Vec<String>,
    /// The last cell: the message.
    pub message: String,
    line: usize,
}

impl Row {
    /// A name for the object of the row, which no other has.
    pub fn name(&self) -> String {
        format!("row-of-line-{}", self.line + 1)
    }

    /// What the row is, for a report.
    fn words(&self) -> String {
        format!("line {}, {} {}", self.line + 1, self.kind, self.given.join(" -> "))
    }
}

/// The page.
pub struct Page {
    file: PathBuf,
    lines: Vec<String>,
    rows: Vec<Row>,
}

impl Page {
    /// Reads the page. Panics at a table that is not under a heading that says what becomes of it.
    pub fn read() -> Self {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/bad-input.md");
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let (mut fate, mut kind, mut rows) = (None, None, Vec::new());
        for (number, line) in lines.iter().enumerate() {
            if let Some(heading) = line.strip_prefix("## ") {
                (fate, kind) = (Some(fate_of(heading)), None);
            } else if let Some(heading) = line.strip_prefix("### ") {
                kind = Some(heading.to_owned());
            } else if line.starts_with('|') && !is_head(line) {
                let (Some(fate), Some(kind)) = (fate, kind.clone()) else { panic!("no heading: {line}") };
                let mut given = cells(line);
                let message = given.pop().unwrap();
                let columns = if fate == Fate::RefusedWhenMade { 1 } else { 2 };
                assert!(given.len() == columns && !given.contains(&String::new()), "{line}");
                rows.push(Row { fate, kind, given, message, line: number });
            }
        }
        assert!(rows.len() >= LEAST, "there are {} rows", rows.len());
        Self { file, lines, rows }
    }

    /// The rows with this fate.
    pub fn rows(&self, of: &[Fate]) -> Vec<Row> {
        self.rows.iter().filter(|row| of.contains(&row.fate)).cloned().collect()
    }

    /// Compares what was said of these rows with what the page says, or writes it there. What was not refused as it should have
    /// been fails in any case.
    pub fn settle(mut self, of: &[Fate], said: &[(Row, Result<String, Unrefused>)]) {
        assert_eq!(said.len(), self.rows(of).len(), "not every row was applied");
        let mut wrong = Vec::new();
        for (row, message) in said {
            match message {
                Ok(message) if is_update() => self.lines[row.line] = line(row, message),
                Ok(message) if row.message == *message => {}
                Ok(message) => {
                    wrong.push(format!("{}\n  not: {}\n  but: {message}", row.words(), row.message));
                }
                Err(Unrefused(what)) => wrong.push(format!("{}\n  {what}", row.words())),
            }
        }
        if is_update() {
            fs::write(&self.file, self.lines.join("\n") + "\n").unwrap();
        }
        assert!(wrong.is_empty(), "{UPDATE}=1 rewrites messages:\n{}", wrong.join("\n"));
    }
}

/// Whether messages are written instead of compared.
pub fn is_update() -> bool {
    std::env::var_os(UPDATE).is_some()
}

fn fate_of(heading: &str) -> Fate {
    match heading {
        "Refused when it is made" => Fate::RefusedWhenMade,
        "Refused when it is changed" => Fate::RefusedWhenChanged,
        "Taken and not used" => Fate::Taken,
        other => panic!("nobody applies what is under {other:?}"),
    }
}

/// The names of the columns, or the line below them.
fn is_head(line: &str) -> bool {
    line.starts_with("|-") || line.ends_with("| message |")
}

/// The cells of a line. Within them a bar is written with a backslash before it.
fn cells(line: &str) -> Vec<String> {
    let bar = "\u{1}";
    let line = line.replace("\\|", bar);
    let inner =
        line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|')).unwrap_or_else(|| panic!("{line}"));
    inner.split('|').map(|cell| uncoded(cell.trim()).replace(bar, "|")).collect()
}

/// What stands between backticks. Two of them are around what has one itself.
fn uncoded(cell: &str) -> &str {
    let within = |mark: &str| cell.strip_prefix(mark)?.strip_suffix(mark);
    within("``").or(within("`")).map_or(cell, str::trim)
}

fn coded(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

fn line(row: &Row, message: &str) -> String {
    let given = row.given.iter().map(String::as_str);
    let all: Vec<_> = given.chain([message]).map(coded).collect();
    format!("| {} |", all.join(" | "))
}

/// A message as the page has it: on one line, what cannot be seen in it as JSON writes it, long runs of one character
/// counted, and without the name of the object.
pub fn shown(message: &str, name: &str) -> String {
    let mut runs: Vec<(char, usize)> = Vec::new();
    for c in message.replace(name, "<name>").chars() {
        match runs.last_mut() {
            Some((last, times)) if *last == c => *times += 1,
            _ => runs.push((c, 1)),
        }
    }
    let text =
        |(c, times): (char, usize)| if times < 32 { seen(c).repeat(times) } else { format!("<{times}*{c}>") };
    runs.into_iter().map(text).collect()
}

fn seen(c: char) -> String {
    let unseen = c.is_control()
        || matches!(c, '\u{a0}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{3000}');
    if unseen { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }
}
