"""One node: a machine made of namespaces, with a real containerd and kubelet in it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from . import cgroups, loops, network, node_config, parts
from .certificates import node_identity
from .commands import run, tail
from .messages import Problem
from .network import Network
from .paths import LOGS, node_directory
from .processes import Component, Process, Record, all_pids, kill_all, same_namespace

CONTAINERD = "containerd"
KUBELET = "kubelet"
_KUBELET_PORT = 10250


class Node:
    """A node by its number. Holds no state: any run of the harness may pick it up."""

    def __init__(self, number: int, addresses: Network) -> None:
        self.number = number
        self.name = f"node-{number}"
        self.address = addresses.node(number)
        self.directory = node_directory(self.name)
        self.network = addresses
        self._boot = Component(self.name)
        self._init = Record(f"{self.name}-init")

    # The machine.

    @property
    def pid(self) -> int:
        """The host's pid of the node's process 1."""
        process = self._init.process()
        if process is None or not process.alive:
            raise Problem(f"{self.name} is not running", "Node.start() starts it; `make up` starts the cluster")
        return process.pid

    @property
    def running(self) -> bool:
        process = self._init.process()
        return process is not None and process.alive

    @property
    def boot_id(self) -> str:
        return (self.directory / "boot-id").read_text().strip()

    def boot(self) -> None:
        """The machine without its daemons: namespaces, mounts, process 1."""
        pid_file = self.directory / "init-pid"
        pid_file.unlink(missing_ok=True)
        cgroups.create(self.name)
        self._boot = Component(self.name, node_config.write_boot(self.name, self.number))
        self._boot.start()
        deadline = time.monotonic() + 15
        self._await(pid_file, self._boot, deadline)
        process = Process.of(int(pid_file.read_text()))
        if process is None:
            raise Problem(f"{self.name} ended while starting", f"its log: {self._boot.log}")
        self._init.write(process, [])
        self._open_window(deadline)

    def _open_window(self, deadline: float) -> None:
        """The process whose pid is in the file `pid`: see node_config.window_script."""
        pid_file = self.directory / "pid"
        pid_file.unlink(missing_ok=True)
        enter = ["nsenter", "-t", str(self.pid), "-m", "-n", "unshare", "--mount", "--propagation", "unchanged"]
        window = Component(f"{self.name}-window", [*enter, "sh", "-c", node_config.window_script(self.name)])
        window.start()
        self._await(pid_file, window, deadline)

    def _await(self, file: Path, component: Component, deadline: float) -> None:
        while not file.exists():
            if not component.alive or time.monotonic() > deadline:
                raise Problem(f"{self.name} did not start", f"its log: {component.log}\n{component.last_words()}")
            time.sleep(0.01)

    def start(self) -> None:
        """Boots it again, after crash(), with everything it needs to take part in the cluster."""
        if self.running:
            return
        self.boot()
        self.start_containerd()
        self.start_kubelet()

    def crash(self, *, detach_loops: bool = False) -> None:
        """A power cut: all processes and mounts of the node go at once, disks stay attached.

        Loop devices belong to the kernel. They stay, as a network disk would, unless asked.
        """
        process = self._init.process()
        members = {pid for pid in cgroups.pids(self.name)} | self._namespace_members()
        if process is not None:
            process.kill()
        stubborn = kill_all(found for pid in members if (found := Process.of(pid)) is not None)
        if process is not None and not process.wait_gone():
            stubborn.append(process)
        if stubborn:
            raise Problem(f"processes of {self.name} do not end: {[process.pid for process in stubborn]}")
        (self.directory / "pid").unlink(missing_ok=True)
        if detach_loops:
            loops.detach_under(self.directory)

    def _namespace_members(self) -> set[int]:
        handle = Path("/run/netns", network.namespace(self.number))
        try:
            found = os.stat(handle)
        except OSError:
            return set()
        identity = (found.st_dev, found.st_ino)
        return {pid for pid in all_pids() if same_namespace(pid, "net", identity)}

    # The cable.

    def disconnect(self) -> None:
        """Pulls the cable: the node runs on and reaches nobody."""
        network.set_link(self.number, up=False)

    def connect(self) -> None:
        network.set_link(self.number, up=True)

    # Commands inside.

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The argv that runs a command in all the node's namespaces, and in its cgroup."""
        moves = "".join(f"echo $$ > {group}/cgroup.procs; " for group in cgroups.inner_groups(self.name))
        inside = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "-w", "--"]
        return ["sh", "-c", f'{moves}exec "$@"', "sh", *inside, *(str(word) for word in command)]

    def exec(
        self, *command: str | Path, stdin: str | None = None, check: bool = True, timeout: float | None = 60
    ) -> subprocess.CompletedProcess[str]:
        shown = f"on {self.name}: {' '.join(str(word) for word in command)}"
        return run(self.enter(command), stdin=stdin, check=check, timeout=timeout, shown=shown)

    def shell(self, script: str, *, check: bool = True, timeout: float | None = 60) -> str:
        return self.exec("sh", "-ec", script, check=check, timeout=timeout).stdout

    def path(self, inner: str | Path) -> Path:
        """A path of the node as the host can open it (absolute links are not followed inside)."""
        return Path(f"/proc/{self.pid}/root", str(inner).lstrip("/"))

    def mounts(self) -> list[str]:
        """The node's mount table, as /proc/PID/mountinfo shows it."""
        return Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()

    # Its daemons.

    def start_containerd(self) -> None:
        # The socket of a killed one would pass for that of the new one.
        self.path(node_config.CONTAINERD_SOCKET).unlink(missing_ok=True)
        self.start_daemon(CONTAINERD, ["containerd", "--config", self.directory / "containerd.toml"])
        deadline = time.monotonic() + 30
        while self.ctr("version", check=False).returncode != 0:
            self._must_live(CONTAINERD)
            if time.monotonic() > deadline:
                raise Problem(f"containerd on {self.name} does not answer", f"its log: {self.log(CONTAINERD)}")
            time.sleep(0.1)

    def start_kubelet(self) -> None:
        """Starts it anew where it ends before it serves, as a service manager would.

        containerd answers a moment before its half for kubelet does, and kubelet does not wait for that.
        """
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            self._launch_kubelet()
            process = self.daemon(KUBELET)
            if process is not None and process.listens(_KUBELET_PORT):
                return
            time.sleep(0.05)
        self._must_live(KUBELET)

    def _launch_kubelet(self) -> None:
        identity = node_identity(self.name, self.address)
        self.start_daemon(
            KUBELET,
            [
                parts.program("kubelet"),
                f"--config={self.directory / 'kubelet.json'}",
                f"--kubeconfig={identity.kubeconfig}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                "--v=2",
            ],
        )

    def daemon(self, name: str) -> Process | None:
        """containerd, kubelet or another one by its name, if it runs."""
        process = Record(f"{self.name}-{name}").process()
        return process if process is not None and process.alive else None

    def kill_daemon(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self.daemon(name)
        if process is not None:
            process.kill(number)
            if not process.wait_gone():
                raise Problem(f"{name} on {self.name} (pid {process.pid}) does not end")

    def restart_kubelet(self) -> None:
        self.kill_daemon(KUBELET)
        self.start_kubelet()

    def restart_containerd(self) -> None:
        self.kill_daemon(CONTAINERD)
        self.start_containerd()

    def ctr(
        self, *arguments: str | Path, check: bool = True, timeout: float | None = 300
    ) -> subprocess.CompletedProcess[str]:
        return self.exec("ctr", "-n", "k8s.io", *arguments, check=check, timeout=timeout)

    def has_image(self, reference: str) -> bool:
        return reference in self.ctr("images", "list", "-q").stdout.split()

    def log(self, daemon: str) -> Path:
        return LOGS / f"{self.name}-{daemon}.log"

    def _must_live(self, daemon: str) -> None:
        if self.daemon(daemon) is None:
            log = self.log(daemon)
            words = tail(log.read_text(errors="replace"), 12) if log.exists() else ""
            raise Problem(f"{daemon} on {self.name} has ended", f"its log: {log}\n{words}")

    def start_daemon(self, name: str, command: Sequence[str | Path]) -> None:
        """Starts a process of the node, unless the one of this name runs."""
        if self.daemon(name) is not None:
            return
        script = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'
        inner = int(self.exec("sh", "-c", script, "sh", self.log(name), *command).stdout)
        process = self._host_process(inner)
        if process is None:
            raise Problem(f"{name} on {self.name} ended at once", f"its log: {self.log(name)}")
        Record(f"{self.name}-{name}").write(process, [str(word) for word in command])

    def host_pid(self, inner: int) -> int | None:
        """The host's pid of a process that the node knows by another."""
        found = os.stat(f"/proc/{self.pid}/ns/pid")
        for pid in all_pids():
            if not same_namespace(pid, "pid", (found.st_dev, found.st_ino)):
                continue
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            if any(line.startswith("NSpid:") and line.split()[-1] == str(inner) for line in lines):
                return pid
        return None

    def _host_process(self, inner: int) -> Process | None:
        pid = self.host_pid(inner)
        return None if pid is None else Process.of(pid)
