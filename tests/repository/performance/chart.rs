//! The chart of the page: how many objects a second, and what one of them takes, beside ever more claims.

use std::fmt::Write as _;

use serde_json::Value;

use super::figures::{Figures, PARTS, PHASES, Who, cpu, middle, spread};
use super::page::counted;

/// Objects at once in the rounds that are drawn.
const SIZE: u64 = 1000;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
/// The height of a panel without its words.
const HEIGHT: f64 = 220.0;
/// Where the first panel begins, and the second.
const TOPS: [f64; 2] = [70.0, 390.0];
const MOOR: &str = "#2f6f9f";
const BARE: &str = "#b8c4cc";
/// In the order of [`PARTS`].
const COLORS: [&str; 4] = ["#d98032", "#e8b04a", "#2f6f9f", "#7fa8c4"];

/// A panel's scale: what its full height is.
struct Panel {
    top: f64,
    full: f64,
}

impl Panel {
    /// With lines at four heights.
    fn new(svg: &mut String, top: f64, largest: f64, title: &str) -> Self {
        let step = nice(largest / 4.0);
        let panel = Self { top, full: step * (largest / step).ceil() };
        text(svg, (LEFT, top - 34.0), "start", 15, title);
        let mut at = 0.0;
        while at <= panel.full {
            let y = panel.y(at);
            writeln!(svg, r##"<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1}" y2="{y:.1}" stroke="#e3e7ea"/>"##)
                .unwrap();
            text(svg, (LEFT - 8.0, y + 4.0), "end", 11, &format!("{at:.0}"));
            at += step;
        }
        panel
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - value / self.full)
    }

    fn bar(&self, svg: &mut String, x: f64, width: f64, [from, to]: [f64; 2], color: &str) {
        let (y, height) = (self.y(to), self.y(from) - self.y(to));
        writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{color}"/>"#
        )
        .unwrap();
    }
}

/// 1, 2 or 5 with zeros: the least that is not less.
fn nice(value: f64) -> f64 {
    let zeros = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * zeros).find(|step| *step >= value).unwrap_or(value)
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, size: u32, said: &str) {
    writeln!(svg, r##"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="#2b3338">{said}</text>"##)
        .unwrap();
}

fn legend(svg: &mut String, top: f64, entries: &[(&str, &str)]) {
    let mut x = LEFT;
    for (name, color) in entries {
        writeln!(svg, r#"<rect x="{x:.1}" y="{:.1}" width="11" height="11" fill="{color}"/>"#, top - 24.0)
            .unwrap();
        text(svg, (x + 16.0, top - 14.0), "start", 12, name);
        x += 130.0;
    }
}

/// The chart as SVG.
pub fn drawn(figures: &Figures) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} 660\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        WIDTH + 20.0
    );
    rates(&mut svg, figures);
    costs(&mut svg, figures);
    svg.push_str("</svg>\n");
    svg
}

/// Rounds of both, of all phases beside each number of claims.
fn groups(figures: &Figures) -> Vec<(u64, &'static str, [&Value; 2])> {
    let mut groups = Vec::new();
    for phase in PHASES {
        for existing in figures.numbers("existing") {
            let both = [Who::Moor, Who::Bare].map(|who| figures.round(who, existing, SIZE, phase));
            if let [Some(moor), Some(bare)] = both {
                groups.push((existing, phase, [moor, bare]));
            }
        }
    }
    groups
}

/// Under each group beside how many claims it is, and under those of a phase the phase.
fn under(svg: &mut String, groups: &[(u64, &'static str, [&Value; 2])], top: f64, slot: f64) {
    for (number, (existing, phase, _)) in groups.iter().enumerate() {
        let x = x_of(number, slot);
        text(svg, (x + slot / 2.0, top + HEIGHT + 16.0), "middle", 10, &counted(*existing));
        if number == 0 || groups[number - 1].1 != *phase {
            text(svg, (x + 4.0, top + HEIGHT + 34.0), "start", 12, phase);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a few bars")]
fn x_of(number: usize, slot: f64) -> f64 {
    LEFT + number as f64 * slot
}

#[allow(clippy::cast_precision_loss, reason = "a few bars")]
fn slot(groups: usize) -> f64 {
    (WIDTH - LEFT) / groups.max(1) as f64
}

fn rates(svg: &mut String, figures: &Figures) {
    let groups = groups(figures);
    let slot = slot(groups.len());
    let rate = |round: &Value| spread(&round["objectsPerSecond"]);
    let largest = groups.iter().flat_map(|(.., both)| both.map(|round| rate(round)[2])).fold(1.0, f64::max);
    let title = "Objects per second, 1,000 at once, beside so many claims that stay: the middle round, smallest and largest";
    let panel = Panel::new(svg, TOPS[0], largest, title);
    legend(svg, TOPS[0], &[("moor", MOOR), ("bare client", BARE)]);
    let width = slot * 0.4;
    for (number, (.., both)) in groups.iter().enumerate() {
        for (round, (color, shift)) in both.iter().zip([(MOOR, 0.08), (BARE, 0.52)]) {
            let [middle, least, most] = rate(round);
            let x = x_of(number, slot) + slot * shift;
            panel.bar(svg, x, width, [0.0, middle], color);
            let at = x + width / 2.0;
            writeln!(
                svg,
                r##"<line x1="{at:.1}" x2="{at:.1}" y1="{:.1}" y2="{:.1}" stroke="#2b3338"/>"##,
                panel.y(least),
                panel.y(most)
            )
            .unwrap();
        }
    }
    under(svg, &groups, TOPS[0], slot);
}

fn costs(svg: &mut String, figures: &Figures) {
    let groups = groups(figures);
    let slot = slot(groups.len());
    let sum =
        |round: &Value| PARTS.iter().map(|part| middle(&round["cpuMillisecondsPerObject"][*part])).sum();
    let largest = groups.iter().flat_map(|(.., both)| both.map(sum)).fold(1.0, f64::max);
    let title = "Milliseconds of CPU time per object: by moor to the left, by the bare client to the right";
    let panel = Panel::new(svg, TOPS[1], largest, title);
    let entries: Vec<_> = PARTS.into_iter().zip(COLORS).collect();
    legend(svg, TOPS[1], &entries);
    for (number, (.., both)) in groups.iter().enumerate() {
        for (round, shift) in both.iter().zip([0.08, 0.52]) {
            let mut from = 0.0;
            // From below what both have: what moor takes beyond stands on top.
            for (part, color) in PARTS.into_iter().zip(COLORS).rev() {
                let to = from + cpu(round, part);
                panel.bar(svg, x_of(number, slot) + slot * shift, slot * 0.4, [from, to], color);
                from = to;
            }
        }
    }
    under(svg, &groups, TOPS[1], slot);
}

#[test]
fn steps_of_a_scale_are_round_numbers() {
    let found = [0.3, 1.0, 13.0, 41.0, 60.0].map(|value| format!("{}", nice(value)));
    assert_eq!(found, ["0.5", "1", "20", "50", "100"]);
}
