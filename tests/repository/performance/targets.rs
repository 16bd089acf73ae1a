//! What moor must cost, and what it does.

use serde_json::Value;

use super::figures::{Figures, PARTS, PHASES, Who, cpu, is_write, middle, requests, spread};

/// One thing that is asked for.
pub struct Target {
    pub what: &'static str,
    pub asked: &'static str,
    /// What the run says, and whether that is enough; None: the run does not say.
    pub found: fn(&Figures) -> Option<(String, bool)>,
}

const MB: f64 = 1_000_000.0;

fn least(figures: &Figures) -> u64 {
    figures.numbers("existing")[0]
}

fn most(figures: &Figures) -> u64 {
    figures.numbers("existing").into_iter().max().unwrap_or_default()
}

/// One object after the other, beside as little as there was.
fn alone<'a>(figures: &'a Figures, phase: &str) -> Option<&'a Value> {
    figures.round(Who::Moor, least(figures), 1, phase)
}

fn at_once<'a>(figures: &'a Figures, who: Who, existing: u64, phase: &str) -> Option<&'a Value> {
    figures.round(who, existing, 1000, phase)
}

fn writes(figures: &Figures, phase: &str, at_most: f64) -> Option<(String, bool)> {
    let found = requests(alone(figures, phase)?, true);
    Some((format!("{found:.1}"), found < at_most + 0.05))
}

fn share(figures: &Figures, phase: &str) -> Option<(String, bool)> {
    let [moor, bare] = [Who::Moor, Who::Bare].map(|who| at_once(figures, who, least(figures), phase));
    let [moor, bare] = [moor?, bare?].map(|round| middle(&round["objectsPerSecond"]));
    let share = 100.0 * moor / bare;
    Some((format!("{share:.0} %: {moor:.0}/s, the bare client {bare:.0}/s"), share >= 80.0))
}

const MADE_AND_DELETED: [&str; 2] = ["make claims", "delete claims"];

/// CPU time of these parts for an object that goes through these phases, beside so many.
fn cpu_of(figures: &Figures, who: Who, existing: u64, phases: &[&str], parts: &[&str]) -> Option<f64> {
    let of = |phase: &&str| {
        let round = at_once(figures, who, existing, phase)?;
        Some(parts.iter().map(|part| cpu(round, part)).sum::<f64>())
    };
    phases.iter().map(of).sum()
}

/// What an object costs the API server, and what of it the writes alone do.
fn api_server(figures: &Figures, phases: &[&str], at_most: f64) -> Option<(String, bool)> {
    let of = |who| cpu_of(figures, who, least(figures), phases, &["API server"]);
    let (found, bare) = (of(Who::Moor)?, of(Who::Bare)?);
    Some((format!("{found:.1} ms; the bare client's writes alone {bare:.1} ms"), found <= at_most))
}

fn bytes(figures: &Figures, existing: u64, of: &str) -> Option<f64> {
    figures.beside(existing)?["memory"][of].as_f64()
}

/// The numbers of claims that stayed, of which memory is known.
fn beside(figures: &Figures) -> Vec<u64> {
    figures.numbers("existing").into_iter().filter(|existing| figures.beside(*existing).is_some()).collect()
}

#[allow(clippy::cast_precision_loss, reason = "counts of claims")]
fn per_thousand(figures: &Figures) -> Option<(String, bool)> {
    let all = beside(figures);
    let (first, last) = (*all.first()?, *all.last()?);
    if first == last {
        return None;
    }
    let more = bytes(figures, last, "controllerBytes")? - bytes(figures, first, "controllerBytes")?;
    let found = more / MB / ((last - first) as f64 / 1000.0);
    Some((format!("{found:.1} MB, from {first} to {last} claims"), found <= 8.0))
}

fn agent_with_a_hundred(figures: &Figures) -> Option<(String, bool)> {
    let found = bytes(figures, 100 * figures.number("agents"), "agentBytes")? / MB;
    Some((format!("{found:.0} MB"), found <= 25.0))
}

/// Of a controller that has so many claims, all that it has.
fn controller_with(figures: &Figures, existing: u64) -> Option<(String, bool)> {
    let found = bytes(figures, existing, "controllerBytes")? / MB;
    Some((format!("{found:.0} MB"), found <= 80.0))
}

fn agent_with_least(figures: &Figures) -> Option<(String, bool)> {
    let first = *beside(figures).first()?;
    let each = first / figures.number("agents");
    let found = bytes(figures, first, "agentBytes")? / MB;
    (each <= 10).then(|| (format!("{found:.0} MB, with {each} claims"), found <= 20.0))
}

