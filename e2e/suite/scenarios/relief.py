"""A driver that makes controller calls goes away: another instance makes what is left, and never do both call."""

from __future__ import annotations

import time

from e2e.cluster.node import KUBELET

from ..calls import ATTACH, DETACH
from ..pods import DRIVER
from ..registry import scenario
from ..world import World, expect
from .losses import volume_called_from


@scenario("kill -9 of a driver in a controller call, and it stays away: another instance finishes", limit=180)
def driver_stays_away(world: World) -> None:
    gone, other = world.second, world.first
    volume_called_from(world, gone)
    fault = world.driver.hang(ATTACH)
    world.claim("data", other)
    world.driver.await_met(fault)
    # Else kubelet starts it again at once.
    gone.kill_daemon(KUBELET)
    try:
        world.kill(world.pods.one(DRIVER, gone.name))
        start = time.monotonic()
        fault.release()
        world.await_ready("VolumeClaim", "data", timeout=60)
        world.note(f"Ready {time.monotonic() - start:.1f} s after the kill")
        world.write(other, f"{world.target('data')}/file", "by the other one")
        world.remove("VolumeClaim", "data")
    finally:
        gone.start_kubelet()
    by = [call.server for call in world.calls(ATTACH, DETACH)]
    expect(by == [gone.name, other.name, other.name], f"it was called on {', '.join(by)}")
    world.pods.await_ready()
    # What it is given from now on it calls again.
    world.remove("Volume", "data")
    volume_called_from(world, gone)
    before = world.driver.last()
    world.ready_claim("again", other)
    world.remove("VolumeClaim", "again")
    expect({call.server for call in world.calls(ATTACH, DETACH, after=before)} == {gone.name}, "another one was called")
