"""Where things are: the checkout, the cluster's state inside it, and the caches outside it."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS_SOURCE = REPOSITORY / "e2e" / "parts"
STATE = REPOSITORY / "e2e" / ".cluster"
LOGS = STATE / "logs"
PROCESSES = STATE / "processes"
# Build products, not state: they stay when the cluster goes.
IMAGES = REPOSITORY / "target" / "image"
KUBECONFIG = STATE / "kubeconfig"
AUDIT_LOG = STATE / "audit.log"

# One cluster per machine, since bridge and namespaces have fixed names. Kept outside the checkout:
# whose it is and how to restore the host must survive an `rm -rf` of the checkout.
HOST_NOTES = Path("/run/moor-e2e.json")
LOCK = Path("/run/moor-e2e.lock")


def cache() -> Path:
    """Built parts outlive the checkout: a second clone on this machine builds nothing again."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "moor"


def node_directory(name: str) -> Path:
    return STATE / name
