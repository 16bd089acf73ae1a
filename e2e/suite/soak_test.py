"""Self-tests of the soak: its plan, its ledger of bytes, and what it calls wrong."""

from __future__ import annotations

import hashlib
import unittest
from itertools import islice

from .objects import Object
from .soak.__main__ import scenario
from .soak.actions import (
    BLACKOUT, CLAIM, CRASH, FORCE, FORGET, LOSE, MAKE, MOST_CLAIMS, MOST_SNAPSHOTS, MOVE, NODES, REPLACE, RESTORE, SNAPSHOT,
    START, UNTAINT, WEIGHTS, WRITE, Action, Disk, Plan,
)  # fmt: skip
from .soak.invariants import broken, unsettled
from .soak.ledger import NOTHING, SIZE, Ledger, pattern
from .soak.run import command

MANY = 2000


def _actions(seed: int, *, losing: bool = False) -> list[Action]:
    weights = {**WEIGHTS, LOSE: 6} if losing else WEIGHTS
    return list(islice(Plan(seed, weights), MANY))


class CommandTest(unittest.TestCase):
    def test_what_make_soak_runs_is_a_scenario(self) -> None:
        made = scenario(7, 600)
        self.assertIn("7", made.title)
        self.assertGreater(made.limit, 600)

    def test_it_names_seed_and_time(self) -> None:
        self.assertEqual(command(3, 600), "make soak SEED=3 MINUTES=10 VOLUMES=0")
        self.assertEqual(command(3, 75), "make soak SEED=3 MINUTES=1.25 VOLUMES=0")


class PlanTest(unittest.TestCase):
    def test_a_seed_decides_everything(self) -> None:
        self.assertEqual(_actions(7), _actions(7))
        self.assertEqual([str(action) for action in _actions(7)], [str(action) for action in _actions(7)])
        self.assertNotEqual(_actions(7), _actions(8))

    def test_every_kind_comes_up(self) -> None:
        weighed = {MAKE, *(kind for kind, weight in WEIGHTS.items() if weight)}
        # A node is tainted only when it is declared lost.
        without = weighed if LOSE in weighed else weighed - {UNTAINT}
        self.assertEqual({action.kind for action in _actions(1)}, without)
        self.assertEqual({action.kind for action in _actions(1, losing=True)}, {MAKE, *WEIGHTS})

    def test_only_what_is_there_is_used(self) -> None:
        for seed in range(5):
            volumes: set[str] = set()
            snapshots: set[str] = set()
            claims: dict[str, str] = {}
            for action in _actions(seed, losing=True):
                for name in action.old:
                    del claims[name]
                if action.claim is not None:
                    self.assertIn(action.claim.volume, volumes)
                    self.assertNotIn(action.claim.name, claims)
                    claims[action.claim.name] = action.claim.volume
                if action.kind == MAKE:
                    self.assertNotIn(action.volume, volumes)
                    volumes.add(action.volume)
                elif action.kind == SNAPSHOT:
                    self.assertIn(action.volume, volumes)
                    snapshots.add(action.snapshot)
                    self.assertLessEqual(len(snapshots), MOST_SNAPSHOTS)
                elif action.kind == FORGET:
                    snapshots.remove(action.snapshot)
                elif action.kind in (REPLACE, RESTORE):
                    self.assertTrue(action.kind == REPLACE or action.snapshot in snapshots)
                    volumes.remove(action.volume)
                    self.assertNotIn(action.volume, claims.values())
                elif action.kind == WRITE:
                    self.assertIn(action.volume, volumes)
                self.assertLessEqual(len(claims), MOST_CLAIMS + 1)
                self.assertLessEqual(len(volumes), 5)

    def test_nodes_go_and_come_back(self) -> None:
        for seed in range(5):
            down: set[str] = set()
            tainted: set[str] = set()
            for action in _actions(seed, losing=True):
                if action.kind == CRASH:
                    self.assertFalse(down)
                    down.add(action.node)
                elif action.kind == BLACKOUT:
                    down = set(NODES)
                elif action.kind == START:
                    down.remove(action.node)
                elif action.kind == LOSE:
                    self.assertEqual(down, {action.node})
                    tainted.add(action.node)
                elif action.kind == UNTAINT:
                    self.assertNotIn(action.node, down)
                    tainted.remove(action.node)
                elif action.role:
                    self.assertNotIn(action.node, down)

    def test_the_claims_of_a_lost_node_move(self) -> None:
        plan = Plan(3, {**WEIGHTS, LOSE: 6})
        for action in islice(plan, MANY):
            if action.kind != LOSE:
                continue
            moves = list(plan._due)
            self.assertTrue(all(move.kind == MOVE and move.claim.node != action.node for move in moves if move.claim))
            self.assertFalse([claim for claim in plan.claims.values() if claim.node == action.node])
            if moves:
                return
        self.fail("no node with claims was lost")

    def test_a_claim_is_one_that_the_api_takes(self) -> None:
        for action in _actions(2):
            if action.claim is not None and action.claim.mode in ("SingleNodeReader", "MultiNodeReader"):
                self.assertTrue(action.claim.read_only)
            if action.kind == FORCE:
                self.assertTrue(action.old)

    def test_what_is_restored_is_as_large_as_its_snapshot(self) -> None:
        disks: dict[str, Disk | None] = {}
        kept: dict[str, Disk | None] = {}
        restored = 0
        for action in _actions(4):
            if action.kind == MAKE:
                disks[action.volume] = action.disk
                if action.snapshot:
                    self.assertEqual(action.disk, kept[action.snapshot])
                    restored += 1
            elif action.kind == SNAPSHOT:
                kept[action.snapshot] = disks[action.volume]
        self.assertGreater(restored, 0)

    def test_a_line_says_all(self) -> None:
        claimed = [action for action in _actions(1) if action.kind == CLAIM and action.claim and action.claim.node]
        line = str(claimed[0])
        self.assertRegex(line, r"^claim claim-\d+ of data-\d+ on node-\d, \w+")


class LedgerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.ledger = Ledger(1)

    def write(self, slot: int = 0, node: str = "node-1", *, synced: bool = True) -> str:
        written, text = self.ledger.next("v", slot, node, synced=synced)
        self.ledger.made(written)
        self.assertEqual(written.digest, hashlib.sha256(text.encode()).hexdigest())
        return written.digest

    def test_patterns_are_whole_and_unlike_each_other(self) -> None:
        every = {pattern(seed, volume, slot, 1) for seed in (1, 2) for volume in "ab" for slot in (0, 1)}
        self.assertEqual(len(every), 8)
        self.assertEqual({len(text.encode()) for text in every}, {SIZE})

    def test_the_last_write_counts(self) -> None:
        old, new = self.write(), self.write()
        self.assertEqual(self.ledger.wrong("v", {0: new}), [])
        self.assertRegex(self.ledger.wrong("v", {0: old})[0], "slot 0 holds write 1 .* and not write 2")

    def test_a_write_that_was_not_made_does_not_count(self) -> None:
        digest = self.write()
        self.ledger.next("v", 0, "node-1", synced=True)
        self.assertEqual(self.ledger.wrong("v", {0: digest}), [])

    def test_what_may_be_there_instead(self) -> None:
        self.write()
        self.assertRegex(self.ledger.wrong("v", {})[0], "holds nothing at all")
        self.assertRegex(self.ledger.wrong("v", {0: NOTHING})[0], "holds an empty file")
        self.assertRegex(self.ledger.wrong("v", {0: "other"})[0], "holds bytes that were never written")

    def test_other_volumes_and_slots_are_others(self) -> None:
        first, second = self.write(0), self.write(1)
        self.assertEqual(len(self.ledger.wrong("v", {0: second, 1: first})), 2)
        self.assertEqual(self.ledger.wrong("w", {}), [])

    def test_a_crash_excuses_what_was_not_synced_there(self) -> None:
        self.write(0, synced=False)
        self.write(1, synced=True)
        elsewhere = self.write(2, "node-2", synced=False)
        self.assertEqual(len(self.ledger.wrong("v", {2: elsewhere})), 2)
        self.assertEqual((self.ledger.certain("v"), self.ledger.certain("w")), (3, 0))
        self.ledger.crashed("node-1")
        self.assertEqual(self.ledger.certain("v"), 2)
        self.assertRegex("".join(self.ledger.wrong("v", {2: elsewhere})), "^v slot 1 ")
        self.assertEqual(len(self.ledger.wrong("v", {})), 2)

    def test_a_snapshot_has_what_was_synced_and_not_written_since(self) -> None:
        kept, torn, loose = self.write(0), self.write(1), self.write(2, synced=False)
        self.ledger.snapshot_asked("s", "v")
        late = self.write(1)
        self.ledger.snapshot_made("s")
        later = self.write(0)
        self.ledger.restored("w", "s")
        self.assertEqual(self.ledger.certain("w"), 1)
        self.assertEqual(self.ledger.wrong("w", {0: kept, 1: torn}), [])
        self.assertEqual(self.ledger.wrong("w", {0: kept, 1: late, 2: loose}), [])
        self.assertRegex(self.ledger.wrong("w", {0: later})[0], "^w slot 0 holds write 5 .* to v, and not write 1 ")
        self.assertEqual(self.ledger.wrong("v", {0: later, 1: late, 2: loose}), [])


