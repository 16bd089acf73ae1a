//! The tables of the page, each between two lines that say where it belongs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::figures::{Figures, PARTS, PHASES, Who, cpu, middle, refused, requests, spread};
use super::targets::TARGETS;

/// A table of figures, as Markdown.
type Table = fn(&Figures) -> String;

/// What has a place on the page.
const TABLES: [(&str, Table); 10] = [
    ("run", run),
    ("targets", targets),
    ("bound", bound),
    ("rates", rates),
    ("costs", costs),
    ("requests", all_requests),
    ("beside", beside),
    ("pods", pods),
    ("promises of pods", promises_of_pods),
    ("writes", writes),
];

/// The page with all tables as the figures say them.
pub fn filled(page: &str, figures: &Figures) -> String {
    let mut page = page.to_owned();
    for (name, table) in TABLES {
        let (begin, end) = (format!("<!-- figures: {name} -->\n"), "<!-- end -->");
        let (before, rest) =
            page.split_once(&begin).unwrap_or_else(|| panic!("the page has no place for {name}"));
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("the place for {name} has no end"));
        page = format!("{before}{begin}\n{}\n{end}{after}", table(figures));
    }
    page
}

fn table(heads: &[&str], lines: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for line in lines {
        writeln!(text, "| {} |", line.join(" | ")).unwrap();
    }
    text
}

