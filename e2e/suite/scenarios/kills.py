"""kill -9 of the controller, an agent or the driver, in the middle of attaching and of detaching.

Each scenario stops several volumes at different moments at once, by the driver's faults, and then kills. So
one kill meets an attach that has not been done, one that has been done and not been answered, a mounted and
an unmounted stage, and so on. The end has to be the same as without the kill.
"""

from __future__ import annotations

from collections.abc import Iterable

from e2e.cluster import Node

from ..calls import ATTACH, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE
from ..driver import AFTER, BEFORE, Fault
from ..pods import AGENT, CONTROLLER, DRIVER, Running
from ..registry import scenario
from ..world import World, expect

# Call and moment, as the driver names it.
ATTACHING = ((ATTACH, BEFORE), (ATTACH, AFTER), (STAGE, "attached"), (STAGE, "mounted"), (PUBLISH, "bound"))
DETACHING = ((UNPUBLISH, BEFORE), (UNPUBLISH, AFTER), (UNSTAGE, "unmounted"), (UNSTAGE, AFTER), (DETACH, "fenced"))


@scenario("kill -9 of the leading controller while attaching", limit=180)
def kill_controller_attaching(world: World) -> None:
    _attaching(world, CONTROLLER)


@scenario("kill -9 of the leading controller while detaching", limit=180)
def kill_controller_detaching(world: World) -> None:
    _detaching(world, CONTROLLER)


@scenario("kill -9 of the agent while attaching", limit=180)
def kill_agent_attaching(world: World) -> None:
    _attaching(world, AGENT)


@scenario("kill -9 of the agent while detaching", limit=180)
def kill_agent_detaching(world: World) -> None:
    _detaching(world, AGENT)


@scenario("kill -9 of the driver while attaching", limit=180)
def kill_driver_attaching(world: World) -> None:
    _attaching(world, DRIVER)


@scenario("kill -9 of the driver while detaching", limit=180)
def kill_driver_detaching(world: World) -> None:
    _detaching(world, DRIVER)


def _names(points: Iterable[object]) -> list[str]:
    return [f"data-{number}" for number, _ in enumerate(points)]


def _attaching(world: World, victim: str) -> None:
    names = _names(ATTACHING)
    for name in names:
        world.volume(name)
    world.await_ready("Volume", *names)
    faults = []
    for name, (rpc, when) in zip(names, ATTACHING, strict=True):
        fault = world.driver.hang(rpc, when)
        faults.append(fault)
        # One after the other, so that each claim meets the moment that is meant for it.
        world.claim(name, world.first, volumeName=name)
        world.driver.await_met(fault)
    _kill(world, victim, faults)
    world.await_ready("VolumeClaim", *names, timeout=90)
    _expect_usable(world, world.first, names, "")
    _move_and_remove(world, names)


def _detaching(world: World, victim: str) -> None:
    names = _names(DETACHING)
    for name in names:
        world.volume(name)
        world.claim(name, world.first, volumeName=name)
    world.await_ready("VolumeClaim", *names)
    for name in names:
        world.write(world.first, f"{world.target(name)}/file", name)
    faults = []
    for name, (rpc, when) in zip(names, DETACHING, strict=True):
        fault = world.driver.hang(rpc, when)
        faults.append(fault)
        world.delete("VolumeClaim", name)
        world.driver.await_met(fault)
    _kill(world, victim, faults)
    for name in names:
        world.await_gone("VolumeClaim", name, 90)
    _move_and_remove(world, names)


def _kill(world: World, role: str, faults: list[Fault]) -> None:
    """Kills the leader, or every agent or driver that has a call in the air; then the calls may go on."""
    flying = [call for call in world.calls() if call.end_seq is None]
    expect(len(flying) >= len(faults), f"only {len(flying)} calls are in flight")
    for victim in _victims(world, role, {call.server for call in flying}):
        world.note(f"killed the {victim}")
        world.kill(victim)
    for fault in faults:
        fault.release()


def _victims(world: World, role: str, servers: set[str]) -> list[Running]:
    if role == CONTROLLER:
        return [world.pods.leader()]
    return [world.pods.one(role, server) for server in sorted(servers)]


def _expect_usable(world: World, node: Node, names: list[str], text: str) -> None:
    for name in names:
        path = f"{world.target(name)}/file"
        if text:
            world.expect_text(node, path, text)
        world.write(node, path, name)


def _move_and_remove(world: World, names: list[str]) -> None:
    """The volumes work elsewhere, with their data, and everything can be deleted."""
    for name in names:
        if world.find("VolumeClaim", name) is not None:
            world.delete("VolumeClaim", name)
    for name in names:
        world.await_gone("VolumeClaim", name, 60)
        world.claim(f"moved-{name}", world.second, volumeName=name)
    world.await_ready("VolumeClaim", *(f"moved-{name}" for name in names))
    for name in names:
        world.expect_text(world.second, f"{world.target(f'moved-{name}')}/file", name)
    world.remove("VolumeClaim", *(f"moved-{name}" for name in names))
    world.remove("Volume", *names)
