"""Loop devices whose files are ours, found by inode.

The kernel prints the path of a backing file as the namespace saw it that attached it, which
tells nothing on the host. Device and inode number are the same everywhere.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from .messages import Problem

_LOOP_CLR_FD = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05
_STATUS64_SIZE = 232
_NAME = slice(56, 120)
# Where drivers on our nodes keep disks. Attaching programs leave the path they used in the device.
_NODE_FOLDERS = ("/var/lib/moor", "/var/lib/kubelet")
# Holds the images' own files, tens of thousands, and never a disk.
_SKIPPED = {"containerd"}


@dataclass(frozen=True)
class Loop:
    """An attached loop device."""

    device: Path
    backing_device: int
    backing_inode: int
    backing_path: str
    name: str

    @property
    def identity(self) -> str:
        return f"{self.device}:{self.backing_device}:{self.backing_inode}"

    @property
    def deleted(self) -> bool:
        return self.backing_path.endswith(" (deleted)")


def attached() -> list[Loop]:
    found = []
    for folder in sorted(Path("/sys/block").glob("loop*")):
        if (folder / "loop" / "backing_file").exists():
            loop = _inspect(Path("/dev") / folder.name, folder)
            if loop is not None:
                found.append(loop)
    return found


def under(folder: Path) -> list[Loop]:
    """The loop devices on files somewhere under a folder."""
    every = attached()
    if not every or not folder.exists():
        return []
    home = os.stat(folder).st_dev
    inodes = _inodes(folder)
    return [loop for loop in every if loop.backing_device == home and loop.backing_inode in inodes]


def deleted_on(folder: Path, known: list[str]) -> list[Loop]:
    """Those whose file is gone, on the file system of a folder, attached since the cluster started.

    No inode is left to compare. The name they were attached by has to be one of a node's folders,
    and what the host itself has mounted is left alone.
    """
    if not folder.exists():
        return []
    home = os.stat(folder).st_dev
    mounted = Path("/proc/self/mountinfo").read_text()
    return [
        loop
        for loop in attached()
        if loop.deleted
        and loop.backing_device == home
        and loop.name.startswith(_NODE_FOLDERS)
        and loop.identity not in known
        and f" {loop.device} " not in mounted
    ]


def detach_under(folder: Path, *, deleted_but: list[str] | None = None, patience: float = 10) -> list[Loop]:
    """Detaches them and waits until the kernel has really let go.

    With `deleted_but` also those whose file is gone, except the named ones.
    """
    deadline = time.monotonic() + patience
    seen: dict[Path, Loop] = {}
    while True:
        remaining = under(folder) + ([] if deleted_but is None else deleted_on(folder, deleted_but))
        if not remaining:
            return list(seen.values())
        for loop in remaining:
            seen[loop.device] = loop
            _detach(loop)
        if time.monotonic() > deadline:
            names = ", ".join(str(loop.device) for loop in remaining)
            raise Problem(f"loop devices stay in use: {names}", "see who holds them: losetup -a; lsof")
        time.sleep(0.05)


def _inspect(device: Path, folder: Path) -> Loop | None:
    try:
        path = (folder / "loop" / "backing_file").read_text().rstrip("\n")
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = bytearray(_STATUS64_SIZE)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, status)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    backing_device, backing_inode = struct.unpack_from("=QQ", status)
    name = bytes(status[_NAME]).partition(b"\0")[0].decode(errors="replace")
    return Loop(device, backing_device, backing_inode, path, name)


def _detach(loop: Loop) -> None:
    try:
        descriptor = os.open(loop.device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.ioctl(descriptor, _LOOP_CLR_FD)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _inodes(folder: Path) -> set[int]:
    found: set[int] = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in files:
            try:
                found.add(os.lstat(os.path.join(place, name)).st_ino)
            except OSError:
                continue
    return found
