"""What is printed when a scenario fails, for whoever has to find out why."""

from __future__ import annotations

from e2e.cluster import Cluster, Problem

from .pods import AGENT, CONTROLLER, DRIVER, Pods
from .world import World

LOG_LINES = 25
CALLS = 60


def describe(world: World) -> str:
    """The objects concerned, the calls so far, and the last words of everyone involved."""
    parts = [
        ("claims, volumes and snapshots", _kubectl(world.cluster, "describe", "-n", world.namespace, "volumeclaims,volumes,snapshots")),
        ("attachments", _kubectl(world.cluster, "describe", "attachments")),
        ("everything of moor", _kubectl(world.cluster, "get", _KINDS, "--all-namespaces", "-o", "wide")),
        ("pods", _kubectl(world.cluster, "get", "pods", "--all-namespaces", "-o", "wide")),
        ("events", _kubectl(world.cluster, "get", "events", "-n", world.namespace)),
        ("calls of this scenario", "\n".join(call.told() for call in world.calls()[-CALLS:])),
    ]
    pods = Pods(world.cluster)
    for role in (CONTROLLER, AGENT, DRIVER):
        parts.append((f"log of the {role}s", pods.logs(role, LOG_LINES)))
    return "\n".join(f"--- {title}\n{indent(text.rstrip() or '(nothing)')}" for title, text in parts)


_KINDS = "plugins,plugininstances,volumes,snapshots,volumeclaims,volumehandles,attachments"


def indent(text: str, by: str = "    ") -> str:
    return "\n".join(f"{by}{line}" for line in text.splitlines())


def _kubectl(cluster: Cluster, *arguments: str) -> str:
    try:
        done = cluster.kubectl(*arguments, check=False, timeout=30)
    except Problem as problem:
        return str(problem)
    return done.stdout + done.stderr
