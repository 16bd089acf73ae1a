"""How a run of the suite went, from ginkgo's report."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster import Problem

_PREFIX = "External Storage "


@dataclass
class Outcome:
    """What became of each spec that was chosen."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    # By reason: what the suite says of it.
    skipped: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def good(self) -> bool:
        """A run in which nothing was tested is none."""
        return bool(self.passed) and not self.failed

    def lines(self) -> list[str]:
        """The skips with their reasons, what failed, and the numbers."""
        lines = []
        for reason, names in sorted(self.skipped.items()):
            lines += [f"skipped, {len(names)}: {reason}", *(f"    {name}" for name in sorted(names))]
        lines += [f"failed: {name}" for name in self.failed]
        skips = sum(len(names) for names in self.skipped.values())
        return [*lines, f"{len(self.passed)} passed, {len(self.failed)} failed, {skips} skipped"]


def read(path: Path, left_out: Mapping[str, str], focus: str) -> Outcome:
    """What the report in a file tells; `left_out` are the regexes of specs that were not to run, and why."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Problem(f"the suite has left no report: {error}", "what it printed above says why") from None
    return of(content, left_out, focus)


def of(suites: list[dict[str, Any]], left_out: Mapping[str, str], focus: str = "") -> Outcome:
    """The outcome that a report tells of."""
    outcome = Outcome()
    for suite in suites:
        # What went wrong beside the specs, such as its time being over.
        outcome.failed += [str(reason) for reason in suite.get("SpecialSuiteFailureReasons") or []]
        for spec in suite.get("SpecReports") or []:
            _add(outcome, spec, left_out, focus)
    return outcome


def _add(outcome: Outcome, spec: dict[str, Any], left_out: Mapping[str, str], focus: str) -> None:
    full = " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
    name = full.removeprefix(_PREFIX)
    is_test = spec["LeafNodeType"] == "It"
    match spec["State"]:
        case "passed":
            if is_test:
                outcome.passed.append(name)
        case "skipped" | "pending":
            said = (spec.get("Failure") or {}).get("Message", "").strip()
            if not said and full.startswith(_PREFIX) and re.search(focus, name):
                said = next((why for which, why in left_out.items() if re.search(which, name)), "")
            # Without words it was not chosen.
            if is_test and said:
                outcome.skipped[said.splitlines()[0]].append(name)
        case state:
            outcome.failed.append(name if is_test else f"{state}: {spec['LeafNodeType']} {name}".rstrip())
