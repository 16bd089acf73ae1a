"""The cluster-wide half of VolumeSnapshots: their kinds, and the snapshot-controller that heeds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, parts
from e2e.cluster.processes import Component

PROGRAM = parts.SNAPSHOT_CONTROLLER


@contextmanager
def running(cluster: Cluster, kinds: Sequence[Path], *arguments: str) -> Iterator[None]:
    """Installs these kinds, runs the snapshot-controller with these arguments, and takes both away in the end.

    What is made of the kinds has to be gone then.
    """
    definitions = [_plain(cluster, path) for path in kinds]
    names = [f"crd/{definition['metadata']['name']}" for definition in definitions]
    cluster.apply({"apiVersion": "v1", "kind": "List", "items": definitions})
    cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    # As the administrator: its own rights are not what is tried here.
    usual = [f"--kubeconfig={cluster.kubeconfig}", "--retry-interval-max=1s", "--leader-election=false"]
    process = Component(PROGRAM, [parts.program(PROGRAM), *usual, *arguments])
    process.start()
    try:
        yield
        process.must_live()
    finally:
        process.kill()
        cluster.kubectl("delete", *names, "--timeout=30s")


def _plain(cluster: Cluster, path: Path) -> Any:
    """A definition, of the version alone that is stored: what translates between versions is a webhook, which is not there."""
    printed = cluster.kubectl("create", "--dry-run=client", "--output=json", "-f", str(path)).stdout
    definition = json.loads(printed)
    spec = definition["spec"]
    spec.pop("conversion", None)
    spec["versions"] = [version for version in spec["versions"] if version["storage"]]
    return definition
