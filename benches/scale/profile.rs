//! Profiles of moor's controller and of one agent: where their time goes, by perf, or who has their memory, by heaptrack. Of each
//! there is a flame graph in `target/profiles`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::ValueEnum;

use crate::flame;
use crate::rig;

/// What heaptrack has a program write down what it takes and gives back.
const PRELOADED: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
const INTERPRETER: &str = "/usr/lib/heaptrack/libexec/heaptrack_interpret";
/// Samples a second. Not a round number, so that nothing that is done once in so long is always or never seen.
const FREQUENCY: &str = "--freq=499";

/// What a profile is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// CPU time.
    Cpu,
    /// Memory at the moment at which there is most of it.
    Heap,
}

/// The profile of a process.
pub struct Profile {
    kind: Kind,
    name: String,
    /// Without an extension.
    path: PathBuf,
    /// Who takes samples of it.
    recorder: Option<Child>,
}

impl Profile {
    /// Of the process of this name, which is about to be started. What was recorded of an earlier one is written over.
    pub fn new(kind: Kind, name: &str) -> Self {
        let is_there = kind == Kind::Cpu || Path::new(PRELOADED).exists();
        assert!(is_there, "the Debian package heaptrack is not installed: there is no {PRELOADED}");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/profiles");
        fs::create_dir_all(&folder).unwrap();
        let what = if kind == Kind::Cpu { "cpu" } else { "heap" };
        Self { kind, name: name.to_owned(), path: folder.join(format!("{what}-{name}")), recorder: None }
    }

    /// What has to come before the program.
    pub fn wrap(&self) -> Vec<String> {
        match self.kind {
            Kind::Cpu => Vec::new(),
            Kind::Heap => vec![
                "env".to_owned(),
                format!("LD_PRELOAD={PRELOADED}"),
                format!("DUMP_HEAPTRACK_OUTPUT={}", self.file("raw").display()),
            ],
        }
    }

    /// The process runs.
    pub fn begin(&mut self, process: u32) {
        if self.kind == Kind::Cpu {
            let mut perf = Command::new("perf");
            perf.args(["record", "--quiet", "--event=cpu-clock", FREQUENCY, "--call-graph=fp", "--pid"]);
            perf.arg(process.to_string()).arg("--output").arg(self.file("perf"));
            self.recorder = Some(perf.spawn().expect("perf, of the package linux-perf"));
        }
    }

    /// The process has ended: draws what was recorded.
    pub fn end(mut self) {
        let (folded, unit) = match self.kind {
            Kind::Cpu => {
                self.recorder.take().unwrap().wait().unwrap();
                let mut script = Command::new("perf");
                script.args(["script", "--fields=comm,pid,time,event,ip,sym,dso", "--input"]);
                script.arg(self.file("perf"));
                (flame::of_perf(&output(&mut script)), "samples")
            }
            Kind::Heap => (flame::of_heaptrack(&self.stacks_at_the_peak()), "bytes"),
        };
        let picture = self.file("svg");
        fs::write(&picture, flame::picture(&self.name, &folded, unit)).unwrap();
        rig::say(&format!("a flame graph of {} is in {}", self.name, picture.display()));
    }

    fn stacks_at_the_peak(&self) -> String {
        let (recorded, stacks) = (self.file("heaptrack"), self.file("stacks"));
        let interpreter = Command::new(INTERPRETER)
            .stdin(File::open(self.file("raw")).unwrap())
            .stdout(File::create(&recorded).unwrap())
            .stderr(Stdio::null())
            .status();
        assert!(interpreter.expect("the package heaptrack").success(), "{}", self.file("raw").display());
        let mut print = Command::new("heaptrack_print");
        print.arg("--file").arg(&recorded).arg("--print-flamegraph").arg(&stacks);
        output(print.arg("--flamegraph-cost-type=peak"));
        fs::read_to_string(stacks).unwrap()
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.path.with_extension(extension)
    }
}

fn output(command: &mut Command) -> String {
    let done = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(done.status.success(), "{command:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}
