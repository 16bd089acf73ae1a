"""The command: on which cluster, on which drivers, and what it says at its end."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from e2e.cluster import Cluster, Problem, down, packages, say, up
from e2e.cluster.install import foreign_kubeconfig
from e2e.cluster.paths import KUBECONFIG
from e2e.suite import cli as suite

from . import drivers, outcome, specs


def main() -> int:
    arguments = _parser().parse_args()
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    try:
        with nullcontext() if arguments.driver else suite.alone():
            return _run(arguments)
    except Problem as problem:
        say(f"\n{problem}")
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted; `make down` removes what is there")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m e2e.storage", description="Kubernetes' own storage tests, on drivers that moor serves."
    )
    parser.add_argument("--driver", default="", help="the definition file of a driver that is installed, not the loop driver")
    parser.add_argument("--focus", default="", help="only specs whose name matches behind External.Storage (a regex)")
    parser.add_argument("--procs", type=int, default=4, help="how many specs run at a time (4)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    test = _on_another_driver if arguments.driver else _on_the_loop_driver
    told, left = test(arguments)
    print("\n".join(told.lines()))
    for line in sorted(left):
        print(f"left behind: {line}")
    print(f"the storage tests took {time.monotonic() - start:.0f} s", flush=True)
    return 0 if told.good and not left else 1


def _on_the_loop_driver(arguments: argparse.Namespace) -> tuple[outcome.Outcome, set[str]]:
    """In a cluster of its own, with both drivers at once."""
    # It fills nodes and makes classes for all: never on somebody else's cluster.
    os.environ.pop("KUBECONFIG", None)
    packages.require_root()
    try:
        cluster = up()
        drivers.install(cluster)
        told = _test(specs.OURS, KUBECONFIG, arguments, cluster)
        return told, _left_behind(cluster)
    finally:
        if arguments.keep:
            say("the cluster stays up; `make down` removes it")
        else:
            down()


def _on_another_driver(arguments: argparse.Namespace) -> tuple[outcome.Outcome, set[str]]:
    """In the cluster of KUBECONFIG, or in the test cluster that is up, on a driver that is installed there."""
    definition = Path(arguments.driver).resolve()
    if not definition.is_file():
        raise Problem(f"there is no definition file {definition}", f"for its form see {specs.OURS[0]}")
    foreign = foreign_kubeconfig()
    if foreign is None:
        return _test([definition], KUBECONFIG, arguments, Cluster.attach()), set()
    say(f"using the cluster of KUBECONFIG={foreign}, whose nodes pull the suite's images from registry.k8s.io")
    return _test([definition], Path(foreign).resolve(), arguments, None), set()


def _test(
    definitions: Sequence[Path], kubeconfig: Path, arguments: argparse.Namespace, ours: Cluster | None
) -> outcome.Outcome:
    return specs.run(definitions, kubeconfig, ours, focus=arguments.focus, side_by_side=arguments.procs)


def _left_behind(cluster: Cluster) -> set[str]:
    """What of volumes is there after all Pods and claims have gone, which the suite waits for only in part."""
    try:
        cluster.wait_for("all that the tests made to be gone", lambda: not drivers.leftovers(cluster), 120, 1)
    except Problem:
        return drivers.leftovers(cluster)
    return set()
