"""A cgroup per node in every hierarchy of the host, and the view of it inside the node.

A node's cgroup namespace is rooted at its own cgroup, so two kubelets do not see each other's
containers and what a node leaves behind is known by its place. Handles version 1, version 2
and the hybrid of both.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from .messages import Problem

_ROOT = "moor-e2e"
_MOUNT_FLAGS = {"rw", "ro", "xattr", "seclabel"}


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup hierarchy."""

    mountpoint: Path
    kind: str  # cgroup or cgroup2
    options: str

    @property
    def root(self) -> Path:
        return self.mountpoint / _ROOT


def hierarchies() -> list[Hierarchy]:
    found: dict[Path, Hierarchy] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        mountpoint = Path(before.split()[4])
        if kind not in ("cgroup", "cgroup2") or not mountpoint.is_relative_to("/sys/fs/cgroup"):
            continue
        controllers = [word for word in options.split(",") if word not in _MOUNT_FLAGS]
        if kind == "cgroup2":
            controllers = []
        elif any(word.startswith("name=") for word in controllers):
            controllers.insert(0, "none")
        found[mountpoint] = Hierarchy(mountpoint, kind, ",".join(controllers))
    return list(found.values())


def create(node: str) -> None:
    every = hierarchies()
    if not every:
        raise Problem("no cgroup hierarchy is mounted under /sys/fs/cgroup", "mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    for hierarchy in every:
        # A fresh group: in version 2 one that once had controllers on could not be entered.
        _remove_tree(hierarchy.root / node)
        group = hierarchy.mountpoint
        for name in (_ROOT, node, "init"):
            group = group / name
            group.mkdir(exist_ok=True)
            _inherit_cpuset(group)
        if hierarchy.kind == "cgroup2":
            for parent in (hierarchy.mountpoint, hierarchy.root):
                _enable_controllers(parent)


def _inherit_cpuset(group: Path) -> None:
    """A version 1 cpuset group admits no process before its processors and memory are named."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        setting = group / name
        if setting.exists() and not (group / "cgroup.subtree_control").exists() and not setting.read_text().strip():
            setting.write_text((group.parent / name).read_text())


def _enable_controllers(group: Path) -> None:
    for controller in (group / "cgroup.controllers").read_text().split():
        try:
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            # Some cannot be delegated here (real-time processes for cpu); pods do without limits then.
            continue


def outer_groups(node: str) -> list[Path]:
    return [hierarchy.root / node for hierarchy in hierarchies()]


def inner_groups(node: str) -> list[Path]:
    """Where the node's own daemons live: not in its root, where version 2 allows no process."""
    return [group / "init" for group in outer_groups(node)]


def mount_script() -> str:
    """Shell lines that mount the hierarchies anew inside a node, rooted at its own cgroup."""
    every = hierarchies()
    if any(hierarchy.mountpoint == Path("/sys/fs/cgroup") for hierarchy in every):
        return (
            "mount -t cgroup2 cgroup2 /sys/fs/cgroup\n"
            "for c in $(cat /sys/fs/cgroup/cgroup.controllers); do\n"
            '  echo "+$c" > /sys/fs/cgroup/cgroup.subtree_control || true\n'
            "done\n"
        )
    lines = ["mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup"]
    for hierarchy in every:
        options = f"-o {hierarchy.options} " if hierarchy.options else ""
        lines.append(f"mkdir -p {hierarchy.mountpoint}")
        lines.append(f"mount -t {hierarchy.kind} {options}cgroup {hierarchy.mountpoint}")
    return "\n".join(lines) + "\n"


def pids(node: str | None = None) -> set[int]:
    """Every process in the groups of one node, or of all."""
    members: set[int] = set()
    for hierarchy in hierarchies():
        top = hierarchy.root / node if node else hierarchy.root
        for folder, _, files in os.walk(top):
            if "cgroup.procs" in files:
                try:
                    members.update(int(word) for word in Path(folder, "cgroup.procs").read_text().split())
                except OSError:
                    continue
    members.discard(0)
    return members


def remove(node: str | None = None) -> None:
    for hierarchy in hierarchies():
        _remove_tree(hierarchy.root / node if node else hierarchy.root)


def _remove_tree(top: Path, patience: float = 5) -> None:
    deadline = time.monotonic() + patience
    for folder, _, _ in os.walk(top, topdown=False):
        while True:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                # Busy until the kernel has buried the last process.
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
            break
