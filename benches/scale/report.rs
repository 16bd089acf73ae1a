//! The figures of all rounds: a table for people, and JSON for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::cost::{self, PARTS, Requests};
use crate::rounds::{Figures, Phase, Round};

/// What a round is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Claims that are Ready beside, and stay.
    pub existing: usize,
    /// How many objects the round has, and at once; of size 1 they come one after the other.
    pub size: usize,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "size {} beside {} claims", self.size, self.existing)
    }
}

/// Who made a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Moor,
    /// The bare client, and nobody watches but the bench.
    Bare,
    /// The bare client, while as many watch as while moor runs.
    Watched,
}

impl Who {
    /// For people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moor => "moor",
            Self::Bare => "bare",
            Self::Watched => "watched",
        }
    }
}

/// The rounds that count of one setting, by build and by who made them.
pub type Rounds = BTreeMap<(String, Who), Vec<Round>>;

/// Writes per object of moor may be off by less than this from the bare client's, which makes as many for each object: where
/// processes race, a write is now and then not needed.
const MARGIN: f64 = 0.5;

/// What is written of drivers, not of objects: its number does not grow with theirs.
const OF_DRIVERS: [&str; 5] =
    ["plugins", "plugins/status", "plugininstances", "plugininstances/status", "csidrivers"];

/// The value in the middle of those that all rounds have, the smallest and the largest.
pub fn spread(rounds: &[Round], phase: Phase, value: impl Fn(&Figures) -> f64) -> [f64; 3] {
    middle(rounds.iter().map(|round| value(&round[&phase])))
}

/// The value in the middle of these, the smallest and the largest.
pub fn middle(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = usize::midpoint(values.len() - 1, values.len());
    let median = f64::midpoint(values[(values.len() - 1) / 2], values[middle.min(values.len() / 2)]);
    [median, values[0], values[values.len() - 1]]
}

fn median(rounds: &[Round], phase: Phase, value: impl Fn(&Figures) -> f64) -> f64 {
    spread(rounds, phase, value)[0]
}

fn requests(figures: &Figures, writes: bool) -> f64 {
    let of_these = figures.taken.iter().filter(|((verb, _), _)| cost::is_write(verb) == writes);
    of_these.fold(0.0, |sum, (_, count)| sum + count)
}

/// Columns of the main table, before which stand the setting, phase and who.
const HEADS: [&str; 13] = [
    "objects/s",
    "min..max",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "controller",
    "agents",
    "API server",
    "etcd",
    "writes",
    "reads",
    "refused",
    "etcd KiB",
];

/// Above the main table.
const CAPTION: &str = "\
beside: so many claims that are Ready and stay. size: how many objects are asked for at once; 1: one after the other.
objects/s: from the first request to the last object that is Ready, or gone; median of the rounds, smallest and largest.
ms: from an object's request until it is seen to be Ready, or gone. Beyond, all is per object: milliseconds of CPU time of
controller, agents, API server and etcd; requests to the API server without the user's own; KiB that etcd writes to its log.
bare: a client that makes moor's writes. watched: the same, while as many watch as while moor runs. ratio: moor's value divided by
the client's.
";

/// One line for each setting, phase and who, and the ratio of moor to the bare client.
pub fn main_table<'a>(settings: impl IntoIterator<Item = (&'a Setting, &'a Rounds)>) -> String {
    let heads = ["beside", "size", "phase", "who"].into_iter().chain(HEADS);
    let mut lines = vec![heads.map(str::to_owned).collect()];
    for (setting, rounds) in settings {
        let line = |phase: Phase, name: String, cells: Vec<String>| {
            let first =
                [setting.existing.to_string(), setting.size.to_string(), phase.name().to_owned(), name];
            first.into_iter().chain(cells).collect()
        };
        for phase in Phase::ALL {
            for ((build, who), of) in rounds {
                let name = if *who == Who::Moor { build.clone() } else { format!("{build}, {}", who.name()) };
                lines.push(line(phase, name, cells(of, phase)));
                if *who != Who::Moor {
                    let moor = &rounds[&(build.clone(), Who::Moor)];
                    lines.push(line(phase, "  ratio".to_owned(), ratios(moor, of, phase)));
                }
            }
        }
    }
    CAPTION.to_owned() + "\n" + &aligned(&lines)
}

fn cells(of: &[Round], phase: Phase) -> Vec<String> {
    let [rate, least, most] = spread(of, phase, Figures::rate);
    let mut cells = vec![format!("{rate:.1}"), format!("{least:.1}..{most:.1}")];
    cells.extend((0..3).map(|at| format!("{:.1}", median(of, phase, |figures| figures.latencies[at]))));
    cells.extend(PARTS.map(|part| format!("{:.2}", median(of, phase, |figures| figures.cpu[part]))));
    cells.push(format!("{:.2}", median(of, phase, |figures| requests(figures, true))));
    cells.push(format!("{:.2}", median(of, phase, |figures| requests(figures, false))));
    cells.push(format!(
        "{:.2}",
        median(of, phase, |figures| figures.refused.values().fold(0.0, |sum, count| sum + count))
    ));
    cells.push(format!("{:.1}", median(of, phase, |figures| figures.etcd_bytes / 1024.0)));
    cells
}

