"""Claims for the raw device: the target path is a device file."""

from __future__ import annotations

from e2e.cluster import Node

from ..content import BLOCK
from ..objects import use
from ..registry import scenario
from ..world import World, expect


@scenario("a raw block claim moves to another node with its bytes", namespace="block-moves")
def block_moves(world: World) -> None:
    world.ready_volume(capabilities=[use(block=True)])
    path = world.ready_claim("writer", world.first, attachmentMode="BlockDevice")
    digest = BLOCK.write(world.first.shell, path)
    world.remove("VolumeClaim", "writer")

    path = world.ready_claim("reader", world.second, attachmentMode="BlockDevice")
    expect(BLOCK.digest(world.second.shell, path) == digest, "the device has other bytes on the second node")


@scenario("a read-only block claim reads and cannot write", namespace="block-read-only")
def block_read_only(world: World) -> None:
    world.ready_volume(capabilities=[use(block=True)])
    path = world.ready_claim("writer", world.first, attachmentMode="BlockDevice")
    digest = BLOCK.write(world.first.shell, path)

    # Beside the writer, and alone.
    beside = world.ready_claim("beside", world.first, attachmentMode="BlockDevice", readOnly=True)
    expect(BLOCK.digest(world.first.shell, beside) == digest, "the reader beside the writer reads other bytes")
    _expect_no_write(world.first, beside)
    world.remove("VolumeClaim", "writer", "beside")
    alone = world.ready_claim("alone", world.second, attachmentMode="BlockDevice", readOnly=True)
    _expect_no_write(world.second, alone)
    expect(BLOCK.digest(world.second.shell, alone) == digest, "a refused write has changed the device")


@scenario("one volume as a device, and never as both at once", namespace="block-and-file-system")
def device_or_file_system(world: World) -> None:
    world.ready_volume(capabilities=[use(), use(block=True)])
    world.ready_claim("mounted", world.first)
    world.claim("raw", world.first, attachmentMode="BlockDevice")
    world.await_reason("VolumeClaim", "raw", "Held", "mounted")
    world.remove("VolumeClaim", "mounted")
    world.await_ready("VolumeClaim", "raw", timeout=20)
    kind = world.first.shell(f"blkid -o value -s TYPE {world.target('raw')}").strip()
    expect(kind == "ext4", f"the device holds {kind!r}, and ext4 was mounted before")


def _expect_no_write(node: Node, device: str) -> None:
    script = f"dd if=/dev/zero of={device} bs=4096 count=1 conv=fsync,notrunc"
    tried = node.exec("sh", "-c", script, check=False)
    expect(tried.returncode != 0, f"{device} on {node.name} was written to")
    words = ("Operation not permitted", "Read-only file system", "Permission denied")
    expect(any(word in tried.stderr for word in words), f"writing failed with another error: {tried.stderr}")
