"""The command: a cluster of its own, moor as it is released, each kind of Pod in turn, a table and JSON."""

from __future__ import annotations

import argparse
import json
import os
import subprocess

from e2e.cluster import Problem, down, packages, say, up
from e2e.cluster import install as installation
from e2e.cluster.paths import REPOSITORY
from e2e.suite import cli as suite
from e2e.suite import objects
from e2e.suite.pods import Pods

from . import drivers
from .kinds import KINDS
from .limits import limits
from .rounds import Bench, Figures, find

_JSON = REPOSITORY / "target" / "bench-pods.json"


def main() -> int:
    arguments = _parser().parse_args()
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    # It fills nodes, and what else runs in a cluster would be measured too.
    os.environ.pop("KUBECONFIG", None)
    try:
        packages.require_root()
        with suite.alone():
            return _run(arguments)
    except Problem as problem:
        say(f"\n{problem}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.bench", description="How fast Pods start.")
    parser.add_argument("--rounds", type=int, default=15, help="Pods of each kind that start alone (15)")
    parser.add_argument("--bursts", type=int, default=3, help="times that many of a kind start at once (3)")
    parser.add_argument("--at-once", type=int, default=20, help="how many these are (20)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    try:
        cluster = up()
        # What lingers is waited for between two rounds: nothing that is measured begins with it.
        settings = ("loopDriver.maxVolumesPerNode=100", "controller.lingerSeconds=1")
        installation.install([word for setting in settings for word in ("--set", setting)])
        cluster.apply(objects.plugin())
        Pods(cluster).await_ready()
        drivers.start(cluster)
        bench = Bench(cluster)
        figures = [
            *bench.measure(KINDS, at_once=1, times=arguments.rounds),
            *bench.measure(KINDS, at_once=arguments.at_once, times=arguments.bursts),
        ]
    finally:
        if arguments.keep:
            say("the cluster stays up; `make down` removes it")
        else:
            down()
    _JSON.parent.mkdir(exist_ok=True)
    judged = [limit.judge(figures) for limit in limits(arguments.at_once)]
    commit = subprocess.run(
        ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    found = {
        "commit": commit.stdout.strip(),
        "figures": [_as_json(each, figures) for each in figures],
        "limits": judged,
    }
    _JSON.write_text(json.dumps(found, indent=2) + "\n")
    _print(figures)
    _print_limits(judged)
    print(f"all of it: {_JSON.relative_to(REPOSITORY)}", flush=True)
    return 0


def _as_json(each: Figures, figures: list[Figures]) -> dict[str, object]:
    none, floor = (find(figures, name, each.at_once) for name in ("none", "floor"))
    return each.as_json() | {
        "overNoneSeconds": round(each.median - none.median, 3),
        "overFloorSeconds": round(each.median - floor.median, 3),
        "writesOverNone": round(each.writes - none.writes, 2),
    }


def _print(figures: list[Figures]) -> None:
    heads = ("at once", "Pods", "median", "quartiles", "p99", "over none", "over floor", "API writes", "over none")
    widths = (7, 4, 8, 15, 8, 10, 11, 11, 10)
    print(" ".join([f"{'What they have':44}", *(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]))
    for each in figures:
        none, floor = (find(figures, name, each.at_once) for name in ("none", "floor"))
        first, third = each.quartiles
        print(
            f"{each.kind.title:44} {each.at_once:7} {len(each.seconds):4} {each.median:6.2f} s"
            f" {first:5.2f} to {third:5.2f} s {each.p99:6.2f} s"
            f" {each.median - none.median:+8.2f} s {each.median - floor.median:+9.2f} s"
            f" {each.writes:11.1f} {each.writes - none.writes:+10.1f}"
        )
    print("p99 of fewer than 100 Pods is the slowest of them")


def _print_limits(judged: list[dict[str, object]]) -> None:
    """What is promised, and whether it was kept. Machines differ, so a promise that was not kept is no failure of the command."""
    titles = {kind.name: kind.title for kind in KINDS}
    for limit in judged:
        word = "met   " if limit["met"] else "MISSED"
        print(
            f"{word} {titles[str(limit['kind'])]}, {limit['atOnce']} at once: {limit['what']} over {limit['beside']}"
            f" {limit['measured']:+.2f}{limit['unit']}, at most {limit['most']}{limit['unit']}"
        )