def _claim(name: str, node: str, mode: str, state: str = "Ready", *, going: bool = False, **spec: object) -> Object:
    meta = {"name": name, **({"deletionTimestamp": "now"} if going else {})}
    granted = {"assignment": {"nodeName": node}} if node else {}
    fields = {"volumeName": "v", "accessMode": mode, "attachmentMode": "FileSystem", **granted, **spec}
    return {"metadata": meta, "spec": fields, "status": {"state": state, "targetPath": f"/{name}"}}


class InvariantsTest(unittest.TestCase):
    def bad(self, words: str, *claims: Object) -> None:
        found = broken(claims)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_what_is_allowed(self) -> None:
        shared = [_claim(name, "node-1", "SingleNodeMultiWriter") for name in "ab"]
        self.assertEqual(broken([*shared, _claim("c", "node-2", "SingleNodeMultiWriter", "Taken")]), [])
        readers = [_claim(node, node, "MultiNodeReader", readOnly=True) for node in NODES]
        self.assertEqual(broken(readers), [])
        writer = _claim("w", "node-1", "MultiNodeSingleWriter")
        self.assertEqual(broken([writer, _claim("r", "node-2", "MultiNodeSingleWriter", readOnly=True)]), [])
        other = _claim("o", "node-2", "SingleNodeWriter", volumeName="other")
        self.assertEqual(broken([_claim("a", "node-1", "SingleNodeWriter"), other]), [])

    def test_what_is_not(self) -> None:
        def two(mode: str, *nodes: str) -> list[Object]:
            return [_claim(f"c{number}", node, mode) for number, node in enumerate(nodes)]

        self.bad("on two nodes", *two("SingleNodeWriter", *NODES))
        self.bad("has two claims", *two("SingleNodeSingleWriter", "node-1", "node-1"))
        self.bad("has two writers", *two("MultiNodeSingleWriter", *NODES))
        self.bad("in two modes", *two("SingleNodeWriter", "node-1"), _claim("d", "node-1", "SingleNodeMultiWriter"))
        self.bad("the same path", *[_claim("same", "node-1", "SingleNodeMultiWriter") for _ in range(2)])

    def test_who_is_leaving_still_holds(self) -> None:
        leaving = _claim("a", "node-1", "SingleNodeWriter", going=True)
        self.bad("on two nodes", leaving, _claim("b", "node-2", "SingleNodeWriter"))

    def test_rest(self) -> None:
        ready, waiting = _claim("a", "node-1", "SingleNodeWriter"), _claim("b", "", "SingleNodeWriter", "Pending")
        self.assertEqual(unsettled([ready, waiting, _claim("c", "node-1", "SingleNodeWriter", "Lost")]), [])
        self.assertEqual(unsettled([waiting]), ["nobody holds v, and 1 claims wait"])
        self.assertEqual(unsettled([ready, _claim("d", "node-1", "SingleNodeWriter", "Taken")]), ["d is Taken"])
        gone = _claim("e", "node-1", "SingleNodeWriter", going=True)
        self.assertEqual(unsettled([ready, gone]), ["e is still being deleted"])
