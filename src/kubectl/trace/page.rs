//! The calls of all agents on one page, by their time.

use std::time::Duration;

use jiff::SignedDuration;

use super::super::page::Page;
use super::agents::Answer;
use super::wanted::Wanted;
use crate::api::conditions::shortened;
use crate::trace::{Call, Told};

/// So much of what an agent tells is shown of each text, in bytes: it is root on its node, and may say anything.
const SHOWN: usize = 1024;
/// Most calls on a page, the last ones: an agent keeps 64 of a volume.
const MOST: usize = 2000;

/// Everything that was said, and who said nothing.
pub fn of(wanted: &Wanted, answers: Vec<Answer>, messages: bool) -> Page {
    let mut page = Page::default();
    let drivers: Vec<_> = wanted.drivers.iter().map(String::as_str).collect();
    let by = if drivers.is_empty() { String::new() } else { format!(", by {}", drivers.join(", ")) };
    page.heading(&format!("Calls about {}{by}", wanted.titles.join(" and ")));
    let (mut calls, mut heard, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for Answer { node, said } in answers {
        match said {
            Ok(Told { since, calls: said, .. }) => {
                heard.push(format!("{node} (which knows of calls since {})", since.0));
                let is_wanted =
                    |call: &Call| wanted.drivers.is_empty() || wanted.drivers.contains(&call.driver);
                calls.extend(said.into_iter().filter(is_wanted).map(|call| (node.clone(), call)));
            }
            Err(why) => silent.push(format!("{node}: {}", shortened(&why, SHOWN))),
        }
    }
    calls.sort_by(|(a, one), (b, other)| (one.began.0, a).cmp(&(other.began.0, b)));
    let more = calls.len().saturating_sub(MOST);
    calls.drain(..more);
    if more > 0 {
        page.line(2, &format!("({more} earlier calls are left out)"));
    }
    if calls.is_empty() {
        page.line(2, "None is remembered");
    } else {
        let rows: Vec<_> = calls.iter().map(|(node, call)| row(node, call)).collect();
        page.table(2, ["BEGAN", "NODE", "CALL", "TOOK", "OUTCOME", "SAID"], &rows);
    }
    if messages && !calls.is_empty() {
        page.heading("Requests and answers");
        for (node, call) in &calls {
            page.line(2, &format!("{} {node} {}", began(call), short(&call.rpc)));
            page.line(4, &format!("> {}", short(&call.request)));
            for said in
                call.end.iter().flat_map(|end| [&end.answer, &end.message]).filter(|said| !said.is_empty())
            {
                page.line(4, &format!("< {}", short(said)));
            }
        }
    }
    page.heading("Asked");
    if heard.is_empty() && silent.is_empty() {
        page.line(2, "nobody: no agent has a Pod");
    }
    for node in &heard {
        page.line(2, node);
    }
    if !silent.is_empty() {
        page.heading("Not reached: their calls are not here");
        for node in &silent {
            page.line(2, node);
        }
    }
    page
}

fn row(node: &str, call: &Call) -> [String; 6] {
    let (took, outcome, said) = match &call.end {
        None => (String::new(), "is running".to_owned(), String::new()),
        Some(end) => (took(end.milliseconds), short(end.outcome()), short(&end.message)),
    };
    [began(call), node.to_owned(), short(&call.rpc), took, outcome, said]
}

fn short(text: &str) -> String {
    shortened(text, SHOWN).to_owned()
}

/// When it began, by the clock of its node, to the millisecond.
fn began(call: &Call) -> String {
    let at = call.began.0;
    let second = at - SignedDuration::from_nanos(i64::from(at.subsec_nanosecond()));
    let text = second.to_string();
    format!("{}.{:03}Z", text.trim_end_matches('Z'), at.subsec_nanosecond() / 1_000_000)
}

fn took(milliseconds: u64) -> String {
    let time = Duration::from_millis(milliseconds);
    match milliseconds {
        ..1000 => format!("{milliseconds}ms"),
        1000..120_000 => format!("{:.1}s", time.as_secs_f64()),
        _ => format!("{}s", time.as_secs()),
    }
}
