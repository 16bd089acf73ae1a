"""Claims with a file system: real ext4 and xfs, moved between nodes with their data, and read-only."""

from __future__ import annotations

from e2e.cluster import Node

from ..objects import use
from ..registry import scenario
from ..world import World, expect

WORDS = "kept\n"


@scenario("an ext4 claim moves to another node with its data")
def ext4_moves(world: World) -> None:
    _moves(world, "ext4", "64Mi")


@scenario("an xfs claim moves to another node with its data")
def xfs_moves(world: World) -> None:
    _moves(world, "xfs", "320Mi")


def _moves(world: World, kind: str, capacity: str) -> None:
    world.ready_volume(capacity=capacity, mountOptions={"fsType": kind, "mountFlags": ["noatime"]})
    for node in (world.first, world.second, world.first):
        path = world.ready_claim(f"on-{node.name}", node)
        _expect_mount(node, path, kind)
        if node is world.second:
            world.expect_text(node, f"{path}/first", WORDS)
        world.write(node, f"{path}/first", WORDS)
        world.remove("VolumeClaim", f"on-{node.name}")


def _expect_mount(node: Node, path: str, kind: str) -> None:
    found, options = node.shell(f"findmnt --noheadings --output FSTYPE,OPTIONS --mountpoint {path}").split()
    expect(found == kind, f"{path} is {found}, not {kind}")
    expect("noatime" in options.split(","), f"{path} is mounted with {options}")


@scenario("moor picks a node when the claim names none")
def any_node(world: World) -> None:
    world.ready_volume()
    path = world.ready_claim("anywhere")
    chosen = world.get("VolumeClaim", "anywhere")["spec"]["assignment"]["nodeName"]
    world.write(world.cluster.node(chosen), f"{path}/file", WORDS)


@scenario("a read-only claim reads and cannot write")
def read_only(world: World) -> None:
    world.ready_volume(mountOptions={"fsType": "ext4"})
    writer = world.ready_claim("writer", world.first)
    world.write(world.first, f"{writer}/file", WORDS)

    # Beside a writer on the same node, and alone on the other.
    reader = world.ready_claim("reader", world.first, readOnly=True)
    world.expect_text(world.first, f"{reader}/file", WORDS)
    expect_read_only(world.first, f"{reader}/file")
    world.write(world.first, f"{writer}/file", WORDS * 2)
    world.expect_text(world.first, f"{reader}/file", WORDS * 2)
    world.remove("VolumeClaim", "writer", "reader")

    reader = world.ready_claim("alone", world.second, readOnly=True)
    world.expect_text(world.second, f"{reader}/file", WORDS * 2)
    expect_read_only(world.second, f"{reader}/file")
    expect_read_only(world.second, f"{reader}/new")


def expect_read_only(node: Node, path: str) -> None:
    tried = node.exec("sh", "-c", 'echo overwritten > "$1"', "sh", path, check=False)
    expect(tried.returncode != 0, f"{path} on {node.name} was written to")
    expect("Read-only file system" in tried.stderr, f"writing to {path} failed with another error: {tried.stderr}")


@scenario("readers on two nodes at once, after a writer has gone")
def readers_on_two_nodes(world: World) -> None:
    world.ready_volume(capabilities=[use(), use("MultiNodeReader")], mountOptions={"fsType": "ext4"})
    path = world.ready_claim("writer", world.first)
    world.write(world.first, f"{path}/file", WORDS)

    # The volume is used in one mode at a time: readers wait for the writer.
    reading = {"accessMode": "MultiNodeReader", "readOnly": True}
    for node in (world.first, world.second):
        world.claim(f"reader-{node.name}", node, **reading)
    world.await_reason("VolumeClaim", "reader-node-1", "Held", "writer")
    world.remove("VolumeClaim", "writer")
    for node in (world.first, world.second):
        world.await_ready("VolumeClaim", f"reader-{node.name}", timeout=20)
        path = world.target(f"reader-{node.name}")
        world.expect_text(node, f"{path}/file", WORDS)
        expect_read_only(node, f"{path}/file")

    world.claim("writer-again", world.second)
    world.await_reason("VolumeClaim", "writer-again", "Held")
    world.remove("VolumeClaim", "reader-node-1", "reader-node-2")
    world.await_ready("VolumeClaim", "writer-again", timeout=20)
    world.write(world.second, f"{world.target('writer-again')}/file", WORDS * 2)
