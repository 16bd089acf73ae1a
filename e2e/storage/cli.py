"""The command: on which cluster, on which drivers, and what it says at its end."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, Problem, down, packages, parts, say, up
from e2e.cluster.commands import run
from e2e.cluster.install import foreign_kubeconfig
from e2e.cluster.paths import KUBECONFIG, LOGS
from e2e.suite import cli as suite
from e2e.suite import snapshot_controller

from . import drivers, left, outcome, specs

# What is left behind is waited for so many seconds.
_PATIENCE = 120


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
    told, behind = test(arguments)
    print("\n".join(told.lines()))
    for line in sorted(behind):
        print(f"left behind: {line}")
    print(f"the storage tests took {time.monotonic() - start:.0f} s", flush=True)
    return 0 if told.good and not behind else 1


def _on_the_loop_driver(arguments: argparse.Namespace) -> tuple[outcome.Outcome, set[str]]:
    """In a cluster of its own, with both drivers at once."""
    # It fills nodes and makes classes for all: never on somebody else's cluster.
    os.environ.pop("KUBECONFIG", None)
    packages.require_root()
    try:
        cluster = up()
        drivers.install(cluster)
        parts.ensure((snapshot_controller.PROGRAM,))
        with snapshot_controller.running(cluster, parts.snapshot_kinds()):
            told = _test(specs.OURS, KUBECONFIG, arguments, cluster)
            behind = _left_behind(lambda: drivers.leftovers(cluster))
            if not told.good or behind:
                _keep_objects(cluster)
            return told, behind
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
    driver = left.driver_of(definition)
    if driver is None:
        raise Problem(f"{definition} names no driver in DriverInfo.Name", f"for its form see {specs.OURS[0]}")
    foreign, cluster = foreign_kubeconfig(), None
    if foreign is None:
        cluster, kubeconfig = Cluster.attach(), KUBECONFIG
    else:
        say(f"using the cluster of KUBECONFIG={foreign}, whose nodes pull the suite's images from registry.k8s.io")
        kubeconfig = Path(foreign).resolve()
        parts.ensure(("kubectl",))
    before = left.of_driver(driver, _objects(kubeconfig))
    told = _test([definition], kubeconfig, arguments, cluster)
    return told, _left_behind(lambda: left.of_driver(driver, _objects(kubeconfig)) - before)


def _objects(kubeconfig: Path) -> left.Objects:
    def listed(kind: str) -> list[Any]:
        words = [parts.program("kubectl"), f"--kubeconfig={kubeconfig}", "get", kind, "-A", "-o", "json"]
        return list(json.loads(run(words, timeout=120).stdout)["items"])

    return listed


def _test(
    definitions: Sequence[Path], kubeconfig: Path, arguments: argparse.Namespace, ours: Cluster | None
) -> outcome.Outcome:
    return specs.run(definitions, kubeconfig, ours, focus=arguments.focus, side_by_side=arguments.procs)


def _keep_objects(cluster: Cluster) -> None:
    """Beside the logs, which stay readable when the cluster has gone: who waits for whom is only in the objects."""
    kinds = ",".join(f"{kind}.moor.dev" for kind in ("volumes", "volumehandles", "volumeclaims", "attachments", "snapshots"))
    kubernetes = "pv,pvc,pods,volumesnapshots,volumesnapshotcontents,events"
    found = cluster.kubectl("get", f"{kinds},{kubernetes}", "--all-namespaces", "--output=yaml", check=False)
    path = LOGS / "objects.yaml"
    path.write_text(found.stdout + found.stderr)
    say(f"the objects as they were at the end are in {path}")


def _left_behind(found: Callable[[], set[str]]) -> set[str]:
    """What of volumes is there after all Pods and claims have gone, which the suite waits for only in part."""
    end = time.monotonic() + _PATIENCE
    while (behind := found()) and time.monotonic() < end:
        time.sleep(1)
    return behind
