"""The suite as a program: its command line, and where it says how it went."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from e2e.cluster import parts

_REPORT = "report.json"


def run(
    definitions: Sequence[Path],
    kubeconfig: Path,
    *,
    focus: str,
    left_out: Iterable[str],
    side_by_side: int,
    at_most: str,
    folder: Path,
    environment: Mapping[str, str],
    output: Path | None,
) -> Path:
    """Runs the suite, which prints as it goes, here or into a file, and returns the path of its report."""
    report = folder / _REPORT
    report.unlink(missing_ok=True)
    command = [
        parts.program("ginkgo"), "run",
        f"--procs={side_by_side}",
        # They are listed at the end, once for each reason.
        "--silence-skips", "--no-color",
        # Where a spec is when it takes long.
        "--poll-progress-after=10m",
        f"--timeout={at_most}",
        f"--focus=External.Storage.*({focus})",
        *(f"--skip={which}" for which in left_out),
        f"--output-dir={folder}",
        f"--json-report={_REPORT}",
        parts.program("e2e.test"),
        "--",
        "--provider=skeleton",
        f"--kubeconfig={kubeconfig}",
        f"--kubectl-path={parts.program('kubectl')}",
        # Files that a definition names are looked for beside it.
        f"--repo-root={definitions[0].parent}",
        *(f"--storage.testdriver={definition}" for definition in definitions),
    ]  # fmt: skip
    words = [str(word) for word in command]
    with (
        nullcontext() if output is None else output.open("wb") as printed,
        subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, env={**os.environ, **environment}
        ) as suite,
    ):
        try:
            suite.wait()
        except KeyboardInterrupt:
            # It ends its specs, cleans up behind them and tells what it has until then.
            suite.send_signal(signal.SIGINT)
            suite.wait()
    # The report says how it went, in more detail than the exit code.
    return report
