"""Reading and writing through the path of a claim, on its node, and seeing that only a writer can write."""

from __future__ import annotations

from e2e.cluster import Node

from ..world import Failed
from .actions import BLOCK, SLOTS
from .ledger import SIZE

# The claim's path is $1. Whoever says that a claim is Ready has seen it mounted.
_THERE = {
    BLOCK: 'test -b "$1" || { echo "there is no device at the path" >&2; exit 9; }\n',
    "": 'mountpoint -q "$1" || { echo "nothing is mounted at the path" >&2; exit 9; }\n',
}
# A device is read and written directly: another one on the same file has a cache of its own.
_READ = {
    BLOCK: f"""for slot in $(seq 0 {SLOTS - 1}); do
  dd if="$1" bs={SIZE} skip="$slot" count=1 iflag=direct status=none | sha256sum
done""",
    "": f"""for slot in $(seq 0 {SLOTS - 1}); do
  if [ -e "$1/slot-$slot" ]; then sha256sum < "$1/slot-$slot"; else echo missing; fi
done""",
}
_WRITE = {
    BLOCK: f'dd of="$1" bs={SIZE} seek="$2" iflag=fullblock oflag=direct conv=notrunc,fsync status=none',
    "": f'dd of="$1/slot-$2" bs={SIZE} iflag=fullblock conv=notrunc"$3" status=none',
}
# Behind all slots, so that a success does no harm that would be taken for another one.
_TRY = {
    BLOCK: f'dd if=/dev/zero of="$1" bs={SIZE} seek={SLOTS} count=1 oflag=direct conv=notrunc status=none',
    "": ': > "$1/tried"',
}
_SECONDS = 120


def read(node: Node, path: str, attachment_mode: str) -> dict[int, str]:
    """The digest of each slot that is there."""
    words = _run(node, _READ, attachment_mode, path).split("\n")
    digests = [line.split()[0] for line in words if line]
    return {slot: digest for slot, digest in enumerate(digests) if digest != "missing"}


def write(node: Node, path: str, attachment_mode: str, slot: int, text: str, *, synced: bool) -> None:
    """Returns when the bytes are on the disk, if they are to be synced. On a device they always are."""
    _run(node, _WRITE, attachment_mode, path, str(slot), ",fsync" if synced else "", stdin=text)


def refuses_writes(node: Node, path: str, attachment_mode: str) -> bool:
    script = _script(_THERE, attachment_mode) + _script(_TRY, attachment_mode)
    tried = node.exec("sh", "-c", script, "sh", path, check=False, timeout=_SECONDS)
    if tried.returncode == 9:
        raise Failed(f"{path} on {node.name}: {tried.stderr.strip()}")
    return tried.returncode != 0


def _run(node: Node, scripts: dict[str, str], mode: str, path: str, *more: str, stdin: str | None = None) -> str:
    script = _script(_THERE, mode) + _script(scripts, mode)
    done = node.exec("sh", "-ec", script, "sh", path, *more, stdin=stdin, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        raise Failed(f"{path} on {node.name} cannot be used: {done.stderr.strip()} (exit code {done.returncode})")
    return done.stdout


def _script(scripts: dict[str, str], attachment_mode: str) -> str:
    return scripts.get(attachment_mode, scripts[""])
