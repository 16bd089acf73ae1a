"""moor's own processes: found in the nodes, killed by pid, and back again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ApiError, Cluster, Node, Process, cgroups
from e2e.cluster.namespace import NAMESPACE

from .objects import Object
from .trace import Kill

CONTROLLER, AGENT, DRIVER = "controller", "agent", "loop-driver"
ROLES = (CONTROLLER, AGENT, DRIVER)
LEASE = "moor-controller"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Running:
    """One moor process in a Pod."""

    role: str
    node: str
    pod: str
    process: Process

    def __str__(self) -> str:
        return f"{self.role} of {self.node} (pod {self.pod}, pid {self.process.pid})"

    def kill(self, number: int = signal.SIGKILL) -> Kill:
        self.process.kill(number)
        return Kill(int(time.time() * 1000), self.role, self.node)


class Pods:
    """Everything that runs in moor's namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # Processes.

    def running(self, role: str, node: str | None = None) -> list[Running]:
        return [found for each in self._nodes(node) for found in _on(each) if found.role == role]

    def one(self, role: str, node: str) -> Running:
        """The process of a role on a node, which is up or comes up."""
        return self._cluster.wait_for(f"a {role} on {node}", lambda: self.running(role, node), 30)[0]

    def _nodes(self, name: str | None) -> list[Node]:
        return self._cluster.nodes if name is None else [self._cluster.node(name)]

    # Leadership.

    def leader_name(self) -> str:
        """The Pod that holds the controllers' Lease."""
        lease = self._cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}")
        return str(lease["spec"].get("holderIdentity") or "")

    def leader(self) -> Running:
        def find() -> Running | None:
            name = self.leader_name()
            return next((found for found in self.running(CONTROLLER) if found.pod == name), None)

        found = self._cluster.wait_for("a controller that leads", find, 40)
        assert found is not None
        return found

    # Pods.

    def objects(self, role: str | None = None) -> list[Object]:
        items: list[Object] = self._cluster.api.get(_PODS)["items"]
        if role is None:
            return items
        return [item for item in items if item["metadata"]["labels"].get("app.kubernetes.io/component") == role]

    def image_with_tools(self) -> str:
        """The loop driver's image: it is on the nodes, and has a shell, Debian's tools and moor in it."""
        return str(self.objects(DRIVER)[0]["spec"]["containers"][0]["image"])

    def await_ready(self, timeout: float = 90) -> None:
        """Until every Pod is Ready and as many are there as shall be."""
        self._cluster.wait_for("moor's Pods to be Ready", lambda: not self.ailing(), timeout)

    def ailing(self) -> list[str]:
        wanted = {CONTROLLER: 2, AGENT: len(self._cluster.nodes), DRIVER: len(self._cluster.nodes)}
        found = []
        for role, count in wanted.items():
            pods = self.objects(role)
            found += [f"{item['metadata']['name']} is not ready" for item in pods if not _is_ready(item)]
            if len(pods) != count:
                found.append(f"{len(pods)} instead of {count} Pods of the {role}")
        return found

    def delete(self, chosen: Callable[[Object], bool]) -> list[str]:
        """Deletes Pods in order and waits for their successors."""
        names = self.end(chosen)
        self.await_ready()
        return names

    def end(self, chosen: Callable[[Object], bool]) -> list[str]:
        """Deletes Pods in order and waits for their end."""
        names = [str(item["metadata"]["name"]) for item in self.objects() if chosen(item)]
        for name in names:
            self._cluster.api.delete(f"{_PODS}/{name}")
        gone = set(names)
        self._cluster.wait_for(
            f"{', '.join(names)} to end",
            lambda: not gone & {str(item["metadata"]["name"]) for item in self.objects()},
            60,
        )
        return names

    def ask_to_go(self, name: str) -> None:
        """Deletes one Pod in order and does not wait. It may have gone already."""
        try:
            self._cluster.api.delete(f"{_PODS}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise

    def renew_restarted(self) -> list[str]:
        """Replaces Pods whose containers were killed, for kubelet starts a container later each time."""
        return self.delete(_was_restarted)

    def logs(self, role: str, lines: int | None = None, *, previous: bool = False, seconds: int = 0) -> str:
        """What the Pods of a role have written, marked with their names; of the last so many seconds, or all."""
        arguments = ["logs", f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/component={role}", "--prefix"]
        arguments.append(f"--tail={-1 if lines is None else lines}")
        if previous:
            arguments.append("--previous")
        if seconds:
            arguments.append(f"--since={seconds}s")
        return self._cluster.kubectl(*arguments, check=False).stdout


def _on(node: Node) -> list[Running]:
    found = []
    for pid in cgroups.pids(node.name):
        words = _words(pid, "cmdline")
        if len(words) < 2 or Path(words[0]).name != "moor" or words[1] not in ROLES:
            continue
        process = Process.of(pid)
        if process is not None and process.alive:
            settings = dict(word.partition("=")[::2] for word in _words(pid, "environ"))
            pod = settings.get("POD_NAME") or settings.get("HOSTNAME", "")
            found.append(Running(words[1], node.name, pod, process))
    return found


def _words(pid: int, file: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _is_ready(item: Object) -> bool:
    conditions = {entry["type"]: entry["status"] for entry in item["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in item["metadata"]


def _was_restarted(item: Object) -> bool:
    return any(status["restartCount"] > 0 for status in item["status"].get("containerStatuses", []))
