"""Volumes that are made larger while VolumeClaims use them, with real bytes on real devices."""

from __future__ import annotations

import json

from e2e.cluster import Node

from .. import objects
from ..registry import scenario
from ..world import World, expect

MEBI = 1024 * 1024
WORDS = "kept\n"


@scenario("an ext4 volume grows while a claim uses it, and for the next claim", namespace="grows-ext4")
def ext4(world: World) -> None:
    _file_system(world, "ext4", [64, 128, 192])


@scenario("an xfs volume grows while a claim uses it, and for the next claim", namespace="grows-xfs")
def xfs(world: World) -> None:
    _file_system(world, "xfs", [320, 448, 576])


@scenario("a raw device grows while a claim uses it", namespace="grows-block")
def block(world: World) -> None:
    world.ready_volume(capacity="64Mi", capabilities=[objects.use(block=True)])
    path = world.ready_claim("user", world.first, attachmentMode="BlockDevice")
    _grow(world, 128)
    size = int(world.first.shell(f"blockdev --getsize64 {path}"))
    expect(size == 128 * MEBI, f"the device has {size} bytes")


def _file_system(world: World, kind: str, sizes: list[int]) -> None:
    small, larger, largest = sizes
    world.ready_volume(capacity=f"{small}Mi", mountOptions={"fsType": kind})
    path = world.ready_claim("user", world.first)
    world.write(world.first, f"{path}/file", WORDS)
    _grow(world, larger)
    _expect_size(world.first, path, small, larger)
    world.expect_text(world.first, f"{path}/file", WORDS)
    world.remove("VolumeClaim", "user")

    # Nobody has it, and the next one finds it as large as it is to be.
    _ask(world, largest)
    world.await_that("Volume", "data", "to wait for a node", lambda item: _said(item).get("reason") == "NodesToFollow")
    path = world.ready_claim("next", world.second)
    _expect_size(world.second, path, larger, largest)
    world.expect_text(world.second, f"{path}/file", WORDS)
    _await_grown(world)
    calls = [call.rpc for call in world.calls("NodeExpandVolume")]
    expect(len(calls) == 2, f"the calls were {calls}")


def _ask(world: World, mebibytes: int) -> None:
    patch = json.dumps({"spec": {"capacity": f"{mebibytes}Mi"}})
    world.cluster.kubectl("patch", "volume", "data", "-n", world.namespace, "--type=merge", f"--patch={patch}")


def _grow(world: World, mebibytes: int) -> None:
    _ask(world, mebibytes)
    _await_grown(world)


def _said(item: objects.Object) -> objects.Object:
    found = objects.condition(item, "Expanded")
    return found if found.get("observedGeneration") == item["metadata"]["generation"] else {}


def _await_grown(world: World) -> None:
    world.await_that("Volume", "data", "to have grown", lambda item: _said(item).get("status") == "True")


def _expect_size(node: Node, path: str, above: int, most: int) -> None:
    """The file system is larger than it could be before, and as large as its device lets it be."""
    size = int(node.shell(f"df --output=size --block-size=1 {path} | tail -1"))
    expect(above * MEBI < size <= most * MEBI, f"the file system at {path} has {size} bytes")
