//! Flame graphs: of whole stacks, each with its weight, a picture in which a function is as wide as all that was below it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of the picture, and height of a function, in pixels.
const WIDTH: f64 = 1600.0;
const HEIGHT: f64 = 17.0;
/// What is narrower is left out.
const NARROWEST: f64 = 0.4;
/// About the width of a letter.
const LETTER: f64 = 6.6;

/// A function, with the functions that it has called.
#[derive(Debug, Default, PartialEq)]
struct Frame {
    weight: f64,
    called: BTreeMap<String, Frame>,
}

impl Frame {
    fn add<'a>(&mut self, mut stack: impl Iterator<Item = &'a str>, weight: f64) {
        self.weight += weight;
        if let Some(function) = stack.next() {
            self.called.entry(function.to_owned()).or_default().add(stack, weight);
        }
    }

    fn depth(&self) -> usize {
        self.called.values().map(|called| called.depth() + 1).max().unwrap_or_default()
    }

    /// Draws what it has called above it, from `x` on.
    fn draw(&self, picture: &mut String, x: f64, level: usize, total: f64, unit: &str) {
        let mut left = x;
        for (name, frame) in &self.called {
            let width = frame.weight / total * WIDTH;
            if width >= NARROWEST {
                frame.draw_itself(picture, name, (left, width), level, total, unit);
                frame.draw(picture, left, level + 1, total, unit);
            }
            left += width;
        }
    }

    fn draw_itself(
        &self,
        picture: &mut String,
        name: &str,
        (x, width): (f64, f64),
        level: usize,
        total: f64,
        unit: &str,
    ) {
        #[allow(clippy::cast_precision_loss, reason = "levels of a stack")]
        let y = -HEIGHT * (level + 1) as f64;
        // The same function has the same colour wherever it is.
        let hue = name.bytes().fold(7_u32, |hue, byte| hue.wrapping_mul(31).wrapping_add(byte.into())) % 55;
        let percent = self.weight / total * 100.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "letters in a picture")]
        let shown: String = name.chars().take((width / LETTER) as usize).collect();
        let _ = writeln!(
            picture,
            "<g><title>{} ({:.0} {unit}, {percent:.1} %)</title>\
             <rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{:.0}\" fill=\"hsl({hue},80%,70%)\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{}</text></g>",
            escaped(name),
            self.weight,
            HEIGHT - 1.0,
            x + 2.0,
            y + HEIGHT - 5.0,
            escaped(if shown.len() > 2 { &shown } else { "" }),
        );
    }
}

/// The picture of folded stacks: lines of functions from the outermost to the innermost, with `;` between them, and a number.
pub fn picture(title: &str, folded: &str, unit: &str) -> String {
    let mut root = Frame::default();
    for line in folded.lines() {
        let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
        let Ok(weight) = weight.parse::<f64>() else { continue };
        root.add(stack.split(';'), weight);
    }
    #[allow(clippy::cast_precision_loss, reason = "levels of a stack")]
    let height = HEIGHT * (root.depth() + 2) as f64;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 {:.0} {WIDTH} {height:.0}\" font-family=\"monospace\" \
         font-size=\"11\">\n<text x=\"2\" y=\"{:.0}\">{}: {:.0} {unit}</text>\n",
        HEIGHT - height,
        2.0 * HEIGHT - height - 4.0,
        escaped(title),
        root.weight,
    );
    root.draw(&mut picture, 0.0, 0, root.weight, unit);
    picture + "</svg>\n"
}

/// The stacks that `perf script` prints, folded. Each sample is a head, then its functions from the innermost on, then nothing.
pub fn of_perf(script: &str) -> String {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in script.split("\n\n") {
        let functions = sample.lines().filter(|line| line.starts_with([' ', '\t'])).filter_map(|line| {
            let (_, rest) = line.trim_start().split_once(' ')?;
            let (name, _) = rest.rsplit_once(" (")?;
            Some(plain(name.rsplit_once("+0x").map_or(name, |(name, _)| name)))
        });
        let mut stack: Vec<String> = functions.collect();
        stack.reverse();
        if !stack.is_empty() {
            *stacks.entry(stack.join(";")).or_default() += 1;
        }
    }
    stacks.into_iter().fold(String::new(), |mut folded, (stack, count)| {
        let _ = writeln!(folded, "{stack} {count}");
        folded
    })
}

/// The stacks that heaptrack folds, with names for people.
pub fn of_heaptrack(folded: &str) -> String {
    let line = |line: &str| {
        let (stack, bytes) = line.rsplit_once(' ')?;
        Some(stack.split(';').map(plain).collect::<Vec<_>>().join(";") + " " + bytes + "\n")
    };
    folded.lines().filter_map(line).collect()
}

/// The name without the hash at its end, which the compiler gives it.
fn plain(name: &str) -> String {
    let hash = name.rsplit_once("::h").filter(|(_, hash)| is_hash(hash));
    hash.map_or(name, |(before, _)| before).replace(';', ",")
}

fn is_hash(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What is read here is text that others write: said by examples before anything is measured.
pub fn check() {
    let script = "moor 7 1.5: 1 cpu-clock:\n\t ffff a::b::h0123456789abcdef+0x1 (/moor)\n\t ffff main+0x2 (/moor)\n\n\
                  moor 7 1.6: 1 cpu-clock:\n\t ffff main+0x2 (/moor)\n\n";
    let folded = of_perf(script);
    assert_eq!(folded, "main 1\nmain;a::b 1\n");
    assert_eq!(of_heaptrack("main;a::h0123456789abcdef 5\n"), "main;a 5\n");
    let drawn = picture("x", &folded, "samples");
    assert!(
        drawn.contains("main (2 samples, 100.0 %)") && drawn.contains("a::b (1 samples, 50.0 %)"),
        "{drawn}"
    );
}
