"""The command: bring the cluster up, install moor once, run the scenarios, take it down."""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import Cluster, Problem, down, packages, parts, say, up
from e2e.cluster import install as installation

from . import objects, runner, selftests
from .pods import Pods
from .registry import SCENARIOS
from .runner import Tally
from .scenarios import in_order

LOCK = Path("/run/moor-e2e-suite.lock")
# Nothing lingers: nearly every scenario ends with what it used being detached, and would wait for that to be seen. What
# lingering changes is in cases of its own (tests/rig_cases/linger.rs), where no second passes.
_SETTINGS = ["--set", "loopDriver.recordCalls=true", "--set", "controller.lingerSeconds=0"]


def main() -> int:
    arguments = _parser().parse_args()
    in_order()
    chosen = [each for each in SCENARIOS if re.search(arguments.pattern, each.title, re.IGNORECASE)]
    if arguments.list:
        print("\n".join(each.title for each in chosen))
        return 0
    if not chosen:
        print(f"no scenario matches {arguments.pattern!r}; see --list", file=sys.stderr)
        return 2

    def work(cluster: Cluster, tally: Tally) -> None:
        parts.ensure(name for each in chosen for name in each.programs)
        runner.run_all(cluster, chosen, tally)

    return on_a_cluster(work, keep=arguments.keep)


def on_a_cluster(work: Callable[[Cluster, Tally], None], *, keep: bool) -> int:
    """Brings a cluster up, works on it, takes it down and prints how it went. Returns the exit code."""
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    # The suite ends processes and pulls cables: never on somebody else's cluster.
    os.environ.pop("KUBECONFIG", None)
    try:
        packages.require_root()
    except Problem as problem:
        say(str(problem))
        return 1
    with alone():
        return _run(work, keep=keep)


@contextmanager
def alone() -> Iterator[None]:
    """One suite at a time on a machine: it kills, and takes the cluster down at its end."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run of the suite is under way on this machine; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.suite", description="The cluster suite.")
    parser.add_argument("pattern", nargs="?", default="", help="only scenarios whose title matches (a regex)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    parser.add_argument("--list", action="store_true", help="print the titles and do nothing")
    return parser


def _run(work: Callable[[Cluster, Tally], None], *, keep: bool) -> int:
    start = time.monotonic()
    tally = Tally()
    try:
        _self_tests(tally)
        work(_prepare(), tally)
    except Problem as problem:
        say(f"\n{problem}")
        tally.failed += 1
        tally.titles.append("the suite could not go on")
    except KeyboardInterrupt:
        say("\ninterrupted")
        tally.failed += 1
    finally:
        _finish(keep=keep)
    for title in tally.titles:
        print(f"failed: {title}")
    print(f"the suite took {time.monotonic() - start:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


def _self_tests(tally: Tally) -> None:
    passed, broken = selftests.run()
    tally.passed += passed
    tally.failed += len(broken)
    tally.titles += [text.splitlines()[0] for text in broken]
    print(f"{'FAIL' if broken else 'ok  '} self-tests of the checks ({passed})", flush=True)
    for text in broken:
        print(text, flush=True)


def _prepare() -> Cluster:
    """A healthy cluster with moor on it and the loop driver's Plugin."""
    cluster = up()
    installation.install(_SETTINGS)
    cluster.apply(objects.plugin(balancing="Spread"))
    Pods(cluster).await_ready()
    cluster.kubectl("wait", "--for=condition=Ready", f"plugin/{objects.PLUGIN}", "--timeout=60s")
    return cluster


def _finish(*, keep: bool) -> None:
    if keep:
        say("the cluster stays up; `make down` removes it")
        return
    try:
        down()
    except Problem as problem:
        say(f"\n{problem}")