/// moor's medians divided by the bare client's.
fn ratios(moor: &[Round], bare: &[Round], phase: Phase) -> Vec<String> {
    let ratio = |value: &dyn Fn(&Figures) -> f64| {
        let (moor, bare) = (median(moor, phase, value), median(bare, phase, value));
        if bare > 0.0 { format!("{:.2}", moor / bare) } else { "-".to_owned() }
    };
    let mut cells = vec![ratio(&Figures::rate), String::new()];
    cells.extend((0..3).map(|at| ratio(&|figures: &Figures| figures.latencies[at])));
    cells.extend(PARTS.map(|part| ratio(&|figures: &Figures| figures.cpu[part])));
    cells.push(ratio(&|figures: &Figures| requests(figures, true)));
    cells.extend([String::new(), String::new()]);
    cells.push(ratio(&|figures: &Figures| figures.etcd_bytes));
    cells
}

/// Requests per object by verb and resource, of one setting and build: in each phase moor's, and the bare client's.
pub fn request_table(setting: Setting, build: &str, rounds: &Rounds) -> String {
    let of_all = Phase::ALL
        .map(|phase| [Who::Moor, Who::Bare].map(|who| medians(&rounds[&(build.to_owned(), who)], phase)));
    let all: BTreeSet<_> = of_all.iter().flatten().flat_map(|requests| requests.keys().cloned()).collect();
    let mut heads = vec![format!("{build}, {setting}: requests per object, moor / bare")];
    heads.extend(Phase::ALL.map(|phase| phase.name().to_owned()));
    let mut lines = vec![heads];
    for key in all {
        let counts = of_all
            .each_ref()
            .map(|both| both.each_ref().map(|requests| requests.get(&key).copied().unwrap_or_default()));
        if counts.iter().flatten().all(|count| count.abs() < 0.005) {
            continue;
        }
        let mut line = vec![format!("{} {}", key.0, key.1)];
        line.extend(counts.map(|[moor, bare]| {
            if moor == 0.0 && bare == 0.0 { String::new() } else { format!("{moor:.2} / {bare:.2}") }
        }));
        lines.push(line);
    }
    aligned(&lines)
}

fn medians(of: &[Round], phase: Phase) -> Requests {
    let all: BTreeSet<_> = of.iter().flat_map(|round| round[&phase].taken.keys().cloned()).collect();
    let count = |key: &(String, String)| {
        median(of, phase, |figures| figures.taken.get(key).copied().unwrap_or_default())
    };
    all.into_iter().map(|key| (key.clone(), count(&key))).collect()
}

/// Where moor does not make the writes that the bare client makes.
#[derive(Debug, Default)]
pub struct Differences {
    /// The comparison says nothing: the bare client makes other writes than moor makes when nothing waits for anything, or
    /// writes that moor does not make.
    pub wrong: Vec<String>,
    /// What moor writes beyond, when much waits: of that, too, an object tells.
    pub more: Vec<String>,
}

impl Differences {
    /// Looks for those of a setting.
    pub fn look(&mut self, setting: Setting, rounds: &Rounds) {
        let of_moor = rounds.iter().filter(|((_, who), _)| *who == Who::Moor);
        for ((build, _), of) in of_moor {
            let bare = &rounds[&(build.clone(), Who::Bare)];
            for phase in Phase::ALL {
                self.compare(setting, &format!("{build}, {setting}, {}", phase.name()), [of, bare], phase);
            }
        }
    }

    fn compare(&mut self, setting: Setting, place: &str, both: [&[Round]; 2], phase: Phase) {
        let both = both.map(|of| medians(of, phase));
        let all: BTreeSet<_> = both.iter().flat_map(Requests::keys).collect();
        let is_of_objects = |(verb, resource): &&(String, String)| {
            cost::is_write(verb) && !OF_DRIVERS.contains(&resource.as_str())
        };
        for key in all.into_iter().filter(is_of_objects) {
            let [moor, bare] = both.each_ref().map(|of| of.get(key).copied().unwrap_or_default());
            if (moor - bare).abs() < MARGIN {
                continue;
            }
            let (verb, resource) = key;
            let found = format!(
                "{place}: {moor:.2} {verb} {resource} per object, and the bare client makes {bare:.2}"
            );
            if setting.size == 1 || moor < bare { self.wrong.push(found) } else { self.more.push(found) }
        }
    }
}

/// Every figure of every round.
pub fn to_json(settings: &BTreeMap<Setting, Rounds>) -> Value {
    let mut all = Vec::new();
    for (setting, rounds) in settings {
        for ((build, who), of) in rounds {
            for (number, round) in of.iter().enumerate() {
                for (phase, figures) in round {
                    let mut figures = figures.to_json();
                    figures["existing"] = json!(setting.existing);
                    figures["size"] = json!(setting.size);
                    figures["build"] = json!(build);
                    figures["who"] = json!(who.name());
                    figures["round"] = json!(number + 1);
                    figures["phase"] = json!(phase.name());
                    all.push(figures);
                }
            }
        }
    }
    Value::Array(all)
}

/// Lines of cells as a table: the first columns of words to the left, numbers to the right.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |at: usize| lines.iter().filter_map(|line| line.get(at)).map(String::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let is_word = |at: usize| {
        let mut cells = lines.iter().skip(1).filter_map(|line| line.get(at));
        cells.any(|cell| cell.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    let words: Vec<bool> = (0..columns).map(is_word).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (at, cell) in line.iter().enumerate() {
            let width = widths[at];
            let _ = if words[at] { write!(row, "{cell:<width$}  ") } else { write!(row, "{cell:>width$}  ") };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
