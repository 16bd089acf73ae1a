"""Taking a cluster away, whole or in ruins, by what identifies its pieces and not by what is recorded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import cgroups, host, loops, network
from .commands import run
from .messages import Problem
from .paths import HOST_NOTES, LOGS, REPOSITORY, STATE
from .processes import Process, all_pids, kill_all, recorded, same_namespace


def found() -> bool:
    """Whether anything of a cluster is left on this machine."""
    if network.exists() or _processes() or _mounts() or cgroups.pids() or HOST_NOTES.exists():
        return True
    return STATE.is_dir() and any(entry != LOGS for entry in STATE.iterdir())


def _foreign() -> Path | None:
    """The state folder of another checkout whose cluster still runs here."""
    state = host.owner()
    return state if state is not None and state != STATE and cgroups.pids() else None


def refuse_foreign() -> None:
    other = _foreign()
    if other is not None:
        raise Problem(
            f"the test cluster of another checkout is up: {other.parents[1]}",
            f"take it down first: make -C {other.parents[1]} down",
        )


def remove() -> None:
    """Ends, unmounts and deletes everything. Does nothing where nothing is left."""
    stubborn = kill_all(_processes())
    if stubborn:
        pids = " ".join(str(process.pid) for process in stubborn)
        raise Problem(f"processes of the cluster do not end: {pids}", "see what they wait for: cat /proc/PID/stack")
    network_left = network.exists()
    _unmount()
    # The state folder may be gone already, its file system is still the checkout's.
    loops.detach_under(STATE if STATE.is_dir() else REPOSITORY / "e2e", deleted_but=host.loops_before())
    if network_left:
        network.remove()
    cgroups.remove()
    host.restore()
    _delete_state()


def _processes() -> list[Process]:
    """All that the cluster started: recorded, or in its network namespaces, or in its cgroups."""
    pids = cgroups.pids()
    identities = []
    for name in network.namespaces():
        try:
            status = os.stat(Path("/run/netns", name))
        except OSError:
            continue
        identities.append((status.st_dev, status.st_ino))
    if identities:
        pids |= {pid for pid in all_pids() if any(same_namespace(pid, "net", identity) for identity in identities)}
    # Never ourselves, should somebody run this from inside a node.
    pids -= {os.getpid(), os.getppid()}
    alive = {process for pid in pids if (process := Process.of(pid)) is not None and process.alive}
    for record in recorded():
        process = record.process()
        if process is not None and process.alive:
            alive.add(process)
    return list(alive)


def _mounts() -> list[str]:
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if Path(point).is_relative_to(STATE):
            points.append(point)
    return points


def _unmount() -> None:
    for point in reversed(_mounts()):
        if run(["umount", point], check=False).returncode != 0:
            run(["umount", "--lazy", point])


def _delete_state() -> None:
    if not STATE.is_dir():
        return
    left = _mounts()
    if left:
        # Deleting through a mount would delete what is mounted.
        raise Problem(f"still mounted: {' '.join(left)}", "unmount it, then run `make down` again")
    for entry in STATE.iterdir():
        if entry == LOGS:
            # The logs of the last cluster stay readable until the next one starts.
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
