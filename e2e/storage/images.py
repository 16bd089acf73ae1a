"""The images of the suite's Pods, under names of our own: nothing is pulled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import Cluster, image, parts, step
from e2e.cluster.commands import run

REGISTRY = "moor.dev/e2e"
# What the storage suites and their framework name. Of all but the last they use a shell and its usual companions.
_SHELLS, _AGNHOST = ("busybox", "jessie-dnsutils", "nginx"), "agnhost"
# Specs that deploy something whose image there is no stand-in for, and why they are left out here.
NOT_HERE = {
    "any volume data source": "left out: it deploys hello-populator and volume-data-source-validator, whose images are not here"
}


def names(folder: Path) -> dict[str, str]:
    """The environment that has the suite take its images from our registry."""
    listed = folder / "registries.yaml"
    # JSON is YAML too.
    listed.write_text(json.dumps({"promoterE2eRegistry": REGISTRY}))
    return {"KUBE_TEST_REPO_LIST": str(listed)}


def load(cluster: Cluster, environment: Mapping[str, str]) -> None:
    """Makes stand-ins for the images, with the tags that this suite names, and loads them into all nodes."""
    listed = run([parts.program("e2e.test"), "--list-images"], env=environment).stdout.split()
    shells = sorted(reference for reference in listed if _name(reference) in _SHELLS)
    built = image.storage_tests(shells, sorted(reference for reference in listed if _name(reference) == _AGNHOST))
    with step(f"loading the images of the suite into {len(cluster.nodes)} nodes"):
        image.load_all(list(cluster.nodes), built)


def _name(reference: str) -> str:
    """Of an image of our registry; empty for others."""
    name, _, _ = reference.removeprefix(f"{REGISTRY}/").partition(":")
    return name if reference.startswith(f"{REGISTRY}/") else ""
