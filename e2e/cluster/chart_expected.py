"""How it is said what has to be rendered with a value of the chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Seen = dict[str, Any]


@dataclass(frozen=True)
class Has:
    """A list that contains something, or a text."""

    item: object


@dataclass(frozen=True)
class Expected:
    """What an object has to have at a place. Words of the place are keys, or indexes of lists."""

    name: str
    place: str = ""
    value: object = None
    absent: bool = False

    def missing_in(self, objects: Mapping[str, Seen]) -> str:
        """What is wrong, or nothing."""
        there: Any = objects.get(self.name)
        for word in self.place.split():
            if isinstance(there, list):
                there = there[int(word)] if int(word) < len(there) else None
            else:
                there = None if there is None else there.get(word)
        if self.absent:
            return "" if there is None else f"{self.name} has {self.place or 'been rendered'}"
        if isinstance(self.value, Has):
            fits = there is not None and self.value.item in there
        else:
            fits = there is not None if self.value is None else there == self.value
        return "" if fits else f"{self.name} {self.place} is {there!r}, and it should be {self.value!r}"


@dataclass(frozen=True)
class Case:
    """One value, what it has to do, and the other values that it needs for that."""

    path: str
    value: object
    expected: tuple[Expected, ...]
    given: Mapping[str, object] = field(default_factory=dict)
