"""Self-tests of the soak of volumes: its plan, and what it calls an orphan."""

from __future__ import annotations

import unittest

from .calls import ATTACH, CREATE, DELETE, Call
from .content import Kind
from .driver import AFTER
from .pods import ROLES
from .soak import lives, volumes
from .soak.__main__ import scenario_of_volumes
from .soak.lives import CLAIM, EXPAND, RELEASE, SNAPSHOT, STEPS, Death, Event, Forget, Life, Plan, Trouble
from .world import Failed

MANY = 1000


def _events(seed: int, count: int = MANY) -> list[Event]:
    return list(Plan(seed, count))


def _lives(seed: int, count: int = MANY) -> list[Life]:
    return [event for event in _events(seed, count) if isinstance(event, Life)]


class PlanTest(unittest.TestCase):
    def test_a_seed_decides_everything(self) -> None:
        self.assertEqual(_events(7), _events(7))
        self.assertNotEqual(_events(7), _events(8))

    def test_there_are_as_many_lives_as_were_asked_for_and_all_end(self) -> None:
        found = _lives(1)
        self.assertEqual(len({life.name for life in found}), MANY)
        self.assertTrue(all(life.steps[-1].kind == lives.DELETE for life in found))
        self.assertEqual({step.kind for life in found for step in life.steps}, set(STEPS))
        # Nearly all of them grow and are snapshotted.
        for kind in (EXPAND, SNAPSHOT):
            self.assertGreater(sum(any(step.kind == kind for step in life.steps) for life in found), 0.85 * MANY)

    def test_a_copy_is_as_large_and_of_the_kind_of_its_source(self) -> None:
        for seed in range(5):
            asked: dict[str, tuple[Kind, int]] = {}
            for life in _lives(seed):
                source = life.of_volume or life.of_snapshot
                if source:
                    self.assertEqual((life.kind, life.mebibytes), asked[source])
                size = life.mebibytes
                for step in life.steps:
                    if step.kind == EXPAND:
                        self.assertGreater(step.mebibytes, size)
                        size = step.mebibytes
                    elif step.kind == SNAPSHOT:
                        asked[step.snapshot] = (life.kind, size)
                asked[life.name] = (life.kind, size)

    def test_a_volume_has_one_claim_at_a_time(self) -> None:
        for life in _lives(2):
            claims = [step.kind for step in life.steps if step.kind in (CLAIM, RELEASE)]
            self.assertEqual(claims, [(CLAIM, RELEASE)[number % 2] for number in range(len(claims))])

    def test_a_snapshot_is_forgotten_once_and_after_it_was_asked_for(self) -> None:
        asked: set[str] = set()
        for event in _events(3):
            if isinstance(event, Life):
                asked |= {step.snapshot for step in event.steps if step.snapshot}
            elif isinstance(event, Forget):
                asked.remove(event.snapshot)
        self.assertLessEqual(len(asked), lives.MOST_SNAPSHOTS)

    def test_a_driver_that_has_done_something_does_not_say_that_it_has_not(self) -> None:
        troubles = [event for seed in range(5) for event in _events(seed) if isinstance(event, Trouble)]
        after = {trouble.code for trouble in troubles if trouble.when == AFTER}
        self.assertEqual(after, {"", *lives.AFTER_CODES})
        self.assertTrue({"Internal", "ResourceExhausted"} & {trouble.code for trouble in troubles})

    def test_the_short_one_has_something_of_everything(self) -> None:
        events = _events(volumes.SHORT_SEED, volumes.SHORT)
        self.assertEqual({event.role for event in events if isinstance(event, Death)}, set(ROLES))
        found = [event for event in events if isinstance(event, Life)]
        self.assertTrue(any(life.of_volume for life in found) and any(life.of_snapshot for life in found))


class OrphanTest(unittest.TestCase):
    def test_what_was_used_has_to_be_deleted(self) -> None:
        def call(seq: int, rpc: str, code: str) -> Call:
            return Call(seq, rpc, "node-1", volume="v", code=code)

        used = call(1, ATTACH, "Ok")
        volumes.expect_balance([used, call(2, DELETE, "Unavailable"), call(3, DELETE, "Ok")])
        volumes.expect_balance([Call(1, CREATE, "node-1", name="n", code="Ok"), call(2, ATTACH, "Internal")])
        with self.assertRaisesRegex(Failed, "never said that it has deleted v"):
            volumes.expect_balance([used, call(2, DELETE, "Unavailable")])


class LogTest(unittest.TestCase):
    def test_a_conflict_is_no_warning(self) -> None:
        line = "[pod/moor-agent-x/agent] 2026-01-01T00:00:00Z {} moor: update Volume ns/v: {}"
        changed = "it has changed since it was read"
        volumes.expect_calm("\n".join([line.format("DEBUG", changed), line.format(" WARN", "forbidden")]))
        with self.assertRaisesRegex(Failed, "warns of what is ordinary"):
            volumes.expect_calm(line.format(" WARN", changed))


class CommandTest(unittest.TestCase):
    def test_what_make_soak_runs_is_a_scenario(self) -> None:
        made = scenario_of_volumes(7, MANY)
        self.assertIn("1000 volumes with seed 7", made.title)
        self.assertGreater(made.limit, MANY)

    def test_it_names_seed_and_count(self) -> None:
        self.assertEqual(volumes.command(3, 60), "make soak SEED=3 MINUTES=0 VOLUMES=60")
