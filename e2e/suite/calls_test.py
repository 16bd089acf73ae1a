"""Self-tests of how the loop driver's record is read."""

from __future__ import annotations

import json
import unittest

from .calls import STAGE, mutating, parse


class ParseTest(unittest.TestCase):
    def test_lines_become_calls(self) -> None:
        start = {"seq": 1, "call": 1, "phase": "start", "at": 5, "server": "node-1", "rpc": STAGE, "volume": "v"}
        probe = {"seq": 2, "call": 2, "phase": "start", "at": 6, "server": "node-1", "rpc": "Probe"}
        end = {**start, "seq": 3, "phase": "end", "at": 9, "code": "Ok", "millis": 4}
        lines = [json.dumps(entry) + "\n" for entry in (start, probe, end)]
        stage, other = parse([*lines, '{"seq": 4, "cal'])
        self.assertEqual((stage.seq, stage.end_seq, stage.code, stage.place), (1, 3, "Ok", "node-1"))
        self.assertIsNone(other.end_seq)
        self.assertEqual(mutating([stage, other]), [stage])
