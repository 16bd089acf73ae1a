"""Long-running processes: started, recorded, and ended only if they are still the recorded ones.

A pid alone may be somebody else's by now; a pid together with its start time is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import tail
from .messages import Problem
from .paths import LOGS, PROCESSES


# The state of a listening socket in /proc/PID/net/tcp.
_LISTEN = "0A"


@dataclass(frozen=True)
class Process:
    """One process for its lifetime."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        fields = _stat(pid)
        return None if fields is None else cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        fields = _stat(self.pid)
        return fields is not None and int(fields[19]) == self.started and fields[0] not in "ZX"

    def listens(self, port: int) -> bool:
        """Whether somebody in its network namespace listens on a TCP port."""
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]
                if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == _LISTEN for line in lines):
                    return True
        return False

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_gone(self, timeout: float = 20) -> bool:
        deadline = time.monotonic() + timeout
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        _reap(self.pid)
        return True


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _reap(pid: int) -> None:
    """Collects it if it was a child of this very process, as in the suite."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def all_pids() -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def same_namespace(pid: int, kind: str, identity: tuple[int, int]) -> bool:
    try:
        found = os.stat(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == identity


def kill_all(victims: Iterable[Process], timeout: float = 20) -> list[Process]:
    """Ends them at once and returns those that would not go."""
    chosen = list(victims)
    for process in chosen:
        process.kill()
    deadline = time.monotonic() + timeout
    return [process for process in chosen if not process.wait_gone(max(0.1, deadline - time.monotonic()))]


class Record:
    """What is written down about a process, for later runs of the harness."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = PROCESSES / f"{name}.json"

    def write(self, process: Process, argv: Sequence[str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"pid": process.pid, "started": process.started, "argv": list(argv)}
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(content, indent=1))
        temporary.replace(self.path)

    def process(self) -> Process | None:
        try:
            content = json.loads(self.path.read_text())
            return Process(int(content["pid"]), int(content["started"]))
        except (OSError, ValueError, KeyError):
            return None

    def argv(self) -> list[str]:
        words = json.loads(self.path.read_text())["argv"]
        return [str(word) for word in words]


def recorded() -> list[Record]:
    if not PROCESSES.is_dir():
        return []
    return [Record(path.stem) for path in sorted(PROCESSES.glob("*.json"))]


class Component:
    """A process of the control plane: one program on the host side, restartable at will."""

    def __init__(self, name: str, argv: Sequence[str | Path] = ()) -> None:
        self.name = name
        self.record = Record(name)
        self.log = LOGS / f"{name}.log"
        self._argv = [str(word) for word in argv]

    @property
    def argv(self) -> list[str]:
        return self._argv or self.record.argv()

    @property
    def alive(self) -> bool:
        process = self.record.process()
        return process is not None and process.alive

    @property
    def pid(self) -> int | None:
        process = self.record.process()
        return process.pid if process is not None and process.alive else None

    def start(self) -> None:
        argv = self.argv
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                argv, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        # Not a child that is waited for: it outlives this process by design.
        child.returncode = 0
        process = Process.of(child.pid)
        if process is None:
            raise Problem(f"{self.name} ended at once", f"its log: {self.log}\n{self.last_words()}")
        self.record.write(process, argv)

    def kill(self, number: int = signal.SIGKILL) -> None:
        process = self.record.process()
        if process is not None:
            process.kill(number)
            if not process.wait_gone():
                raise Problem(f"{self.name} (pid {process.pid}) does not end")

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        process = self.record.process()
        if process is not None:
            process.kill(number)

    def must_live(self) -> None:
        if not self.alive:
            raise Problem(f"{self.name} has ended", f"its log: {self.log}\n{self.last_words()}")

    def last_words(self) -> str:
        try:
            return tail(self.log.read_text(errors="replace"), 12)
        except OSError:
            return ""
