"""What was written to each volume, and what therefore has to be found there. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

# Of one slot. A multiple of every block size, so that a device takes it as it is.
SIZE = 32 * 1024
NOTHING = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Written:
    """One write through one mount."""

    volume: str
    slot: int
    number: int
    node: str
    synced: bool
    digest: str

    def __str__(self) -> str:
        return f"write {self.number} ({'synced' if self.synced else 'not synced'}, on {self.node})"


class Ledger:
    """All writes of a run. Each has a number and bytes of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._number = 0
        # By volume and slot: what has to be there. None: a crash has made it uncertain.
        self._last: dict[tuple[str, int], Written | None] = {}
        self._history: dict[str, Written] = {}
        # By snapshot: what its volume held in each slot when it was made. None: it may be in it, or not.
        self._kept: dict[str, dict[int, Written | None]] = {}
        # Snapshots that were asked for and may be made at any time yet, with their volumes.
        self.awaited: dict[str, str] = {}

    @property
    def writes(self) -> int:
        return self._number

    def next(self, volume: str, slot: int, node: str, *, synced: bool) -> tuple[Written, str]:
        """A write that is to be made, and its bytes. It counts when it was made: `made`."""
        self._number += 1
        for snapshot, of in self.awaited.items():
            if of == volume:
                self._kept[snapshot][slot] = None
        text = pattern(self._seed, volume, slot, self._number)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Written(volume, slot, self._number, node, synced, digest), text

    def made(self, written: Written) -> None:
        self._last[written.volume, written.slot] = written
        self._history[written.digest] = written

    def crashed(self, node: str) -> None:
        """What was written there and not synced may be there, whole or in part, or not."""
        for place, written in self._last.items():
            if written is not None and written.node == node and not written.synced:
                self._last[place] = None

    def snapshot_asked(self, snapshot: str, volume: str) -> None:
        """A snapshot that is to be made. What was not synced before may be in it, or not."""
        held = {slot: written for (owner, slot), written in self._last.items() if owner == volume}
        self._kept[snapshot] = {slot: written if written and written.synced else None for slot, written in held.items()}
        self.awaited[snapshot] = volume

    def snapshot_made(self, snapshot: str) -> None:
        """It is made, or will never be: nothing that is written from now on is in it."""
        self.awaited.pop(snapshot, None)

    def restored(self, volume: str, snapshot: str) -> None:
        """A volume that begins with what a snapshot has, which was made."""
        for slot, written in self._kept[snapshot].items():
            self._last[volume, slot] = written

    def certain(self, volume: str) -> int:
        """Of how many slots it is known what they hold."""
        return sum(owner == volume and written is not None for (owner, _), written in self._last.items())

    def wrong(self, volume: str, found: dict[int, str]) -> list[str]:
        """Which slots hold other bytes than were written last, given the digests of all."""
        wrong = []
        for (owner, slot), written in sorted(self._last.items()):
            if owner == volume and written is not None and found.get(slot) != written.digest:
                wrong.append(f"{volume} slot {slot} holds {self._told(found.get(slot))}, and not {written}")
        return wrong

    def _told(self, digest: str | None) -> str:
        if digest is None:
            return "nothing at all"
        if digest == NOTHING:
            return "an empty file"
        earlier = self._history.get(digest)
        return "bytes that were never written" if earlier is None else f"{earlier} to {earlier.volume}"


def pattern(seed: int, volume: str, slot: int, number: int) -> str:
    """The bytes of one write, which are those of no other. They say of themselves what they are."""
    head = f"seed {seed} volume {volume} slot {slot} write {number}\n"
    block = hashlib.sha256(head.encode()).hexdigest() + "\n"
    return (head + block * (SIZE // len(block) + 1))[:SIZE]
