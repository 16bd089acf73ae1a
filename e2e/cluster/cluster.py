"""The whole: what `make up` and `make down` do, and what the suite works with."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from . import certificates, control_plane, host, image, leftovers, network, node_config, packages, parts
from .api import Api
from .commands import run
from .messages import Problem, say, step
from .network import Network
from .node import CONTAINERD, KUBELET, Node
from .paths import KUBECONFIG, LOCK, LOGS, STATE
from .processes import Component

T = TypeVar("T")

DEFAULT_NODES = 2
_SETTINGS = STATE / "cluster.json"


class Cluster:
    """A cluster that is up. Holds no state of its own: `Cluster.attach()` picks it up again anywhere."""

    def __init__(self, addresses: Network, count: int) -> None:
        self.network = addresses
        self.nodes = [Node(number, addresses) for number in range(1, count + 1)]
        self.api = Api(addresses)
        self.kubeconfig = KUBECONFIG
        self.components: dict[str, Component] = control_plane.components(addresses)

    @classmethod
    def attach(cls) -> Cluster:
        cluster = cls._existing()
        if cluster is None:
            raise Problem("there is no test cluster", "start one: make up")
        # Whoever attaches may have a newer checkout than the one that started it.
        parts.ensure()
        return cluster

    @classmethod
    def _existing(cls) -> Cluster | None:
        try:
            settings = json.loads(_SETTINGS.read_text())
        except (OSError, ValueError):
            return None
        return cls(Network(str(settings["network"])), int(settings["nodes"]))

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise Problem(f"there is no {name}", f"there are: {', '.join(node.name for node in self.nodes)}")

    def component(self, name: str) -> Component:
        """etcd, kube-apiserver, kube-controller-manager or kube-scheduler."""
        return self.components[name]

    # Talking to it.

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout: float | None = 120
    ) -> subprocess.CompletedProcess[str]:
        return run(
            [parts.program("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            stdin=stdin,
            check=check,
            timeout=timeout,
            shown=f"kubectl {' '.join(arguments)}",
        )

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def apply(self, manifest: str | object) -> None:
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        self.kubectl("apply", "-f", "-", stdin=text)

    def wait_for(self, what: str, condition: Callable[[], T], timeout: float = 60, pause: float = 0.1) -> T:
        """Waits until a condition holds and returns what it returned."""
        deadline = time.monotonic() + timeout
        while True:
            result = condition()
            if result:
                return result
            if time.monotonic() > deadline:
                raise Problem(f"waited {timeout:.0f} s in vain for {what}", f"logs are in {LOGS}")
            time.sleep(pause)

    # Its health.

    def ailments(self) -> list[str]:
        """What is wrong with it; nothing, if it is up and healthy."""
        found = [f"{name} is not running" for name, component in self.components.items() if not component.alive]
        for node in self.nodes:
            if not node.running:
                found.append(f"{node.name} is not running")
                continue
            ended = [daemon for daemon in (CONTAINERD, KUBELET) if not node.daemon(daemon)]
            found += [f"{daemon} on {node.name} is not running" for daemon in ended]
        if not found and not self.api.ready():
            found.append("the API server is not ready")
        if not found:
            ready = self.ready_nodes()
            found += [f"{node.name} is not Ready" for node in self.nodes if node.name not in ready]
        return found

    @property
    def complete(self) -> bool:
        """Whether all its processes run, healthy or not."""
        daemons = all(node.running and node.daemon(CONTAINERD) and node.daemon(KUBELET) for node in self.nodes)
        return daemons and all(component.alive for component in self.components.values())

    def ready_nodes(self) -> set[str]:
        """Nodes that are Ready in their present boot and take Pods."""
        boots = {node.name: node.boot_id for node in self.nodes if node.running}
        ready = set()
        for item in self.api.get("/api/v1/nodes")["items"]:
            conditions = {entry["type"]: entry["status"] for entry in item["status"].get("conditions", [])}
            taints = {entry["key"] for entry in item["spec"].get("taints", [])}
            name = str(item["metadata"]["name"])
            if conditions.get("Ready") != "True" or "node.kubernetes.io/not-ready" in taints:
                continue
            # After a crash the object still tells of the time before.
            if item["status"]["nodeInfo"]["bootID"] == boots.get(name):
                ready.add(name)
        return ready

    def wait_api_ready(self, timeout: float = 60) -> None:
        def ready() -> bool:
            self.component(control_plane.ETCD).must_live()
            self.component(control_plane.API_SERVER).must_live()
            return self.api.ready()

        self.wait_for("the API server to be ready", ready, timeout, 0.05)

    def wait_nodes_ready(self, timeout: float = 90) -> None:
        wanted = {node.name for node in self.nodes if node.running}
        self.wait_for(f"{', '.join(sorted(wanted))} to be Ready", lambda: wanted <= self.ready_nodes(), timeout, 0.1)


def up(count: int | None = None) -> Cluster:
    """A healthy cluster: the one that is there, or a new one."""
    packages.require_root()
    with _locked():
        leftovers.refuse_foreign()
        packages.ensure()
        parts.ensure()
        existing = Cluster._existing()
        if existing is not None and _usable(existing, count):
            return existing
        if leftovers.found():
            with step("removing what an earlier run left"):
                leftovers.remove()
        wanted = DEFAULT_NODES if count is None else count
        if not 1 <= wanted <= network.MAX_NODES:
            raise Problem(f"NODES={wanted} is not between 1 and {network.MAX_NODES}")
        addresses = Network.from_environment()
        addresses.check_free()
        try:
            return _create(addresses, wanted)
        except Problem:
            say(f"the pieces that did start are still there for inspection, logs in {LOGS}; `make down` removes them")
            raise


def down() -> bool:
    """Everything gone. Says whether there was anything."""
    packages.require_root()
    with _locked():
        leftovers.refuse_foreign()
        if not leftovers.found():
            return False
        leftovers.remove()
        return True


def _usable(existing: Cluster, count: int | None) -> bool:
    ailments = existing.ailments()
    # While everything runs, not being Ready may pass.
    patience = time.monotonic() + 20
    while ailments and existing.complete and time.monotonic() < patience:
        time.sleep(0.5)
        ailments = existing.ailments()
    if ailments:
        say(f"the cluster that is there cannot be used ({'; '.join(ailments)}): starting a new one")
        return False
    if count is not None and count != len(existing.nodes):
        raise Problem(
            f"a cluster of {len(existing.nodes)} nodes is up, and NODES={count} was asked for",
            f"take it down first: make down && make up NODES={count}",
        )
    say("the cluster is already up")
    return True


def _create(addresses: Network, count: int) -> Cluster:
    start = time.monotonic()
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    _SETTINGS.write_text(json.dumps({"network": addresses.prefix, "nodes": count}))
    host.prepare()
    with step("certificates and network"):
        addresses.create(count)
        certificates.create(addresses, count)
        control_plane.write_audit_policy()
    cluster = Cluster(addresses, count)
    pause = image.pause()
    for node in cluster.nodes:
        node_config.write(node.name, node.number, addresses)
    with step(f"control plane, and containerd on {count} nodes"), ThreadPoolExecutor(count + 1) as pool:
        cluster.component(control_plane.ETCD).start()
        cluster.component(control_plane.API_SERVER).start()
        booting = [pool.submit(_boot, node, pause) for node in cluster.nodes]
        cluster.wait_api_ready()
        cluster.component(control_plane.CONTROLLER_MANAGER).start()
        cluster.component(control_plane.SCHEDULER).start()
        for boot in booting:
            boot.result()
    with step("kubelets, until all nodes are Ready"):
        for node in cluster.nodes:
            node.start_kubelet()
        cluster.wait_nodes_ready()
        cluster.wait_for("the default service account", lambda: _has_default_account(cluster))
        for component in cluster.components.values():
            component.must_live()
    say(f"the cluster is up after {time.monotonic() - start:.0f} s: {', '.join(node.name for node in cluster.nodes)}")
    return cluster


def _boot(node: Node, pause: image.Image) -> None:
    node.boot()
    node.start_containerd()
    image.load(node, pause)


def _has_default_account(cluster: Cluster) -> bool:
    accounts = cluster.api.get("/api/v1/namespaces/default/serviceaccounts")["items"]
    return any(account["metadata"]["name"] == "default" for account in accounts)


@contextmanager
def _locked() -> Iterator[None]:
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another `make up` or `make down` is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), False)
        yield
