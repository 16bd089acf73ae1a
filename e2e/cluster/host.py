"""What the cluster changes on the host outside its own folders, remembered so that it is undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import loops
from .node_config import mount_points
from .paths import HOST_NOTES, STATE

# Kubelet sets these without asking, and they are the host's.
_SET_BY_KUBELET = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# The default of 128 is used up by two kubelets, two containerds and what runs under them.
_RAISED = {"fs/inotify/max_user_instances": 1024, "fs/inotify/max_user_watches": 65536}


def prepare() -> None:
    """Remembers, then raises limits and makes the folders that nodes mount over."""
    settings = {name: value for name in (*_SET_BY_KUBELET, *_RAISED) if (value := _read(name)) is not None}
    made: dict[str, None] = {}
    for point in mount_points():
        for folder in (*reversed(point.parents), point):
            if not folder.exists():
                made[str(folder)] = None
    notes = {
        "state": str(STATE),
        "settings": settings,
        "folders": list(made),
        "loops": [loop.identity for loop in loops.attached()],
    }
    HOST_NOTES.write_text(json.dumps(notes, indent=1))
    for path in made:
        Path(path).mkdir(exist_ok=True)
    for name, wanted in _RAISED.items():
        if name in settings and int(settings[name]) < wanted:
            _write(name, str(wanted))


def owner() -> Path | None:
    """The state folder of the cluster on this machine, which may be another checkout's."""
    state = _notes().get("state")
    return None if state is None else Path(state)


def loops_before() -> list[str] | None:
    """The loop devices that were attached before the cluster; unknown without its notes."""
    known = _notes().get("loops")
    return None if known is None else [str(identity) for identity in known]


def restore() -> None:
    notes = _notes()
    for name, value in notes.get("settings", {}).items():
        if _read(name) != value:
            _write(name, value)
    for folder in reversed(notes.get("folders", [])):
        try:
            Path(folder).rmdir()
        except OSError:
            # Somebody else uses it by now.
            continue
    HOST_NOTES.unlink(missing_ok=True)


def _notes() -> dict[str, Any]:
    try:
        notes = json.loads(HOST_NOTES.read_text())
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _read(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _write(name: str, value: str) -> None:
    try:
        Path("/proc/sys", name).write_text(value)
    except OSError:
        # A container without that right; the cluster runs without it, with tighter limits.
        return
