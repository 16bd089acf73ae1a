"""csi-sanity, the public conformance test of CSI drivers, against the loop driver."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import parts
from e2e.cluster.commands import tail

from ..registry import scenario
from ..world import Failed, World, expect

# A mount namespace of its own: what a failed run leaves mounted goes with it.
_PRIVATE = ["unshare", "--mount", "--propagation=private", "--"]
_CONNECTING = "STEP: connecting to CSI driver"
# It takes a capability for a defect that is newer than it is: GET_SNAPSHOT (csi-test v5.4.0, ControllerGetCapabilities).
_NEWER = "ControllerGetCapabilities should return appropriate capabilities"
# A case that it leaves out, as it does where a driver does not say that it has what the case is about.
_LEFT_OUT = re.compile(r"^S \[SKIPPED\].*\n(.*)$", re.MULTILINE)
_SUMMARY = re.compile(r"^(Ran .*|.*\d+ Passed.*)$", re.MULTILINE)


@scenario("csi-sanity passes against the loop driver", namespace="default", limit=240)
def csi_sanity(world: World) -> None:
    for shared in (False, True):
        world.note(f"{'shared' if shared else 'node-local'}: {_run(shared=shared)}")


def _run(*, shared: bool) -> str:
    folder = Path(tempfile.mkdtemp(prefix="moor-sanity-"))
    try:
        with _driver(folder, shared=shared) as driver:
            done = _sanity(folder, driver)
        summary = " / ".join(line.strip() for line in _SUMMARY.findall(done.stdout))
        expect(done.returncode == 0, f"csi-sanity failed: {summary}\n{_failures(done.stdout)}")
        expect(re.search(r"\b0 Failed\b", summary), f"csi-sanity does not say 0 Failed: {summary}")
        left_out = [case for case in _LEFT_OUT.findall(done.stdout) if "snapshot" in case.lower()]
        expect(not left_out, f"csi-sanity left out cases about snapshots: {left_out}")
        for kind in ("volumes", "snapshots", "groups"):
            left = list((folder / "state" / kind).glob("*"))
            expect(not left, f"csi-sanity left {kind} behind: {left}")
        return summary
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sanity(folder: Path, driver: _Driver) -> subprocess.CompletedProcess[str]:
    """Runs csi-sanity, and the driver once csi-sanity is connecting.

    It waits for its connection to change until that is ready. One that is ready before it begins to wait, as on a busy
    machine 4 of 532 were, never changes any more, and a minute later it gives up (csi-test v5.4.0, utils.Connect).
    """
    command = [
        parts.program("csi-sanity"), "--ginkgo.no-color", "--ginkgo.v", "--ginkgo.timeout=100s",
        "--ginkgo.skip", re.escape(_NEWER),
        "--csi.endpoint", f"unix://{driver.socket}",
        "--csi.stagingdir", folder / "stage", "--csi.mountdir", folder / "mount",
        "--csi.testvolumesize", "104857600",
    ]  # fmt: skip
    words = [str(word) for word in ("nsenter", "--target", driver.process.pid, "--mount", "--", *command)]
    output = folder / "sanity.log"
    with output.open("wb") as log:
        sanity = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _await("csi-sanity to connect", sanity, output, lambda: _CONNECTING in output.read_text(errors="replace"))
        driver.begin()
        code = sanity.wait(timeout=115)
    finally:
        if sanity.poll() is None:
            sanity.kill()
            sanity.wait(timeout=15)
    return subprocess.CompletedProcess(words, code, output.read_text(errors="replace"))


@dataclass(frozen=True)
class _Driver:
    """A loop driver of its own, beside those of the cluster, that begins when it is told."""

    process: subprocess.Popen[bytes]
    socket: Path
    log: Path

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        _await("the loop driver to serve", self.process, self.log, self.socket.exists)


@contextmanager
def _driver(folder: Path, *, shared: bool) -> Iterator[_Driver]:
    socket = folder / "csi.sock"
    command = [
        # It is in its namespace before it begins, so that csi-sanity can be there too.
        *_PRIVATE, "sh", "-c", 'cat; exec "$@"', "sh",
        parts.program("moor"), "loop-driver",
        f"--endpoint=unix://{socket}", "--node-id=sanity", f"--state-dir={folder / 'state'}",
    ]  # fmt: skip
    if shared:
        command.append("--shared")
    words = [str(word) for word in command]
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        namespace = Path(f"/proc/{driver.pid}/ns/mnt")
        _await("a namespace", driver, folder / "log", lambda: not namespace.samefile("/proc/self/ns/mnt"))
        yield _Driver(driver, socket, folder / "log")
    finally:
        if driver.stdin is not None:
            driver.stdin.close()
        driver.terminate()
        try:
            driver.wait(timeout=15)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait(timeout=15)


def _await(what: str, process: subprocess.Popen[bytes], log: Path, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"waited in vain for {what}:\n{tail(log.read_text(errors='replace'))}")
        time.sleep(0.02)


def _failures(output: str) -> str:
    lines = [line for line in output.splitlines() if "[FAIL]" in line]
    return "\n".join(lines) or tail(output)
