"""Restarts: what is mounted stays, and is not touched again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Node

from .. import audit, leaks
from ..calls import mutating
from ..objects import use
from ..pods import AGENT, DRIVER
from ..registry import scenario
from ..world import World, expect

COUNT = 4


@scenario("a restarted agent adopts live claims: no CSI call, no API write", limit=180)
def agent_restart(world: World) -> None:
    _live_claims(world, world.first)
    with _nothing_touched(world):
        world.kill(world.pods.one(AGENT, world.first.name))
        world.pods.await_ready()
        _prove_at_work(world, "after-kill")
    with _nothing_touched(world):
        world.pods.delete(lambda item: "moor-agent" in item["metadata"]["name"])
        _prove_at_work(world, "after-delete")
    _remove_all(world)


@scenario("a restarted driver and a restarted controller leave live claims alone", limit=180)
def driver_and_controller_restart(world: World) -> None:
    _live_claims(world, world.first)
    with _nothing_touched(world):
        world.kill(world.pods.one(DRIVER, world.first.name))
        world.pods.await_ready()
        _prove_at_work(world, "after-driver")
    with _nothing_touched(world):
        world.pods.delete(lambda item: "moor-controller" in item["metadata"]["name"])
        _prove_at_work(world, "after-controller")
    _remove_all(world)


@scenario("a driver that is told to end ends at once, with an agent connected to it")
def driver_ends(world: World) -> None:
    start = time.monotonic()
    world.pods.end(lambda item: "moor-loop-driver" in item["metadata"]["name"])
    took = time.monotonic() - start
    world.note(f"{took:.1f} s for the end of two Pods")
    world.pods.await_ready()
    # Kubelet kills it after 30 s.
    expect(took < 15, f"the drivers took {took:.1f} s to end: do they wait for their agents to hang up?")


def _names() -> list[str]:
    return [f"live-{number}" for number in range(COUNT)]


def _live_claims(world: World, node: Node) -> None:
    """File systems and a device, so that both kinds of mounts are looked at."""
    uses = [use(), use(block=True)]
    for name in _names():
        world.volume(name, capabilities=uses)
        mode = "BlockDevice" if name == "live-0" else "FileSystem"
        world.claim(name, node, volumeName=name, attachmentMode=mode)
    world.await_ready("VolumeClaim", *_names())
    for name in _names()[1:]:
        world.write(node, f"{world.target(name)}/file", name)
    # For the proof that everybody is back at work; made now, so that this costs no more than a claim.
    world.ready_volume("proof")


@contextmanager
def _nothing_touched(world: World) -> Iterator[None]:
    """The live claims, their mounts and their objects are the same afterwards."""
    calls, log = world.driver.last(), audit.position(world.cluster)
    before, mounted = _versions(world), mount_ids(world.first)
    yield
    handles = {world.handle(name) for name in _names()}
    touched = [call.told() for call in mutating(world.calls(after=calls)) if call.volume in handles]
    expect(not touched, "calls for live claims:\n" + "\n".join(touched))
    attached = {str(item["metadata"]["name"]) for item in world.attachments()}
    written = [
        write
        for write in audit.about_claims(audit.writes(world.cluster, log))
        if write.name in attached | set(_names())
    ]
    expect(not written, f"API writes on live claims: {audit.told(written)}")
    expect(_versions(world) == before, "objects of live claims have changed")
    expect(mount_ids(world.first) == mounted, "the mounts of live claims have changed")
    for name in _names()[1:]:
        world.expect_text(world.first, f"{world.target(name)}/file", name)


def _versions(world: World) -> dict[str, str]:
    items = [world.get("VolumeClaim", name) for name in _names()] + world.attachments()
    return {str(item["metadata"]["uid"]): str(item["metadata"]["resourceVersion"]) for item in items}


def mount_ids(node: Node) -> dict[str, str]:
    """The ids of moor's mounts: another id at the same place is another mount."""
    lines = [line for line in node.mounts() if str(leaks.OURS) in leaks.mount_point(line)]
    return {leaks.mount_point(line): line.split()[0] for line in lines}


def _prove_at_work(world: World, name: str) -> None:
    """A claim more: when it has come and gone, everybody has been through its work."""
    world.ready_claim(name, world.first, volumeName="proof")
    world.remove("VolumeClaim", name)


def _remove_all(world: World) -> None:
    world.remove("VolumeClaim", *_names())
    world.remove("Volume", *_names(), "proof")
