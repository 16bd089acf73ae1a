"""Work that goes on beside a scenario: one round after the other, until the scenario is done or a round fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .workloads import Workloads
from .world import World, expect

# Makes, uses and removes something of this name, as number so many.
Round = Callable[[str, int], None]


class Traffic:
    """What has come of the rounds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rounds = 0
        self.slowest = 0.0
        self.failed = ""


@contextmanager
def running(name: str, work: Round) -> Iterator[Traffic]:
    """Runs rounds meanwhile. None may fail, and at least one has to come to its end."""
    traffic, stop = Traffic(name), threading.Event()

    def run() -> None:
        while not stop.is_set():
            number, start = traffic.rounds + 1, time.monotonic()
            try:
                work(f"{name}-{number}", number)
            except Exception as error:  # noqa: BLE001
                traffic.failed = f"{name}-{number}: {error}"
                return
            traffic.rounds = number
            traffic.slowest = max(traffic.slowest, time.monotonic() - start)

    busy = threading.Thread(target=run)
    busy.start()
    try:
        yield traffic
    finally:
        stop.set()
        busy.join()
    expect(not traffic.failed, traffic.failed)
    expect(traffic.rounds, f"no round of {name} has ended")


def of_claims(world: World, plugin: str) -> Round:
    """A Volume of the driver and a claim, on one node after the other."""

    def work(name: str, number: int) -> None:
        world.ready_volume(name, pluginName=plugin)
        world.ready_claim(name, world.cluster.nodes[number % len(world.cluster.nodes)], volumeName=name)
        world.remove("VolumeClaim", name)
        world.remove("Volume", name)

    return work


def of_pods(world: World, plugin: str) -> Round:
    """A PersistentVolumeClaim and a Pod that writes and reads it."""
    workloads = Workloads(world)
    workloads.storage_class(provisioner=plugin)

    def work(name: str, number: int) -> None:
        workloads.claim(name)
        workloads.running_pod(name, name, world.cluster.nodes[number % len(world.cluster.nodes)])
        workloads.write(name, name)
        workloads.expect_text(name, name)
        workloads.remove_pods(name)
        workloads.remove_claims(name)

    return work


def told(*all_of_it: Traffic) -> str:
    """What is noted of them."""
    return ", ".join(f"{one.rounds} of {one.name} (slowest {one.slowest:.1f} s)" for one in all_of_it)
