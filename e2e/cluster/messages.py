"""What the harness tells its user: progress, and problems together with the way on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Problem(Exception):
    """Something the user has to know, with what to do about it."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}\n  {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Names a step before it runs, so that a wait is never unexplained, and says how long it took."""
    start = time.monotonic()
    print(f"{text} … ", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        print("failed", file=sys.stderr, flush=True)
        raise
    print(f"{time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
