"""The self-tests of the suite's own checks, run before anything is trusted to them."""

from __future__ import annotations

import io
import unittest

from e2e.storage import left_test, outcome_test

from . import audit_test, leaks_test, soak_test, soak_volumes_test, trace_locks_test, trace_test

_MODULES = (
    trace_test, trace_locks_test, leaks_test, audit_test, soak_test, soak_volumes_test, outcome_test, left_test,
)  # fmt: skip


def run() -> tuple[int, list[str]]:
    """How many passed, and what failed."""
    loader = unittest.defaultTestLoader
    tests = unittest.TestSuite(loader.loadTestsFromModule(module) for module in _MODULES)
    result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(tests)
    broken = [f"{test}\n{trace}" for test, trace in (*result.failures, *result.errors)]
    return result.testsRun - len(broken), broken
