"""Bytes on a volume, in files or on a raw device: written as no other time, and told again by their digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import objects
from .objects import Object
from .world import expect

MEBIBYTE = 1024 * 1024

# Runs a shell script where the volume is, and returns what it prints.
Run = Callable[[str], str]

# In folders, and of sizes that are no multiples of a block.
_FILES = {"first": 1_000_001, "folder/second": 2_500_003, "folder/deeper/third": 4097}
# Places on a device by mebibyte: at its begin, amid it, and at the end of the smallest one.
_PLACES = {0: 2, 31: 1, 63: 1}


@dataclass(frozen=True)
class Kind:
    """How a volume is used, and how large it is before and after it has grown. Without a file system it is a raw device."""

    name: str
    mebibytes: int
    grown: int
    file_system: str = ""
    # While it is mounted ext4 grows only for who has CAP_SYS_RESOURCE, which root has not on every machine.
    grows_mounted: bool = True

    @property
    def capacity(self) -> str:
        return f"{self.mebibytes}Mi"

    @property
    def larger(self) -> str:
        return f"{self.grown}Mi"

    @property
    def volume(self) -> Object:
        """What a Volume says of it."""
        if not self.file_system:
            return {"capabilities": [objects.use(block=True)]}
        return {"mountOptions": {"fsType": self.file_system}}

    @property
    def claim(self) -> Object:
        """What a VolumeClaim says of it."""
        return {} if self.file_system else {"attachmentMode": "BlockDevice"}

    def write(self, run: Run, target: str) -> str:
        """Random bytes in several places, on the disk when this returns. Their digest."""
        if self.file_system:
            lines = [f"mkdir -p {target}/folder/deeper"]
            lines += [f"head -c {size} /dev/urandom > {target}/{name}" for name, size in _FILES.items()]
            lines.append(f"sync -f {target}")
        else:
            lines = [
                f"head -c {count}M /dev/urandom | dd of={target} bs=1M seek={at} iflag=fullblock oflag=direct"
                " conv=fsync,notrunc status=none"
                for at, count in _PLACES.items()
            ]
        run("\n".join(lines))
        return self.digest(run, target)

    def digest(self, run: Run, target: str) -> str:
        """Of the bytes that are there now. A file that is missing, or one more, tells as well."""
        if self.file_system:
            names = "find . -path ./lost+found -prune -o -type f -print0 | LC_ALL=C sort -z"
            read = f"cd {target}; {names} | xargs -0r sha256sum"
        else:
            # Past the page cache: another device on the same file has a cache of its own.
            parts = [f"dd if={target} bs=1M skip={at} count={count} iflag=direct status=none" for at, count in _PLACES.items()]
            read = f"test -b {target}; {{ {'; '.join(parts)}; }}"
        found = run(f"{read} | sha256sum").split()[0]
        expect(found != _NOTHING, f"nothing at all is at {target}")
        return found

    def size(self, run: Run, target: str) -> int:
        """Bytes of the file system, or of the device."""
        if self.file_system:
            return int(run(f"df --output=size --block-size=1 {target} | tail -1"))
        return int(run(f"blockdev --getsize64 {target}"))

    def expect_grown(self, run: Run, target: str) -> None:
        """A file system keeps some of its size for itself, and less than by how much it has grown."""
        least = self.mebibytes if self.file_system else self.grown - 1
        found = self.size(run, target)
        expect(found > least * MEBIBYTE, f"{target} has {found} bytes, and {self.larger} were asked for")


# Of no bytes at all.
_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

EXT4 = Kind("ext4", 64, 96, "ext4", grows_mounted=False)
XFS = Kind("xfs", 320, 448, "xfs")
BLOCK = Kind("block", 64, 96)
