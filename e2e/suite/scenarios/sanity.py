"""csi-sanity, the public conformance test of CSI drivers, against the loop driver."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import parts
from e2e.cluster.commands import tail

from ..registry import scenario
from ..world import Failed, World, expect

# A mount namespace of its own: what a failed run leaves mounted goes with it.
_PRIVATE = ["unshare", "--mount", "--propagation=private", "--"]
_SUMMARY = re.compile(r"^(Ran .*|.*\d+ Passed.*)$", re.MULTILINE)


@scenario("csi-sanity passes against the loop driver", namespace="default", limit=240)
def csi_sanity(world: World) -> None:
    for shared in (False, True):
        world.note(f"{'shared' if shared else 'node-local'}: {_run(shared=shared)}")


def _run(*, shared: bool) -> str:
    folder = Path(tempfile.mkdtemp(prefix="moor-sanity-"))
    try:
        with _driver(folder, shared=shared) as socket:
            command = [
                parts.program("csi-sanity"), "--ginkgo.no-color", "--ginkgo.timeout=100s",
                "--csi.endpoint", f"unix://{socket}",
                "--csi.stagingdir", folder / "stage", "--csi.mountdir", folder / "mount",
                "--csi.testvolumesize", "104857600",
            ]  # fmt: skip
            enter = ["nsenter", "--target", _pid_in(folder), "--mount", "--"]
            words = [str(word) for word in (*enter, *command)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=115, check=False)
        summary = " / ".join(line.strip() for line in _SUMMARY.findall(done.stdout))
        expect(done.returncode == 0, f"csi-sanity failed: {summary}\n{_failures(done.stdout)}")
        expect(re.search(r"\b0 Failed\b", summary), f"csi-sanity does not say 0 Failed: {summary}")
        volumes = list((folder / "state" / "volumes").glob("*"))
        expect(not volumes, f"csi-sanity left volumes behind: {volumes}")
        return summary
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _driver(folder: Path, *, shared: bool) -> Iterator[Path]:
    """A loop driver of its own, beside those of the cluster."""
    socket = folder / "csi.sock"
    command = [
        *_PRIVATE, parts.program("moor"), "loop-driver",
        f"--endpoint=unix://{socket}", "--node-id=sanity", f"--state-dir={folder / 'state'}",
    ]  # fmt: skip
    if shared:
        command.append("--shared")
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    (folder / "pid").write_text(str(driver.pid))
    try:
        deadline = time.monotonic() + 15
        while not socket.exists():
            if driver.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the loop driver did not start:\n{tail((folder / 'log').read_text())}")
            time.sleep(0.05)
        yield socket
    finally:
        driver.terminate()
        try:
            driver.wait(timeout=15)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait(timeout=15)


def _pid_in(folder: Path) -> str:
    """The driver's pid: unshare becomes the driver, so it is the same."""
    return (folder / "pid").read_text()


def _failures(output: str) -> str:
    lines = [line for line in output.splitlines() if "[FAIL]" in line]
    return "\n".join(lines) or tail(output)