fn events(figures: &Figures) -> Option<(String, bool)> {
    let rounds: Vec<_> = PHASES.iter().filter_map(|phase| alone(figures, phase)).collect();
    if rounds.is_empty() {
        return None;
    }
    let of = |round: &Value| {
        let requests = round["requestsPerObject"].as_object().unwrap().iter();
        requests
            .filter(|(request, _)| request.ends_with(" events"))
            .map(|(_, count)| middle(count))
            .sum::<f64>()
    };
    // A sum of nothing is -0.0.
    let found = rounds.into_iter().map(of).sum::<f64>() + 0.0;
    Some((format!("{found:.1}"), found == 0.0))
}

/// Requests that were taken and those that were refused, for what is refused was tried. Earlier runs have not counted the latter.
fn asked_for<'a>(
    what: &'a Value,
    [taken, refused]: [&str; 2],
) -> Option<impl Iterator<Item = (&'a String, &'a Value)>> {
    Some(what[taken].as_object()?.iter().chain(what[refused].as_object().into_iter().flatten()))
}

/// A row of a run that asks for less says nothing of what is asked.
fn idle(figures: &Figures) -> Option<(String, bool)> {
    let last = *beside(figures).last()?;
    let idle = &figures.beside(last)?["idle"];
    if last < 50_000 || idle["seconds"].as_u64()? < 600 {
        return None;
    }
    let found: Vec<_> = asked_for(idle, ["requests", "refusedRequests"])?
        .filter(|(request, _)| is_write(request))
        .map(|(request, count)| format!("{request} {count}"))
        .collect();
    let said = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    Some((format!("{said} in {} s beside {last} claims", idle["seconds"]), found.is_empty()))
}

/// What became of claims that were on their way when the leader was killed, beside the most; nothing of fewer than is asked for.
fn leader_lost(figures: &Figures) -> Option<&Value> {
    let lost = &figures.beside(*beside(figures).last()?)?["leaderLost"];
    (lost["claimsInFlight"].as_u64()? >= 10_000).then_some(lost)
}

fn silence(figures: &Figures) -> Option<(String, bool)> {
    let lost = leader_lost(figures)?;
    let found = lost["secondsWithoutAClaim"].as_f64()?;
    Some((format!("{found:.1} s, with {} on their way", lost["claimsInFlight"]), found <= 15.0))
}

fn succession(figures: &Figures) -> Option<(String, bool)> {
    let found = leader_lost(figures)?["secondsUntilAnotherLeads"].as_f64()?;
    Some((format!("{found:.1} s"), found <= 15.0))
}

/// Calls of the plugin that change something, for a claim that is made while the leader is lost and for one of a round.
fn called_once(figures: &Figures) -> Option<(String, bool)> {
    let found = leader_lost(figures)?["callsThatChangePerClaim"].as_f64()?;
    let round = at_once(figures, Who::Moor, least(figures), "make claims")?;
    let [otherwise, ..] = round.get("callsThatChangePerObject").map(spread)?;
    Some((format!("{found:.3}, and {otherwise:.3} otherwise"), found < otherwise + 0.001))
}

fn granted_once(figures: &Figures) -> Option<(String, bool)> {
    let requests = &leader_lost(figures)?["requestsPerClaim"];
    let [locks, grants] =
        ["POST attachments", "PATCH volumeclaims"].map(|request| requests[request].as_f64());
    let (locks, grants) = (locks?, grants?);
    Some((format!("{locks:.3} and {grants:.3}"), locks <= 1.0 && grants <= 1.0))
}

fn restart(figures: &Figures) -> Option<(String, bool)> {
    let of = beside(figures).into_iter().find(|existing| *existing >= 10_000)?;
    let beside = figures.beside(of)?;
    let [controller, agent] =
        ["controllerSeconds", "agentSeconds"].map(|who| beside["restartOfOne"][who].as_f64());
    let (controller, agent, all) =
        (controller?, agent?, beside["restart"]["secondsUntilAllAreReady"].as_f64()?);
    let said = format!(
        "controller {controller:.1} s, an agent {agent:.1} s; all of them at once on these cores {all:.1} s"
    );
    Some((format!("{said}, beside {of} claims"), controller.max(agent) <= 3.0))
}

/// Writes when all processes are started again and nothing is asked of them.
fn written_at_restart(figures: &Figures) -> Option<(String, bool)> {
    let all = asked_for(&figures.beside(10_000)?["restart"], ["ownWrites", "ownRefusedWrites"])?;
    let found = all.filter_map(|(_, count)| count.as_f64()).sum::<f64>() + 0.0;
    Some((format!("{found:.0}"), found == 0.0))
}

