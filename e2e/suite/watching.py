"""What a user sees with `kubectl get --watch`, collected while something happens."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Cluster, parts

# Event, name, state; one line per change.
_COLUMNS = "jsonpath={.type} {.object.metadata.name} {.object.status.state}{'\\n'}"


@contextmanager
def watch(cluster: Cluster, kind: str, first: str) -> Iterator[list[str]]:
    """Watches a kind and collects lines like `MODIFIED name state`. Begins when it has seen `first`."""
    command = [
        str(parts.program("kubectl")), f"--kubeconfig={cluster.kubeconfig}",
        "get", kind, "--watch", "--output-watch-events", "-o", _COLUMNS,
    ]  # fmt: skip
    seen: list[str] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    lines = process.stdout

    def collect() -> None:
        for line in lines:
            seen.append(line.strip())

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    try:
        cluster.wait_for(f"the watch of {kind} to show {first}", lambda: any(first in line for line in seen), 20, 0.02)
        yield seen
    finally:
        process.terminate()
        process.wait(timeout=10)
        reader.join(timeout=10)


def states(lines: list[str], name: str) -> list[str]:
    """The states that one object went through, each once, and DELETED if it has gone."""
    found: list[str] = []
    for line in list(lines):
        event, _, rest = line.partition(" ")
        about, _, state = rest.partition(" ")
        if about != name:
            continue
        word = "DELETED" if event == "DELETED" else state
        if not found or found[-1] != word:
            found.append(word)
    return found
