//! `main` of a test binary that uses the rig.
//!
//! The binary starts itself again in a mount, a network and a process namespace of its own. So no mount of a test is
//! ever seen by the machine, no port is taken by a test that runs beside it, and when the inner process ends, however it
//! ends, the kernel ends everything that it has started: etcd, the API server, every moor.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::agreement;
use super::cluster::Cluster;

/// Where the inner process keeps its files; that it is set says which process this is.
const DIRECTORY: &str = "MOOR_RIG_DIR";
/// `all`: the long versions of tests that have a short one. `none`: no test at all, for the fast loop.
const EXTENT: &str = "MOOR_RIG";

/// One test on the rig.
pub struct Case {
    /// Its path, the crate's name included.
    pub path: &'static str,
    pub run: fn(Arc<Cluster>) -> BoxFuture<'static, ()>,
}

impl Case {
    /// What it is called: its path within the crate.
    fn name(&self) -> &'static str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }

    /// Whether an argument of the command line means it. One that ends as a module's name does is that module and no other whose
    /// name ends alike: `snapshots::` is not `volume_snapshots::`.
    fn is_meant(&self, filter: &str, exact: bool) -> bool {
        if exact {
            return self.name() == filter;
        }
        if filter.ends_with("::") { self.name().starts_with(filter) } else { self.name().contains(filter) }
    }
}

/// The cases of a module, from `async fn(Arc<Cluster>)`s.
#[macro_export]
macro_rules! cases {
    ($($case:path),+ $(,)?) => {
        &[$($crate::rig::Case {
            path: concat!(module_path!(), "::", stringify!($case)),
            run: |cluster| Box::pin($case(cluster)),
        }),+]
    };
}

/// Whether the long version is asked for (`MOOR_RIG=all`).
pub fn is_whole() -> bool {
    std::env::var(EXTENT).is_ok_and(|extent| extent == "all")
}

/// Runs the cases that the command line names, or all, one after the other on one cluster.
pub fn main(cases: &[&'static [Case]]) -> ExitCode {
    let chosen = chosen(cases);
    if std::env::args().any(|argument| argument == "--list") {
        for case in chosen {
            say(&format!("{}: test", case.name()));
        }
        return ExitCode::SUCCESS;
    }
    if std::env::var(EXTENT).is_ok_and(|extent| extent == "none") {
        say("no process is started here: `make rig` runs this");
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        say("0 passed, 0 failed []");
        return ExitCode::SUCCESS;
    }
    in_namespaces(move |directory| all(chosen, directory))
}

/// Runs `run` in namespaces of its own, with the folder for its files, by starting this program again with the same
/// arguments. What a run leaves in its folder is kept if it fails.
pub fn in_namespaces<F>(run: impl FnOnce(PathBuf) -> F) -> ExitCode
where
    F: Future<Output = ExitCode>,
{
    match std::env::var_os(DIRECTORY) {
        None => outer(),
        Some(directory) => inner(run, &directory),
    }
}

/// By the arguments that libtest takes; its other flags mean nothing here.
fn chosen(cases: &[&'static [Case]]) -> Vec<&'static Case> {
    let mut exact = false;
    let mut filters = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--exact" => exact = true,
            "--test-threads" | "--format" | "--color" | "--skip" => drop(arguments.next()),
            flag if flag.starts_with('-') => {}
            filter => filters.push(filter.to_owned()),
        }
    }
    let all = || cases.iter().copied().flatten();
    if filters.is_empty() {
        return all().collect();
    }
    // A name that is mistyped must not look like cases that have passed. Who says nothing of the rig may mean other tests.
    let is_for_rig = std::env::var_os(EXTENT).is_some();
    for filter in filters.iter().filter(|filter| is_for_rig && (exact || filter.ends_with("::"))) {
        assert!(all().any(|case| case.is_meant(filter, exact)), "no case is meant by {filter}");
    }
    all().filter(|case| filters.iter().any(|filter| case.is_meant(filter, exact))).collect()
}

fn outer() -> ExitCode {
    assert!(rustix::process::geteuid().is_root(), "this mounts and makes namespaces: run it as root");
    let directory = tempfile::Builder::new().prefix("moor-rig-").tempdir().unwrap();
    let status = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1).collect::<Vec<OsString>>())
        .env(DIRECTORY, directory.path())
        .status()
        .expect("unshare (util-linux) has to be installed");
    if status.success() {
        return ExitCode::SUCCESS;
    }
    say(&format!("the logs of all processes are in {}", directory.keep().join("logs").display()));
    ExitCode::FAILURE
}

/// What other tests had mounted when this namespace was made is mounted here too, and would keep their devices for as long
/// as this process runs, after they have unmounted it. Nothing of theirs is unmounted elsewhere.
fn forget_others(own: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_tests = std::env::temp_dir().join("moor-");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let of_others =
        |point: &&str| point.starts_with(of_tests.to_str().unwrap()) && !Path::new(point).starts_with(own);
    // Those on top first.
    for point in points.filter(of_others).collect::<Vec<_>>().into_iter().rev() {
        let done = unmount(point, UnmountFlags::DETACH);
        // One that lay on another has gone with it.
        assert!(matches!(done, Ok(()) | Err(Errno::INVAL | Errno::NOENT)), "{point}: {done:?}");
    }
}

fn inner<F>(run: impl FnOnce(PathBuf) -> F, directory: &OsString) -> ExitCode
where
    F: Future<Output = ExitCode>,
{
    forget_others(Path::new(directory));
    let loopback = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(loopback.expect("ip (iproute2) has to be installed").success());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            code = run(PathBuf::from(directory)) => code,
            // The first process of a process namespace is spared the default effect of signals.
            _ = tokio::signal::ctrl_c() => ExitCode::FAILURE,
        }
    })
}

async fn all(cases: Vec<&Case>, directory: PathBuf) -> ExitCode {
    let cluster = match AssertUnwindSafe(Cluster::start(directory)).catch_unwind().await {
        Ok(cluster) => Arc::new(cluster),
        Err(_) => return ExitCode::FAILURE,
    };
    let mut failed = Vec::new();
    for case in &cases {
        say(&format!("test {} ...", case.name()));
        let started = Instant::now();
        cluster.wipe().await;
        let to_its_end = async {
            (case.run)(cluster.clone()).await;
            agreement::compare_all().await;
        };
        let passed = AssertUnwindSafe(to_its_end).catch_unwind().await.is_ok();
        agreement::forget_all();
        let word = if passed { "ok" } else { "FAILED" };
        say(&format!("test {} ... {word} ({:.1} s)", case.name(), started.elapsed().as_secs_f64()));
        if !passed {
            failed.push(case.name());
        }
    }
    say(&format!("{} passed, {} failed {failed:?}", cases.len() - failed.len(), failed.len()));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A line of the test's report.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
