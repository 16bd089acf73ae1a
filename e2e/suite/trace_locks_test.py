"""Self-tests of the trace check: what is detached that was never attached."""

from __future__ import annotations

from .calls import ATTACH, DETACH
from .trace_cases import TraceCase


class LocksTest(TraceCase):
    def test_detach_of_what_was_closed_before_it_was_attached(self) -> None:
        self.trace.lock()
        self.trace.run(DETACH)
        self.good()
        self.trace.lock()
        self.trace.run(ATTACH, DETACH)
        self.trace.lock()
        self.trace.run(DETACH)
        self.good()

    def test_detach_twice_for_one_lock(self) -> None:
        self.trace.lock()
        self.trace.run(ATTACH, DETACH, DETACH)
        self.bad("was undone already")

    def test_detach_for_another_lock(self) -> None:
        self.trace.lock(volume="another")
        self.trace.lock(node="node-2")
        self.trace.run(DETACH)
        self.bad("undoes what was never done")

    def test_detach_before_the_lock(self) -> None:
        self.trace.run(DETACH)
        self.trace.lock()
        self.bad("undoes what was never done")
