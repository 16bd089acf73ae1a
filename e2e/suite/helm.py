"""Helm, as scenarios use it."""

from __future__ import annotations

import subprocess

from e2e.cluster import Problem, parts

from .world import World


def helm(world: World, namespace: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [
        str(parts.program("helm")), *arguments, "--namespace", namespace, "--kubeconfig", str(world.cluster.kubeconfig)
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False)
    if check and done.returncode != 0:
        raise Problem(f"helm {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done