/// A number with commas between thousands.
pub fn counted(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn run(figures: &Figures) -> String {
    let (machine, versions) = (&figures.all["machine"], &figures.all["versions"]);
    let said = |value: &Value| value.as_str().unwrap().to_owned();
    let listed = |option| figures.numbers(option).into_iter().map(counted).collect::<Vec<_>>().join(", ");
    // A run that was cut short has begun more than it has measured.
    let has_rounds =
        |existing: &u64| figures.all["rounds"].as_array().unwrap().iter().any(|r| r["existing"] == *existing);
    let stay: Vec<_> = figures.numbers("existing").into_iter().filter(has_rounds).map(counted).collect();
    let lines = [
        (
            "machine",
            format!(
                "{} cores, {} of memory, Linux {}",
                machine["cores"],
                said(&machine["memory"]),
                said(&machine["kernel"])
            ),
        ),
        ("moor", said(&versions["moor"])),
        ("API server", said(&versions["kube-apiserver"])),
        ("etcd", said(&versions["etcd"])),
        ("nodes with an agent", counted(figures.number("agents"))),
        ("objects at once", listed("sizes")),
        ("claims that stay", stay.join(", ")),
        ("rounds", format!("{}, after {} to warm up", figures.number("rounds"), figures.number("warmUps"))),
        (
            "requests of users, or chains of the bare client, under way at once",
            figures.number("concurrency").to_string(),
        ),
    ];
    table(&["", ""], lines.map(|(what, value)| vec![what.to_owned(), value]))
}

fn targets(figures: &Figures) -> String {
    let line = |target: &super::targets::Target| {
        let (found, met) = match (target.found)(figures) {
            Some((found, true)) => (found, "yes"),
            Some((found, false)) => (found, "**no**"),
            None => ("not of this run".to_owned(), ""),
        };
        vec![target.what.to_owned(), target.asked.to_owned(), found, met.to_owned()]
    };
    table(&["what", "asked", "measured", "met"], TARGETS.iter().map(line))
}

/// What bounds how many claims are made a second: whose time it is.
fn bound(figures: &Figures) -> String {
    let existing = figures.numbers("existing")[0];
    let of = |who| figures.round(who, existing, 1000, "make claims");
    let (Some(moor), Some(bare), Some(watched)) = (of(Who::Moor), of(Who::Bare), of(Who::Watched)) else {
        return NOT_MEASURED.to_owned();
    };
    let cores = figures.all["machine"]["cores"].as_f64().unwrap();
    let sum = |round: &Value, parts: &[&str]| parts.iter().map(|part| cpu(round, part)).sum::<f64>();
    let rate = |round: &Value| middle(&round["objectsPerSecond"]);
    let busy = |round: &Value| format!("{:.0} %", sum(round, &PARTS) * rate(round) / cores / 10.0);
    let of_all = |said: &dyn Fn(&Value) -> String| [moor, bare, watched].map(said);
    let of_clients = |first: String, made: f64| [first, share(made, rate(bare)), share(made, rate(watched))];
    // What is left takes the time that all took before.
    let alone = rate(moor) * sum(moor, &PARTS) / sum(moor, &PARTS[2..]);
    let time_of = |part: &str| of_all(&|round| format!("{:.1}", cpu(round, part)));
    let mut lines = PARTS.map(|part| (format!("{part}, ms of CPU time per claim"), time_of(part))).to_vec();
    lines.extend([
        ("all of these, of the time of all cores".to_owned(), of_all(&busy)),
        ("claims made per second".to_owned(), of_all(&|round| format!("{:.1}", rate(round)))),
        ("moor's, of the client's".to_owned(), of_clients(String::new(), rate(moor))),
        (
            "the same, if moor's own processes took no time".to_owned(),
            of_clients(format!("{alone:.1}"), alone),
        ),
    ]);
    let title = format!("1,000 at once beside {}", counted(existing));
    table(
        &[&title, "moor", "bare client", "the same, watched as moor's objects are"],
        lines.into_iter().map(|(what, values)| [what].into_iter().chain(values).collect()),
    )
}

fn share(of: f64, all: f64) -> String {
    format!("{:.0} %", 100.0 * of / all)
}

/// Each size beside each number of claims that stay, phase by phase, with moor's rounds and the bare client's.
fn rounds<'a>(figures: &'a Figures, mut see: impl FnMut(Vec<String>, [&'a Value; 2])) {
    for existing in figures.numbers("existing") {
        for size in figures.numbers("sizes") {
            for phase in PHASES {
                let both = [Who::Moor, Who::Bare].map(|who| figures.round(who, existing, size, phase));
                if let [Some(moor), Some(bare)] = both {
                    see(vec![counted(existing), counted(size), phase.to_owned()], [moor, bare]);
                }
            }
        }
    }
}

fn rates(figures: &Figures) -> String {
    let mut lines = Vec::new();
    rounds(figures, |mut line, both| {
        let rate = |round: &Value| {
            let [middle, least, most] = spread(&round["objectsPerSecond"]);
            format!("{middle:.1} ({least:.1}..{most:.1})")
        };
        let times = |round: &Value| {
            ["p50", "p90", "p99"]
                .map(|rank| format!("{:.0}", middle(&round["latencyMilliseconds"][rank])))
                .join(" / ")
        };
        let [moor, bare] = both.map(|round| middle(&round["objectsPerSecond"]));
        line.extend(both.map(rate));
        line.push(format!("{:.2}", moor / bare));
        line.extend(both.map(times));
        lines.push(line);
    });
    let heads = [
        "beside",
        "at once",
        "",
        "moor, objects/s",
        "bare client",
        "moor / bare",
        "moor, ms p50 / p90 / p99",
        "bare client",
    ];
    table(&heads, lines)
}

fn costs(figures: &Figures) -> String {
    let mut lines = Vec::new();
    rounds(figures, |mut line, [moor, bare]| {
        line.extend(PARTS.map(|part| format!("{:.1}", cpu(moor, part))));
        line.extend(PARTS[2..].iter().map(|part| format!("{:.1}", cpu(bare, part))));
        line.extend([moor, bare].map(|round| format!("{:.1}", requests(round, true))));
        line.extend([requests(moor, false), refused(moor)].map(|count| format!("{count:.1}")));
        line.extend(
            [moor, bare].map(|round| format!("{:.1}", middle(&round["etcdBytesPerObject"]) / 1024.0)),
        );
        lines.push(line);
    });
    let heads = [
        "beside",
        "at once",
        "",
        "controller ms",
        "agents ms",
        "API server ms",
        "etcd ms",
        "bare: API server ms",
        "bare: etcd ms",
        "writes",
        "bare: writes",
        "reads",
        "refused",
        "etcd KiB",
        "bare: etcd KiB",
    ];
    table(&heads, lines)
}

/// Requests per object where one comes after the other, by verb and resource.
fn all_requests(figures: &Figures) -> String {
    let (existing, size) = (figures.numbers("existing")[0], figures.numbers("sizes")[0]);
    let none = serde_json::Map::new();
    let of = |who, phase| {
        let round = figures.round(who, existing, size, phase);
        round.map_or(&none, |round| round["requestsPerObject"].as_object().unwrap())
    };
    let both = |phase| [Who::Moor, Who::Bare].map(|who| of(who, phase));
    let all: BTreeSet<_> =
        PHASES.iter().flat_map(|phase| both(phase)).flat_map(|requests| requests.keys()).collect();
    let cell = |request: &String, phase| {
        let [moor, bare] = both(phase).map(|requests| requests.get(request).map_or(0.0, middle));
        if moor.max(bare) < 0.05 { String::new() } else { format!("{moor:.1} / {bare:.1}") }
    };
    let line = |request: &String| {
        let cells = PHASES.map(|phase| cell(request, phase));
        let is_any = cells.iter().any(|cell| !cell.is_empty());
        is_any.then(|| [request.clone()].into_iter().chain(cells).collect())
    };
    let heads: Vec<_> = ["moor / bare client"].into_iter().chain(PHASES).collect();
    table(&heads, all.into_iter().filter_map(line))
}

fn beside(figures: &Figures) -> String {
    let mebibytes = |of: &Value| format!("{:.0}", of.as_f64().unwrap() / 1_048_576.0);
    let line = |existing: u64| {
        let of = figures.beside(existing)?;
        let (idle, memory, restart) = (&of["idle"], &of["memory"], &of["restart"]);
        let seconds =
            |of: &Value| of.as_f64().map_or("not of this run".into(), |found| format!("{found:.1}"));
        Some(vec![
            counted(existing),
            mebibytes(&memory["controllerBytes"]),
            mebibytes(&memory["agentBytes"]),
            mebibytes(&memory["largestAgentBytes"]),
            format!(
                "{:.0} in {} s",
                idle["cpuMilliseconds"]["controller"].as_f64().unwrap(),
                idle["seconds"]
            ),
            format!("{:.0} in {} s", idle["cpuMilliseconds"]["agents"].as_f64().unwrap(), idle["seconds"]),
            seconds(&of["restartOfOne"]["controllerSeconds"]),
            seconds(&restart["secondsUntilAllAreReady"]),
            seconds(&of["secondsUntilANewClaimIsReady"]),
        ])
    };
    let heads = [
        "claims that stay",
        "controller MiB",
        "the agent in the middle MiB",
        "largest agent MiB",
        "idle: controller ms",
        "idle: all agents ms",
        "the controller ready after `kill -9`, s",
        "all, after `kill -9` of all, s",
        "a new claim Ready, s",
    ];
    let [controller, agent] =
        ["controllerBytes", "agentBytes"].map(|who| mebibytes(&figures.peak_memory()[who]));
    let most = ["most at any moment".to_owned(), controller, String::new(), agent];
    let most = most.into_iter().chain(vec![String::new(); heads.len() - 4]).collect();
    table(&heads, figures.numbers("existing").into_iter().filter_map(line).chain([most]))
}

const NOT_MEASURED: &str = "This run has not measured it.\n";

/// How Pods start, from `make bench-pods`.
fn pods(figures: &Figures) -> String {
    let Some(kinds) = figures.all["pods"]["figures"].as_array() else { return NOT_MEASURED.to_owned() };
    let line = |kind: &Value| {
        let number = |field: &str| format!("{:.2}", kind[field].as_f64().unwrap());
        let [title, at_once] = [kind["title"].as_str().unwrap().to_owned(), kind["atOnce"].to_string()];
        let numbers = ["medianSeconds", "p99Seconds", "overNoneSeconds", "writesPerPod", "writesOverNone"];
        [title, at_once].into_iter().chain(numbers.map(number)).collect()
    };
    let heads = [
        "Pods",
        "at once",
        "Ready after, s: median",
        "p99",
        "over one without a volume",
        "API writes",
        "over one without",
    ];
    table(&heads, kinds.iter().map(line))
}

fn promises_of_pods(figures: &Figures) -> String {
    let Some(limits) = figures.all["pods"]["limits"].as_array() else { return NOT_MEASURED.to_owned() };
    let titles = |name: &Value| {
        let kinds = figures.all["pods"]["figures"].as_array().unwrap();
        kinds.iter().find(|kind| kind["kind"] == *name).unwrap()["title"].as_str().unwrap()
    };
    let line = |limit: &Value| {
        let text = |field: &str| limit[field].as_str().unwrap();
        let number = |field: &str| limit[field].as_f64().unwrap();
        let (unit, at_once) = (text("unit"), &limit["atOnce"]);
        vec![
            format!(
                "{}, {at_once} at once: {} over {}",
                titles(&limit["kind"]),
                text("what"),
                titles(&limit["beside"])
            ),
            format!("≤ {}{unit}", number("most")),
            format!("{:.2}{unit}", number("measured")),
            if limit["met"] == true { "yes" } else { "**no**" }.to_owned(),
        ]
    };
    table(&["what", "asked", "measured", "met"], limits.iter().map(line))
}

/// What each write costs an API server that has all of moor, and others that lack something of it.
fn writes(figures: &Figures) -> String {
    let Some(writes) = figures.all["writes"].as_object().unwrap().values().next() else {
        return NOT_MEASURED.to_owned();
    };
    let writes = writes.as_array().unwrap();
    let variants: Vec<&String> = writes[0]["variants"].as_object().unwrap().keys().collect();
    let line = |write: &Value| {
        let cost = |variant: &&String| {
            let [middle, least, most] = spread(&write["variants"][variant.as_str()]["cpuMilliseconds"]);
            format!("{middle:.2} ({least:.2}..{most:.2})")
        };
        let first = [&write["phase"], &write["write"]].map(|text| text.as_str().unwrap().to_owned());
        first.into_iter().chain(variants.iter().map(cost)).collect()
    };
    let heads: Vec<_> =
        ["phase", "write"].into_iter().chain(variants.iter().map(|name| name.as_str())).collect();
    let of_phase = |phase: &str| {
        let of_it = || writes.iter().filter(|write| write["phase"] == phase);
        let sum = |variant: &&String| {
            let costs = of_it().map(|write| middle(&write["variants"][variant.as_str()]["cpuMilliseconds"]));
            format!("{:.1}", costs.sum::<f64>())
        };
        let all = [phase.to_owned(), "**all of these**".to_owned()];
        of_it()
            .map(line)
            .chain([all.into_iter().chain(variants.iter().map(sum)).collect()])
            .collect::<Vec<_>>()
    };
    table(
        &heads,
        PHASES
            .iter()
            .filter(|phase| writes.iter().any(|w| w["phase"] == **phase))
            .flat_map(|phase| of_phase(phase)),
    )
}
