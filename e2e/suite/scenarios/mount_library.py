"""A reader beside a writer with a driver that mounts by Kubernetes' mount library, in a Pod and on the node itself.

Such a driver binds first and remounts read-only after that, in its own mount namespace. What it binds is one peer group
with what it has staged. What counts is what a process of the node can do at the paths of the claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Node
from e2e.cluster.node_config import PRIVATE

from .. import leaks, mount_driver, objects
from ..objects import use
from ..pods import AGENT
from ..registry import scenario
from ..world import World, expect
from .file_systems import expect_read_only

MODE = "SingleNodeMultiWriter"
WRITER, READER, LATE = "a", "b", "c"
STAGING = PRIVATE["kubelet"] / leaks.OURS / "staging"


@dataclass(frozen=True)
class Shared:
    """A volume that a writer and a reader share, and the order in which they come and go."""

    home: str  # where its driver is
    node: Node
    comes: str
    leaves: str

    @property
    def volume(self) -> str:
        return f"{self.home}-{self.comes}-comes-{self.leaves}-leaves"

    def claim(self, who: str) -> str:
        return f"{self.volume}-{who}"


@scenario("with a driver on Kubernetes' mount library a reader cannot write and its neighbours can", limit=150)
def mount_library(world: World) -> None:
    mount_driver.start_in_pod(world, world.first)
    mount_driver.start_on_node(world.second)
    world.cluster.apply(objects.plugin(mount_driver.NAME, allow={"register": {"namespaces": [world.namespace]}}))
    # All orders side by side, so that one restart of the agents meets each of them.
    every = [
        Shared(home, node, comes, leaves)
        for home, node in (("pod", world.first), ("node", world.second))
        for comes in (WRITER, READER)
        for leaves in (WRITER, READER)
    ]
    for one in every:
        world.volume(
            one.volume, pluginName=mount_driver.NAME, capacity=None, volumeHandle=one.volume, capabilities=[use(MODE)]
        )
    _come(world, every, lambda one: one.comes)
    _come(world, every, lambda one: _other(one.comes))
    _expect_allowed(world, every, WRITER, READER)
    for one in every:
        _expect_one_peer_group(world, one)

    world.pods.delete(lambda item: item["metadata"]["labels"].get("app.kubernetes.io/component") == AGENT)
    # One more, by which the agents show that they are at work: bound from what is staged, as it is now.
    _come(world, every, lambda _: LATE)
    _expect_allowed(world, every, WRITER, READER, LATE)
    _leave(world, every, lambda _: LATE)

    _leave(world, every, lambda one: one.leaves)
    for one in every:
        stays = _other(one.leaves)
        _expect_staging_unharmed(world, one, stays)
        _expect_allowed(world, [one], stays)
    _leave(world, every, lambda one: _other(one.leaves))

    world.remove("Volume", *(one.volume for one in every))
    world.remove("Plugin", mount_driver.NAME)
    mount_driver.end_in_pod(world)
    mount_driver.end_on_node(world.second)


def _other(who: str) -> str:
    return READER if who == WRITER else WRITER


def _come(world: World, every: Iterable[Shared], who: Callable[[Shared], str]) -> None:
    chosen = [(one, who(one)) for one in every]
    for one, claim in chosen:
        world.claim(
            one.claim(claim), one.node, volumeName=one.volume, accessMode=MODE, readOnly=claim == READER or None
        )
    world.await_ready("VolumeClaim", *(one.claim(claim) for one, claim in chosen))


def _leave(world: World, every: Iterable[Shared], who: Callable[[Shared], str]) -> None:
    world.remove("VolumeClaim", *(one.claim(who(one)) for one in every))


def _expect_allowed(world: World, every: Iterable[Shared], *who: str) -> None:
    """Each writer writes, a reader reads that and cannot write, and nothing is mounted over what they have."""
    for one in every:
        paths = {claim: world.target(one.claim(claim)) for claim in who}
        reader = paths.pop(READER, None)
        for claim, path in paths.items():
            world.write(one.node, f"{path}/word", claim)
        if reader is not None:
            if paths:
                world.expect_text(one.node, f"{reader}/word", list(paths)[-1])
            expect_read_only(one.node, f"{reader}/word")
            expect_read_only(one.node, f"{reader}/new")
            paths[READER] = reader
        for path in paths.values():
            found = len(_mounts(one.node, path))
            expect(found == 1, f"{path} on {one.node.name} is mounted {found} times")


def _expect_one_peer_group(world: World, one: Shared) -> None:
    """What such drivers are like; without it this scenario would show nothing."""
    targets = [_mounts(one.node, world.target(one.claim(who)))[0] for who in (WRITER, READER)]
    groups = {_peer_group(found) for found in (*targets, _staged(world, one, WRITER))}
    expect(len(groups) == 1 and "" not in groups, f"{one.volume}: staging and targets are of peer groups {groups}")


def _expect_staging_unharmed(world: World, one: Shared, who: str) -> None:
    staged = _staged(world, one, who)
    expect("rw" in staged[5].split(","), f"{one.volume} is staged with {staged[5]}")
    world.write(one.node, f"{staged[4]}/staged", one.volume)
    world.expect_text(one.node, f"{world.target(one.claim(who))}/staged", one.volume)


def _mounts(node: Node, path: str) -> list[list[str]]:
    """What the node has mounted at a path: fields of its mount table."""
    return [line.split() for line in node.mounts() if leaks.mount_point(line) == path]


def _staged(world: World, one: Shared, who: str) -> list[str]:
    """The only mount below the folder of staging paths of what a claim has mounted."""
    device = _mounts(one.node, world.target(one.claim(who)))[0][2]
    lines = [line for line in one.node.mounts() if Path(leaks.mount_point(line)).is_relative_to(STAGING)]
    found = [line.split() for line in lines if line.split()[2] == device]
    expect(len(found) == 1, f"{one.volume} is staged {len(found)} times on {one.node.name}")
    return found[0]


def _peer_group(fields: list[str]) -> str:
    shared = [field for field in fields[6 : fields.index("-")] if field.startswith("shared:")]
    return shared[0] if shared else ""
