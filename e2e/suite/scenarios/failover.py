"""Two controllers: when the leader is gone or frozen the other one takes over, and never do both decide."""

from __future__ import annotations

import signal
import time

from .. import audit
from ..pods import CONTROLLER, Running
from ..registry import scenario
from ..trace import Kill
from ..world import World, expect

COUNT = 6
# The Lease lasts 13 s, and a candidate is told of each renewal.
TAKEOVER = 15


@scenario("the leader is killed while claims are pending, and the standby takes over", limit=150)
def leader_killed(world: World) -> None:
    names = _volumes(world)
    leader = world.pods.leader()
    world.kill(leader)
    start = time.monotonic()
    for name in names:
        world.claim(name, world.first, volumeName=name)
    world.await_ready("VolumeClaim", *names, timeout=TAKEOVER + 5)
    world.note(f"all Ready {time.monotonic() - start:.1f} s after the kill")
    world.remove("VolumeClaim", *names)


@scenario("a frozen leader decides nothing when it wakes", limit=150)
def leader_frozen(world: World) -> None:
    names = _volumes(world)
    old = world.pods.leader()
    log = audit.position(world.cluster)
    _signal(world, old, signal.SIGSTOP)
    try:
        start = time.monotonic()
        for name in names:
            world.claim(name, world.first, volumeName=name)
        other = world.pods.leader_name
        world.cluster.wait_for("the other controller to lead", lambda: other() not in ("", old.pod), TAKEOVER + 5)
        world.await_ready("VolumeClaim", *names, timeout=30)
        world.note(f"all Ready {time.monotonic() - start:.1f} s after the freeze")
    finally:
        _signal(world, old, signal.SIGCONT)
    # What the old one had in mind, it has had the time for when claims have come and gone after its waking.
    world.remove("VolumeClaim", *names)
    world.pods.await_ready()
    world.ready_claim("last", world.second, volumeName=names[0])
    world.remove("VolumeClaim", "last")

    found = [write for write in audit.writes(world.cluster, log) if write.account == "controller" and write.of_moor]
    turns = [write.pod for index, write in enumerate(found) if index == 0 or found[index - 1].pod != write.pod]
    expect(len(turns) == len(set(turns)), f"the controllers took turns in writing: {turns}")
    late = [str(write) for write in found if write.pod == old.pod]
    world.note(f"{len(found)} writes, {len(late)} of them by the frozen one before it froze")


def _volumes(world: World) -> list[str]:
    names = [f"data-{number}" for number in range(COUNT)]
    for name in names:
        world.volume(name)
    world.await_ready("Volume", *names)
    return names


def _signal(world: World, victim: Running, number: int) -> None:
    world.kills.append(Kill(int(time.time() * 1000), CONTROLLER, victim.node))
    victim.process.kill(number)
