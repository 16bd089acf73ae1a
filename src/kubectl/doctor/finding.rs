//! What a check has come to, and the page of all of them.

use super::super::page::Page;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It was looked at and is as it should be.
    Ok,
    /// It works, and somebody should look at it.
    Warning,
    /// Something does not work, or will not.
    Fault,
    /// It could not be looked at, which says nothing about it.
    NotChecked,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub mark: Mark,
    /// What was checked.
    pub what: &'static str,
    /// What was found.
    pub said: String,
    /// What to do about it; empty where there is nothing to do.
    pub remedy: String,
}

impl Finding {
    pub fn ok(what: &'static str, said: impl Into<String>) -> Self {
        Self { mark: Mark::Ok, what, said: said.into(), remedy: String::new() }
    }

    pub fn warning(what: &'static str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { mark: Mark::Warning, what, said: said.into(), remedy: remedy.into() }
    }

    pub fn fault(what: &'static str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { mark: Mark::Fault, what, said: said.into(), remedy: remedy.into() }
    }

    pub fn not_checked(what: &'static str, why: impl Into<String>) -> Self {
        Self { mark: Mark::NotChecked, what, said: why.into(), remedy: String::new() }
    }
}

/// The page of all findings.
pub fn page(findings: &[Finding]) -> Page {
    let mut page = Page::default();
    for Finding { mark, what, said, remedy } in findings {
        let mark = match mark {
            Mark::Ok => "ok",
            Mark::Warning => "warning",
            Mark::Fault => "FAULT",
            Mark::NotChecked => "not checked",
        };
        page.line(0, &format!("{mark:12} {what:21} {said}"));
        if !remedy.is_empty() {
            page.line(13, &format!("-> {remedy}"));
        }
    }
    let count = |mark: Mark| findings.iter().filter(|finding| finding.mark == mark).count();
    page.heading(&format!(
        "{} ok, {} warnings, {} faults, {} not checked",
        count(Mark::Ok),
        count(Mark::Warning),
        count(Mark::Fault),
        count(Mark::NotChecked)
    ));
    page
}

/// How many faults there are.
pub fn faults(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.mark == Mark::Fault).count()
}
