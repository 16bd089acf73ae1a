//! Text for a terminal, in which nothing but this program gives the terminal orders.

use std::fmt;

/// Widest name of a fact.
const NAMES: usize = 13;
/// Widest column that others are set apart from.
const WIDEST: usize = 120;

/// Lines of text. Names, handles and the words of drivers are written by others: what a terminal would take as an order, or
/// show in another order than it is written, is escaped in every line, whatever the line is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page(String);

impl Page {
    /// Adds a line, behind so many spaces.
    pub fn line(&mut self, indent: usize, text: &str) {
        let text = format!("{:indent$}{}", "", safe(text));
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }

    /// Adds the heading of a part, below an empty line unless it is the first.
    pub fn heading(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.line(0, text);
    }

    /// Adds a fact by its name.
    pub fn fact(&mut self, name: &str, text: &str) {
        self.line(2, &format!("{name:NAMES$} {text}"));
    }

    /// Adds a fact, if there is one.
    pub fn fact_if(&mut self, name: &str, text: Option<String>) {
        if let Some(text) = text {
            self.fact(name, &text);
        }
    }

    /// Adds what could not be seen, if there is anything.
    pub fn not_seen(&mut self, unseen: &[String]) {
        if !unseen.is_empty() {
            self.heading("Not seen");
            for what in unseen {
                self.line(2, what);
            }
        }
    }

    /// Adds a table below its heads. The last column is as wide as it likes.
    pub fn table<const N: usize>(&mut self, indent: usize, heads: [&str; N], rows: &[[String; N]]) {
        let heads = heads.map(str::to_owned);
        let rows: Vec<[String; N]> =
            [&heads].into_iter().chain(rows).map(|row| row.clone().map(|cell| safe(&cell))).collect();
        let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(widest);
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| {
                let room = width.min(WIDEST).saturating_sub(cell.chars().count());
                format!("{cell}{}", " ".repeat(room))
            });
            self.line(indent, cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text with every character escaped that does more in a terminal than to be seen.
#[must_use]
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_order(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Control characters, and what changes the order of others, joins them, breaks lines or is not seen at all.
fn is_order(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
                | '\u{e0100}'..='\u{e01ef}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_others_write_gives_a_terminal_orders() {
        for (text, shown) in [
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("\u{7f}\0\u{7}", "\\u{7f}\\u{0}\\u{7}"),
            ("größer 数", "größer 数"),
        ] {
            assert_eq!(safe(text), shown);
        }
        let mut page = Page::default();
        page.heading("\u{1b}a");
        page.fact("\u{1b}b", "\u{1b}c\n");
        page.table(0, ["A"], &[["\u{1b}d\n".to_owned()]]);
        assert!(!page.to_string().contains('\u{1b}') && page.to_string().lines().count() == 4, "{page}");
    }

    #[test]
    fn columns_are_as_wide_as_what_is_shown() {
        let mut page = Page::default();
        page.heading("First");
        page.table(2, ["NAME", "WHY"], &[["a\u{1b}".into(), "é".into()], ["b".into(), String::new()]]);
        page.heading("Second");
        page.fact("State", "Ready");
        let wanted = "First\n  NAME     WHY\n  a\\u{1b}  é\n  b\n\nSecond\n  State         Ready\n";
        assert_eq!(page.to_string(), wanted);
    }
}
