"""What is made of ginkgo's reports."""

from __future__ import annotations

import unittest
from typing import Any

from . import outcome


def _spec(state: str, text: str, kind: str = "It", message: str = "") -> dict[str, Any]:
    failure = {"Failure": {"Message": message}} if message else {}
    texts = ["External Storage [Driver: d]", "suite"] if kind == "It" else None
    return {"ContainerHierarchyTexts": texts, "LeafNodeText": text, "LeafNodeType": kind, "State": state, **failure}


class OutcomeTest(unittest.TestCase):
    def test_skips_have_reasons_and_what_was_not_chosen_is_not_told(self) -> None:
        specs = [
            _spec("passed", "", "SynchronizedBeforeSuite"),
            _spec("passed", "works"),
            _spec("skipped", "snapshots", message="no snapshots\nat some line"),
            _spec("skipped", "of another suite"),
        ]
        found = outcome.of([{"SpecReports": specs}], {})
        self.assertTrue(found.good)
        self.assertEqual(
            found.lines(),
            ["skipped, 1: no snapshots", "    [Driver: d] suite snapshots", "1 passed, 0 failed, 1 skipped"],
        )

    def test_every_other_end_is_a_failure(self) -> None:
        for state in ("failed", "panicked", "interrupted", "aborted", "timedout"):
            found = outcome.of([{"SpecReports": [_spec("passed", "works"), _spec(state, "breaks")]}], {})
            self.assertEqual(found.failed, ["[Driver: d] suite breaks"])
            self.assertFalse(found.good)

    def test_what_is_no_test_can_fail(self) -> None:
        found = outcome.of([{"SpecReports": [_spec("failed", "", "SynchronizedBeforeSuite")]}], {})
        self.assertEqual(found.failed, ["failed: SynchronizedBeforeSuite"])
        found = outcome.of([{"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"], "SpecReports": None}], {})
        self.assertEqual(found.failed, ["Suite Timeout Elapsed"])

    def test_nothing_tested_is_not_good(self) -> None:
        self.assertFalse(outcome.of([{"SpecReports": [_spec("skipped", "of another suite")]}], {}).good)

    def test_what_was_left_out_is_told_with_the_reason(self) -> None:
        specs = [_spec("skipped", "populates"), _spec("skipped", "other"), _spec("passed", "works")]
        found = outcome.of([{"SpecReports": specs}], {"populates": "no images"})
        self.assertEqual(dict(found.skipped), {"no images": ["[Driver: d] suite populates"]})
        # Not of those that were asked for.
        self.assertEqual(dict(outcome.of([{"SpecReports": specs}], {"populates": "no images"}, "works").skipped), {})