/// Calls of the plugin that change something, in the same time.
fn called_at_restart(figures: &Figures) -> Option<(String, bool)> {
    let found = figures.beside(10_000)?["restart"]["ownCallsThatChange"].as_u64()?;
    Some((found.to_string(), found == 0))
}

fn flat(figures: &Figures) -> Option<(String, bool)> {
    let (first, last) = (*beside(figures).first()?, most(figures));
    let [before, after] =
        [first, last].map(|existing| cpu_of(figures, Who::Moor, existing, &MADE_AND_DELETED, &PARTS));
    let (before, after) = (before?, after?);
    let more = 100.0 * (after / before - 1.0);
    let said = format!("{more:+.0} %: {before:.1} ms beside {first} claims, {after:.1} ms beside {last}");
    (first <= 1_000 && last >= 50_000).then_some((said, more <= 20.0))
}

pub const TARGETS: &[Target] = &[
    Target {
        what: "writes of moor, a Volume made to Ready",
        asked: "≤ 3",
        found: |figures| writes(figures, "make volumes", 3.0),
    },
    Target {
        what: "writes of moor, a claim made to Ready",
        asked: "≤ 4",
        found: |figures| writes(figures, "make claims", 4.0),
    },
    Target {
        what: "writes of moor, a claim deleted to gone",
        asked: "≤ 4",
        found: |figures| writes(figures, "delete claims", 4.0),
    },
    Target {
        what: "writes of moor, a Volume deleted to gone",
        asked: "≤ 4",
        found: |figures| writes(figures, "delete volumes", 4.0),
    },
    Target {
        what: "claims made per second, 1,000 at once, of what the bare client makes",
        asked: "≥ 80 %",
        found: |figures| share(figures, "make claims"),
    },
    Target {
        what: "one claim after the other, made to Ready: p50",
        asked: "≤ 40 ms",
        found: |figures| latency(figures, "p50", 40.0),
    },
    Target {
        what: "one claim after the other, made to Ready: p99",
        asked: "≤ 120 ms",
        found: |figures| latency(figures, "p99", 120.0),
    },
    Target {
        what: "CPU time of the API server for a Volume made",
        asked: "≤ 11 ms",
        found: |figures| api_server(figures, &["make volumes"], 11.0),
    },
    Target {
        what: "CPU time of the API server for a claim made and deleted",
        asked: "≤ 27 ms",
        found: |figures| api_server(figures, &MADE_AND_DELETED, 27.0),
    },
    Target { what: "Events of a Volume and a claim that come and go", asked: "none", found: events },
    Target {
        what: "memory of the controller beside 10,000 claims",
        asked: "≤ 80 MB",
        found: |figures| controller_with(figures, 10_000),
    },
    Target { what: "memory of the controller for 1,000 claims more", asked: "≤ 8 MB", found: per_thousand },
    Target {
        what: "memory of the agent in the middle, with 100 claims",
        asked: "≤ 25 MB",
        found: agent_with_a_hundred,
    },
    Target { what: "the same, with at most 10 claims", asked: "≤ 20 MB", found: agent_with_least },
    Target {
        what: "writes when nothing is asked, but for Leases",
        asked: "none in 600 s beside 50,000 claims",
        found: idle,
    },
    Target {
        what: "writes when all is killed and started again beside 10,000 claims",
        asked: "none",
        found: written_at_restart,
    },
    Target { what: "and calls of the plugin that change something", asked: "none", found: called_at_restart },
    Target { what: "ready after `kill -9`, beside 10,000 claims", asked: "≤ 3 s", found: restart },
    Target {
        what: "time without a claim that becomes Ready, after `kill -9` of the leader with 10,000 or more on their way",
        asked: "≤ 15 s",
        found: silence,
    },
    Target {
        what: "locks and grants that the API server took meanwhile, per claim",
        asked: "≤ 1",
        found: granted_once,
    },
    Target {
        what: "calls of the plugin that change something meanwhile, per claim",
        asked: "as many as otherwise",
        found: called_once,
    },
    Target {
        what: "time from that `kill -9` until another controller leads",
        asked: "≤ 15 s",
        found: succession,
    },
    Target {
        what: "CPU time of all for a claim made and deleted, beside 50,000 claims and beside 1,000",
        asked: "≤ 20 % more",
        found: flat,
    },
];

fn latency(figures: &Figures, rank: &str, at_most: f64) -> Option<(String, bool)> {
    let found = middle(&alone(figures, "make claims")?["latencyMilliseconds"][rank]);
    Some((format!("{found:.0} ms"), found <= at_most))
}
