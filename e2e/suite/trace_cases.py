"""What the self-tests of the trace check are made with."""

from __future__ import annotations

import unittest

from .calls import ATTACH, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, Call
from .trace import Kill, Lock, check

T1, T2 = "/target/1", "/target/2"


class Recorder:
    """Writes a trace, one call after the other unless told otherwise. A line takes a millisecond."""

    def __init__(self) -> None:
        self.seq = 0
        self.calls: list[Call] = []
        self.kills: list[Kill] = []
        self.locks: list[Lock] = []

    def lock(self, volume: str = "v", node: str = "node-1") -> None:
        self.seq += 1
        self.locks.append(Lock(self.seq, volume, node))

    def begin(self, rpc: str, **facts: str | bool) -> Call:
        self.seq += 1
        call = Call(seq=self.seq, rpc=rpc, server="node-1", at=self.seq, volume="v")
        if rpc in (ATTACH, DETACH):
            call.node, call.server = "node-1", "node-2"
        if rpc in (STAGE, UNSTAGE, PUBLISH):
            call.staging = "/staging"
        if rpc in (PUBLISH, UNPUBLISH):
            call.target = T1
        if rpc in (ATTACH, PUBLISH):
            call.readonly = False
        for name, value in facts.items():
            setattr(call, name, value)
        self.calls.append(call)
        return call

    def end(self, call: Call, code: str = "Ok") -> None:
        self.seq += 1
        call.end_seq, call.end_at, call.code = self.seq, self.seq, code

    def call(self, rpc: str, code: str = "Ok", **facts: str | bool) -> Call:
        call = self.begin(rpc, **facts)
        self.end(call, code)
        return call

    def run(self, *rpcs: str) -> None:
        for rpc in rpcs:
            self.call(rpc)

    def kill(self, role: str, node: str = "node-1", volume: str = "") -> None:
        self.seq += 1
        self.kills.append(Kill(self.seq, role, node, volume))


class TraceCase(unittest.TestCase):
    """A test that writes a trace and has it checked."""

    def setUp(self) -> None:
        self.trace = Recorder()

    def found(self, *, finished: bool) -> list[str]:
        return check(self.trace.calls, self.trace.kills, locks=self.trace.locks, finished=finished)

    def good(self, *, finished: bool = True) -> None:
        self.assertEqual(self.found(finished=finished), [])

    def bad(self, words: str, *, finished: bool = True) -> None:
        found = self.found(finished=finished)
        self.assertTrue(any(words in violation for violation in found), f"{words!r} is not in {found}")
