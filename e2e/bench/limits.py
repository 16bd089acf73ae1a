"""What is promised of Pods with a volume, and whether the figures keep it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .rounds import Figures, find


@dataclass(frozen=True)
class Limit:
    """A promise about one kind of Pod, beside another kind that is started as many at once in the same run."""

    kind: str
    at_once: int
    beside: str
    what: str
    unit: str
    most: float
    figure: Callable[[Figures], float]

    def judge(self, figures: Sequence[Figures]) -> dict[str, object]:
        """The promise with what was measured."""
        it, other = (self.figure(find(figures, kind, self.at_once)) for kind in (self.kind, self.beside))
        seen = round(it - other, 3)
        return {
            "kind": self.kind,
            "atOnce": self.at_once,
            "beside": self.beside,
            "what": self.what,
            "unit": self.unit,
            "most": self.most,
            "measured": seen,
            "met": seen <= self.most,
        }


def _median(figures: Figures) -> float:
    return figures.median


def _writes(figures: Figures) -> float:
    return figures.writes


def limits(at_once: int) -> list[Limit]:
    """The promises, of one Pod and of this many at once."""
    over_none = [
        limit
        for kind in ("mount", "first", "loop")
        for limit in (
            Limit(kind, 1, "none", "median", " s", 0.5, _median),
            Limit(kind, at_once, "none", "median", " s", 0.5, _median),
            Limit(kind, 1, "none", "API writes", "", 6, _writes),
        )
    ]
    # kubelet's own way with the same driver is the floor.
    over_floor = [Limit("mount", count, "floor", "median", " s", 0.3, _median) for count in (1, at_once)]
    return [*over_none, *over_floor, Limit("late", 1, "none", "median", " s", 1.6, _median)]
