"""Specs of the suite, run on a cluster: on one of ours with images of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import Cluster, parts
from e2e.cluster.paths import REPOSITORY

from . import ginkgo, images, outcome

_DEFINITIONS = Path(__file__).parent / "definitions"
# The loop driver: where both nodes reach every volume, and with a folder for each node.
OURS = (_DEFINITIONS / "shared.yaml", _DEFINITIONS / "node-local.yaml")
PROGRAMS = ("e2e.test", "ginkgo", "kubectl")
# What the Pods of the suite run on a cluster of ours.
PROGRAMS_HERE = (*PROGRAMS, "agnhost")
_FOLDER = REPOSITORY / "target" / "e2e-storage"


def run(
    definitions: Sequence[Path],
    kubeconfig: Path,
    ours: Cluster | None,
    *,
    focus: str = "",
    side_by_side: int = 4,
    at_most: str = "6h",
    output: Path | None = None,
) -> outcome.Outcome:
    """Runs the specs whose name matches `focus`, a regex, and returns what became of them."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    parts.ensure(PROGRAMS_HERE if ours else PROGRAMS)
    environment, left_out = {}, {}
    if ours:
        environment, left_out = images.names(_FOLDER), images.NOT_HERE
        images.load(ours, environment)
    report = ginkgo.run(
        definitions,
        kubeconfig,
        focus=focus,
        left_out=left_out,
        side_by_side=side_by_side,
        at_most=at_most,
        folder=_FOLDER,
        environment=environment,
        output=output,
    )
    return outcome.read(report, left_out, focus)
