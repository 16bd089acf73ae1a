"""Runs scenarios one after the other on one cluster, and looks behind each of them."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from e2e.cluster import ApiError, Cluster, Problem

from . import leaks, report, trace
from .registry import Scenario
from .workloads import Workloads
from .world import Failed, World

_HERE = Path(__file__).parent


@dataclass
class Tally:
    """How it went."""

    passed: int = 0
    failed: int = 0
    titles: list[str] = field(default_factory=list)  # of what failed


class TookTooLong(Exception):
    """A scenario did not end within its limit."""


def run_all(cluster: Cluster, scenarios: Sequence[Scenario], tally: Tally) -> None:
    for number, scenario in enumerate(scenarios, start=1):
        start = time.monotonic()
        world = World(cluster, scenario.namespace)
        wrong = _run(world, scenario)
        took = time.monotonic() - start
        word = "FAIL" if wrong else "ok  "
        print(f"{word} {scenario.title} … {took:5.1f} s  ({number}/{len(scenarios)})", flush=True)
        for note in world.notes:
            print(report.indent(note), flush=True)
        if wrong:
            tally.failed += 1
            tally.titles.append(scenario.title)
            print("\n".join(report.indent(line) for line in wrong), flush=True)
        else:
            tally.passed += 1


def _run(world: World, scenario: Scenario) -> list[str]:
    """What went wrong; nothing, if nothing did."""
    before = leaks.leftovers(world.cluster)
    wrong: list[str] = []
    try:
        with _limited(scenario.limit):
            _make_namespace(world)
            scenario.body(world)
    except Exception as error:
        wrong.append(_told(error))
        wrong.append(report.describe(world))
    try:
        with _limited(150):
            found = _look_behind(world, scenario, before)
        if found and not wrong:
            found.append(report.describe(world))
        wrong += found
    except Exception as error:
        wrong.append(f"while cleaning up: {_told(error)}")
    return wrong


def _look_behind(world: World, scenario: Scenario, before: set[str]) -> list[str]:
    """Cleans up, then checks for leaks and the order of calls."""
    wrong = []
    world.driver.clear_faults()
    tidy = True
    try:
        _remove_objects(world)
        world.cluster.wait_for("no leak", lambda: not leaks.leftovers(world.cluster) - before, 25, 0.2)
    except (Problem, Failed, ApiError) as error:
        tidy = False
        left = sorted(leaks.leftovers(world.cluster) - before)
        wrong.append("\n".join(["left behind:", *(report.indent(line) for line in left)]))
        if not isinstance(error, Problem):
            wrong.append(str(error))
    violations = trace.check(
        world.calls(), world.kills, locks=world.locks(), tolerated=scenario.tolerated, finished=tidy
    )
    if violations:
        wrong.append("\n".join(["CSI's order was broken:", *(report.indent(line) for line in violations)]))
        wrong.append("\n".join(["calls:", *(report.indent(call.told()) for call in world.calls())]))
    world.pods.renew_restarted()
    _remove_namespace(world)
    return wrong


def _remove_objects(world: World) -> None:
    """Claims first: a Volume goes only when nobody uses it. Those of Pods go with their Pods. A Snapshot waits for the Volumes
    that are made of it, and a Volume for the Snapshots that are taken of it."""
    Workloads(world).remove_all()
    for kind in ("VolumeClaim", "Snapshot", "Volume"):
        world.remove(kind, *(str(item["metadata"]["name"]) for item in world.every(kind)), timeout=45)


def _make_namespace(world: World) -> None:
    """A namespace of an earlier run may still be going."""
    if world.namespace == "default":
        return
    meta = {"metadata": {"name": world.namespace}}

    def made() -> bool:
        try:
            world.cluster.api.post("/api/v1/namespaces", meta)
        except ApiError as error:
            if error.status != 409:
                raise
            found = world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}")
            return bool(found["status"]["phase"] == "Active")
        return True

    world.cluster.wait_for(f"the namespace {world.namespace}", made, 30)


def _remove_namespace(world: World) -> None:
    if world.namespace == "default":
        return
    try:
        world.cluster.api.delete(f"/api/v1/namespaces/{world.namespace}")
    except ApiError as error:
        if error.status != 404:
            raise


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Nothing runs for ever, whatever it waits for."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"took longer than its limit of {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _told(error: Exception) -> str:
    """What happened, and which lines of the suite were at work."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if Path(frame.filename).is_relative_to(_HERE)]
    lines = [f"at {Path(frame.filename).relative_to(_HERE)}:{frame.lineno}: {frame.line}" for frame in frames[-3:]]
    kind = "" if isinstance(error, Failed | Problem) else f"{type(error).__name__}: "
    return "\n".join([f"{kind}{error}", *lines])
